"""The settings of `local::llama_cpp`: read from the template, and asked by whoever acts on one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, PositiveInt

from llama_compat.settings.model import TemplateSettings
from providers.local.provider import LocalConfig, enough_for_each


class LoraConfig(TemplateSettings):
    """A LoRA adapter."""

    path: Annotated[Path, AfterValidator(Path.expanduser)]
    """A GGUF file with an adapter for the model."""

    scale: float = 1.0
    """How strong it is; 0 is off."""


class LlamaCppConfig(LocalConfig):
    """Where and how the models run."""

    n_gpu_layers: Annotated[int, Field(ge=-1)] = -1
    """Layers that go to the GPU, if llama-cpp-python was built for one; -1 for all."""

    threads: PositiveInt | None = None
    """CPU threads of a model, in place of the cores that the process may use and of trying now and
    then whether fewer compute a step sooner, as they do beside other busy processes."""

    max_sequences: Annotated[PositiveInt, Field(le=256)] = 8
    """How many requests are generated at the same time; the others wait."""

    max_waiting: PositiveInt = 256
    """How many requests may wait; more are answered with 429."""

    max_step_tokens: Annotated[PositiveInt | None, AfterValidator(enough_for_each)] = None
    """Tokens of prompts and replies that one step computes; 128 on the CPU, 512 on a GPU."""

    kv_cache: Annotated[float, Field(gt=0)] = 0.5
    """The KV cache's memory: up to 1 a share of what is free, more than 1 a number of bytes. It
    never takes more than `max_sequences` of the longest requests need."""

    prefix_cache: bool = True
    """Whether what was computed of a prompt is kept for others that begin the same."""

    mmproj: str | None = None
    """What makes embeddings of pictures and of audio for the models: a path, or
    `hf:ORG/NAME:FILE.gguf`. Without it, that is taken which lies beside a model or was pulled with
    it; with `none` they take text alone."""

    image_cache: Annotated[int, Field(ge=0)] = 256 * 2**20
    """Bytes of main memory in which it is kept what models see in pictures and hear in audio, so
    that it is made once of each: in a conversation they come with every turn."""

    lora: tuple[LoraConfig, ...] = ()
    """LoRA adapters that are applied to the models."""
