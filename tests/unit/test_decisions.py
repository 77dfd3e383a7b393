"""The decisions in `docs/adr/`: each has its four parts, and what it cites is there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
ADR = ROOT / "docs/adr"
PAGES = sorted(ADR.glob("[0-9]*.md"))
PARTS = ["What", "The figure", "What it costs", "What would change our mind"]


def result(name: str) -> Any:
    return json.loads((ROOT / f"bench/results/{name}.json").read_text("utf-8"))


def ratio(value: float) -> str:
    return "1" if value == 1 else f"{value:.1f}"


def said(number: int) -> str:
    return PAGES[number - 1].read_text("utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_decision_has_its_parts(page: Path) -> None:
    text = page.read_text("utf-8")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == PARTS
    assert text.startswith(f"# {int(page.stem[:4])}. ")
    assert f"({page.name})" in (ADR / "index.md").read_text("utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_decision_cites_is_there(page: Path) -> None:
    cited = re.findall(
        r"`((?:bench|providers|routing|llama_compat|tests)/[\w./-]+)`", page.read_text()
    )
    assert any(each.startswith("bench/results/") for each in cited)
    assert [each for each in cited if not (ROOT / each).exists()] == []
    modules = re.findall(r"`(?:python -m )?bench\.(\w+)`", page.read_text())
    assert modules
    assert [each for each in modules if not (ROOT / f"bench/{each}.py").is_file()] == []


def test_the_figures_of_the_sender_of_spans() -> None:
    for way in result("otlp")["ways"].values():
        assert f"| {way['cpu_us_a_request']} | {way['of_the_sdk']:.2g} |" in said(3)
        assert f"| {way['bytes_a_request']:,} |" in said(3)


def test_the_figures_of_structs_and_rows() -> None:
    for ways in (result("structs")["read a chunk"], result("structs")["make an event"]):
        for way in ways.values():
            assert f"| {way['microseconds']} | {ratio(way['of_msgspec'])} |" in said(5)
    for way in result("rows")["ways"].values():
        assert f"| {way['cpu_us_a_record']} | {way['of_our_own']:.2g} |" in said(6)
        assert f"| {way['import_ms']:.0f} ms, {way['import_mib']:.0f} MiB |" in said(6)


def test_the_figures_of_caches_that_tell() -> None:
    for ways in result("told")["workloads by gateways"].values():
        for gateways, told in ways.items():
            names = ("least_busy", "prefix, by what was sent", "prefix, by what is held")
            busy, sent, held = (f"{told[name]['ttft_p90_ms']:,.0f}" for name in names)
            held = f"**{held}**" if gateways == "4" else held
            assert f"| {gateways} | {busy} | {sent} | {held} |" in said(9)
