"""OpenAI's Agents SDK searches the web and calls an MCP tool through a server, on a model that is
not OpenAI's: `python -m tests.clients.agents_sdk [--everything PATH]`.

Its `WebSearchTool` and `HostedMCPTool` are for tools that a server runs. The task is done twice for
each of two MCP servers, whole and streamed. The SDK, the server, the search and the MCP servers are
real, and the model follows a script. The SDK comes from PyPI (`pip install openai-agents`), the MCP
server from npm (`npm install @modelcontextprotocol/server-everything`).
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import sys
import tempfile
from pathlib import Path
from typing import Any

import openai

from tests.clients.hosted_tools import (
    ANSWER,
    ECHO,
    LABELS,
    LINK,
    MODEL,
    TASK,
    URL,
    find_everything,
    served,
    worker,
)


def is_installed() -> bool:
    """Whether the SDK is there."""
    return importlib.util.find_spec("agents") is not None


async def do_task(everything: str, label: str, folder: Path, *, stream: bool) -> str:
    """Have an agent do the task with the MCP server `label`; what it says in the end.

    Raises:
        AssertionError: it did not do it.
    """
    import agents

    agents.set_tracing_disabled(True)
    vendor, called = worker(label)
    with served(folder, everything, vendor) as serves:
        async with openai.AsyncOpenAI(
            base_url=f"{serves.server.url}/v1", api_key="none", max_retries=0
        ) as client:
            agent = agents.Agent(
                name="worker",
                model=agents.OpenAIResponsesModel(MODEL, client),
                tools=[
                    agents.WebSearchTool(),
                    agents.HostedMCPTool(
                        tool_config={
                            "type": "mcp",
                            "server_label": label,
                            "require_approval": "never",
                        }
                    ),
                ],
            )
            result: Any
            if stream:
                result = agents.Runner.run_streamed(agent, TASK)
                kinds = [event.type async for event in result.stream_events()]
                assert "raw_response_event" in kinds
            else:
                result = await agents.Runner.run(agent, TASK)
            _check_what_was_shown(result, label)
            # What was shown goes back to the server with the next question: the call with what it
            # gave, the search without what it found, which this API has no place for.
            again = await agents.Runner.run(
                agent, [*result.to_input_list(), {"role": "user", "content": "Say it again."}]
            )
    assert result.final_output == again.final_output == ANSWER, (result, again)
    assert called == [f"{label}__echo", "web_search", "web_search"], called
    return str(result.final_output)


def _check_what_was_shown(result: Any, label: str) -> None:
    (response,) = result.raw_responses
    shown = {item.type: item for item in response.output}
    assert set(shown) == {"mcp_list_tools", "mcp_call", "web_search_call", "message"}, shown
    assert "echo" in [tool.name for tool in shown["mcp_list_tools"].tools]
    call = shown["mcp_call"]
    assert (call.server_label, call.name, call.output, call.error) == (label, "echo", ECHO, None)
    (part,) = shown["message"].content
    (cited,) = part.annotations
    assert part.text[cited.start_index : cited.end_index] == LINK
    assert cited.url == URL


async def _do_all(everything: str) -> None:
    for label in LABELS:
        for stream in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                said = await do_task(everything, label, Path(folder), stream=stream)
                how = "streamed" if stream else "whole"
                print(f"with an MCP server by {label}, {how}: {said}")


def main() -> int:
    import asyncio

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--everything", default=find_everything(), help="where the MCP server is")
    everything = parser.parse_args().everything
    if everything is None or not is_installed():
        print(
            "skipped: not installed; `pip install openai-agents`,"
            " `npm install @modelcontextprotocol/server-everything`"
        )
        return 0
    print(f"openai-agents {importlib.metadata.version('openai-agents')}")
    asyncio.run(_do_all(everything))
    return 0


if __name__ == "__main__":
    sys.exit(main())
