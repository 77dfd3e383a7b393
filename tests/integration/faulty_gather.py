"""Has a token be one that no embedding has, in the very gather of embeddings on a GPU.

What is forked with this as its `first` module does so for the token `VARIABLE` names: the model is
asked for a row far beyond its table, by the kernel that reads it, as it is by a broken kernel or a
bit that flipped. CUDA ends that with a device-side assertion, and the GPU is lost to the process.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from providers.local.torch_engine.model.decoder import Decoder

VARIABLE = "LLAMA_COMPAT_TESTS_FAULTY_TOKEN"

BEYOND = 2**30
"""A row that no table has, and no memory."""

_token = int(os.environ[VARIABLE])
_hidden_states = Decoder.hidden_states


def _with_fault(decoder: Decoder, token_ids: torch.Tensor, *more: Any) -> torch.Tensor:
    if token_ids.device.type == "cuda":
        token_ids = token_ids.masked_fill(token_ids == _token, BEYOND)
    return _hidden_states(decoder, token_ids, *more)


Decoder.hidden_states = _with_fault  # type: ignore[assignment, method-assign]
