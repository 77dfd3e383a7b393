"""What a server says is counted the same wherever it is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_compat.wire.json_fields import encode_json
from routing.tools.mcp import answers
from routing.tools.mcp.answers import AnswerBound, TooMuchSaid

FEW = 40


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "MAX_BYTES", 2000)
    monkeypatch.setattr(answers, "MAX_VALUES", FEW)


async def told(pieces: list[bytes]) -> list[bytes] | str:
    """The lines, or why there are none."""
    bound, lines = AnswerBound(), []
    try:
        for each in pieces:
            lines += await bound.take(each)
        await bound.end()
    except TooMuchSaid as fault:
        return str(fault)
    return lines


def in_pieces(said: bytes, size: int) -> list[bytes]:
    return [said[at : at + size] for at in range(0, len(said), size)]


MANY = b"[" + b",".join([b"1"] * (FEW + 1)) + b"]"
LONG_TEXT = encode_json({"text": '[{"a": 1},{"b": 2}],' * 50})


@pytest.mark.parametrize("size", [1, 7, 4096])
@pytest.mark.parametrize(
    ("said", "fault"),
    [
        (b'{"a": 1}\n{"b": [2, 3]}\n', None),
        (LONG_TEXT + b"\n", None),
        (LONG_TEXT, None),
        (b"x" * 2001, "larger"),
        (b"x" * 1999 + b"\n", None),
        (MANY + b"\n", "values"),
        (MANY, "values"),
        (b'data: "\r\ndata: ' + MANY + b"\n\n", "values"),
        (b'data: "\rdata: ' + MANY + b"\r\r", "values"),
        (b"\n" * (FEW + 1), "values"),
        (b"\r" * (FEW + 1), "values"),
        (b"data: [1,\n" * 25, "values"),
    ],
)
@pytest.mark.usefixtures("few")
async def test_too_much_is_told_wherever_it_is_cut(
    said: bytes, size: int, fault: str | None
) -> None:
    lines = await told(in_pieces(said, size))
    if fault is None:
        assert lines == said.split(b"\n")[:-1]
    else:
        assert fault in str(lines)


@given(said=st.binary(max_size=60), size=st.integers(1, 60))
async def test_its_lines_are_those_of_the_whole(said: bytes, size: int) -> None:
    assert await told(in_pieces(said, size)) == said.split(b"\n")[:-1]


@pytest.mark.usefixtures("few")
async def test_another_answer_begins_anew_but_for_a_line_that_goes_on() -> None:
    bound = AnswerBound()
    await bound.take(b"x" * 1500)
    bound.renew()
    with pytest.raises(TooMuchSaid):
        await bound.take(b"x" * 501)
    bound = AnswerBound()
    for _ in range(3):
        await bound.take(b"[1,2,3,4,5,6,7,8,9]" + b" " * 1000 + b"\n")
        bound.renew()
