"""The snippets of the documentation, as the tests read them.

By the language of its fence:

- `yaml` is a template, or a part of one, unless its `title` is a file of another program. With a
  `title` it is written to that file, for the commands of the same page.
- `console` has commands behind `$ `, and what they print. `...` stands for anything.
- `python` prints what stands behind `#> `.
- All else is not run: `sh` is for what a test can't do, such as to start Codex.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from llama_compat.distribution.reading.yaml_positions import read_yaml

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
README = "../README.md"
WITH_README = [*PAGES, README]
"""The README's snippets are held to what those of the pages are."""

OF_OTHER_PROGRAMS = ("prometheus.yml", "litellm.yaml")
"""Titles of snippets that are no templates."""

WRONG = "wrong.yaml"
"""The title of a template that shows what `check` says of mistakes."""

TESTED_APART = {"guides/write-a-provider.md": "tests/unit/test_write_a_provider.py"}
"""Pages whose snippets are pieces of one program, which a test of their own puts together."""

_FENCE = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.M | re.S)
_ENVIRONMENT = re.compile(r"\$\{env\.(\w+)\}")

WHOLE = {
    "providers": [{"id": "echo", "type": "local::echo"}],
    "models": [{"id": "m", "provider": "echo"}],
}
"""What is added to a part of a template that has no providers."""


class Snippet(NamedTuple):
    """One fenced block.

    Attributes:
        language: what stands behind the fence.
        title: the file that it is, or nothing.
        text: what is in it.
        line: where it begins.
    """

    language: str
    title: str
    text: str
    line: int

    @property
    def is_template(self) -> bool:
        return self.language == "yaml" and self.title not in (*OF_OTHER_PROGRAMS, WRONG)


def snippets(page: str) -> Iterator[Snippet]:
    """The fenced blocks of a page, in order."""
    text = (DOCS / page).read_text("utf-8")
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        yield Snippet(match[1], match[2] or "", match[3], line)


def whole_template(text: str) -> dict[str, Any]:
    """A template of a snippet that may be a part of one."""
    template = read_yaml(text).value
    assert isinstance(template, dict)
    providers = template.setdefault("providers", WHOLE["providers"])
    discovers = any("models" in (each.get("config") or {}) for each in providers)
    if not template.get("models") and not discovers:
        template["models"] = [{"id": "m", "provider": providers[0]["id"]}]
    return template


def variables(text: str) -> dict[str, str]:
    """A value for each environment variable that a template has to have."""
    return {name: f"sk-of-{name.lower()}" for name in _ENVIRONMENT.findall(text)}
