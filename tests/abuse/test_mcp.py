"""MCP servers that mean no good: what they do is theirs alone, and ends with the reply."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.abuse.hostile_mcp import over_http
from tests.abuse.watch import Seen
from tests.clients.scripted_models import Asked, Said, ScriptedModels
from tests.integration import wire
from tests.integration.server_process import ServerProcess, running, write_template
from tests.local_server import Handler, send, serving

pytest.importorskip("mcp", reason="pip install 'llama-compat[mcp]'")

HOSTILE = Path(__file__).with_name("hostile_mcp.py")
FAILING = ("hangs", "dies", "floods", "babbles", "counts")
GOOD_LIST = ("asks", "wide", "alternates", "orders", "stubborn", *FAILING)
NO_LIST = ("silent",)
TOO_MUCH = ("floods", "babbles", "counts")
BY_HTTP = ("vast", "counts", "zipped", "torn", "streams", "moves", "redirects")
ODD_LIST = ("deep", "endless", "many", "names", "garbage")
MAX_TOOLS, MAX_RESULT = 16, 4096


def model(asked: Asked) -> Said:
    if asked.outputs:
        return Said(f"got {len(asked.outputs[-1])}")
    good = next((name for name in sorted(asked.tools) if name.endswith("__good")), None)
    if good is None:
        return Said(f"{len(asked.tools)} tools")
    return Said("", [(good, dict.fromkeys(asked.tools[good]["parameters"]["properties"], "x"))])


@pytest.fixture(scope="module")
def vendor() -> Iterator[ScriptedModels]:
    with ScriptedModels(model) as vendor:
        yield vendor


@pytest.fixture(scope="module")
def reached() -> list[str]:
    """What was asked of the server that nobody should be led to."""
    return []


@pytest.fixture(scope="module")
def hostile(reached: list[str]) -> Iterator[str]:
    def inside(handler: Handler) -> None:
        reached.append(handler.path)
        send(handler, 200, b"{}")

    with (
        serving(inside) as url,
        serving(lambda handler: over_http(handler, f"{url}/latest/meta-data")) as hostile,
    ):
        yield hostile


@pytest.fixture(scope="module")
def served(
    vendor: ScriptedModels, hostile: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    servers = [
        {"label": each, "command": [sys.executable, str(HOSTILE), each]}
        for each in (*GOOD_LIST, *NO_LIST, *ODD_LIST)
    ]
    servers += [{"label": f"web-{each}", "url": f"{hostile}/{each}/mcp"} for each in BY_HTTP]
    template = write_template(
        tmp_path_factory.mktemp("server") / "tools.yaml",
        server={
            "tools": {
                "mcp": {"servers": servers, "max_tools": MAX_TOOLS},
                "max_seconds": 3,
                "max_result_bytes": MAX_RESULT,
            }
        },
        providers=[
            {
                "id": "scripted",
                "type": "remote::passthrough",
                "config": {"base_url": vendor.url, "api_key": "none"},
            }
        ],
        models=[{"id": "m", "provider": "scripted"}],
    )
    with running(template) as process:
        yield process
        assert "Traceback" not in process.log


def ask(server: ServerProcess, label: str) -> Any:
    tool = {"type": "mcp", "server_label": label, "require_approval": "never"}
    body = json.dumps({"model": "m", "input": "go", "tools": [tool]}).encode()
    headers = {"content-type": "application/json"}
    reply = wire.request("POST", f"{server.url}/v1/responses", headers=headers, body=body)
    assert reply.status == 200, reply.body
    return reply.json()


@pytest.mark.parametrize("behaviour", [*GOOD_LIST, *NO_LIST, *ODD_LIST])
def test_a_server_harms_nobody(
    served: ServerProcess,
    vendor: ScriptedModels,
    unharmed: Callable[..., AbstractContextManager[Seen]],
    behaviour: str,
) -> None:
    with unharmed(served, grows=200 << 20, holds=1.0):
        response = ask(served, behaviour)
    assert response["status"] == "completed"
    listed = response["output"][0]
    assert listed["type"] == "mcp_list_tools"
    assert len(listed["tools"]) <= MAX_TOOLS
    calls = [item for item in response["output"] if item["type"] == "mcp_call"]
    for call in calls:
        assert len(call["output"] or call["error"]) <= MAX_RESULT + 100
    if behaviour in GOOD_LIST:
        assert [tool["name"] for tool in listed["tools"]] == ["good"]
        status = "failed" if behaviour in FAILING else "completed"
        assert [call["status"] for call in calls] == [status]
    if behaviour == "alternates":
        assert calls[0]["output"] == "From<"  # it is called by its own names
    if behaviour in TOO_MUCH:
        assert "The server's process was ended. The answer" in calls[0]["error"]
    if behaviour in NO_LIST:
        assert listed["error"]
    assert not [item for item in response["output"] if item["type"] == "function_call"]
    for tool in vendor.received[-1][1].get("tools") or ():
        assert 0 < len(tool["function"]["name"]) <= 64
        # What OpenAI and Anthropic refuse there, and with it the whole request.
        schema = tool["function"]["parameters"]
        assert not {"anyOf", "oneOf", "allOf", "enum", "not"} & set(schema)
        assert all(re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name) for name in schema["properties"])


@pytest.mark.parametrize("behaviour", BY_HTTP)
def test_a_server_over_http_harms_nobody(
    served: ServerProcess,
    reached: list[str],
    unharmed: Callable[..., AbstractContextManager[Seen]],
    behaviour: str,
) -> None:
    with unharmed(served, grows=100 << 20, holds=1.0):
        response = ask(served, f"web-{behaviour}")
    assert response["status"] == "completed"
    listed, *others = response["output"]
    if behaviour == "redirects":
        assert listed["error"]
    else:
        assert [tool["name"] for tool in listed["tools"]] == ["good"]
        (call,) = (item for item in others if item["type"] == "mcp_call")
        assert call["status"] == "failed"
        if behaviour in ("vast", "counts", "streams"):
            assert "The answer" in call["error"]
    assert reached == []


def test_no_process_is_left(served: ServerProcess) -> None:
    left = []
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int(each.joinpath("stat").read_text().rpartition(") ")[2].split()[1])
            if parent == served.process.pid:
                left.append(each.joinpath("cmdline").read_bytes())
    assert [each for each in left if str(HOSTILE).encode() in each] == []
