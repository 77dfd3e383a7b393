"""What a model will be on this machine, told before its weights are fetched: how large it is, what
would run it and how, and whether it fits.

The engines themselves say it, by what is there already: settings, and the headers of the weights.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from providers.base import ProviderStartError
from providers.local.memory import available_memory
from providers.local.models.gguf_header import GGUFHeader
from providers.local.models.quantized import config_in, settings_of
from providers.requirements import require

_TORCH = ("torch", "transformers", "safetensors")
_LLAMA_CPP = ("llama_cpp",)
_QUANTIZED = re.compile(r"(?:[.-])((?:I?Q\d|B?F16|F32|MXFP4)[A-Z0-9_]*)", re.IGNORECASE)
"""How the name of a GGUF says in what numbers it is."""


class Need(NamedTuple):
    """What a model would take in one kind of numbers.

    Attributes:
        device: where: `cpu`, `cuda:0`.
        numbers: in which, such as `int8`; None where nobody says.
        bytes: of memory, while it is loaded and with a cache for its requests.
        free: bytes that are free there now; None if nobody knows.
        usual: whether it runs so where a template says nothing else.
    """

    device: str
    numbers: str | None
    bytes: int
    free: int | None
    usual: bool

    @property
    def fits(self) -> bool | None:
        """Whether there is room for it now; None if nobody knows."""
        return None if self.free is None else self.bytes <= self.free


@dataclass(frozen=True)
class ModelForecast:
    """What a person wants to know of a model first.

    Attributes:
        name: as `pull` takes it.
        size: bytes that are fetched.
        parameters: how many numbers its weights have; None if that is not known.
        context: how many tokens it holds; None where its files don't say.
        engine: the provider that would run it, `local::torch` or `local::llama_cpp`; None if
            neither can.
        how: how that runs it, or why it can't; a part of a sentence.
        needs: what it takes, in each kind of numbers that this machine can; empty where the
            engine is not installed.
    """

    name: str
    size: int
    parameters: int | None
    context: int | None
    engine: str | None
    how: str
    needs: tuple[Need, ...]


Announce = Callable[[ModelForecast], None]
"""Is told what is known of a model before its weights are fetched."""


class WeightShapes(NamedTuple):
    """What the headers of weights say.

    Attributes:
        shapes: the shape of each tensor, by name.
    """

    shapes: Mapping[str, Sequence[int]]

    @property
    def parameters(self) -> int:
        """How many numbers there are."""
        from math import prod

        return sum(prod(shape) for shape in self.shapes.values())


def of_folder(name: str, folder: Path, size: int, weights: WeightShapes | None) -> ModelForecast:
    """Of a model in Hugging Face's layout.

    Args:
        name: as `pull` takes it.
        folder: where its settings are, without its weights.
        size: bytes that are fetched.
        weights: what their headers say; None if they could not be asked.
    """
    engine: str | None = "local::torch"
    needs: tuple[Need, ...] = ()
    try:
        require(_TORCH, "to run it", "torch")
        how, needs = _in_torch(name, folder, weights)
    except ProviderStartError as error:
        how = f"it can't yet: {error}"
    except _UnknownError as error:
        engine, how = None, str(error)
    # Of numbers that are packed the shapes do not say how many there are.
    is_packed = settings_of(config_in(folder)) is not None
    parameters = None if weights is None or is_packed else weights.parameters
    return ModelForecast(name, size, parameters, context_of(folder), engine, how, needs)


def of_gguf(name: str, file: str, size: int, headers: Sequence[GGUFHeader]) -> ModelForecast:
    """Of a GGUF file.

    Args:
        name: as `pull` takes it.
        file: its name, which may say its numbers.
        size: bytes that are fetched.
        headers: of all its parts; none where they could not be asked.
    """
    needs: tuple[Need, ...] = ()
    how = "in batches"
    keys = headers[0].keys if headers else {}
    try:
        require(_LLAMA_CPP, "to run it", "llama-cpp")
        if headers:
            needs = tuple(_in_llama_cpp(keys, file, size))
    except ProviderStartError as error:
        how = f"it can't yet: {error}"
    parameters = sum(each.parameters for each in headers) or None
    return ModelForecast(name, size, parameters, context_in(keys), "local::llama_cpp", how, needs)


def context_of(folder: Path) -> int | None:
    """How many tokens a model in Hugging Face's layout holds; None where it does not say."""
    config = config_in(folder)
    inner = config.get("text_config")
    for holder in (config, inner if isinstance(inner, dict) else {}):
        found = holder.get("max_position_embeddings")
        if found:
            return found if isinstance(found, int) else None
    return None


