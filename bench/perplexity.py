"""What a model says of a fixed text: how far that is from what it says in float32."""

from __future__ import annotations

from typing import Any

import torch

from llama_compat.types import SamplingParams
from providers.local.block_manager import BLOCK_SIZE
from providers.local.engine import Generation
from providers.local.torch_engine.cpu_thread import on_cpu_thread
from providers.local.torch_engine.loading.loader import LoadedModel
from providers.local.torch_engine.scheduling.sequence import TorchSequence
from providers.local.torch_engine.scheduling.step import Chunk

Windows = list[tuple[int, ...]]
"""Tokens of a text, in pieces of one length that are read apart."""


def windows_of(loaded: LoadedModel, text: str, size: int, tokens: int) -> Windows:
    """The first `tokens` of a text in windows of `size`, as many as are whole."""
    token_ids = loaded.model.tokenizer.encode(text, add_special_tokens=False)[:tokens]
    starts = range(0, len(token_ids) - size + 1, size)
    return [tuple(token_ids[start : start + size]) for start in starts]


def logits_of(loaded: LoadedModel, windows: Windows) -> torch.Tensor:
    """The logits after every token: `[windows, size, vocab_size]`."""
    return on_cpu_thread(_logits_of, loaded, windows)


def perplexity(logits: torch.Tensor, windows: Windows) -> float:
    """Of the tokens of each window but the first."""
    following = torch.tensor(windows)[:, 1:, None]
    logprobs = logits[:, :-1].log_softmax(-1).gather(2, following)
    return float((-logprobs.mean()).exp())


def changes(logits: torch.Tensor, exact: torch.Tensor, windows: Windows) -> dict[str, Any]:
    """What became of a text: by how much its perplexity rises, and how often the likeliest next
    token is still the same."""
    rise = perplexity(logits, windows) / perplexity(exact, windows) - 1
    same = (logits.argmax(-1) == exact.argmax(-1)).float().mean()
    return {"perplexity_rises_by": round(rise, 5), "same_likeliest_token": round(float(same), 4)}


@torch.inference_mode()  # type: ignore[untyped-decorator]
def _logits_of(loaded: LoadedModel, windows: Windows) -> torch.Tensor:
    made = []
    for token_ids in windows:
        generation = Generation(token_ids, SamplingParams(), 1, prompt_logprobs=True)
        sequence = TorchSequence(generation, lambda _: None)
        sequence.blocks = list(range(-(-len(token_ids) // BLOCK_SIZE)))
        made.append(loaded.runner.forward([Chunk(sequence, len(token_ids))]))
    return torch.stack(made)
