"""The settings of `local::torch`: read from the template, and asked by whoever acts on one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    PositiveInt,
    StringConstraints,
    Tag,
)

from llama_compat.settings.model import TemplateSettings
from providers.local.provider import LocalConfig, enough_for_each

CUDA_BYTES = 256 * 2**20
"""What a model takes on a GPU beside weights and cache, about: activations, graphs, workspaces."""


Quantization = Literal["auto", "none", "float16", "int8", "int4", "fp8"]

PACKED = frozenset({"int8", "int4"})
"""Weights that take long to make, and are kept beside the model."""


class AheadConfig(TemplateSettings):
    """What goes ahead of a model and guesses its next tokens."""

    tokens: Annotated[int, Field(ge=1, le=7)] = 4
    """How many it guesses at most, of one request; beside others there is room for fewer."""


class ApartConfig(AheadConfig):
    """What lies in a folder of its own."""

    quantization: Quantization = "auto"
    """Of its weights, as for the model."""


class DraftConfig(ApartConfig):
    """A smaller model that goes ahead of those of the provider."""

    draft: Annotated[str, StringConstraints(min_length=1)]
    """Which: a name as `provider_model` has it, of a model with the same tokens. It may be the
    model itself, in fewer bits."""


class EagleConfig(ApartConfig):
    """An EAGLE-3 head, which guesses by what goes on inside the model that it was trained for."""

    eagle: Annotated[str, StringConstraints(min_length=1)]
    """Which: `hf:ORG/NAME` once it is pulled, or the path of its folder."""


def _is_asked_for(value: object) -> object:
    if value is not True:
        raise ValueError(
            "write 'mtp: true' for the head in the model's own files; without it 'speculation' is"
            " 'ngram' or 'none'"
        )
    return value


class MTPConfig(AheadConfig):
    """The head that a model brings along in its own files (MTP)."""

    mtp: Annotated[Literal[True], BeforeValidator(_is_asked_for)]
    """`true`."""

    tokens: Annotated[int, Field(ge=1, le=7)] = 2
    """How many it guesses at most, of one request: it was trained for one, or for as many as the
    files have such layers, and of those behind that fewer are right; beside other requests there is
    room for fewer."""


def _kind_of_speculation(given: object) -> str | None:
    """Which of `Speculation` something is meant to be; None for a mapping of no kind."""
    kinds = {"draft": DraftConfig, "eagle": EagleConfig, "mtp": MTPConfig}
    if isinstance(given, AheadConfig):
        return type(given).__name__
    if not isinstance(given, dict):
        return "word"
    return next((kind.__name__ for name, kind in kinds.items() if name in given), None)


Speculation = Annotated[
    Annotated[Literal["ngram", "none"], Tag("word")]
    | Annotated[DraftConfig, Tag("DraftConfig")]
    | Annotated[EagleConfig, Tag("EagleConfig")]
    | Annotated[MTPConfig, Tag("MTPConfig")],
    Discriminator(
        _kind_of_speculation,
        custom_error_type="speculation_kind",
        custom_error_message=(
            "this says nothing of what guesses: expected 'ngram', 'none', or one of the keys"
            " 'draft', 'eagle' and 'mtp'"
        ),
    ),
]
"""What guesses tokens: a word, or by its key what goes ahead."""


class TorchConfig(LocalConfig):
    """Where and how the models run."""

    gone: ClassVar[Mapping[str, str]] = {
        "prompt_attention": "leave it out, as 'kernels' chooses what computes prompts too"
    }

    device: Annotated[str, StringConstraints(pattern=r"^(auto|cpu|cuda(:\d+)?)$")] = "auto"
    """`auto` (CUDA where there is one, else CPU), `cpu`, `cuda` or `cuda:N`."""

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """`auto` is float32 on the CPU and bfloat16 on CUDA."""

    quantization: Quantization = "auto"
    """Of the weights. On CPUs `float16` reads half as much memory and changes next to nothing,
    `int8` a quarter, and makes the model say some things otherwise, `int4` less than a sixth, and
    makes it say many things otherwise, unless its weights have 4 bits in its files (AWQ, GPTQ,
    compressed-tensors). `auto` is `int8` on CPUs that can, `int4` for such files, else `float16`,
    unless `dtype` is set. On GPUs with CUDA capability 8.9 or more `fp8` reads half as much memory
    as bfloat16, and makes the model say some things otherwise, unless its weights are FP8 in its
    files with a scale for each output or weight; for such files `auto` is `fp8`, unless `dtype` is
    set, else `none`."""

    kernels: Literal["auto", "triton", "llvm", "sdpa"] = "auto"
    """What computes attention and the small operations: Triton kernels, on CUDA alone, kernels
    compiled by LLVM, on x86 CPUs alone, or PyTorch's own operations. `auto` tries the kernels
    against these when the model is loaded, and goes on without them, with a warning, if the results
    differ."""

    cuda_graphs: bool = True
    """Whether the kernels of a step in which all sequences decode are launched as one graph."""

    overlap: bool = True
    """Whether, with Triton kernels, a step is launched before the tokens of the one before it are
    read, so that the GPU does not wait for the host."""

    threads: PositiveInt | None = None
    """CPU threads of one operation, in place of torch's own choice and of trying now and then
    whether fewer compute a step sooner, as they do beside other busy processes. They are the
    process's, whose models take turns with them, a step at a time."""

    max_sequences: PositiveInt = 32
    """How many requests are generated at the same time; the others wait."""

    max_waiting: PositiveInt = 256
    """How many requests may wait; more are answered with 429."""

    max_step_tokens: Annotated[PositiveInt | None, AfterValidator(enough_for_each)] = None
    """Tokens of prompts and replies that one step computes; 128 on the CPU, 2048 on CUDA, and
    `max_sequences` at least."""

    prompt_slowdown: Annotated[float, Field(gt=1)] = 2.0
    """How many times as long as usual the next token of others' replies may take while a prompt
    comes in that is longer than a step: more lets such prompts in sooner."""

    kv_cache: Annotated[float, Field(gt=0)] = 0.5
    """The KV cache's memory: up to 1 a share of what is free, more than 1 a number of bytes. It
    never takes more than `max_sequences` of the longest requests need."""

    kv_cache_dtype: Literal["auto", "int8", "fp8"] = "auto"
    """What the KV cache's numbers are: `auto` is the dtype. On CPUs `int8` takes a bit more than a
    quarter of the memory, with a scale for each key and value of a head, and changes what models
    say a little. On GPUs with CUDA capability 8.9 or more `fp8` takes half, without scales, and
    changes it more."""

    speculation: Speculation = "ngram"
    """Whether tokens are guessed, and several of them computed in one step where few requests run:
    `ngram` guesses from what a request has said and heard before, a `draft` is a smaller model that
    goes ahead, `eagle` a head that was trained for the model (EAGLE-3), `mtp: true` the one that
    the model's own files have (Qwen3-Next, Qwen 3.5, DeepSeek V3, GLM 4.5). Each does where that
    pays, which it finds out by itself. A reply is the same with it and without. On a GPU in Triton
    kernels there is none."""

    image_cache: Annotated[int, Field(ge=0)] = 256 * 2**20
    """Bytes of main memory in which it is kept what a model has seen in pictures and heard in
    audio, so that it takes each of them in once: in a conversation they come with every turn."""

    prefix_cache: bool = True
    """Whether what was computed of a prompt is kept for others that begin the same."""
