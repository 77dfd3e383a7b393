"""A search of the web that a client asks for in one API, and a vendor runs that has another."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from google import genai
from google.genai import types as google

from llama_compat.dialects.gemini_interactions.events import DONE as INTERACTION_DONE
from llama_compat.dialects.openai_responses.output.response_object import (
    repeated,
    response_object,
)
from llama_compat.dialects.openai_responses.output.whole import whole_as_events
from llama_compat.types import Usage
from tests import sdk_anthropic, sdk_gemini, sdk_interactions, sdk_responses
from tests.integration import wire
from tests.integration.server_process import ServerProcess, running, write_template
from tests.integration.test_media import Gateway
from tests.local_server import Handler, send, serving

URL = "https://rivers.example/nile"
TITLE = "The Nile"
SAID = "Der längste Fluß misst 6.650 km."
BEFORE = "Let me see. "
LOCATION = {"type": "approximate", "city": "Cairo", "country": "EG"}


def claude(body: dict[str, Any]) -> dict[str, Any]:
    """Anthropic's, where a search is asked for; it refuses what Anthropic's API does not know."""
    sdk_anthropic.check_request(body)
    (tool,) = body["tools"]
    assert (tool["type"], tool["name"]) == ("web_search_20250305", "web_search")
    cited = {
        "type": "web_search_result_location",
        "url": URL,
        "title": TITLE,
        "encrypted_index": "e",
        "cited_text": "The Nile is 6,650 km long.",
    }
    found = {
        "type": "web_search_result",
        "url": URL,
        "title": TITLE,
        "encrypted_content": "c",
        "page_age": None,
    }
    use = {
        "type": "server_tool_use",
        "id": "srvtoolu_1",
        "name": "web_search",
        "input": {"query": "nile length"},
    }
    result = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [found]}
    content = [
        {"type": "text", "text": BEFORE},
        use,
        result,
        {"type": "text", "text": SAID, "citations": [cited]},
    ]
    usage = {
        "input_tokens": 7,
        "output_tokens": 9,
        "server_tool_use": {"web_search_requests": 1, "web_fetch_requests": 0},
    }
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": content,
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": usage,
    }


def paused(body: dict[str, Any], message: dict[str, Any]) -> dict[str, Any]:
    """The part of `message` that the vendor says before it pauses, and then the rest."""
    last = body["messages"][-1]
    if last["role"] == "user":
        return {**message, "content": message["content"][:2], "stop_reason": "pause_turn"}
    assert last["content"] == message["content"][:2]
    return {**message, "content": message["content"][2:]}


def claudes_events(message: dict[str, Any]) -> Iterator[bytes]:
    def event(kind: str, **members: Any) -> bytes:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **members})}\n\n".encode()

    yield event("message_start", message={**message, "content": [], "stop_reason": None})
    for index, block in enumerate(message["content"]):
        deltas: list[dict[str, Any]] = []
        if block["type"] == "text":
            begun: dict[str, Any] = {"type": "text", "text": ""}
            half = len(block["text"]) // 2
            deltas = [
                *({"type": "citations_delta", "citation": c} for c in block.get("citations", ())),
                {"type": "text_delta", "text": block["text"][:half]},
                {"type": "text_delta", "text": block["text"][half:]},
            ]
        elif block["type"] == "server_tool_use":
            begun = {**block, "input": {}}
            written = json.dumps(block["input"])
            deltas = [
                {"type": "input_json_delta", "partial_json": each}
                for each in ("", written[:5], written[5:])
            ]
        else:
            begun = block
        yield event("content_block_start", index=index, content_block=begun)
        for delta in deltas:
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    end = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield event("message_delta", delta=end, usage=message["usage"])
    yield event("message_stop")


def gemini(body: dict[str, Any]) -> google.GenerateContentResponse:
    """Google's, which refuses functions beside a search."""
    sdk_gemini.check_request(body)
    if body["tools"] != [{"googleSearch": {}}]:
        return sdk_gemini.response([sdk_gemini.text("Found by nobody.")])
    whole = sdk_gemini.response([sdk_gemini.text(BEFORE + SAID)], google.FinishReason.STOP)
    assert whole.candidates is not None
    whole.candidates[0].grounding_metadata = google.GroundingMetadata(
        web_search_queries=["nile length"],
        grounding_chunks=[
            google.GroundingChunk(web=google.GroundingChunkWeb(uri=URL, title=TITLE))
        ],
        grounding_supports=[
            google.GroundingSupport(
                grounding_chunk_indices=[0],
                segment=google.Segment(
                    start_index=len(BEFORE),
                    end_index=len((BEFORE + SAID).encode()),
                    text=SAID,
                ),
            )
        ],
    )
    return whole


