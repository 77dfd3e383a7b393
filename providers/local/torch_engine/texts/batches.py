"""Which texts a model runs at once."""

from __future__ import annotations

from collections.abc import Sequence

BATCH_TOKENS = {"cpu": 512, "cuda": 4096}
"""Tokens that are run at once, padding included; a CPU's models wait for each other meanwhile."""


def batches(lengths: Sequence[int], tokens: int) -> list[list[int]]:
    """The indices of texts that are run together: of similar length, so that padding is short.

    Together they have at most so many `tokens`, with padding, or are a single one.
    """
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        # They get longer, so this one is the longest of its batch.
        if batches and (len(batches[-1]) + 1) * lengths[index] <= tokens:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches
