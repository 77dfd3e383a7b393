"""The README: one page, whose links, commands and figures are right.

Its snippets run with those of the pages: `tests/integration/docs`.
"""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from routing.cli import app
from scripts.long_description import long_description
from tests.documents import DOCS, ROOT

README = (ROOT / "README.md").read_text("utf-8")
AGENTS = (DOCS / "guides" / "agents.md").read_text("utf-8")


def test_it_is_one_page_of_lines_that_can_be_read() -> None:
    lines = README.splitlines()
    assert len(lines) <= 130
    written = [line for line in lines if not line.startswith(("|", "!["))]
    assert [line for line in written if len(line) > 105] == []


def test_the_first_answer_is_there_without_scrolling() -> None:
    before, _, _ = README.partition("#> ")
    assert len(before.splitlines()) < 45


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)]+)\)", README))))
def test_links_lead_somewhere(link: str) -> None:
    assert link.startswith("https://") or (ROOT / link.partition("#")[0]).exists()


def test_every_command_is_there() -> None:
    commands = set(re.findall(r"`(?:\.venv/bin/)?llama-compat ([a-z]+)", README))
    assert commands == {"chat", "init", "run"}
    for command in commands:
        assert CliRunner().invoke(app, [command, "--help"]).exit_code == 0, command


def test_what_make_does_is_in_the_makefile() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M)
    named = set(re.findall(r"\bmake ([a-z]+)\b", README)) - {"keys"}
    assert named == {"serve", "test", "check"}
    assert named <= set(targets)


def test_what_is_said_of_another_was_measured() -> None:
    ratios = json.loads((ROOT / "bench" / "results" / "gateway.json").read_text("utf-8"))["ratios"]
    (times,) = re.findall(r"\[(\d+) times its requests\]", README)
    assert int(times) == round(ratios["LiteLLM"]["requests_per_s"])


def test_what_clients_need_is_what_the_guide_says() -> None:
    rows = re.findall(r"^\| ([^|]+) \| `(.+)` \|$", README, re.M)
    assert len(rows) >= 9
    for client, needed in rows:
        assert needed.replace("starter", "llama") in AGENTS, client


# PyPI's page --------------------------------------------------------------------------------------


def test_pypi_s_page_has_no_link_into_a_repository_that_nobody_knows() -> None:
    text = long_description(README, None)
    assert re.findall(r"\]\((?!https?://)", text) == []
    assert "![" not in text
    assert "in front of vendors" in text
    # All else is the README.
    assert len(text.splitlines()) > len(README.splitlines()) - 5


def test_pypi_s_page_leads_to_the_repository() -> None:
    text = long_description(README, "https://git.example/a/b")
    assert "](https://git.example/a/b/raw/HEAD/docs/images/playground.png)" in text
    assert "](https://git.example/a/b/blob/HEAD/docs/start/gpu.md)" in text
    assert re.findall(r"\]\((?!https?://)", text) == []