def interaction(body: dict[str, Any]) -> dict[str, Any]:
    """Google's in its other API."""
    assert sdk_interactions.unknown_in_request(body) == []
    assert body["tools"] == [{"type": "google_search"}]
    cited = {
        "type": "url_citation",
        "url": URL,
        "title": TITLE,
        "start_index": len(BEFORE),
        "end_index": len((BEFORE + SAID).encode()),
    }
    call = {"type": "google_search_call", "id": "g1", "arguments": {"queries": ["nile length"]}}
    result = {"type": "google_search_result", "call_id": "g1", "result": [{"url": URL}]}
    text = {**sdk_interactions.text(BEFORE + SAID), "annotations": [cited]}
    counted = [{"type": "google_search", "count": 1}]
    return sdk_interactions.interaction(
        [call, result, sdk_interactions.output(text)],
        usage={**sdk_interactions.USAGE, "grounding_tool_count": counted},
    )


def chat(body: dict[str, Any]) -> dict[str, Any]:
    """OpenAI's models that search; others are given functions there."""
    assert ("-search" in body["model"]) != bool(body.get("tools"))
    assert ("-search" in body["model"]) == ("web_search_options" in body)
    cited = {
        "type": "url_citation",
        "url_citation": {
            "start_index": len(BEFORE),
            "end_index": len(BEFORE + SAID),
            "url": URL,
            "title": TITLE,
        },
    }
    message = {"role": "assistant", "content": BEFORE + SAID, "annotations": [cited]}
    if body.get("tools"):
        message = {"role": "assistant", "content": "Found by nobody."}
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 9, "total_tokens": 16},
    }


def chunks(reply: dict[str, Any]) -> Iterator[bytes]:
    message = reply["choices"][0]["message"]
    deltas = [
        {"role": "assistant", "content": message["content"][:9]},
        {"content": message["content"][9:]},
        {"annotations": message["annotations"]},
    ]
    frame = {**reply, "object": "chat.completion.chunk"}
    for delta in deltas:
        choice = {"index": 0, "delta": delta, "finish_reason": None}
        yield b"data: %b\n\n" % json.dumps({**frame, "choices": [choice], "usage": None}).encode()
    choice = {"index": 0, "delta": {}, "finish_reason": "stop"}
    yield b"data: %b\n\ndata: [DONE]\n\n" % json.dumps({**frame, "choices": [choice]}).encode()


def response(body: dict[str, Any]) -> dict[str, Any]:
    """OpenAI's others, which search for who asks them for a response; they refuse what OpenAI's
    SDK does not know."""
    sdk_responses.check_request(body)
    assert "web_search" in [tool["type"] for tool in body["tools"]]
    cited = {
        "type": "url_citation",
        "start_index": len(BEFORE),
        "end_index": len(BEFORE + SAID),
        "url": URL,
        "title": TITLE,
    }
    action: dict[str, Any] = {"type": "search", "query": "nile length"}
    if "web_search_call.action.sources" in body.get("include", ()):
        action["sources"] = [{"type": "url", "url": URL}]
    text = {"type": "output_text", "text": BEFORE + SAID, "annotations": [cited], "logprobs": []}
    items: list[dict[str, Any]] = [
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": action},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [text],
        },
    ]
    return response_object(
        repeated(body),
        response_id="resp_1",
        created=1,
        model=body["model"],
        status="completed",
        output=items,
        usage=Usage(7, 9),
    )


