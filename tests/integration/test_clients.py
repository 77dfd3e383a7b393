"""Other people's clients do their work through a server; skipped where they are not installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients import agents_sdk, claude_code, codex, codex_tools
from tests.clients.hosted_tools import LABELS, find_everything


@pytest.mark.parametrize("kind", codex.KINDS)
def test_codex_does_a_task_of_several_calls(kind: str, tmp_path: Path) -> None:
    found = codex.find_codex()
    if found is None:
        pytest.skip("Codex is not installed: npm install @openai/codex")
    codex.do_task(found, kind, tmp_path)


@pytest.mark.parametrize("way", codex_tools.WAYS)
@pytest.mark.parametrize("label", LABELS)
def test_codex_searches_and_calls_a_tool(label: str, way: str, tmp_path: Path) -> None:
    found = codex.find_codex()
    if found is None:
        pytest.skip("Codex is not installed: npm install @openai/codex")
    codex_tools.do_task(found, everything(), label, way, tmp_path)


def everything() -> str:
    found = find_everything()
    if found is None:
        pytest.skip("no MCP server: npm install @modelcontextprotocol/server-everything")
    return found


@pytest.mark.parametrize("label", LABELS)
def test_claude_code_searches_and_calls_a_tool_of_the_server(label: str, tmp_path: Path) -> None:
    found = claude_code.find_claude()
    if found is None:
        pytest.skip("Claude Code is not installed: npm install @anthropic-ai/claude-code")
    claude_code.do_task(found, everything(), label, tmp_path)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("label", LABELS)
async def test_the_agents_sdk_searches_and_calls_a_tool_of_the_server(
    label: str, stream: bool, tmp_path: Path
) -> None:
    if not agents_sdk.is_installed():
        pytest.skip("the Agents SDK is not installed: pip install openai-agents")
    await agents_sdk.do_task(everything(), label, tmp_path, stream=stream)
