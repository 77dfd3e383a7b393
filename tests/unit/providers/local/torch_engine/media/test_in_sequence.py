"""Where a step may begin and end, what its tokens turn by, and what their blocks are known by."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")

from providers.local.media.pictures import PictureFile
from providers.local.torch_engine.media.in_sequence import PromptPart, SequenceMedia
from providers.local.torch_engine.media.sense import TorchMedium

FILE = PictureFile(b"", "messages", 1, 1)


def whole(*runs: range, key: bytes = b"k") -> TorchMedium:
    return TorchMedium(FILE, runs, None, key, None, is_whole=True)


def test_a_step_ends_before_or_behind_what_looks_at_each_other() -> None:
    pictures = SequenceMedia([whole(range(10, 20)), whole(range(20, 30))], 40)
    assert pictures.end_of_step(0, 10) == 10
    assert pictures.end_of_step(0, 15) == 10
    assert pictures.end_of_step(10, 15) == 20
    assert pictures.end_of_step(10, 20) == 20
    assert pictures.end_of_step(10, 25) == 20
    assert pictures.end_of_step(20, 21) == 30
    assert pictures.end_of_step(5, 35) == 35


def test_a_step_does_not_begin_within_it() -> None:
    pictures = SequenceMedia([whole(range(10, 20))], 40)
    assert [pictures.begin_of_step(start) for start in (0, 10, 11, 19, 20, 32)] == [
        *(0, 10, 10, 10, 20, 32)
    ]


def test_it_is_apart_from_what_looks_back() -> None:
    pictures = SequenceMedia([whole(range(10, 20)), whole(range(20, 30))], 40)
    assert list(pictures.parts(0, 40)) == [
        PromptPart(0, 10),
        PromptPart(10, 20, is_whole=True),
        PromptPart(20, 30, is_whole=True),
        PromptPart(30, 40),
    ]
    assert list(pictures.parts(30, 31)) == [PromptPart(30, 31)]


def test_tokens_turn_by_where_they_are_in_a_grid() -> None:
    """Two words, a picture of 2 x 3, a word, one of 1 x 2, a word; then what is generated."""
    grids = [
        TorchMedium(FILE, (range(2, 8),), (2, 3), b"a"),
        TorchMedium(FILE, (range(9, 11),), (1, 2), b"b"),
    ]
    pictures = SequenceMedia(grids, 12)
    time, rows, columns = pictures.axes(0, 14)
    assert list(time) == [0, 1, 2, 2, 2, 2, 2, 2, 5, 6, 6, 8, 9, 10]
    assert list(rows) == [0, 1, 2, 2, 2, 3, 3, 3, 5, 6, 6, 8, 9, 10]
    assert list(columns) == [0, 1, 2, 3, 4, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    assert list(pictures.positions(11, 14)) == [8, 9, 10]
    assert list(pictures.positions(12, 13)) == [9]
    assert pictures.turns_in_grid(0, 3)
    assert not pictures.turns_in_grid(11, 14)


def test_a_block_is_known_by_the_pictures_that_begin_in_it() -> None:
    one = SequenceMedia([whole(range(4, 40), key=b"a")], 60)
    other = SequenceMedia([whole(range(4, 40), key=b"b")], 60)
    assert one.key(0, 16) != other.key(0, 16)
    # Those behind it are known by the blocks before them.
    assert one.key(16, 32) == b""
    assert one.key(0, 4) == b""