def failed(body: dict[str, Any]) -> bytes:
    """A stream that says in a way of its own that it has come to nothing."""
    error = {"code": "rate_limit_exceeded", "message": "Too much was asked for."}
    event = {"type": "response.failed", "response": {**response(body), "error": error}}
    return b"event: response.failed\ndata: %b\n\n" % json.dumps(event).encode()


class Vendors:
    """All of them; they keep what they were asked."""

    def __init__(self) -> None:
        self.received: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, handler: Handler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["content-length"])))
        self.received.append((handler.path, body))
        events = "text/event-stream"
        if not ("tools" in body or "web_search_options" in body):
            send(handler, 400, b'{"error": {"message": "Nothing is searched for."}}')
        elif handler.path == "/v1/messages":
            message = claude(body)
            if body["model"].startswith("pausing"):
                message = paused(body, message)
            if body["model"].startswith("breaking"):
                cut = b"".join([*claudes_events(message)][:-2])
                send(handler, 200, cut, events)
            elif body.get("stream"):
                send(handler, 200, b"".join(claudes_events(message)), events)
            else:
                send(handler, 200, json.dumps(message).encode())
        elif handler.path == "/v1/responses":
            if body["model"].startswith("breaking"):
                begun, _ = whole_as_events(response(body)).split(b"event: response.completed")
                send(handler, 200, begun, events)
            elif body["model"].startswith("failing"):
                send(handler, 200, failed(body), events)
            elif body.get("stream"):
                send(handler, 200, whole_as_events(response(body)), events)
            else:
                send(handler, 200, json.dumps(response(body)).encode())
        elif handler.path == "/v1beta/interactions":
            told = sdk_interactions.stream_events(interaction(body))
            if "breaking" in body["model"]:
                cut = sdk_interactions.stream_bytes(told[:-1]).removesuffix(INTERACTION_DONE)
                send(handler, 200, cut, events)
            elif body.get("stream"):
                send(handler, 200, sdk_interactions.stream_bytes(told), events)
            else:
                send(handler, 200, json.dumps(interaction(body)).encode())
        elif handler.path == "/v1/chat/completions":
            reply = chat(body)
            if body.get("stream"):
                send(handler, 200, b"".join(chunks(reply)), events)
            else:
                send(handler, 200, json.dumps(reply).encode())
        else:
            whole = gemini(body)
            if "breaking" in handler.path:
                assert whole.candidates is not None
                whole.candidates[0].finish_reason = None
                cut = sdk_gemini.stream_bytes(sdk_gemini.stream_events(whole))
                send(handler, 200, cut, events)
            elif "stream" in handler.path:
                streamed = sdk_gemini.stream_bytes(sdk_gemini.stream_events(whole))
                send(handler, 200, streamed, events)
            else:
                send(handler, 200, json.dumps(sdk_gemini.dump(whole)).encode())


@pytest.fixture(scope="module")
def vendors() -> Vendors:
    return Vendors()


