"""The guide of how large a fleet has to be: its figures are about those of the results, and its
arithmetic is that of its figures."""

from __future__ import annotations

import re
import statistics

import pytest

from scripts.measured.results import ROOT, result

GUIDE = (ROOT / "docs/guides/fleet-size.md").read_text("utf-8")

NOT_FAR = 0.35
"""Machines are noisy: the guide is written anew where it is further off than that."""

STREAMS = (1_000, 10_000, 100_000)
RATE = 35.2
"""Tokens a second of each of 64 sequences, a step of which takes 6 + 0.35 * 64 ms."""


def figure(name: str) -> float:
    """What the first table says."""
    (found,) = re.findall(rf"^\| {re.escape(name)}[^|]*\| ([\d.]+)", GUIDE, re.MULTILINE)
    return float(found)


def row(name: str) -> list[float]:
    """What the second says for each number of streams."""
    (found,) = re.findall(rf"^\| {re.escape(name)} \|(.+)\|$", GUIDE, re.MULTILINE)
    return [float(re.findall(r"[\d.]+", each.replace(",", ""))[0]) for each in found.split("|")]


ONE_BY_ONE, TOGETHER = "processor time of an event of a stream", "the same where many come"
REQUEST, MEMORY = "processor time of a request", "memory of a stream"


def test_its_figures_are_those_of_the_results() -> None:
    runs = result("gateway")["raw"]["llama_compat"]
    measured = {
        ONE_BY_ONE: statistics.median(each["cpu_us"] for each in runs["paced"]),
        TOGETHER: statistics.median(each["cpu_us"] for each in runs["stream"]),
        REQUEST: statistics.median(each["cpu_us"] for each in runs["many"]),
        MEMORY: result("connections")["streaming"]["kib_each"],
    }
    for name, value in measured.items():
        assert figure(name) == pytest.approx(value, rel=NOT_FAR), name


def test_its_arithmetic_is_right() -> None:
    assert row("replicas with 64 streams each") == [-(-each // 64) for each in STREAMS]
    for name, written in ((ONE_BY_ONE, "events one by one"), (TOGETHER, "events together")):
        cores = [each * RATE * figure(name) / 1e6 for each in STREAMS]
        assert row(f"gateway cores, {written}") == pytest.approx(cores, rel=0.15)
    memory = [each * figure(MEMORY) / 1024 for each in STREAMS]
    told = row("memory for streams at the gateways")
    assert [told[0], told[1], told[2] * 1024] == pytest.approx(memory, rel=0.05)
    workers = [each * RATE * figure(ONE_BY_ONE) / 1e6 / 2.4 for each in STREAMS]
    asked = row("gateways of 4 workers, at 60 % of a core each")
    assert asked == [pytest.approx(max(1, each), abs=max(0.6, each * 0.05)) for each in workers]
