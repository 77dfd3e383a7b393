"""What a server can do, told by the tests that talk to it: a table with a row a capability.

A test belongs to the capability that its marker names. It says that the server

- supports it: it passed;
- refuses it: the server answered with an error that names what it does not support;
- does it wrong: anything else. A server may refuse, but not break OpenAI's contract.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

CAPABILITIES = (
    "chat",
    "streaming",
    "completions",
    "stop",
    "seed",
    "n",
    "usage",
    "logprobs",
    "tools",
    "tool_choice: required",
    "parallel_tool_calls",
    "response_format: json_object",
    "response_format: json_schema",
    "embeddings",
    "models",
    "errors: shape",
    "errors: unknown model",
    "errors: bad parameter",
    "errors: unknown parameter",
    "errors: bad body",
    "errors: context length",
)
"""In the order of the table."""

NOTE_CHARACTERS = 90
MAX_NOTES = 3


class Refused(pytest.skip.Exception):
    """The server refused what it does not support, and named it. For pytest it is a skip."""


def talks_to_the_server(item: pytest.Item) -> bool:
    """Whether a test is about the server at `--base-url`, whatever that server is."""
    ours = item.get_closest_marker("ours") is not None
    return not ours and "base_url" in getattr(item, "fixturenames", ())


def capability_of(item: pytest.Item) -> str | None:
    """What the closest marker says that the test is about.

    Raises:
        pytest.UsageError: the table has no such row.
    """
    marker = item.get_closest_marker("capability")
    if marker is None:
        return None
    name: str = marker.args[0]
    if name not in CAPABILITIES:
        raise pytest.UsageError(f"{item.nodeid}: no capability is called {name!r}")
    return name


def note_refusal(report: pytest.TestReport, call: pytest.CallInfo[Any]) -> None:
    """Write into the report what the server said, if it refused."""
    if call.excinfo is not None and isinstance(call.excinfo.value, Refused):
        report.user_properties.append(("refused", call.excinfo.value.msg))


def table(stats: Mapping[str, Sequence[Any]]) -> list[str]:
    """The table in Markdown.

    Args:
        stats: pytest's reports by their category.
    """
    columns = ("capability", "supported", "refused", "wrong", "what")
    rows = [columns, ("---", "--:", "--:", "--:", "---")]
    for capability in CAPABILITIES:
        passed = _about(capability, stats.get("passed", ()))
        wrong = _about(capability, [*stats.get("failed", ()), *stats.get("error", ())])
        refusals = [
            properties["refused"]
            for properties in map(_properties, _about(capability, stats.get("skipped", ())))
            if "refused" in properties
        ]
        if not (passed or wrong or refusals):
            continue
        notes = [f"not so: {_sentence(report.nodeid)}" for report in wrong] or refusals[:1]
        counts = (str(count or "") for count in (len(passed), len(refusals), len(wrong)))
        rows.append((capability, *counts, _shown(notes)))
    return ["| " + " | ".join(row) + " |" for row in rows]


def _about(capability: str, reports: Iterable[Any]) -> list[Any]:
    tests = {}
    for report in reports:
        if _properties(report).get("capability") == capability:
            tests[report.nodeid] = report
    return list(tests.values())


def _properties(report: Any) -> dict[str, Any]:
    return dict(getattr(report, "user_properties", ()))


def _sentence(nodeid: str) -> str:
    """The name of a test, which says what should be."""
    name, _, parameters = nodeid.rpartition("::")[2].partition("[")
    sentence = name.removeprefix("test_").replace("_", " ")
    return f"{sentence} [{parameters}" if parameters else sentence


def _shown(notes: Sequence[str]) -> str:
    shown = [_shortened(note) for note in notes[:MAX_NOTES]]
    more = len(notes) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")


def _shortened(note: str) -> str:
    text = " ".join(note.replace("|", "\\|").split())
    return text if len(text) <= NOTE_CHARACTERS else text[: NOTE_CHARACTERS - 3] + "..."