@pytest.fixture(scope="module", params=[False, True], ids=["without-ours", "beside-ours"])
def gateway(
    request: pytest.FixtureRequest, vendors: Vendors, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("web")
    (folder / "nile.txt").write_text("Ours\nhttps://ours.example\nnile length\n")
    tools = {"web_search": {"backend": "files", "folder": str(folder)}}
    kept = tmp_path_factory.mktemp("records") / "operations.sqlite"
    price = {"input": 1, "output": 2, "thousand_searches": 10}
    own = {"api_key": "k", "hosted_tools": ["web_search"]}
    with serving(vendors) as url:
        template = write_template(
            tmp_path_factory.mktemp("server") / "search.yaml",
            server={
                **({"tools": tools} if request.param else {}),
                "storage": f"sqlite:{kept}",
                "records": {},
            },
            providers=[
                {
                    "id": "anthropic",
                    "type": "remote::anthropic-messages",
                    "config": {"base_url": url, **own},
                },
                {
                    "id": "gemini",
                    "type": "remote::gemini-native",
                    "config": {"base_url": url, **own},
                },
                {
                    "id": "interactions",
                    "type": "remote::gemini-native",
                    "config": {"base_url": url, "apis": ["interactions"], **own},
                },
                {
                    "id": "openai",
                    "type": "remote::openai",
                    "config": {"base_url": f"{url}/v1", "wires": ["chat"], **own},
                },
                {
                    "id": "responses",
                    "type": "remote::openai",
                    "config": {"base_url": f"{url}/v1", "wires": ["chat", "responses"], **own},
                },
            ],
            models=[
                {
                    "id": "claude",
                    "provider": "anthropic",
                    "provider_model": "claude-sonnet-4-5",
                    "price": price,
                },
                {"id": "pausing", "provider": "anthropic"},
                {
                    "id": "gemini",
                    "provider": "gemini",
                    "provider_model": "gemini-2.5-flash",
                    "price": price,
                },
                {
                    "id": "gemini-3",
                    "provider": "interactions",
                    "provider_model": "gemini-3-flash",
                    "price": price,
                },
                {"id": "gpt", "provider": "openai", "provider_model": "gpt-5-search-api"},
                {"id": "gpt-5.5", "provider": "responses", "price": price},
                {"id": "failing", "provider": "responses"},
                {"id": "breaking", "provider": "responses", "price": price},
                {"id": "breaking-claude", "provider": "anthropic", "price": price},
                {"id": "breaking-gemini", "provider": "gemini", "price": price},
                {
                    "id": "breaking-gemini-3",
                    "provider": "interactions",
                    "provider_model": "gemini-3-breaking",
                    "price": price,
                },
            ],
        )
        with running(template) as process:
            yield Gateway(process, kept)


@pytest.fixture
def server(gateway: Gateway) -> ServerProcess:
    return gateway.process


@pytest.fixture
def client(server: ServerProcess) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


ALL = pytest.mark.parametrize(
    "model", ["claude", "pausing", "gemini", "gemini-3", "gpt", "gpt-5.5"]
)
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@ALL
@STREAMED
def test_a_response_shows_it_and_cites(client: openai.OpenAI, model: str, stream: bool) -> None:
    asked: Any = {
        "model": model,
        "input": "How long is the Nile?",
        "tools": [{"type": "web_search"}],
        "include": ["web_search_call.action.sources"],
    }
    if stream:
        with client.responses.stream(**asked) as events:
            response: Any = events.get_final_response()
    else:
        response = client.responses.create(**asked)
    assert response.output_text == BEFORE + SAID
    parts = [part for item in response.output if item.type == "message" for part in item.content]
    ((text, cited),) = [(part.text, each) for part in parts for each in part.annotations]
    assert text[cited.start_index : cited.end_index] == SAID
    assert (cited.type, cited.url, cited.title) == ("url_citation", URL, TITLE)
    if model == "gpt":
        return  # Its chat completions do not say what they have looked for.
    assert response.usage.output_tokens == (
        18 if model == "pausing" else response.usage.output_tokens
    )
    (call,) = [item for item in response.output if item.type == "web_search_call"]
    assert (call.status, call.action.query) == ("completed", "nile length")
    assert [each.url for each in call.action.sources] == [URL]
    again = client.responses.create(
        model=model,
        input=[
            {"role": "user", "content": "Hi"},
            *response.output,
            {"role": "user", "content": "?"},
        ],
        tools=[{"type": "web_search"}],
    )
    assert again.output_text == BEFORE + SAID


@ALL
@STREAMED
def test_chat_has_annotations(client: openai.OpenAI, model: str, stream: bool) -> None:
    asked: Any = {
        "model": model,
        "messages": [{"role": "user", "content": "How long is the Nile?"}],
        "extra_body": {"web_search_options": {}},
    }
    if stream:
        deltas = [
            each.choices[0].delta
            for each in client.chat.completions.create(**asked, stream=True)
            if each.choices
        ]
        text = "".join(each.content or "" for each in deltas)
        told = [one for each in deltas for one in getattr(each, "annotations", None) or ()]
        (cited,) = [each["url_citation"] for each in told]
    else:
        message = client.chat.completions.create(**asked).choices[0].message
        text = message.content or ""
        (annotation,) = message.annotations or ()
        cited = annotation.url_citation.model_dump()
    assert text == BEFORE + SAID
    assert text[cited["start_index"] : cited["end_index"]] == SAID
    assert cited["url"] == URL


@pytest.mark.parametrize("model", ["gemini", "gpt-5.5"])
@STREAMED
def test_a_message_has_blocks_of_it(server: ServerProcess, model: str, stream: bool) -> None:
    claude = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
    asked: Any = {
        "model": model,
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "How long is the Nile?"}],
        "tools": [{"type": "web_search_20250305", "name": "web_search"}],
    }
    if stream:
        with claude.messages.stream(**asked) as events:
            message: Any = events.get_final_message()
    else:
        message = claude.messages.create(**asked)
    # Google tells what it has searched for when it has answered.
    text, use, result = sorted(message.content, key=lambda block: block.type != "text")
    assert text.text == BEFORE + SAID
    assert [each.url for each in text.citations] == [URL]
    assert (use.type, use.name, use.input) == (
        "server_tool_use",
        "web_search",
        {"query": "nile length"},
    )
    # OpenAI tells titles where it cites alone.
    title = "" if model == "gpt-5.5" else TITLE
    assert [(each.url, each.title) for each in result.content] == [(URL, title)]
    assert result.tool_use_id == use.id