def context_in(keys: Mapping[str, Any]) -> int | None:
    """The same of a GGUF's keys."""
    found = keys.get(f"{keys.get('general.architecture')}.context_length")
    return found if isinstance(found, int) else None


# Engines ------------------------------------------------------------------------------------------


class _UnknownError(ValueError):
    """No engine runs it; the message is a part of a sentence."""


def _in_torch(
    name: str, folder: Path, weights: WeightShapes | None
) -> tuple[str, tuple[Need, ...]]:
    from transformers import AutoConfig

    from providers.local.torch_engine.config import TorchConfig
    from providers.local.torch_engine.devices import choose_device, choose_dtype
    from providers.local.torch_engine.formats.known import quantized_in
    from providers.local.torch_engine.formats.stored_format import UnreadableError
    from providers.local.torch_engine.kinds import is_embedder, is_reranker
    from providers.local.torch_engine.loading import footprint
    from providers.local.torch_engine.loading.architectures import why_not
    from providers.local.torch_engine.loading.loader import NEEDS, chosen_quantization
    from providers.local.torch_engine.loading.paged import free_memory

    try:
        architecture = AutoConfig.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # of a damaged file, whatever its reader stumbles over
        line = next(iter(str(error).splitlines()), type(error).__name__)
        raise _UnknownError(f"its config.json can't be read: {line}") from error
    try:
        quantized = quantized_in(folder)
    except UnreadableError as error:
        raise _UnknownError(str(error).removesuffix(".")) from error
    generates, numbers = False, ["none"]
    if is_reranker(folder):
        how = "in batches; it ranks documents"
    elif is_embedder(folder):
        how = "in batches; it embeds texts"
    else:
        generates, reason = True, why_not(architecture)
        how = "in batches" if reason is None else f"one request at a time, since {reason}"
        if reason is None:
            numbers = [*NEEDS, "none"]
    if weights is None or quantized is not None:
        return how, ()
    config = TorchConfig()
    device = choose_device(config.device)
    dtype = choose_dtype(config.dtype, device)
    usual = chosen_quantization(name, folder, config, device, dtype) if len(numbers) > 1 else "none"
    free = free_memory(device)
    counts = footprint.counts_of({name: math.prod(shape) for name, shape in weights.shapes.items()})
    needs = []
    for each in numbers:
        set_so = config.model_copy(update={"quantization": each})
        try:
            taken = footprint.footprint(
                name, folder, set_so, None, generates=generates, counts=counts
            )
        except ProviderStartError:
            continue  # not on this machine
        [(place, count)] = taken.needs.items()
        words = str(dtype).removeprefix("torch.") if each == "none" else each
        needs.append(Need(place, words, count, free, each == usual))
    return how, tuple(sorted(needs, key=lambda need: not need.usual))


def _in_llama_cpp(keys: Mapping[str, Any], file: str, size: int) -> Iterator[Need]:
    from providers.local.llama_cpp_engine.config import LlamaCppConfig
    from providers.local.llama_cpp_engine.provider import footprint_of

    said = _QUANTIZED.search(file)
    numbers = said[1].upper() if said else None
    for place, count in footprint_of(keys, size, LlamaCppConfig(), None).needs.items():
        yield Need(place, numbers, count, available_memory() if place == "cpu" else None, True)
