"""The page of conformance: which servers do what OpenAI's does."""

from __future__ import annotations

import json
from typing import Any

from scripts.conformance.servers import SERVERS
from scripts.measured.results import ROOT, when_and_where
from scripts.reference.markdown import code, codes, table
from scripts.reference.markdown import page as page_of
from tests.integration.conformance import CAPABILITIES

RESULTS = ROOT / "tests/integration/results/conformance.json"

NOTE = (
    "<!-- Made by `make measured` from tests/integration/results. What is changed here is lost:"
    " `make conformance-page` asks the servers again. -->"
)

INTRODUCTION = """\
Tests that need nothing but an OpenAI-compatible server tell of any what it can do:

```text
pytest tests/integration --base-url http://localhost:8321/v1 --text-model starter
```

They are this project's own tests, so it passes them; what they expect is what OpenAI's API does and
its SDK relies on. These are the servers that could be installed on one machine, each with its
defaults but for what is said of it, and one small model, SmolLM2-135M-Instruct. Gateways stand
before llama.cpp's own server; what that does wrong, they pass on or mend."""

CELLS = """\
*7 of 7* are the tests that passed. *Not offered* is what the server refuses with an error that says
so; that is no mistake. All else is one, and named below."""

RESPONSES = """\
[Open Responses](https://www.openresponses.org) is a suite of the Responses API's own. Gateways
stand before a vendor whose model follows a script, since a small model does not call tools as it is
asked; servers that have the model answer by it, so what failed there may be the model's fault."""


UPSTREAM = "llama.cpp"
"""The server that gateways stand before."""


def page() -> str:
    """The page."""
    found = results()
    return page_of(
        "Compatible servers",
        INTRODUCTION,
        "## Which server can do what?",
        _areas(found),
        CELLS,
        "## Which pass Open Responses?",
        RESPONSES,
        _suites(found),
        *(_server(name, found) for name in found),
        "## How is this page made?",
        "`make conformance-page` installs the servers, each into an environment of its own in"
        " `bench/.peers`, starts and asks one after the other, and writes this page;"
        " `ONLY=llama.cpp` asks one. `OPENRESPONSES=FOLDER`, a checkout of that suite in which"
        " `npm install bun zod@3` has been run, asks by it too.",
        note=NOTE,
    )


def results() -> dict[str, dict[str, Any]]:
    """What was found of each server, in the order of the page."""
    found: dict[str, dict[str, Any]] = json.loads(RESULTS.read_text("utf-8"))
    return {name: found[name] for name in SERVERS if name in found}


def _areas(found: dict[str, dict[str, Any]]) -> str:
    rows = [
        (area, *(_cell(each["capabilities"].get(area)) for each in found.values()))
        for area in CAPABILITIES
        if any(area in each["capabilities"] for each in found.values())
    ]
    sums = ("**all**", *(f"**{_sum(each['capabilities'])}**" for each in found.values()))
    return table(("", *found), [*rows, sums])


def _cell(area: dict[str, Any] | None) -> str:
    if area is None:
        return ""
    passed, refused, wrong = area["supported"], len(area["refused"]), len(area["wrong"])
    if not passed and not wrong:
        return "not offered"
    cell = f"{passed} of {passed + wrong}"
    return f"{cell}, {refused} not offered" if refused else cell


def _sum(areas: dict[str, Any]) -> str:
    passed = sum(each["supported"] for each in areas.values())
    wrong = sum(len(each["wrong"]) for each in areas.values())
    return f"{passed} of {passed + wrong}"


def _suites(found: dict[str, dict[str, Any]]) -> str:
    rows = []
    for name, each in found.items():
        asked = each["open_responses"]
        if asked is None:
            continue
        rows.append(
            (
                name,
                _passed(asked["http"]),
                _passed(asked["websocket"]),
                codes(sorted(test for test, got in asked["http"].items() if got == "failed")),
                asked["machine"]["date"],
                code(asked["suite_commit"][:7]) if asked["suite_commit"] else "",
            )
        )
    return table(("", "over HTTP", "over WebSockets", "failed over HTTP", "date", "suite"), rows)


def _passed(tests: dict[str, str]) -> str:
    """How many passed; a server without the API was asked none of them."""
    if not tests:
        return "not offered"
    return f"{list(tests.values()).count('passed')} of {len(tests)}"


def _server(name: str, found: dict[str, dict[str, Any]]) -> str:
    each = found[name]
    pieces = [
        f"## What does {name} do wrong?",
        f"Version {each['version']}: {SERVERS[name].about}. Asked on"
        f" {when_and_where(each['machine'])}.",
    ]
    wrong = _wrong(each)
    if SERVERS[name].before is None or UPSTREAM not in found:
        pieces.append(_told("It is not so that:", wrong) or "Nothing that was asked.")
    else:
        upstream = _wrong(found[UPSTREAM])
        mended = sum(map(len, _without(upstream, wrong).values()))
        all_of_it = sum(map(len, upstream.values()))
        pieces += [
            f"It mends {mended} of the {all_of_it} things that {UPSTREAM} does wrong.",
            _told(f"What {UPSTREAM} by itself does right:", _without(wrong, upstream)),
            _told(f"What {UPSTREAM} does wrong too:", _without(wrong, _without(wrong, upstream))),
        ]
    return "\n\n".join(piece for piece in pieces if piece)


Wrong = dict[str, list[str]]
"""By area, what should be and is not."""


def _wrong(each: dict[str, Any]) -> Wrong:
    areas = each["capabilities"]
    return {area: areas[area]["wrong"] for area in CAPABILITIES if area in areas}


def _without(one: Wrong, other: Wrong) -> Wrong:
    """What `one` has and `other` does not."""
    return {
        area: [each for each in of_it if each not in other.get(area, ())]
        for area, of_it in one.items()
    }


def _told(beginning: str, wrong: Wrong) -> str:
    rows = [(area, _listed(of_it)) for area, of_it in wrong.items() if of_it]
    return f"{beginning}\n\n{table(('area', 'what should be'), rows)}" if rows else ""


def _listed(sentences: list[str]) -> str:
    """All sentences; one that several tests have is there once, with what each of them tries."""
    tried: dict[str, list[str]] = {}
    for each in sentences:
        sentence, _, parameters = each.partition(" [")
        tried.setdefault(sentence, []).extend([code(parameters[:-1])] if parameters else [])
    return "; ".join(
        f"{sentence} ({', '.join(parameters)})" if parameters else sentence
        for sentence, parameters in tried.items()
    )
