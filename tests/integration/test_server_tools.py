"""Tools that the server runs, by the official SDKs, on models whose vendor has no such tool."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from google import genai
from google.genai import types as google

from tests.clients.scripted_models import USAGE, Asked, Said, ScriptedModels
from tests.integration.server_process import ServerProcess, running, write_template
from tests.local_server import Handler, send, serving

SEARCH: Any = {"type": "web_search"}
CLAUDES_SEARCH: Any = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
LINK = "[The Nile](https://rivers.example/nile)"
ANSWER = f"It is long. {LINK} says 6,650 km."
KEYS = {"team-a": "sk-of-team-a", "nothing": "sk-of-nobody", "searcher": "sk-of-searcher"}
RAILS: list[tuple[str, dict[str, Any]]] = [
    (
        f"{mode}s-{place}",
        {
            "name": "rivers",
            "scan": place,
            "expressions": {"RIVER": "(?:N|n)ile|6,650 km"},
            "mode": mode,
        },
    )
    for mode in ("block", "redact")
    for place in ("tool_arguments", "tool_results")
]
"""Models whose guardrails look through what tools are given, or what they gave."""

CLIENTS_TOOL = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
}


def model(asked: Asked) -> Said:
    """One that does what it is told in one word, and then answers with what it got."""
    told = asked.texts[-1]
    if told.startswith("both") and not asked.outputs:
        return Said("", [("web_search", {"query": "nile"}), ("read_file", {"path": "a.txt"})])
    if told.startswith("fetch") and not asked.outputs:
        return Said("", [("web_fetch", {"url": told.split()[1]})])
    if told.startswith("forever"):
        return Said("Again.", [("web_search", {"query": "nile"})] if asked.tools else [])
    if told.startswith("search") and not asked.outputs and "web_search" in asked.tools:
        return Said("Let me see. ", [("web_search", {"query": "nile length"})])
    if told.startswith("search"):
        return Said(ANSWER)
    return Said(" | ".join(asked.outputs) or "Nothing to say.")


@pytest.fixture(scope="module")
def vendor() -> Iterator[ScriptedModels]:
    with ScriptedModels(model) as vendor:
        yield vendor


def page(handler: Handler) -> None:
    if handler.path == "/moved":
        send(handler, 302, b"", location="/nile")
    else:
        html = b"<html><head><title>Nile</title></head><body><h1>A river</h1><p>6,650 km</body>"
        send(handler, 200, html, "text/html")


@pytest.fixture(scope="module")
def pages() -> Iterator[str]:
    with serving(page) as url:
        yield url


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept") / "kept.sqlite"


@pytest.fixture(scope="module")
def server(
    vendor: ScriptedModels, kept: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("web")
    (folder / "nile.txt").write_text("The Nile\nhttps://rivers.example/nile\nlength: 6,650 km\n")
    (folder / "rhine.txt").write_text("The Rhine\nhttps://other.example/rhine\nlength: 1,233 km\n")
    template = write_template(
        tmp_path_factory.mktemp("server") / "tools.yaml",
        server={
            "tools": {
                "web_search": {"backend": "files", "folder": str(folder)},
                "web_fetch": {"allow_private_addresses": True},
                "max_turns": 3,
                "max_cost": 1,
            },
            "storage": f"sqlite:{kept}",
            "records": {},
            "responses_store": {},
        },
        providers=[
            {
                "id": "scripted",
                "type": "remote::passthrough",
                "config": {"base_url": vendor.url, "api_key": "none"},
            }
        ],
        models=[
            {"id": "m", "provider": "scripted"},
            {
                "id": "dear",
                "provider": "scripted",
                "provider_model": "m",
                "price": {"input": 1_000_000, "output": 1_000_000},
            },
            *({"id": name, "provider": "scripted", "guardrails": [rail]} for name, rail in RAILS),
        ],
        keys=[
            {"name": "team-a", "key": KEYS["team-a"]},
            {"name": "searcher", "key": KEYS["searcher"], "tools": ["web_s*"]},
            {"name": "nothing", "key": KEYS["nothing"], "tools": []},
        ],
    )
    with running(template) as process:
        yield process


@pytest.fixture
def client(server: ServerProcess) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEYS["team-a"], max_retries=0)


@pytest.fixture
def claude(server: ServerProcess) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=server.url, api_key=KEYS["team-a"], max_retries=0)


# Responses ------------------------------------------------------------------------------------


def test_a_response_shows_the_search_and_cites(client: openai.OpenAI) -> None:
    response = client.responses.create(
        model="m", input="search", tools=[SEARCH], include=["web_search_call.action.sources"]
    )
    kinds = [item.type for item in response.output]
    assert kinds == ["message", "web_search_call", "message"]
    call: Any = response.output[1]
    assert call.status == "completed"
    assert call.action.query == "nile length"
    assert [each.url for each in call.action.sources] == [
        "https://rivers.example/nile",
        "https://other.example/rhine",
    ]
    said: Any = response.output[2]
    text, (cited,) = said.content[0].text, said.content[0].annotations
    assert text == ANSWER
    assert text[cited.start_index : cited.end_index] == LINK
    assert (cited.url, cited.title) == ("https://rivers.example/nile", "The Nile")
    assert response.usage is not None
    assert response.usage.input_tokens == 2 * USAGE[0]
    assert response.usage.output_tokens == 2 * USAGE[1]
    assert [tool.type for tool in response.tools] == ["web_search"]


def test_a_streamed_response_is_the_same_as_a_whole_one(client: openai.OpenAI) -> None:
    with client.responses.stream(model="m", input="search", tools=[SEARCH]) as stream:
        events = list(stream)
        streamed = stream.get_final_response()
    types: list[str] = [event.type for event in events]
    order = [
        "response.web_search_call.in_progress",
        "response.web_search_call.searching",
        "response.web_search_call.completed",
        "response.output_text.annotation.added",
        "response.completed",
    ]
    assert [types.index(each) for each in order] == sorted(types.index(each) for each in order)
    numbers = [event.sequence_number for event in events if hasattr(event, "sequence_number")]
    assert numbers == sorted(numbers)
    whole = client.responses.create(model="m", input="search", tools=[SEARCH])
    assert [_without_ids(item) for item in streamed.output] == [
        _without_ids(item) for item in whole.output
    ]
    assert streamed.usage == whole.usage


def _without_ids(item: Any) -> Any:
    told = item.model_dump()
    for part in told.get("content") or ():
        part.pop("parsed", None)
    return {name: value for name, value in told.items() if name != "id"}


def test_what_was_shown_comes_back_in_the_next_request(client: openai.OpenAI) -> None:
    first = client.responses.create(model="m", input="search", tools=[SEARCH])
    items: Any = [{"role": "user", "content": "search"}, *first.output]
    again = client.responses.create(
        model="m", input=[*items, {"role": "user", "content": "well"}], tools=[SEARCH]
    )
    assert again.output_text == "Nothing to say."


def test_allowed_domains_hold(client: openai.OpenAI, vendor: ScriptedModels) -> None:
    tool: Any = {"type": "web_search", "filters": {"allowed_domains": ["rivers.example"]}}
    client.responses.create(model="m", input="search", tools=[tool])
    given = vendor.received[-1][1]["messages"][-1]
    assert given["role"] == "tool"
    assert "rivers.example" in given["content"]
    assert "other.example" not in given["content"]


def test_the_user_is_somewhere(client: openai.OpenAI, vendor: ScriptedModels) -> None:
    tool: Any = {
        "type": "web_search",
        "user_location": {"type": "approximate", "city": "Cairo", "country": "EG"},
    }
    client.responses.create(model="m", input="well", tools=[tool])
    (offered,) = vendor.received[-1][1]["tools"]
    assert "Cairo, EG" in offered["function"]["description"]


def test_a_tool_of_the_clients_ends_the_reply(client: openai.OpenAI) -> None:
    tools: Any = [
        SEARCH,
        {"type": "function", "name": "read_file", "parameters": CLIENTS_TOOL, "strict": False},
    ]
    response = client.responses.create(model="m", input="both", tools=tools)
    assert {item.type for item in response.output} == {"web_search_call", "function_call"}
    call: Any = next(item for item in response.output if item.type == "function_call")
    answer = {"type": "function_call_output", "call_id": call.call_id, "output": "of the file"}
    items: Any = [{"role": "user", "content": "both"}, *response.output, answer]
    after = client.responses.create(model="m", input=items, tools=tools)
    assert after.output_text == "of the file"


def test_no_more_calls_than_the_request_lets(client: openai.OpenAI, vendor: ScriptedModels) -> None:
    response = client.responses.create(model="m", input="forever", tools=[SEARCH], max_tool_calls=1)
    searches = [item for item in response.output if item.type == "web_search_call"]
    assert len(searches) == 1
    assert vendor.received[-1][1]["tool_choice"] == "none"


def test_no_more_turns_than_the_template_lets(
    client: openai.OpenAI, vendor: ScriptedModels
) -> None:
    before = len(vendor.received)
    response = client.responses.create(model="m", input="forever", tools=[SEARCH])
    assert len(vendor.received) - before == 3
    assert response.status == "completed"


def test_no_other_turn_when_the_cost_is_used_up(
    client: openai.OpenAI, vendor: ScriptedModels
) -> None:
    before = len(vendor.received)
    response = client.responses.create(model="dear", input="forever", tools=[SEARCH])
    assert len(vendor.received) - before == 1
    assert response.status == "incomplete"


# Messages -------------------------------------------------------------------------------------


def test_claude_codes_search_works_on_any_model(claude: anthropic.Anthropic) -> None:
    with claude.messages.stream(
        model="m",
        max_tokens=500,
        system="You are an assistant for performing a web search tool use",
        messages=[{"role": "user", "content": "search the web for: nile"}],
        tools=[CLAUDES_SEARCH],
        tool_choice={"type": "tool", "name": "web_search"},
    ) as stream:
        events = [event.type for event in stream]
        message: Any = stream.get_final_message()
    assert [block.type for block in message.content] == [
        "text",
        "server_tool_use",
        "web_search_tool_result",
        "text",
    ]
    use, result, said = message.content[1:]
    assert use.input == {"query": "nile length"}
    assert use.id == result.tool_use_id
    assert use.id.startswith("srvtoolu_")
    assert [each.title for each in result.content] == ["The Nile", "The Rhine"]
    assert said.text == ANSWER
    (cited,) = said.citations
    assert (cited.type, cited.url) == ("web_search_result_location", "https://rivers.example/nile")
    assert message.stop_reason == "end_turn"
    assert message.usage.server_tool_use.web_search_requests == 1
    assert "citation" in events


def test_a_whole_message_says_the_same(claude: anthropic.Anthropic) -> None:
    asked: Any = {
        "model": "m",
        "max_tokens": 500,
        "messages": [{"role": "user", "content": "search"}],
        "tools": [CLAUDES_SEARCH],
    }
    whole = claude.messages.create(**asked)
    with claude.messages.stream(**asked) as stream:
        streamed = stream.get_final_message()
    assert [_unnamed(block) for block in whole.content] == [
        _unnamed(block) for block in streamed.content
    ]
    assert whole.usage.output_tokens == streamed.usage.output_tokens == 2 * USAGE[1]


def _unnamed(block: Any) -> Any:
    told = block.model_dump(exclude_none=True)
    return {name: each for name, each in told.items() if name not in ("id", "tool_use_id")}


def test_blocks_come_back_as_a_call_and_its_answer(
    claude: anthropic.Anthropic, vendor: ScriptedModels
) -> None:
    asked: Any = {"model": "m", "max_tokens": 500, "tools": [CLAUDES_SEARCH]}
    user: Any = {"role": "user", "content": "search"}
    first = claude.messages.create(**asked, messages=[user])
    said: Any = {"role": "assistant", "content": [each.model_dump() for each in first.content]}
    claude.messages.create(**asked, messages=[user, said, {"role": "user", "content": "well"}])
    sent = vendor.received[-1][1]["messages"]
    assert [each["role"] for each in sent] == ["user", "assistant", "tool", "assistant", "user"]
    assert sent[1]["tool_calls"][0]["function"]["name"] == "web_search"
    assert "6,650 km" in sent[2]["content"]


def test_a_page_is_read(claude: anthropic.Anthropic, pages: str) -> None:
    tool: Any = {"type": "web_fetch_20250910", "name": "web_fetch"}
    message: Any = claude.messages.create(
        model="m",
        max_tokens=500,
        messages=[{"role": "user", "content": f"fetch {pages}/moved"}],
        tools=[tool],
    )
    use, result, said = message.content
    assert (use.type, use.name) == ("server_tool_use", "web_fetch")
    assert result.type == "web_fetch_tool_result"
    assert result.content.type == "web_fetch_result"
    assert result.content.url == f"{pages}/nile"
    assert result.content.content.title == "Nile"
    assert "A river\n6,650 km" in result.content.content.source.data
    assert "6,650 km" in said.text


# Google's generateContent ---------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_googles_clients_have_a_page_read(server: ServerProcess, pages: str, stream: bool) -> None:
    config = google.GenerateContentConfig(tools=[google.Tool(url_context=google.UrlContext())])
    options = google.HttpOptions(
        base_url=server.url, retry_options=google.HttpRetryOptions(attempts=1)
    )
    candidates: list[google.Candidate] = []
    with genai.Client(api_key=KEYS["team-a"], http_options=options) as client:
        for url in (f"{pages}/nile", f"{pages}:99999/none"):
            asked: Any = {"model": "m", "contents": f"fetch {url}", "config": config}
            if stream:
                *_, last = client.models.generate_content_stream(**asked)
            else:
                last = client.models.generate_content(**asked)
            assert last.candidates
            candidates += last.candidates
    told = [each.url_context_metadata for each in candidates]
    success, error = (
        google.UrlRetrievalStatus.URL_RETRIEVAL_STATUS_SUCCESS,
        google.UrlRetrievalStatus.URL_RETRIEVAL_STATUS_ERROR,
    )
    assert [each and each.url_metadata for each in told] == [
        [google.UrlMetadata(retrieved_url=f"{pages}/nile", url_retrieval_status=success)],
        [google.UrlMetadata(retrieved_url=f"{pages}:99999/none", url_retrieval_status=error)],
    ]


# Chat completions -----------------------------------------------------------------------------


def test_a_chat_gets_the_answer_with_annotations(client: openai.OpenAI) -> None:
    asked: Any = {
        "model": "m",
        "messages": [{"role": "user", "content": "search"}],
        "web_search_options": {},
    }
    whole = client.chat.completions.create(**asked)
    message = whole.choices[0].message
    assert whole.choices[0].finish_reason == "stop"
    assert message.tool_calls is None
    (annotation,) = message.annotations or []
    cited = annotation.url_citation
    assert (message.content or "")[cited.start_index : cited.end_index] == LINK
    text = ""
    annotations: list[Any] = []
    for chunk in client.chat.completions.create(**asked, stream=True):
        delta: Any = chunk.choices[0].delta
        text += delta.content or ""
        annotations += getattr(delta, "annotations", None) or []
    assert text == message.content
    assert annotations == [annotation.model_dump(exclude_none=True)]


# Who may, and what is written down --------------------------------------------------------------


@pytest.mark.parametrize("key", ["nothing", "searcher"])
def test_a_key_has_its_own_tools(server: ServerProcess, key: str) -> None:
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEYS[key], max_retries=0)
    if key == "searcher":
        client.responses.create(model="m", input="search", tools=[SEARCH])
        return
    with pytest.raises(openai.PermissionDeniedError) as refused:
        client.responses.create(model="m", input="search", tools=[SEARCH])
    assert refused.value.code == "tool_not_allowed"


def test_tools_that_nobody_runs_are_refused_by_name(client: openai.OpenAI) -> None:
    tool: Any = {"type": "code_interpreter", "container": {"type": "auto"}}
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model="m", input="search", tools=[tool])
    assert "code_interpreter" in str(refused.value.param)


def test_it_is_one_request_with_one_record(
    server: ServerProcess, client: openai.OpenAI, kept: Path
) -> None:
    response = client.responses.with_raw_response.create(model="m", input="search", tools=[SEARCH])
    request_id = response.headers["x-request-id"]
    line = server.wait_for_log(request_id)
    assert "6,650" not in server.log, line
    statement = "SELECT input_tokens FROM records WHERE request_id = ?"
    with closing(sqlite3.connect(kept)) as connection:
        found: list[Any] = []
        while not found:  # It is written in the background.
            found = connection.execute(statement, (request_id,)).fetchall()
    assert found == [(2 * USAGE[0],)]


def test_templates_say_what_a_backend_needs(tmp_path: Path) -> None:
    from llama_compat.distribution import load_distribution
    from llama_compat.distribution.problems import TemplateError
    from providers.registry import config_model

    template = write_template(
        tmp_path / "t.yaml",
        server={"tools": {"web_search": {"backend": "brave"}}},
        providers=[{"id": "e", "type": "local::echo"}],
        models=[{"id": "m", "provider": "e"}],
    )
    with pytest.raises(TemplateError, match="needs 'api_key'"):
        load_distribution(str(template), config_model)


# Guardrails -----------------------------------------------------------------------------------


def test_what_a_tool_of_the_server_gave_is_looked_through(
    client: openai.OpenAI, claude: anthropic.Anthropic, vendor: ScriptedModels, pages: str
) -> None:
    asked = f"fetch {pages}/other"
    model = "redacts-tool_results"
    fetch: Any = {"type": "web_fetch_20250910", "name": "web_fetch"}
    vendor.received.clear()
    message = claude.beta.messages.create(
        model=model,
        max_tokens=100,
        messages=[{"role": "user", "content": asked}],
        tools=[fetch],
        betas=["web-fetch-2025-09-10"],
    )
    _, last = vendor.received[-1]
    for shown in (message.model_dump_json(), str(last["messages"])):
        assert "<RIVER_" in shown
        assert "Nile" not in shown
        assert "6,650" not in shown


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("place", ["tool_arguments", "tool_results"])
def test_what_is_blocked_of_a_tool_ends_the_reply(
    client: openai.OpenAI, vendor: ScriptedModels, place: str, stream: bool
) -> None:
    vendor.received.clear()
    asked: Any = {"model": f"blocks-{place}", "input": "search it", "tools": [SEARCH]}
    if stream:
        with client.responses.stream(**asked) as events:
            *_, last = events
        assert last.type == "response.incomplete"
        response = last.response
    else:
        response = client.responses.create(**asked)
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "content_filter"
    assert len(vendor.received) == 1
    assert "6,650" not in response.model_dump_json()


def test_what_a_tool_of_the_server_is_given_is_looked_through(
    client: openai.OpenAI, kept: Path
) -> None:
    response = client.responses.with_raw_response.create(
        model="redacts-tool_arguments", input="search it", tools=[SEARCH]
    )
    (call,) = [each for each in response.parse().output if each.type == "web_search_call"]
    assert call.action.query == "<RIVER_1> length"  # type: ignore[union-attr]
    request_id = response.headers["x-request-id"]
    found: list[str] = []
    deadline = time.monotonic() + 20
    while not found and time.monotonic() < deadline:
        with closing(sqlite3.connect(kept)) as database:
            statement = "SELECT guardrails FROM records WHERE request_id = ?"
            found = [row[0] for row in database.execute(statement, (request_id,))]
    assert found == ["rivers:redact"]


def test_each_turn_and_each_call_is_in_the_record(client: openai.OpenAI, kept: Path) -> None:
    named = {"x-request-id": "with-its-parts"}
    client.responses.create(model="m", input="search it", tools=[SEARCH], extra_headers=named)
    steps = []
    for _ in range(200):
        with closing(sqlite3.connect(kept)) as storage:
            query = "SELECT trail FROM records WHERE request_id = 'with-its-parts'"
            if found := storage.execute(query).fetchall():
                steps = json.loads(found[0][0])
                break
        time.sleep(0.05)
    assert [(each["why"], each.get("tool", ""), each["outcome"]) for each in steps] == [
        ("first", "", "answered"),
        ("turn", "", "answered"),
        ("tool", "web_search", "answered"),
        ("turn", "", "answered"),
    ]
    assert all(each["input_tokens"] > 0 for each in steps if each["why"] == "turn")
    moments = [moment for each in steps[1:] for moment in (each["begun"], each["ended"])]
    assert moments == sorted(moments)
    assert "nile length" not in str(steps)


def test_what_runs_in_the_background_has_its_tools_and_is_recorded_alike(
    client: openai.OpenAI, kept: Path
) -> None:
    named = {"x-request-id": "in-the-background"}
    response = client.responses.create(
        model="redacts-tool_arguments",
        input="search it",
        tools=[SEARCH],
        background=True,
        extra_headers=named,
    )
    assert response.status == "queued"
    found: list[tuple[str, str]] = []
    deadline = time.monotonic() + 20
    while not found and time.monotonic() < deadline:
        with closing(sqlite3.connect(kept)) as database:
            statement = "SELECT guardrails, trail FROM records WHERE request_id = ?"
            found = list(database.execute(statement, (named["x-request-id"],)))
        time.sleep(0.05)
    ((verdicts, trail),) = found
    assert verdicts == "rivers:redact"
    steps = [(each["why"], each.get("tool", "")) for each in json.loads(trail)]
    assert steps == [("first", ""), ("turn", ""), ("tool", "web_search"), ("turn", "")]
    response = client.responses.retrieve(response.id)
    assert response.status == "completed"
    assert [item.type for item in response.output] == ["message", "web_search_call", "message"]
