"""Other people's clients do their work through a server; skipped where they are not installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients import codex


@pytest.mark.parametrize("kind", codex.KINDS)
def test_codex_does_a_task_of_several_calls(kind: str, tmp_path: Path) -> None:
    found = codex.find_codex()
    if found is None:
        pytest.skip("Codex is not installed: npm install @openai/codex")
    codex.do_task(found, kind, tmp_path)
