"""What a step needs from the host, brought to the device in one copy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import torch

from providers.local.torch_engine.kernels.places import Places, PromptSpan
from providers.local.torch_engine.kernels.staging import Staged
from providers.local.torch_engine.model_runner import flattened
from providers.local.torch_engine.scheduling.step import Chunk


class Inputs(NamedTuple):
    """A step on the device; all are views of one buffer that the next step writes over.

    `token_ids` is `[tokens]`, `rows` those of them whose logits are wanted, both int32; `rows` is
    None if all are.
    """

    token_ids: torch.Tensor
    rows: torch.Tensor | None
    places: Places


class InputBuffer:
    """Buffers of a step's inputs, on the host and at an address on the device that stays.

    Args:
        tokens: how many a step has at most.
        sequences: likewise.
        blocks: how many of the cache's blocks a sequence has at most.
        block_size: tokens in each.
        device: where the steps are computed.
    """

    def __init__(
        self, tokens: int, sequences: int, blocks: int, block_size: int, device: torch.device
    ) -> None:
        size = 4 * tokens + 2 * sequences + 1 + blocks * sequences
        self._blocks = blocks
        self._block_size = block_size
        self._staged = Staged(size, dtype=torch.int32, device=device)

    def load(self, chunks: Sequence[Chunk], *, padded: int = 0) -> Inputs:
        """The inputs of a step that computes `chunks`.

        Args:
            chunks: those with a single token first.
            padded: if there are fewer chunks, of a token each, so many rows; the others compute
                something that is seen nowhere.
        """
        flat = flattened(chunks, self._block_size)
        given = len(flat.token_ids)
        tokens, sequences = max(padded, given), max(padded, len(chunks))
        fill, empty = tokens - given, sequences - len(chunks)
        lengths = [each.sequence.computed + each.tokens for each in chunks]
        starts = list(accumulate((each.tokens for each in chunks), initial=0))
        numbers, at = self._staged.to_write().numpy(), 0
        for values, length in (
            (flat.token_ids + fill * [0], tokens),
            (flat.positions + fill * [0], tokens),
            (flat.slots + fill * [-1], tokens),
            (flat.rows, tokens),
            (lengths + empty * [0], sequences),
            ([*starts, *range(given + 1, given + 1 + empty)], sequences + 1),
        ):
            numbers[at : at + len(values)] = values
            at += length
        counts = [-(-length // self._block_size) for length in lengths]
        widest = max(counts, default=0)
        tables = numbers[at : at + widest * sequences].reshape(widest, sequences)
        for column, (chunk, count) in enumerate(zip(chunks, counts, strict=True)):
            tables[:count, column] = chunk.sequence.blocks[:count]
        told = self._staged.send(at + widest * sequences)
        return self._views(told, chunks, tokens, sequences, None if padded else len(flat.rows))

    def _views(
        self,
        told: torch.Tensor,
        chunks: Sequence[Chunk],
        tokens: int,
        sequences: int,
        wanted: int | None,
    ) -> Inputs:
        parts = told[: 4 * tokens].view(4, tokens)
        at = 4 * tokens
        lengths = told[at : at + sequences]
        at += sequences
        starts = told[at : at + sequences + 1]
        at += sequences + 1
        tables = told[at : at + self._blocks * sequences].view(self._blocks, sequences)
        decoding = 0
        while decoding < len(chunks) and chunks[decoding].tokens == 1:
            decoding += 1
        prompts = [
            PromptSpan(each.tokens, each.sequence.computed + each.tokens)
            for each in chunks[decoding:]
        ]
        places = Places(parts[1], parts[2], lengths, starts, tables, prompts)
        rows = None if wanted is None or wanted == tokens else parts[3, :wanted]
        return Inputs(parts[0], rows, places)
