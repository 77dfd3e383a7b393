"""Tools of real MCP servers, over both transports, by the official SDKs."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from google import genai
from google.genai import types as google

from tests.clients.scripted_models import USAGE, Asked, Said, ScriptedModels
from tests.integration import mcp_program, wire
from tests.integration.mcp_program import PROGRAM
from tests.integration.server_process import ServerProcess, running, write_template

pytest.importorskip("mcp", reason="pip install 'llama-compat[mcp]'")

KEYS = {"all": "sk-of-all-tools", "adder": "sk-of-the-adder", "none": "sk-of-nothing"}


def model(asked: Asked) -> Said:
    """Calls the tool that the user names, with what follows as its arguments, then repeats what
    that gave."""
    if asked.outputs and asked.outputs[-1]:
        return Said(asked.outputs[-1][:500])
    name, _, given = asked.texts[-1].partition(" ")
    if name == "list":
        return Said(" ".join(sorted(asked.tools)) or "none")
    if asked.outputs:
        return Said("nothing but an image")
    return Said("", [(name, json.loads(given or "{}"))])


@pytest.fixture(scope="module")
def vendor() -> Iterator[ScriptedModels]:
    with ScriptedModels(model) as vendor:
        yield vendor


@pytest.fixture(scope="module")
def http_server() -> Iterator[str]:
    from tests.integration.mcp_server import over_http

    with over_http() as url:
        yield url


@pytest.fixture(scope="module")
def server(
    vendor: ScriptedModels, http_server: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    environment = mcp_program.environment()
    servers = [
        {"label": "tests", "command": PROGRAM, "env": environment},
        {"label": "web", "url": http_server},
        {"label": "asking", "url": http_server, "require_approval": ["add"]},
        {"label": "gone", "url": "http://127.0.0.1:9/mcp"},
        {"label": "odd", "command": [*PROGRAM, "odd"], "env": environment},
    ]
    template = write_template(
        tmp_path_factory.mktemp("server") / "tools.yaml",
        server={
            "tools": {
                "mcp": {"servers": servers, "from_requests": True},
                "max_seconds": 10,
                "max_result_bytes": 2000,
            },
            "responses_store": {},
            "storage": f"sqlite:{tmp_path_factory.mktemp('kept') / 'kept.sqlite'}",
        },
        providers=[
            {
                "id": "scripted",
                "type": "remote::passthrough",
                "config": {"base_url": vendor.url, "api_key": "none"},
            }
        ],
        models=[{"id": "m", "provider": "scripted"}],
        keys=[
            {"name": "all", "key": KEYS["all"]},
            {"name": "adder", "key": KEYS["adder"], "tools": ["mcp.web.add"]},
            {"name": "none", "key": KEYS["none"], "tools": []},
        ],
    )
    with running(template) as process:
        yield process
        assert "a-secret-of-the-server" not in process.log
        assert "The sum is" not in process.log
        assert "/mcp" not in process.log


@pytest.fixture
def client(server: ServerProcess) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEYS["all"], max_retries=0)


def mcp(label: str, **members: Any) -> Any:
    return {"type": "mcp", "server_label": label, "require_approval": "never", **members}


@pytest.mark.parametrize("label", ["tests", "web"])
def test_a_tool_is_listed_called_and_shown(client: openai.OpenAI, label: str) -> None:
    asked = f'{label}__add {{"a": 2, "b": 3}}'
    response = client.responses.create(model="m", input=asked, tools=[mcp(label)])
    listed, call, said = response.output
    assert listed.type == "mcp_list_tools"
    assert listed.server_label == label
    assert "who am i" in [tool.name for tool in listed.tools]
    hints = {tool.name: tool.annotations for tool in listed.tools}
    assert hints["add"] == {"title": "Addition", "readOnlyHint": True}
    assert hints["fail"] is None
    assert call.type == "mcp_call"
    assert (call.server_label, call.name, call.status) == (label, "add", "completed")
    assert (json.loads(call.arguments), call.output, call.error) == (
        {"a": 2, "b": 3},
        "The sum is 5.",
        None,
    )
    assert said.type == "message"
    assert response.output_text == "The sum is 5."
    assert response.usage is not None
    assert response.usage.input_tokens == 2 * USAGE[0]


def test_it_is_streamed_as_it_happens(client: openai.OpenAI) -> None:
    asked = 'web__add {"a": 2, "b": 3}'
    with client.responses.stream(model="m", input=asked, tools=[mcp("web")]) as stream:
        types: list[str] = [event.type for event in stream]
        final = stream.get_final_response()
    order = [
        "response.mcp_list_tools.in_progress",
        "response.mcp_list_tools.completed",
        "response.mcp_call.in_progress",
        "response.mcp_call_arguments.done",
        "response.mcp_call.completed",
        "response.output_text.delta",
        "response.completed",
    ]
    assert [types.index(each) for each in order] == sorted(types.index(each) for each in order)
    assert [item.type for item in final.output] == ["mcp_list_tools", "mcp_call", "message"]


def test_the_next_request_has_the_call_and_its_result(
    client: openai.OpenAI, vendor: ScriptedModels
) -> None:
    first = client.responses.create(
        model="m", input='web__add {"a": 2, "b": 3}', tools=[mcp("web")]
    )
    client.responses.create(
        model="m", input="list", tools=[mcp("web")], previous_response_id=first.id
    )
    sent = vendor.received[-1][1]["messages"]
    assert [each["role"] for each in sent] == ["user", "assistant", "tool", "assistant", "user"]
    assert sent[2]["content"] == "The sum is 5."


@pytest.mark.parametrize("approve", [True, False])
def test_the_user_is_asked_first(client: openai.OpenAI, approve: bool) -> None:
    asked = 'asking__add {"a": 2, "b": 3}'
    first = client.responses.create(model="m", input=asked, tools=[mcp("asking")])
    request = first.output[-1]
    assert request.type == "mcp_approval_request"
    assert (request.name, request.server_label) == ("add", "asking")
    word: Any = {
        "type": "mcp_approval_response",
        "approval_request_id": request.id,
        "approve": approve,
    }
    second = client.responses.create(
        model="m", previous_response_id=first.id, input=[word], tools=[mcp("asking")]
    )
    calls = [item for item in second.output if item.type == "mcp_call"]
    if approve:
        (call,) = calls
        assert (call.output, call.approval_request_id) == ("The sum is 5.", request.id)
        assert second.output_text == "The sum is 5."
        third = client.responses.create(
            model="m", previous_response_id=second.id, input="list", tools=[mcp("asking")]
        )
        assert third.status == "completed"
        # Another way to go on from the same response.
        again = client.responses.create(
            model="m", previous_response_id=first.id, input=[word], tools=[mcp("asking")]
        )
        assert [each.output for each in again.output if each.type == "mcp_call"] == [call.output]
    else:
        assert not calls
        assert "did not let" in second.output_text


def test_the_users_word_is_for_that_tool_under_whatever_name(client: openai.OpenAI) -> None:
    mine: Any = {"type": "function", "name": "asking__add", "parameters": {"type": "object"}}
    asked: Any = {"model": "m", "tools": [mine, mcp("asking")]}
    first = client.responses.create(input='asking__add_2 {"a": 2, "b": 3}', **asked)
    word: Any = {"type": "mcp_approval_response", "approval_request_id": first.output[-1].id}
    asked |= {"previous_response_id": first.id, "input": [{**word, "approve": True}]}
    second = client.responses.create(**asked)
    assert [(each.type, getattr(each, "output", "")) for each in second.output[1:-1]] == [
        ("mcp_call", "The sum is 5.")
    ]
    # Without its server there is nothing to run, which the model is told of.
    third = client.responses.create(**{**asked, "tools": [mine]})
    assert "no such tool any more" in third.output_text


def test_chat_completions_have_servers_too(client: openai.OpenAI) -> None:
    said = client.chat.completions.create(
        model="m",
        messages=[{"role": "user", "content": 'web__add {"a": 2, "b": 3}'}],
        tools=[mcp("web")],
    )
    assert (said.choices[0].message.content, said.choices[0].finish_reason) == (
        "The sum is 5.",
        "stop",
    )


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_googles_interactions_have_servers_too(server: ServerProcess, stream: bool) -> None:
    asked: Any = {
        "model": "m",
        "input": 'tests__add {"a": 1, "b": 1}',
        "tools": [{"type": "mcp_server", "name": "tests", "allowed_tools": [{"tools": ["add"]}]}],
    }
    options = google.HttpOptions(
        base_url=server.url, retry_options=google.HttpRetryOptions(attempts=1)
    )
    with genai.Client(api_key=KEYS["all"], http_options=options) as client:
        if stream:
            events: Any = client.interactions.create(**asked, stream=True)
            begun, told = [], dict[int, Any]()
            for event in events:
                if event.event_type == "step.start":
                    begun.append(event.step.type)
                elif event.event_type == "step.delta":
                    told[event.index] = event.delta
                elif event.event_type == "interaction.completed":
                    interaction_id = event.interaction.id
            call, result = told[0], told[1]
        else:
            whole: Any = client.interactions.create(**asked)
            begun, interaction_id = [each.type for each in whole.steps], whole.id
            call, result = whole.steps[:2]
        assert begun == ["mcp_server_tool_call", "mcp_server_tool_result", "model_output"]
        assert (call.server_name, call.name, call.arguments) == ("tests", "add", {"a": 1, "b": 1})
        assert (result.server_name, result.result) == ("tests", "The sum is 2.")
        # What was kept is told to the model as the call that it was.
        again: Any = client.interactions.create(
            **{**asked, "input": "list"}, previous_interaction_id=interaction_id
        )
        assert again.steps[-1].content[0].text == "The sum is 2."


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_googles_generate_content_has_servers_too(
    server: ServerProcess, http_server: str, stream: bool
) -> None:
    transport = google.StreamableHttpTransport(url=http_server)
    options = google.HttpOptions(
        base_url=server.url, retry_options=google.HttpRetryOptions(attempts=1)
    )
    for named in (
        google.McpServer(name="tests"),
        google.McpServer(name="web", streamable_http_transport=transport),
    ):
        config = google.GenerateContentConfig(tools=[google.Tool(mcp_servers=[named])])
        asked: Any = {"model": "m", "contents": f'{named.name}__add {{"a": 1, "b": 1}}'}
        with genai.Client(api_key=KEYS["all"], http_options=options) as client:
            if stream:
                events = client.models.generate_content_stream(**asked, config=config)
                said = "".join(event.text or "" for event in events)
            else:
                said = client.models.generate_content(**asked, config=config).text or ""
        assert said == "The sum is 2."


def test_no_credentials_come_back(client: openai.OpenAI) -> None:
    tool = mcp("x", server_url="https://127.0.0.1:9/", authorization="secret-1")
    tool["headers"] = {"x-key": "secret-2"}
    response = client.responses.create(model="m", input="list", tools=[tool])
    kept = client.responses.retrieve(response.id)
    for each in (response, kept):
        assert "secret-" not in each.model_dump_json()
        assert each.tools[0].server_label == "x"  # type: ignore[union-attr]


def test_a_setting_that_is_not_known_is_named(client: openai.OpenAI) -> None:
    reply = client.responses.with_raw_response.create(
        model="m", input="list", tools=[mcp("web", server_description="Adds.")]
    )
    assert reply.headers["x-llama-compat-dropped"] == "tools[0].server_description"


def test_other_apis_do_not_get_what_asks(server: ServerProcess) -> None:
    claude = anthropic.Anthropic(base_url=server.url, api_key=KEYS["all"], max_retries=0)
    message: Any = claude.beta.messages.create(
        model="m",
        max_tokens=100,
        messages=[{"role": "user", "content": "list"}],
        mcp_servers=[{"type": "url", "name": "asking", "url": ""}],
        betas=["mcp-client-2025-11-20"],
    )
    assert "asking__add" not in message.content[0].text.split()
    assert "asking__fail" in message.content[0].text.split()


def test_claudes_connector(server: ServerProcess) -> None:
    claude = anthropic.Anthropic(base_url=server.url, api_key=KEYS["all"], max_retries=0)
    with claude.beta.messages.stream(
        model="m",
        max_tokens=100,
        messages=[{"role": "user", "content": 'web__add {"a": 2, "b": 3}'}],
        mcp_servers=[{"type": "url", "name": "web", "url": ""}],
        tools=[{"type": "mcp_toolset", "mcp_server_name": "web"}],
        betas=["mcp-client-2025-11-20"],
    ) as stream:
        deltas = [each.delta.type for each in stream if each.type == "content_block_delta"]
        message: Any = stream.get_final_message()
    assert "input_json_delta" not in deltas  # Claude Code gives up at one in an `mcp_tool_use`.
    use, result, said = message.content
    assert (use.type, use.name, use.server_name) == ("mcp_tool_use", "add", "web")
    assert use.input == {"a": 2, "b": 3}
    assert (result.type, result.tool_use_id, result.is_error) == ("mcp_tool_result", use.id, False)
    assert said.text == "The sum is 5."


def test_only_the_tools_that_the_request_allows(client: openai.OpenAI) -> None:
    tool = mcp("web", allowed_tools=["add", "fail"])
    response = client.responses.create(model="m", input="list", tools=[tool])
    assert response.output_text == "web__add web__fail"


def test_only_the_tools_that_the_key_has(server: ServerProcess) -> None:
    adder = openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEYS["adder"], max_retries=0)
    response = adder.responses.create(model="m", input="list", tools=[mcp("web")])
    assert response.output_text == "web__add"
    with pytest.raises(openai.PermissionDeniedError):
        adder.responses.create(
            model="m", input="list", tools=[mcp("web", server_url="https://mcp.example/mcp")]
        )
    nobody = openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEYS["none"], max_retries=0)
    # Nor is a server connected to for a key that has none of its tools.
    for who, label in ((nobody, "web"), (adder, "tests")):
        with pytest.raises(openai.PermissionDeniedError):
            who.responses.create(model="m", input="list", tools=[mcp(label)])


def test_no_users_word_lets_a_key_call_what_is_not_for_it(
    client: openai.OpenAI, server: ServerProcess
) -> None:
    adder = openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEYS["adder"], max_retries=0)
    wanted: Any = {
        "type": "mcp_approval_request",
        "id": "mcpr_1",
        "server_label": "web",
        "name": "who am i",
        "arguments": "{}",
    }
    word: Any = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    go: Any = {"role": "user", "content": "list"}
    asked: Any = {"model": "m", "input": [go, wanted, word], "tools": [mcp("web")]}
    for who, is_run in ((client, True), (adder, False)):
        response = who.responses.create(**asked)
        ran = [each.status for each in response.output if each.type == "mcp_call"]
        assert ran == (["completed"] if is_run else [])
        assert ("no such tool any more" in response.output_text) is not is_run
    # Nor what another key has been asked about.
    first = client.responses.create(
        model="m", input='asking__add {"a": 2, "b": 3}', tools=[mcp("asking")]
    )
    word["approval_request_id"] = first.output[-1].id
    with pytest.raises(openai.BadRequestError) as refused:
        adder.responses.create(
            model="m", previous_response_id=first.id, input=[word], tools=[mcp("web")]
        )
    assert refused.value.code == "previous_response_not_found"


def test_names_that_collide_get_others(client: openai.OpenAI) -> None:
    mine: Any = {
        "type": "function",
        "name": "web__add",
        "parameters": {"type": "object", "properties": {}},
        "strict": False,
    }
    tool = mcp("web", allowed_tools=["add", "who am i"])
    response = client.responses.create(model="m", input="list", tools=[mine, tool])
    names = response.output_text.split()
    assert {"web__add", "web__add_2"} <= set(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", each) for each in names)


def test_an_image_reaches_the_model(client: openai.OpenAI, vendor: ScriptedModels) -> None:
    client.responses.create(model="m", input="web__picture", tools=[mcp("web")])
    assert "data:image/png;base64," in json.dumps(vendor.received[-1][1])


def test_resources_are_shown_or_named(client: openai.OpenAI, vendor: ScriptedModels) -> None:
    call: Any = client.responses.create(
        model="m", input="web__resources", tools=[mcp("web")]
    ).output[1]
    assert call.output == (
        "[A link to demo://notes: Notes, Mine]\n"
        "[resource: demo://application/zip can't be shown here.]"
    )
    assert json.dumps(vendor.received[-1][1]).count("data:image/png;base64,") == 1


def test_a_tool_that_fails_is_told_to_the_model(client: openai.OpenAI) -> None:
    response = client.responses.create(model="m", input="web__fail", tools=[mcp("web")])
    call: Any = response.output[1]
    assert call.status == "failed"
    assert "fail" in call.error
    assert response.status == "completed"


def test_a_process_is_for_one_reply_and_ends_with_it(client: openai.OpenAI) -> None:
    name = next(
        each
        for each in client.responses.create(
            model="m", input="list", tools=[mcp("tests", allowed_tools=["who am i"])]
        ).output_text.split()
    )
    pids = {
        client.responses.create(model="m", input=name, tools=[mcp("tests")]).output_text
        for _ in range(2)
    }
    assert len(pids) == 2
    for each in pids:
        assert not Path(f"/proc/{each.removeprefix('pid ')}").exists()


def test_a_server_that_is_not_there_leaves_the_model_without(client: openai.OpenAI) -> None:
    response = client.responses.create(model="m", input="list", tools=[mcp("gone")])
    listed: Any = response.output[0]
    assert (listed.type, listed.tools) == ("mcp_list_tools", [])
    assert listed.error
    assert response.output_text == "none"


def test_a_server_within_the_network_is_not_reached(
    client: openai.OpenAI, http_server: str
) -> None:
    port = http_server.rpartition(":")[2].partition("/")[0]
    for url in (http_server.replace("/mcp", "/mcp?x"), f"http://localhost:{port}/mcp/"):
        response = client.responses.create(
            model="m", input="list", tools=[mcp("mine", server_url=url)]
        )
        listed: Any = response.output[0]
        assert listed.error
        assert listed.tools == []


@pytest.mark.parametrize(
    ("tool", "status"),
    [
        (mcp("nobody"), 400),
        (mcp("web", authorization="mine"), 400),
        (mcp("x", connector_id="connector_gmail"), 400),
        (mcp("x", server_url="file:///etc/passwd"), 400),
    ],
)
def test_what_can_not_be_is_named(client: openai.OpenAI, tool: Any, status: int) -> None:
    with pytest.raises(openai.APIStatusError) as refused:
        client.responses.create(model="m", input="list", tools=[tool])
    assert refused.value.status_code == status


def offered(server: ServerProcess, key: str, path: str = "") -> wire.Reply:
    headers = {"authorization": f"Bearer {KEYS[key]}"}
    return wire.request("GET", f"{server.url}/v1/tools{path}", headers=headers)


def test_a_key_is_told_which_servers_it_may_use(server: ServerProcess) -> None:
    labels = {
        key: [each["server_label"] for each in offered(server, key).json()["data"]] for key in KEYS
    }
    every = ["tests", "web", "asking", "gone", "odd"]
    assert labels == {"all": every, "adder": ["web"], "none": []}
    assert wire.request("GET", f"{server.url}/v1/tools").status == 401


@pytest.mark.parametrize("label", ["tests", "web"])
def test_a_key_is_told_the_tools_of_a_server(server: ServerProcess, label: str) -> None:
    told = offered(server, "all", f"/{label}").json()
    assert (told["server_label"], told["error"]) == (label, None)
    (add,) = (each for each in told["tools"] if each["name"] == "add")
    assert add["description"] == "Add two numbers."
    assert add["input_schema"]["required"] == ["a", "b"]
    assert (add["annotations"]["readOnlyHint"], add["require_approval"]) == (True, False)


def test_what_a_key_may_not_call_is_not_told_of(server: ServerProcess) -> None:
    told = offered(server, "adder", "/web").json()
    assert [each["name"] for each in told["tools"]] == ["add"]
    for key, label in (("adder", "asking"), ("none", "web")):
        refused = offered(server, key, f"/{label}")
        assert (refused.status, refused.error()["code"]) == (403, "tool_not_allowed")
    unknown = offered(server, "all", "/nobody's")
    assert (unknown.status, unknown.error()["code"]) == (400, "unknown_tool_server")


def test_what_asks_says_so_and_who_is_gone_too(server: ServerProcess) -> None:
    asking = offered(server, "all", "/asking").json()["tools"]
    assert [each["name"] for each in asking if each["require_approval"]] == ["add"]
    gone = offered(server, "all", "/gone").json()
    assert gone["tools"] == []
    assert gone["error"]


def test_a_result_names_no_tool_to_run(client: openai.OpenAI) -> None:
    response = client.responses.create(model="m", input="tests__flood", tools=[mcp("tests")])
    assert response.status == "completed"
    assert [item.type for item in response.output] == ["mcp_list_tools", "mcp_call", "message"]
    call: Any = response.output[1]
    assert (call.name, call.status) == ("flood", "completed")
    assert "tests__die" in call.output


def test_a_list_that_changes_is_that_of_the_next_reply(
    client: openai.OpenAI, vendor: ScriptedModels
) -> None:
    response = client.responses.create(model="m", input="tests__grow", tools=[mcp("tests")])
    assert response.output_text == "grown"
    (_, first), (_, second) = vendor.received[-2:]
    assert first["tools"] == second["tools"]
    assert "add_again" not in str(second["tools"])


def programs(server: ServerProcess) -> list[Path]:
    """The MCP servers that a server has started."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int(each.joinpath("stat").read_text().rpartition(") ")[2].split()[1])
            is_program = mcp_program.MODULE.encode() in each.joinpath("cmdline").read_bytes()
            if parent == server.process.pid and is_program:
                found.append(each)
    return found