@pytest.mark.parametrize("model", ["claude", "gpt", "gpt-5.5"])
@STREAMED
def test_googles_clients_are_told_what_the_answer_stands_on(
    server: ServerProcess, model: str, stream: bool
) -> None:
    options = google.HttpOptions(
        base_url=server.url, retry_options=google.HttpRetryOptions(attempts=1)
    )
    with genai.Client(api_key="none", http_options=options) as client:
        asked: Any = {
            "model": model,
            "contents": "How long is the Nile?",
            "config": google.GenerateContentConfig(
                tools=[google.Tool(google_search=google.GoogleSearch())]
            ),
        }
        if stream:
            responses = list(client.models.generate_content_stream(**asked))
        else:
            responses = [client.models.generate_content(**asked)]
    text = "".join(each.text or "" for each in responses)
    assert text == BEFORE + SAID
    candidates: Any = responses[-1].candidates
    grounding = candidates[0].grounding_metadata
    assert grounding.web_search_queries == ([] if model == "gpt" else ["nile length"])
    assert [each.web.uri for each in grounding.grounding_chunks] == [URL]
    (support,) = grounding.grounding_supports
    segment = support.segment
    assert text.encode()[segment.start_index : segment.end_index].decode() == SAID
    assert (segment.text, support.grounding_chunk_indices) == (SAID, [0])


@pytest.mark.parametrize("model", ["claude", "gemini", "gemini-3", "gpt", "gpt-5.5"])
@STREAMED
def test_googles_clients_of_interactions_see_its_steps(
    server: ServerProcess, model: str, stream: bool
) -> None:
    options = google.HttpOptions(
        base_url=server.url, retry_options=google.HttpRetryOptions(attempts=1)
    )
    with genai.Client(api_key="none", http_options=options) as client:
        asked: Any = {
            "model": model,
            "input": "How long is the Nile?",
            "tools": [{"type": "google_search"}],
        }
        text = ""
        cited: list[Any] = []
        steps: list[Any] = []
        if stream:
            for event in client.interactions.create(**asked, stream=True):
                if event.event_type == "step.start":
                    steps.append(event.step)
                elif event.event_type == "step.delta" and event.delta.type == "text":
                    text += event.delta.text
                elif event.event_type == "step.delta":
                    cited += getattr(event.delta, "annotations", None) or ()
                    if event.delta.type == "google_search_call":
                        steps[event.index].arguments = event.delta.arguments
        else:
            steps = client.interactions.create(**asked).steps
            parts = [each for step in steps if step.type == "model_output" for each in step.content]
            text = "".join(each.text for each in parts)
            cited = [one for each in parts for one in each.annotations or ()]
    assert text == BEFORE + SAID
    ((begin, end, url),) = ((each.start_index, each.end_index, each.url) for each in cited)
    # Anthropic has a text for each place, and so has who is told of one.
    whole = text if model != "claude" else SAID
    assert (whole.encode()[begin:end].decode(), url) == (SAID, URL)
    calls = [each for each in steps if each.type == "google_search_call"]
    results = [each for each in steps if each.type == "google_search_result"]
    assert [each.arguments.queries for each in calls] == (
        [] if model == "gpt" else [["nile length"]]
    )
    assert [each.id for each in calls] == [each.call_id for each in results]


