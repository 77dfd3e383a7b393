"""What a server can do, told by the tests that talk to it: a table with a row a capability.

A test belongs to the capability that its marker names. It says that the server

- supports it: it passed;
- refuses it: the server answered with an error that names what it does not support;
- does it wrong: anything else. A server may refuse, but not break OpenAI's contract.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Found:
    """What the tests of one capability found.

    Attributes:
        supported: how many of them passed.
        refused: what the server said to those that it refused.
        wrong: what should be and is not, a sentence a test.
    """

    supported: int
    refused: list[str]
    wrong: list[str]


def found(stats: Mapping[str, Sequence[Any]]) -> dict[str, Found]:
    """What there is to say of each capability that was tested, in the order of the table.

    Args:
        stats: pytest's reports by their category.
    """
    all_found = {}
    for capability in CAPABILITIES:
        passed = _about(capability, stats.get("passed", ()))
        wrong = _about(capability, [*stats.get("failed", ()), *stats.get("error", ())])
        refusals = [
            properties["refused"]
            for properties in map(_properties, _about(capability, stats.get("skipped", ())))
            if "refused" in properties
        ]
        if passed or wrong or refusals:
            sentences = [_sentence(report.nodeid) for report in wrong]
            all_found[capability] = Found(len(passed), refusals, sentences)
    return all_found


def table(all_found: Mapping[str, Found]) -> list[str]:
    """The table in Markdown."""
    columns = ("capability", "supported", "refused", "wrong", "what")
    rows = [columns, ("---", "--:", "--:", "--:", "---")]
    for capability, each in all_found.items():
        notes = [f"not so: {sentence}" for sentence in each.wrong] or each.refused[:1]
        numbers = (each.supported, len(each.refused), len(each.wrong))
        rows.append((capability, *(str(number or "") for number in numbers), _shown(notes)))
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