def until(server: ServerProcess, *, runs: bool) -> None:
    deadline = time.monotonic() + 30
    while bool(programs(server)) is not runs:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("how", ["cancel", "leave"])
def test_who_wants_no_more_ends_the_tool(
    client: openai.OpenAI, server: ServerProcess, how: str
) -> None:
    asked: Any = {"model": "m", "input": "tests__hang", "tools": [mcp("tests")]}
    if how == "cancel":
        begun = client.responses.create(**asked, background=True)
        until(server, runs=True)
        assert client.responses.cancel(begun.id).status == "cancelled"
    else:
        with client.responses.create(**asked, stream=True) as events:
            next(each for each in events if each.type == "response.mcp_call.in_progress")
            until(server, runs=True)
    until(server, runs=False)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_schema_that_a_model_is_shown_otherwise_is_named(
    client: openai.OpenAI, stream: bool
) -> None:
    asked: Any = {"model": "m", "input": "list", "stream": stream}
    raw = client.responses.with_raw_response
    reply = raw.create(**asked, tools=[mcp("odd"), mcp("web")])
    assert reply.headers["x-llama-compat-adapted"] == "odd__find.input_schema"
    other = raw.create(**asked, tools=[mcp("web")])
    assert "x-llama-compat-adapted" not in other.headers
