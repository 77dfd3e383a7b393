"""Tables whose cells may be anybody's."""

from __future__ import annotations

import pytest
from rich.text import Text

from routing.cli import status
from routing.cli.terminal import harmless, print_, stripped, table
from tests.unit.routing.cli.terminals import HOSTILE, does_nothing, terminal_of, widest


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_no_word_with_a_number_is_broken(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    for name, value in terminal_of(columns).items():
        monkeypatch.setenv(name, value)
    shown = table("Name", "Limits", "State")
    for name in HOSTILE:
        shown.add_row(name, "123,456,789 rpm, $20.50 a month", Text(name, "red"))
    print_(shown)
    printed = capsys.readouterr().out
    assert does_nothing(printed)
    assert printed.split().count("123,456,789") == len(HOSTILE)
    assert printed.split().count("$20.50") == len(HOSTILE)
    assert "…" not in printed
    # What may not be broken takes 55 columns, and a table is not cut off.
    assert widest(printed) <= max(columns, 60)


def test_in_a_pipe_a_row_is_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    shown = table("Name", "Size")
    for name in HOSTILE:
        shown.add_row(name, "1,000")
    print_(shown)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.endswith("1,000 ")]
    assert len(lines) == len(HOSTILE)
    assert len({widest(line) for line in lines}) == 1


def test_what_a_server_says_of_its_targets_does_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in terminal_of(80).items():
        monkeypatch.setenv(name, value)
    targets = [
        {
            "id": name,
            "provider": name,
            "model": name,
            "in_flight": 123_456,
            "waiting": 0,
            "attempts": 7_654_321,
            "errors": 12,
            "last_error": name[:40],
            "cooling_seconds": 3.0,
            "first_content_seconds": 0.123,
            "whole_reply_seconds": None,
        }
        for name in HOSTILE
    ]
    print_(status.table({"targets": targets}, 0.0))
    printed = capsys.readouterr().out
    assert does_nothing(printed)
    assert printed.split().count("7654321") == printed.split().count("123456") == len(HOSTILE)


def test_texts_keep_their_lines_and_lose_what_would_act() -> None:
    text = "a\tb\nc\x1b[31m \u202ed\udc80"
    assert harmless(text) == "a\tb\nc\\x1b[31m \\u202ed\\udc80"
    assert stripped(text) == "a\tb\nc[31m d"
    assert harmless("日本語 👩\u200d💻 [b] :cat:") == "日本語 👩\u200d💻 [b] :cat:"
