"""Where the pictures of a sequence are: steps, prefixes and positions."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llama_cpp", reason="needs the extra 'llama-cpp'")

from providers.local.llama_cpp_engine.media.in_sequence import LlamaMedia
from providers.local.llama_cpp_engine.media.mtmd import EncodedParts
from providers.local.llama_cpp_engine.media.sense import LlamaMedium
from providers.local.media.pictures import PictureFile

FILE = PictureFile(b"", "messages[0].content[0]", 1, 1)


def in_a_prompt(*runs: range, whole: bool = False, advance: int | None = None) -> LlamaMedia:
    """Pictures of one run each; with `advance` their parts have rows of two."""
    pictures = []
    for number, run in enumerate(runs, 1):
        count = len(run)
        axes = None
        if advance is not None:
            places = np.arange(count, dtype=np.int32)
            axes = np.stack([places * 0, places // 2, places % 2, places * 0])
        parts = EncodedParts(np.zeros((count, 4), np.float32), axes, advance or count)
        pictures.append(LlamaMedium(FILE, (run,), None, (parts,), number, whole))
    return LlamaMedia(pictures)


def test_text_and_pictures_are_computed_apart() -> None:
    pictures = in_a_prompt(range(3, 9), range(9, 13))
    ends = [pictures.end_of_step(start, start + 4) for start in (0, 3, 7, 9, 13)]
    assert ends == [3, 7, 9, 13, 17]
    whole = in_a_prompt(range(3, 9), whole=True)
    assert [whole.end_of_step(start, start + 4) for start in (0, 3, 9)] == [3, 9, 13]


def test_prefixes_end_where_they_can_be_gone_on_from() -> None:
    runs = (range(3, 9), range(11, 15))
    assert [in_a_prompt(*runs).cut(tokens) for tokens in (2, 5, 9, 12)] == [2, 5, 9, 12]
    whole = in_a_prompt(*runs, whole=True)
    assert [whole.cut(tokens) for tokens in (3, 5, 9, 12)] == [3, 3, 9, 11]
    # Behind a picture of rows and columns the cache knows no position that counts its tokens.
    rows = in_a_prompt(*runs, advance=3)
    assert [rows.cut(tokens) for tokens in (3, 5, 9, 10, 15, 16)] == [3, 3, 3, 10, 11, 16]


def test_positions_count_rows_and_columns_as_fewer_than_tokens() -> None:
    pictures = in_a_prompt(range(3, 9), range(11, 15), advance=3)
    assert [pictures.position(token) for token in (0, 3, 9, 11, 15, 20)] == [0, 3, 6, 8, 11, 16]
    second = pictures.at(12)
    assert second is not None
    assert second.positions(12, 14).tolist() == [[8, 8], [8, 9], [9, 8], [8, 8]]
    plain = in_a_prompt(range(3, 9)).at(4)
    assert plain is not None
    assert plain.positions(4, 7).tolist() == [4, 5, 6]