def test_what_is_said_of_a_search_is_passed_on(client: openai.OpenAI, vendors: Vendors) -> None:
    tool: Any = {
        "type": "web_search",
        "filters": {"allowed_domains": ["rivers.example"]},
        "user_location": LOCATION,
    }
    client.responses.create(model="claude", input="Hi", tools=[tool], max_tool_calls=3)
    assert vendors.received[-1][1]["tools"] == [
        {
            "type": "web_search_20250305",
            "name": "web_search",
            "max_uses": 3,
            "allowed_domains": ["rivers.example"],
            "user_location": LOCATION,
        }
    ]
    tool = {"type": "web_search", "user_location": LOCATION}
    client.responses.create(model="gpt", input="Hi", tools=[tool])
    options = vendors.received[-1][1]["web_search_options"]
    place = {"city": "Cairo", "country": "EG"}
    assert options["user_location"] == {"type": "approximate", "approximate": place}


def test_what_is_said_of_a_search_is_said_to_who_is_asked_for_a_response(
    server: ServerProcess, vendors: Vendors
) -> None:
    claude = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
    tools: Any = [
        {
            "type": "web_search_20250305",
            "name": "web_search",
            "max_uses": 2,
            "allowed_domains": ["rivers.example"],
            "user_location": LOCATION,
        },
        {"name": "see", "input_schema": {"type": "object"}},
    ]
    messages: Any = [{"role": "user", "content": "Hi"}]
    claude.messages.create(model="gpt-5.5", max_tokens=100, messages=messages, tools=tools)
    path, body = vendors.received[-1]
    search, see = sorted(body["tools"], key=lambda tool: tool["type"], reverse=True)
    assert path == "/v1/responses"
    assert search["filters"] == {"allowed_domains": ["rivers.example"]}
    assert search["user_location"] == LOCATION
    assert (see["type"], see["name"], body["max_tool_calls"]) == ("function", "see", 2)


def test_a_response_that_fails_is_an_error_in_any_api(client: openai.OpenAI) -> None:
    asked: Any = {
        "model": "failing",
        "messages": [{"role": "user", "content": "Hi"}],
        "extra_body": {"web_search_options": {}},
        "stream": True,
    }
    with pytest.raises(openai.APIError, match="Too much was asked for"):
        list(client.chat.completions.create(**asked))


@pytest.mark.parametrize("more", [{"stop": "x"}, {"max_tokens": 5}, {"seed": 1}])
def test_what_a_response_can_not_be_told_is_searched_for_here(
    request: pytest.FixtureRequest, client: openai.OpenAI, vendors: Vendors, more: Any
) -> None:
    has_ours = "beside-ours" in request.node.name
    before = len(vendors.received)
    asked: Any = {
        "model": "gpt-5.5",
        "messages": [{"role": "user", "content": "Hi"}],
        "extra_body": {"web_search_options": {}},
        **more,
    }
    if not has_ours:
        with pytest.raises(openai.BadRequestError) as raised:
            client.chat.completions.create(**asked)
        assert raised.value.param == "web_search_options"
        assert len(vendors.received) == before
        return
    reply = client.chat.completions.create(**asked)
    assert reply.choices[0].message.content == "Found by nobody."
    ((path, body),) = vendors.received[before:]
    assert path == "/v1/chat/completions"
    assert [each["function"]["name"] for each in body["tools"]] == ["web_search"]


