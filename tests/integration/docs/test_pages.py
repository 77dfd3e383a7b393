"""Every page of the documentation does what it says, and the README: what they show runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.documents import TESTED_APART, WITH_README, snippets
from tests.integration.docs.shell import Shell

RUN = ("console", "python")


@pytest.mark.parametrize(
    "page",
    [
        page
        for page in WITH_README
        if page not in TESTED_APART and any(each.language in RUN for each in snippets(page))
    ],
)
def test_a_page_does_what_it_says(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in os.environ if each.endswith("_API_KEY")]:
        monkeypatch.delenv(name)
    found = list(snippets(page))
    monkeypatch.chdir(tmp_path)
    shell = Shell(found, tmp_path)
    try:
        for snippet in found:
            try:
                shell.run(snippet)
            except Exception as error:
                error.add_note(f"docs/{page}, line {snippet.line}")
                raise
    finally:
        shell.close()
