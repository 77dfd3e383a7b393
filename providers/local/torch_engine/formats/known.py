"""Which format the weights in a model folder have, by its config's `quantization_config`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from providers.local.models.quantized import method_of, settings_of
from providers.local.torch_engine.formats.awq import AWQ
from providers.local.torch_engine.formats.bitsandbytes import BITSANDBYTES
from providers.local.torch_engine.formats.compressed_tensors import COMPRESSED_TENSORS
from providers.local.torch_engine.formats.fp8 import FP8
from providers.local.torch_engine.formats.gptq import GPTQ
from providers.local.torch_engine.formats.mxfp4 import MXFP4
from providers.local.torch_engine.formats.stored_format import (
    Settings,
    StoredFormat,
    UnreadableError,
)

FORMATS: Mapping[str, StoredFormat] = {
    "awq": AWQ,
    "bitsandbytes": BITSANDBYTES,
    "compressed-tensors": COMPRESSED_TENSORS,
    "fbgemm_fp8": FP8,
    "fp8": FP8,
    "gptq": GPTQ,
    "mxfp4": MXFP4,
}
"""By what a config calls them as `quant_method`."""


class Quantized(NamedTuple):
    """How the weights of a model are quantized.

    Attributes:
        stored: their format.
        settings: of it.
    """

    stored: StoredFormat
    settings: Settings


def quantized_in(folder: Path) -> Quantized | None:
    """How the weights of the model in `folder` are quantized; None if they are not.

    Raises:
        UnreadableError: in a way that can't be read here.
        OSError: there is no config.
        ValueError: it is no JSON.
    """
    settings = settings_of(json.loads((folder / "config.json").read_text("utf-8")))
    if settings is None:
        return None
    method = method_of(settings)
    if method not in FORMATS:
        raise UnreadableError(
            f"its weights are quantized by '{method}', which is none of {', '.join(FORMATS)}."
        )
    reason = FORMATS[method].why_not(settings)
    if reason is not None:
        raise UnreadableError(f"{reason}.")
    return Quantized(FORMATS[method], settings)
