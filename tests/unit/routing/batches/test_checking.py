"""A batch's input: what is refused whole, and where each line is."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from routing.batches.checking import Check
from routing.batches.journal.journal import ROWS_TOGETHER
from routing.batches.journal.rows import LineRow
from routing.batches.wires import MESSAGES_ENDPOINT, read_line

CHAT = "/v1/chat/completions"


def line(custom_id: Any = "a", **changes: Any) -> dict[str, Any]:
    return {
        "custom_id": custom_id,
        "method": "POST",
        "url": CHAT,
        "body": {"model": "echo", "messages": []},
        **changes,
    }


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in line().items() if key != name}


def checked(
    data: bytes, endpoint: str = CHAT, max_lines: int = 50_000, max_line_bytes: int = 4096
) -> tuple[Check, list[LineRow]]:
    check = Check(io.BytesIO(data), endpoint, max_lines=max_lines, max_line_bytes=max_line_bytes)
    rows = []
    while more := check.more():
        rows += more
    return check, rows


def written(*lines: Any, end: bytes = b"\n") -> bytes:
    return b"".join(
        (each if isinstance(each, bytes) else json.dumps(each).encode()) + end for each in lines
    )


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"  \n\n"])
@pytest.mark.parametrize("begin", [b"", b"\xef\xbb\xbf", b"\n \n"])
@pytest.mark.parametrize("last", [b"", b"\n"])
def test_each_line_is_found_again(begin: bytes, end: bytes, last: bytes) -> None:
    bodies = [{"model": f"m{number}", "text": "ä" * number} for number in range(5)]
    data = (
        begin
        + written(*(line(str(n), body=b) for n, b in enumerate(bodies)), end=end).rstrip()
        + last
    )
    check, rows = checked(data)
    assert check.problems == []
    assert check.lines == len(rows) == 5
    found = [read_line(data[row.begins : row.begins + row.size], CHAT) for row in rows]
    assert [json.loads(each.body) for each in found] == bodies
    assert [each.custom_id for each in found] == list("01234")
    assert [row.model for row in rows] == [body["model"] for body in bodies]
    physical = data.split(b"\n")
    assert all(str(n).encode() in physical[row.number - 1] for n, row in enumerate(rows))


@pytest.mark.parametrize(
    ("wrong", "code", "param"),
    [
        (b"nonsense", "invalid_json_line", None),
        (b"[1]", "invalid_json_line", None),
        (b"[" * 4000, "invalid_json_line", None),
        (b'"\xff"', "invalid_json_line", None),
        (without("custom_id"), "missing_required_parameter", "custom_id"),
        (line(7), "invalid_custom_id", "custom_id"),
        (line(""), "invalid_custom_id", "custom_id"),
        (line("x" * 513), "invalid_custom_id", "custom_id"),
        (b'{"custom_id": "\\ud800"}', "invalid_custom_id", "custom_id"),
        (without("method"), "invalid_method", "method"),
        (line(method="GET"), "invalid_method", "method"),
        (line(url="/v1/embeddings"), "mismatched_url", "url"),
        (without("body"), "missing_required_parameter", "body"),
        (line(body=[]), "invalid_type", "body"),
        (line("first"), "duplicate_custom_id", "custom_id"),
        (line(body={"x": "y" * 5000}), "line_too_long", None),
    ],
)
def test_a_line_that_is_none_refuses_the_file(wrong: Any, code: str, param: str | None) -> None:
    check, _ = checked(written(line("first"), wrong))
    (problem,) = check.problems
    assert (problem["code"], problem["param"], problem["line"]) == (code, param, 2)


def test_what_a_line_asks_is_not_looked_at() -> None:
    bodies: list[Any] = [{}, {"model": 3}, {"model": "unknown", "messages": "nonsense"}]
    check, rows = checked(written(*(line(str(n), body=b) for n, b in enumerate(bodies))))
    assert check.problems == []
    assert [row.model for row in rows] == ["", "", "unknown"]
    assert check.model is None


def test_no_more_than_ten_problems_are_told() -> None:
    check, _ = checked(written(*[b"nonsense"] * 50))
    assert [problem["line"] for problem in check.problems] == list(range(1, 11))


@pytest.mark.parametrize("data", [b"", b"\n\n", b"  "])
def test_an_empty_file_is_refused(data: bytes) -> None:
    check, rows = checked(data)
    assert rows == []
    assert [problem["code"] for problem in check.problems] == ["empty_file"]


def test_a_file_has_so_many_lines_and_no_more() -> None:
    lines = written(*(line(str(number)) for number in range(ROWS_TOGETHER + 1)))
    check, rows = checked(lines, max_lines=ROWS_TOGETHER + 1)
    assert (check.problems, len(rows), check.model) == ([], ROWS_TOGETHER + 1, "echo")
    check, _ = checked(lines, max_lines=ROWS_TOGETHER)
    assert [problem["code"] for problem in check.problems] == ["too_many_lines"]


def test_anthropics_lines_have_parameters_alone() -> None:
    data = written({"custom_id": "a", "params": {"model": "echo"}})
    check, rows = checked(data, MESSAGES_ENDPOINT)
    assert (check.problems, rows[0].model) == ([], "echo")
    assert [each["param"] for each in checked(written(line()), MESSAGES_ENDPOINT)[0].problems] == [
        "params"
    ]