MESSAGES = [{"role": "user", "content": "How long is the Nile?"}]
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "responses": ("/v1/responses", {"input": "How long?", "tools": [{"type": "web_search"}]}),
    "chat": ("/v1/chat/completions", {"messages": MESSAGES, "web_search_options": {}}),
    "messages": (
        "/v1/messages",
        {
            "max_tokens": 100,
            "messages": MESSAGES,
            "tools": [{"type": "web_search_20250305", "name": "web_search"}],
        },
    ),
    "gemini": (
        "/v1beta/models/{model}:{method}",
        {"contents": [{"parts": [{"text": "Hi"}]}], "tools": [{"googleSearch": {}}]},
    ),
    "interactions": (
        "/v1beta/interactions",
        {"input": "How long?", "tools": [{"type": "google_search"}]},
    ),
}


@pytest.mark.parametrize("model", ["claude", "gemini", "gemini-3", "gpt-5.5"])
@pytest.mark.parametrize("api", ASKED)
@STREAMED
def test_a_search_is_in_what_a_request_costs(
    gateway: Gateway, api: str, model: str, stream: bool
) -> None:
    path, body = ASKED[api]
    if api == "gemini":
        method = "streamGenerateContent?alt=sse" if stream else "generateContent"
        path = path.format(model=model, method=method)
    else:
        body = {"model": model, "stream": stream, **body}
    name = f"cost-{uuid.uuid4().hex}"
    reply = wire.request("POST", gateway.process.url + path, body, {"x-request-id": name})
    assert reply.status == 200, reply.body
    record = gateway.record(name)
    tokens = record["input_tokens"] * 1000 + record["output_tokens"] * 2000
    assert tokens > 0
    assert record["cost"] == tokens + 10_000_000


@pytest.mark.parametrize(
    ("api", "model"),
    [
        *((api, "breaking") for api in ASKED),
        ("messages", "breaking-claude"),
        ("chat", "breaking-claude"),
        ("gemini", "breaking-gemini"),
        ("interactions", "breaking-gemini-3"),
        ("chat", "breaking-gemini-3"),
    ],
)
def test_a_search_is_in_what_a_request_costs_whose_stream_breaks_off(
    gateway: Gateway, api: str, model: str
) -> None:
    path, body = ASKED[api]
    if api == "gemini":
        path = path.format(model=model, method="streamGenerateContent?alt=sse")
    else:
        body = {"model": model, "stream": True, **body}
    name = f"cost-{uuid.uuid4().hex}"
    wire.request("POST", gateway.process.url + path, body, {"x-request-id": name})
    record = gateway.record(name)
    tokens = record["input_tokens"] * 1000 + record["output_tokens"] * 2000
    assert record["estimated"]
    assert record["cost"] == tokens + 10_000_000


def test_what_a_vendor_can_not_be_told_is_searched_for_here(
    request: pytest.FixtureRequest, client: openai.OpenAI, vendors: Vendors
) -> None:
    has_ours = "beside-ours" in request.node.name
    before = len(vendors.received)
    tool: Any = {"type": "web_search", "filters": {"allowed_domains": ["rivers.example"]}}
    if not has_ours:
        with pytest.raises(openai.BadRequestError) as raised:
            client.responses.create(model="gemini", input="Hi", tools=[tool])
        assert raised.value.param == "tools[0].web_search"
        assert len(vendors.received) == before
        return
    response = client.responses.create(model="gemini", input="Hi", tools=[tool])
    assert response.output_text == "Found by nobody."
    ((_, body),) = vendors.received[before:]
    ((declared,),) = [each["functionDeclarations"] for each in body["tools"]]
    assert declared["name"] == "web_search"
