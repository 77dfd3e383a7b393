"""The pages of what was measured: as the results have it, and with nothing left out."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import pytest

from scripts.conformance.servers import SERVERS
from scripts.measured import conformance, results, speed
from scripts.measured.__main__ import main
from scripts.measured.pages import FILES, IMAGES
from scripts.measured.results import ROOT
from tests.integration.conformance import CAPABILITIES, Found, found, table


def made_with_another() -> str | None:
    """Why plots can't be compared: matplotlib is not there, or not the one that is pinned."""
    pinned = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    try:
        here = f"matplotlib=={version('matplotlib')}"
    except PackageNotFoundError:
        return "matplotlib is not installed; `make docs` does that"
    return None if here in pinned else f"the plots are made with another than {here}"


@pytest.mark.parametrize("path", FILES)
def test_no_page_is_stale(path: str) -> None:
    assert (ROOT / path).read_text("utf-8") == FILES[path](), "run: make measured"


@pytest.mark.skipif(made_with_another() is not None, reason=str(made_with_another()))
@pytest.mark.parametrize("path", IMAGES)
def test_no_plot_is_stale(path: str) -> None:
    assert (ROOT / path).read_text("utf-8") == IMAGES[path](), "run: make measured"


def test_the_command_names_what_is_stale(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = {"docs/reference/speed.md": "other\n"}
    monkeypatch.setattr("scripts.measured.__main__.generated", lambda: page)
    assert main(["--check"]) == 1
    assert "docs/reference/speed.md" in capsys.readouterr().out


def test_every_result_is_told_of_with_its_date() -> None:
    text = speed.page()
    for name in results.names():
        date = results.result(name)["machine"]["date"]
        assert f"| {results.link(name)} | {date} |" in text


def test_every_plot_of_a_page_is_made() -> None:
    text = "".join(make() for make in FILES.values())
    shown = {f"docs/reference/{path}" for path in re.findall(r"\((plots/[^#)]+)", text)}
    assert shown == set(IMAGES)


def test_every_question_is_one_that_a_reader_asks() -> None:
    for page in FILES.values():
        headings = re.findall(r"^## (.*)", page(), re.M)
        assert len(headings) > 3
        assert [each for each in headings if not each.endswith("?")] == []


# What the servers can do --------------------------------------------------------------------------


def report(capability: str, name: str, outcome: Any, **more: str) -> pytest.TestReport:
    properties = [("capability", capability), *more.items()]
    return pytest.TestReport(
        f"tests/integration/test_chat.py::{name}", ("", 0, ""), {}, outcome, None, "call",
        user_properties=properties,
    )  # fmt: skip


STATS = {
    "passed": [report("chat", "test_a_reply", "passed"), report("seed", "test_a_seed", "passed")],
    "failed": [report("chat", "test_a_model_is_found[x-1]", "failed")],
    "skipped": [
        report("embeddings", "test_a_vector", "skipped", refused="none here"),
        report("models", "test_what_needs_a_gpu", "skipped"),
    ],
}


def test_what_the_tests_found_of_a_server() -> None:
    assert found(STATS) == {
        "chat": Found(1, [], ["a model is found [x-1]"]),
        "seed": Found(1, [], []),
        "embeddings": Found(0, ["none here"], []),
    }


def test_the_table_counts_it() -> None:
    assert table(found(STATS))[2:] == [
        "| chat | 1 |  | 1 | not so: a model is found [x-1] |",
        "| seed | 1 |  |  |  |",
        "| embeddings |  | 1 |  | none here |",
    ]


@pytest.mark.parametrize(
    ("area", "cell"),
    [
        (None, ""),
        ({"supported": 2, "refused": [], "wrong": []}, "2 of 2"),
        ({"supported": 1, "refused": ["no"], "wrong": ["a", "b"]}, "1 of 3, 1 not offered"),
        ({"supported": 0, "refused": ["no", "no"], "wrong": []}, "not offered"),
        ({"supported": 0, "refused": [], "wrong": ["a"]}, "0 of 1"),
    ],
)
def test_a_cell_tells_what_passed(area: dict[str, Any] | None, cell: str) -> None:
    assert conformance._cell(area) == cell


def test_what_a_server_does_wrong_is_named() -> None:
    text = conformance.page()
    for name, each in conformance.results().items():
        start = text.index(f"## What does {name} do wrong?")
        section = text[start : text.index("\n## ", start)]
        assert each["machine"]["date"] in section
        for area, of_it in each["capabilities"].items():
            assert area in CAPABILITIES
            for sentence in of_it["wrong"]:
                what, _, parameters = sentence.partition(" [")
                assert what in section
                assert f"`{parameters[:-1]}`" in section or not parameters


def test_this_server_and_others_were_asked() -> None:
    asked = set(conformance.results())
    assert asked <= set(SERVERS)
    assert {each.startswith("llama_compat") for each in asked} == {True, False}


def test_a_gateway_is_not_blamed_for_what_its_upstream_does() -> None:
    def wrong(*sentences: str) -> dict[str, Any]:
        chat = {"supported": 0, "refused": [], "wrong": list(sentences)}
        machine = {"date": "2026-01-01", "cores": 2, "cpu": "EPYC", "memory_gib": 1.0}
        return {"version": "1", "machine": machine, "capabilities": {"chat": chat}}

    gateway = "LiteLLM before llama.cpp"
    two = {"llama.cpp": wrong("one", "two", "three"), gateway: wrong("two", "four")}
    text = conformance._server(gateway, two)
    assert "It mends 2 of the 3 things that llama.cpp does wrong." in text
    own, _, shared = text.partition("does wrong too:")
    assert ("| chat | four |" in own, "| chat | two |" in shared) == (True, True)
