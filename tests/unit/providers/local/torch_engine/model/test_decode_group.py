"""Sequences that decode, attended to together: the same as one after the other."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")

from providers.local.torch_engine.model.attention import Scores, SequenceSpan, attend
from providers.local.torch_engine.model.decode_group import LONGEST, DecodeGroup, grouped

BLOCK_SIZE = 16
HEADS, KV_HEADS, HEAD_DIM = 6, 2, 8

Lengths = list[tuple[int, int]]
"""New tokens of each sequence, and how many there are with them."""


class Case:
    """Random queries, and a cache in which nothing but the sequences' own tokens is a number."""

    def __init__(self, sequences: Lengths) -> None:
        chosen = random.Random(0)
        needed = [-(-length // BLOCK_SIZE) for _, length in sequences]
        free = chosen.sample(range(sum(needed) + 3), sum(needed))
        self.cached = torch.full(
            (BLOCK_SIZE * (sum(needed) + 3), 2 * KV_HEADS, HEAD_DIM), torch.nan
        )
        self.spans, start = [], 0
        for (new, length), count in zip(sequences, needed, strict=True):
            blocks = [free.pop() for _ in range(count)]
            for place in range(length):
                slot = blocks[place // BLOCK_SIZE] * BLOCK_SIZE + place % BLOCK_SIZE
                self.cached[slot] = torch.randn(2 * KV_HEADS, HEAD_DIM)
            cpu = torch.device("cpu")
            self.spans.append(SequenceSpan(start, new, length, blocks, BLOCK_SIZE, cpu))
            start += new
        self.queries = torch.randn(start, HEADS, HEAD_DIM)

    def groups(self, room: int = 4096) -> list[list[int]]:
        """The rows of those that are together."""
        gathered = torch.full((room, 2 * KV_HEADS, HEAD_DIM), torch.nan)
        self.together = grouped(self.spans, BLOCK_SIZE, gathered)
        rows = torch.arange(len(self.queries))
        return [rows[each.rows].tolist() for each in self.together if isinstance(each, DecodeGroup)]

    def error(self, window: int | None) -> float:
        """Of the groups, beside every sequence alone."""
        expected, found = (
            attend(self.queries, self.cached, spans, Scores(0.3, window))
            for spans in (self.spans, self.together)
        )
        return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("window", [None, 1, 20, 1000])
@pytest.mark.parametrize(
    ("sequences", "groups"),
    [
        ([(1, 1), (1, 1)], [[0, 1]]),
        ([(1, 40), (1, 33), (1, 64), (1, 50)], [[0, 1, 2, 3]]),
        # The long ones with the long ones, in the step's order.
        ([(1, 9), (1, 100), (1, 7), (1, 60), (1, 5)], [[1, 3], [0, 2, 4]]),
        # Prompts, and what is like no other, by themselves.
        ([(1, 40), (5, 5), (1, 30), (30, 90), (1, 3)], [[0, 6]]),
        ([(1, LONGEST), (1, LONGEST + 1), (1, LONGEST - 1), (1, 900)], [[0, 2]]),
    ],
)
def test_groups_are_attended_to_as_each_alone(
    sequences: Lengths, groups: list[list[int]], window: int | None
) -> None:
    case = Case(sequences)
    assert case.groups() == groups
    assert case.error(window) < 1e-6


def test_no_group_has_more_than_there_is_room_for() -> None:
    case = Case([(1, 60)] * 7)
    assert case.groups(room=200) == [[0, 1, 2], [3, 4, 5]]
    assert case.error(None) < 1e-6


def test_a_group_is_of_similar_length() -> None:
    case = Case([(1, 200), (1, 100), (1, 99), (1, 50), (1, 49)])
    assert case.groups() == [[0, 1], [2, 3]]
