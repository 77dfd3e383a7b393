"""What a step needs from the host: every number in its place on the device."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("transformers", reason="needs the extra 'torch'")

from llama_compat.types import SamplingParams
from providers.local.engine import Generation
from providers.local.torch_engine.kernels.inputs import InputBuffer
from providers.local.torch_engine.scheduling.sequence import TorchSequence
from providers.local.torch_engine.scheduling.step import Chunk


def chunk(tokens: range, computed: int, count: int, blocks: list[int]) -> Chunk:
    sequence = TorchSequence(Generation(tuple(tokens), SamplingParams(), 9), lambda _: None)
    sequence.computed, sequence.blocks = computed, blocks
    return Chunk(sequence, count)


DECODING = [
    chunk(range(100, 106), 5, 1, [7, 3, 9]),
    chunk(range(200, 209), 8, 1, [1, 4, 6]),
]


def buffer(device: Any) -> InputBuffer:
    return InputBuffer(16, 5, 4, 4, device)


def test_a_step_of_prompts_and_replies(device: Any) -> None:
    chunks = [*DECODING, chunk(range(300, 310), 2, 5, [0, 2, 8]), chunk(range(4), 1, 3, [5])]
    token_ids, rows, places = buffer(device).load(chunks)
    assert token_ids.tolist() == [105, 208, 302, 303, 304, 305, 306, 1, 2, 3]
    assert places.positions.tolist() == [5, 8, 2, 3, 4, 5, 6, 1, 2, 3]
    assert places.slots.tolist() == [13, 24, 2, 3, 8, 9, 10, 21, 22, 23]
    assert places.lengths.tolist() == [6, 9, 7, 4]
    assert places.starts.tolist() == [0, 1, 2, 7, 10]
    # The third still has to see the rest of its prompt.
    assert rows is not None
    assert rows.tolist() == [0, 1, 9]
    used = [2, 3, 2, 1]
    tables = [places.tables[:count, column].tolist() for column, count in enumerate(used)]
    assert tables == [[7, 3], [1, 4, 6], [0, 2], [5]]
    assert (places.decoding, places.prompts) == (2, [(5, 7), (3, 4)])


def test_a_reply_behind_a_prompt_is_no_longer_first(device: Any) -> None:
    places = buffer(device).load([chunk(range(9), 0, 2, [0]), *DECODING]).places
    assert (places.decoding, places.prompts) == (0, [(2, 2), (1, 6), (1, 9)])


def test_a_batch_that_is_filled_up(device: Any) -> None:
    inputs = buffer(device)
    # What was there before must not be taken for a sequence.
    inputs.load([chunk(range(300, 310), 0, 10, [0, 2, 8])])
    token_ids, rows, places = inputs.load(DECODING, padded=5)
    assert token_ids.tolist()[:2] == [105, 208]
    assert rows is None
    assert places.positions.tolist() == [5, 8, 0, 0, 0]
    assert places.slots.tolist() == [13, 24, -1, -1, -1]
    assert places.lengths.tolist() == [6, 9, 0, 0, 0]
    assert places.starts.tolist() == [0, 1, 2, 3, 4, 5]
    assert places.tables[:2, 0].tolist() == [7, 3]
    assert places.tables[:3, 1].tolist() == [1, 4, 6]
    assert (places.decoding, places.prompts) == (5, [])
    empty = inputs.load((), padded=3)
    assert empty.places.lengths.tolist() == [0, 0, 0]
    assert empty.places.decoding == 3
    # A graph reads where the numbers of its size have always been.
    assert inputs.load(DECODING, padded=5).places.tables.data_ptr() == places.tables.data_ptr()
