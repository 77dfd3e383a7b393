"""The official Gemini client, in front of a vendor that speaks OpenAI, of Gemini, and of echo."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from google import genai
from google.genai import errors, types

from tests import sdk_gemini as sdk
from tests.integration import chat_vendor, wire
from tests.integration.native_suite import PIXEL
from tests.integration.native_vendor import Answer, NativeVendor
from tests.integration.server_process import ServerProcess, running, write_template

HI = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}

WEATHER = types.Tool(
    function_declarations=[
        types.FunctionDeclaration(
            name="get_weather",
            description="The weather in a city",
            parameters=types.Schema(
                type=types.Type.OBJECT,
                properties={"city": types.Schema(type=types.Type.STRING)},
                required=["city"],
            ),
        ),
        types.FunctionDeclaration(name="get_time"),
    ]
)
BY_HAND = types.AutomaticFunctionCallingConfig(disable=True)

KEY = "vendor-key-that-nobody-sees"


@pytest.fixture(scope="module")
def vendor() -> Iterator[NativeVendor]:
    with NativeVendor() as one:
        yield one


@pytest.fixture(scope="module")
def server(
    vendor: NativeVendor, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    config = {"base_url": vendor.url, "api_key": KEY}
    template = write_template(
        tmp_path_factory.mktemp("gemini") / "clients.yaml",
        providers=[
            {"id": "openai", "type": "remote::passthrough", "config": config},
            {"id": "dropping", "type": "local::echo", "config": {"unsupported": "drop"}},
            {"id": "refusing", "type": "local::echo"},
            {"id": "gemini", "type": "remote::gemini-native", "config": config},
            {
                "id": "alive",
                "type": "remote::passthrough",
                "config": {**config, "keepalive_seconds": 0.05},
            },
        ],
        models=[
            {"id": "bridged", "provider": "openai", "provider_model": "own"},
            {"id": "echo", "provider": "dropping"},
            {"id": "strict:1b", "provider": "refusing"},
            {"id": "org/relayed", "provider": "gemini", "provider_model": "gemini-3-pro"},
            {"id": "alive", "provider": "alive", "provider_model": "own"},
        ],
    )
    with running(template) as process:
        yield process


@pytest.fixture(scope="module", params=["v1", "v1beta"])
def client(server: ServerProcess, request: pytest.FixtureRequest) -> genai.Client:
    """The official client, which looks under `/v1` by itself."""
    options = types.HttpOptions(base_url=server.url, api_version=request.param, timeout=60_000)
    return genai.Client(api_key="none", http_options=options)


def post(server: ServerProcess, model: str, method: str, body: Any = HI) -> wire.Reply:
    return wire.request("POST", f"{server.url}/v1beta/models/{model}:{method}", body)


def parts_of(response: types.GenerateContentResponse) -> list[types.Part]:
    assert response.candidates
    assert response.candidates[0].content is not None
    return list(response.candidates[0].content.parts or ())


# --------------------------------------------------------------------------------------------------
# A vendor that speaks OpenAI
# --------------------------------------------------------------------------------------------------


def test_says_what_the_model_says(vendor: NativeVendor, client: genai.Client) -> None:
    chat_vendor.will_say(vendor, "It is 20 °C. 🌞", thoughts="Look outside.")
    config = types.GenerateContentConfig(
        system_instruction="Be brief.",
        thinking_config=types.ThinkingConfig(
            include_thoughts=True, thinking_level=types.ThinkingLevel.LOW
        ),
    )
    whole = client.models.generate_content(model="bridged", contents="Hi", config=config)
    thought, said = parts_of(whole)
    assert (thought.text, thought.thought) == ("Look outside.", True)
    assert (said.text, said.thought, whole.text) == ("It is 20 °C. 🌞", None, "It is 20 °C. 🌞")
    assert whole.candidates[0].finish_reason is types.FinishReason.STOP  # type: ignore[index]
    assert (whole.model_version, len(whole.response_id or "")) == ("bridged", 24)
    usage = whole.usage_metadata
    assert usage is not None
    assert (usage.prompt_token_count, usage.candidates_token_count) == (30, 20)
    assert usage.total_token_count == 50
    asked = vendor.last.body
    assert (asked["model"], asked["reasoning_effort"]) == ("own", "low")
    assert asked["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
    ]
    events = list(
        client.models.generate_content_stream(model="bridged", contents="Hi", config=config)
    )
    streamed = [part for event in events for part in parts_of(event)]
    assert "".join(part.text or "" for part in streamed if part.thought) == "Look outside."
    assert "".join(part.text or "" for part in streamed if not part.thought) == "It is 20 °C. 🌞"
    assert events[-1].usage_metadata == usage
    reasons = [event.candidates[0].finish_reason for event in events]  # type: ignore[index]
    assert reasons == [None] * (len(events) - 1) + [types.FinishReason.STOP]


def test_thoughts_are_not_taken_for_the_answer(vendor: NativeVendor, client: genai.Client) -> None:
    chat_vendor.will_say(vendor, "Hi", thoughts="Hm")
    assert [
        part.text
        for part in parts_of(client.models.generate_content(model="bridged", contents="Hi"))
    ] == ["Hi"]
    events = client.models.generate_content_stream(model="bridged", contents="Hi")
    assert "".join(part.text or "" for event in events for part in parts_of(event)) == "Hi"


def test_streams_an_array_to_those_who_want_no_events(
    vendor: NativeVendor, server: ServerProcess
) -> None:
    chat_vendor.will_say(vendor, "Hello, you")
    reply = post(server, "bridged", "streamGenerateContent")
    assert reply.headers["content-type"] == "application/json; charset=utf-8"
    texts = [item["candidates"][0]["content"]["parts"][0]["text"] for item in reply.json()]
    assert "".join(texts) == "Hello, you"
    events = post(server, "bridged", "streamGenerateContent?alt=sse")
    assert events.headers["content-type"].startswith("text/event-stream")
    assert events.body.startswith(b"data: {")
    assert b"[DONE]" not in events.body


def test_calls_tools_and_takes_their_answers(vendor: NativeVendor, client: genai.Client) -> None:
    calls = [("get_weather", {"city": "Zürich"}), ("get_weather", {"city": "Bern"})]
    chat_vendor.will_say(vendor, "Let me see.", calls=calls)
    config = types.GenerateContentConfig(tools=[WEATHER], automatic_function_calling=BY_HAND)
    whole = client.models.generate_content(model="bridged", contents="Hi", config=config)
    made = whole.function_calls or []
    assert [(call.name, call.args) for call in made] == calls
    assert [tool["function"]["name"] for tool in vendor.last.body["tools"]] == [
        "get_weather",
        "get_time",
    ]
    assert vendor.last.body["tools"][0]["function"]["parameters"] == {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    }
    events = client.models.generate_content_stream(model="bridged", contents="Hi", config=config)
    streamed = [call for event in events for call in event.function_calls or ()]
    assert [(call.name, call.args) for call in streamed] == calls
    chat_vendor.will_say(vendor, "Sunny, and rain.")
    assert whole.candidates
    assert whole.candidates[0].content is not None
    answers = [
        types.Part(
            function_response=types.FunctionResponse(
                id=call.id, name=call.name, response={"output": weather}
            )
        )
        for call, weather in zip(made, ("sunny", "rain"), strict=True)
    ]
    history: list[Any] = [
        types.Content(role="user", parts=[types.Part(text="Hi")]),
        whole.candidates[0].content,
        types.Content(role="user", parts=answers),
    ]
    said = client.models.generate_content(model="bridged", contents=history, config=config)
    assert said.text == "Sunny, and rain."
    _, called, first, second = vendor.last.body["messages"]
    ids = [call["id"] for call in called["tool_calls"]]
    assert [first["tool_call_id"], second["tool_call_id"]] == ids == ["call_0", "call_1"]
    assert (first["content"], second["content"]) == ("sunny", "rain")


def test_forces_a_function(vendor: NativeVendor, client: genai.Client) -> None:
    chat_vendor.will_say(vendor, calls=[("get_time", {})])

    def choice(mode: str, *names: str) -> Any:
        calling = types.FunctionCallingConfig(
            mode=types.FunctionCallingConfigMode(mode), allowed_function_names=list(names) or None
        )
        config = types.GenerateContentConfig(
            tools=[WEATHER],
            tool_config=types.ToolConfig(function_calling_config=calling),
            automatic_function_calling=BY_HAND,
        )
        client.models.generate_content(model="bridged", contents="Hi", config=config)
        return vendor.last.body.get("tool_choice"), len(vendor.last.body["tools"])

    assert choice("AUTO") == (None, 2)
    assert choice("ANY") == ("required", 2)
    assert choice("NONE") == ("none", 2)
    named = {"type": "function", "function": {"name": "get_time"}}
    assert choice("ANY", "get_time") == (named, 1)
    assert choice("ANY", "get_time", "get_weather") == ("required", 2)


def test_sends_the_configuration_images_and_schemas(
    vendor: NativeVendor, client: genai.Client
) -> None:
    chat_vendor.will_say(vendor, '{"city": "Basel"}')
    image = types.Part.from_bytes(
        data=base64.b64decode(PIXEL.partition(",")[2]), mime_type="image/png"
    )
    schema = types.Schema(
        type=types.Type.OBJECT, properties={"city": types.Schema(type=types.Type.STRING)}
    )
    config = types.GenerateContentConfig(
        temperature=0.5,
        top_k=4,
        top_p=0.9,
        max_output_tokens=7,
        stop_sequences=["END"],
        seed=1,
        presence_penalty=0.5,
        response_mime_type="application/json",
        response_schema=schema,
        safety_settings=[
            types.SafetySetting(
                category=types.HarmCategory.HARM_CATEGORY_HARASSMENT,
                threshold=types.HarmBlockThreshold.BLOCK_NONE,
            )
        ],
    )
    client.models.generate_content(model="bridged", contents=["Look:", image], config=config)
    asked = vendor.last.body
    assert asked["messages"][0]["content"] == [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": PIXEL}},
    ]
    limit = asked.get("max_completion_tokens", asked.get("max_tokens"))
    assert (asked["temperature"], asked["top_k"], asked["top_p"], limit) == (0.5, 4, 0.9, 7)
    assert (asked["stop"], asked["seed"], asked["presence_penalty"]) == (["END"], 1, 0.5)
    assert asked["response_format"]["json_schema"]["schema"] == {
        "type": "object",
        "properties": {"city": {"type": "string"}},
    }


def test_embeds(vendor: NativeVendor, client: genai.Client) -> None:
    data = [
        {"object": "embedding", "index": index, "embedding": [index + 0.5, 2.0]} for index in (0, 1)
    ]
    reply = {"object": "list", "model": "own", "data": data, "usage": {"prompt_tokens": 4}}
    vendor.will_answer(Answer([json.dumps(reply).encode()]))
    embedded = client.models.embed_content(
        model="bridged",
        contents=["a", "b"],
        config=types.EmbedContentConfig(output_dimensionality=2),
    )
    assert [each.values for each in embedded.embeddings or ()] == [[0.5, 2.0], [1.5, 2.0]]
    assert (vendor.last.body["input"], vendor.last.body["dimensions"]) == (["a", "b"], 2)


def test_what_a_vector_is_for_is_left_out_and_named(
    vendor: NativeVendor, server: ServerProcess
) -> None:
    """LangChain and LlamaIndex say it with every text."""
    data = [{"object": "embedding", "index": 0, "embedding": [0.5]}]
    vendor.will_answer(Answer([json.dumps({"object": "list", "data": data}).encode()]))
    text = {"content": {"parts": [{"text": "a"}]}, "taskType": "RETRIEVAL_DOCUMENT", "title": "A"}
    embedded = post(server, "bridged", "batchEmbedContents", {"requests": [text]})
    assert embedded.json() == {"embeddings": [{"values": [0.5]}]}
    dropped = embedded.headers["x-llama-compat-dropped"].split(", ")
    assert dropped == ["requests.taskType", "requests.title"]
    assert vendor.last.body["input"] == ["a"]


def test_that_free_calls_are_checked_is_left_out_and_named(
    vendor: NativeVendor, server: ServerProcess
) -> None:
    """Pydantic AI asks for it with every tool."""
    chat_vendor.will_say(vendor, "Hi")
    tools = [{"functionDeclarations": [{"name": "get_time"}]}]
    calling = {"functionCallingConfig": {"mode": "VALIDATED"}}
    reply = post(
        server, "bridged", "generateContent", {**HI, "tools": tools, "toolConfig": calling}
    )
    assert reply.status == 200
    assert reply.headers["x-llama-compat-dropped"] == "toolConfig.functionCallingConfig.mode"
    assert "tool_choice" not in vendor.last.body


def test_tells_of_the_vendors_errors(vendor: NativeVendor, client: genai.Client) -> None:
    error = {"error": {"message": "Slow down", "type": "rate_limit_error"}}
    vendor.will_answer(Answer([json.dumps(error).encode()], status=429))
    for ask in (client.models.generate_content, client.models.generate_content_stream):
        with pytest.raises(errors.ClientError) as raised:
            list(ask(model="bridged", contents="Hi"))
        assert (raised.value.code, raised.value.status) == (429, "RESOURCE_EXHAUSTED")
        assert raised.value.message == "Slow down"
    vendor.will_answer(Answer([b'{"error": {"message": "bad key"}}'], status=401))
    with pytest.raises(errors.ServerError, match="API key configured for it") as failed:
        client.models.generate_content(model="bridged", contents="Hi")
    assert failed.value.code == 502


@pytest.mark.parametrize("model", ["bridged", "org/relayed"])
def test_a_stream_that_is_cut_says_so(
    vendor: NativeVendor, server: ServerProcess, client: genai.Client, model: str
) -> None:
    if model == "bridged":
        chat_vendor.will_break_off(vendor)
    else:
        begun = sdk.stream_bytes([sdk.dump(sdk.response([sdk.text("It is")], None))])
        vendor.will_answer(Answer([begun], break_off=True))
    events = client.models.generate_content_stream(model=model, contents="Hi")
    assert next(events).text == "It is"
    with pytest.raises(errors.APIError):
        list(events)
    *said, failed = post(server, model, "streamGenerateContent").json()
    assert said[0]["candidates"][0]["content"]["parts"] == [{"text": "It is"}]
    assert failed["error"]["code"] == 502


@pytest.mark.parametrize("model", ["bridged", "org/relayed"])
def test_a_client_that_leaves_takes_the_vendor_along(
    vendor: NativeVendor, server: ServerProcess, model: str
) -> None:
    if model == "bridged":
        chat_vendor.will_break_off(vendor, hold=True)
    else:
        begun = sdk.stream_bytes([sdk.dump(sdk.response([sdk.text("It is")], None))])
        vendor.will_answer(Answer([begun], hold=True))
    url = f"{server.url}/v1beta/models/{model}:streamGenerateContent?alt=sse"
    with wire.open_reply("POST", url, HI) as reply:
        assert b"It is" in reply.readline()
    assert vendor.hung_up.wait(20)


@pytest.mark.parametrize("status", [200, 429])
@pytest.mark.parametrize("query", ["?alt=sse", ""])
def test_a_silent_stream_is_kept_alive(
    vendor: NativeVendor, server: ServerProcess, query: str, status: int
) -> None:
    later = threading.Event()
    chat_vendor.will_say(vendor, "Hello", after=later, status=status)
    url = f"{server.url}/v1beta/models/alive:streamGenerateContent{query}"
    with wire.open_reply("POST", url, HI) as reply:
        assert reply.read(4) == b"\r\n\r\n"
        later.set()
        items = [json.loads(data) for data in wire.events(reply)] if query else json.load(reply)
    assert [("error" in item) for item in items] == ([False] * 2 if status == 200 else [True])


# --------------------------------------------------------------------------------------------------
# Echo, and what there is without a model
# --------------------------------------------------------------------------------------------------


def test_stops_counts_and_gives_several(client: genai.Client) -> None:
    config = types.GenerateContentConfig(stop_sequences=["END"], candidate_count=2)
    said = client.models.generate_content(model="echo", contents="a b END c", config=config)
    assert [each.content.parts[0].text for each in said.candidates or ()] == ["a b "] * 2  # type: ignore[union-attr, index]
    assert said.usage_metadata is not None
    assert said.usage_metadata.prompt_token_count == 4
    limited = types.GenerateContentConfig(max_output_tokens=2)
    said = client.models.generate_content(model="echo", contents="a b c", config=limited)
    assert (said.text, said.candidates[0].finish_reason) == (  # type: ignore[index]
        "a b ",
        types.FinishReason.MAX_TOKENS,
    )
    assert client.models.count_tokens(model="echo", contents="a b c").total_tokens == 3


def test_chats(client: genai.Client) -> None:
    chat = client.chats.create(model="strict:1b")
    assert chat.send_message("one").text == "one"
    assert "".join(event.text or "" for event in chat.send_message_stream("two three")) == (
        "two three"
    )
    assert chat.send_message("four").text == "four"


def test_what_can_t_be_honoured_is_refused_or_dropped_by_its_path(server: ServerProcess) -> None:
    asked = {
        **HI,
        "tools": [{"googleSearch": {}}],
        "cached_content": "cachedContents/x",
        "generationConfig": {"response_mime_type": "application/json"},
    }
    refused = post(server, "strict:1b", "generateContent", asked).json()["error"]
    assert (refused["code"], refused["status"]) == (400, "INVALID_ARGUMENT")
    assert "'cached_content'" in refused["message"]
    dropped = post(server, "echo", "generateContent", asked)
    assert dropped.json()["candidates"][0]["content"]["parts"] == [{"text": "Hi"}]
    named = {name.strip() for name in dropped.headers["x-llama-compat-dropped"].split(",")}
    assert named == {
        "cached_content",
        "tools.googleSearch",
        "generationConfig.response_mime_type",
    }


def test_models(client: genai.Client, server: ServerProcess) -> None:
    names = ["bridged", "echo", "strict:1b", "org/relayed", "alive"]
    assert [model.name for model in client.models.list()] == [f"models/{name}" for name in names]
    assert [model.name for model in client.models.list(config={"page_size": 3})] == [
        f"models/{name}" for name in names
    ]
    assert client.models.get(model="models/org/relayed").name == "models/org/relayed"
    listed = wire.request("GET", f"{server.url}/v1/models").json()
    assert listed["object"] == "list"
    assert wire.request("GET", f"{server.url}/v1/models/echo").json()["object"] == "model"


@pytest.mark.parametrize("path", ["/v1/models/none", "/v1beta/models/none"])
def test_a_model_that_is_not_there(server: ServerProcess, path: str) -> None:
    reply = wire.request("GET", server.url + path, headers={"x-goog-api-key": "none"})
    assert (reply.status, reply.json()["error"]["status"]) == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1beta/models/none:generateContent", HI, 404),
        ("POST", "/v1/models/none:generateContent", HI, 404),
        ("POST", "/v1beta/models/echo:generateContent", {}, 400),
        ("POST", "/v1beta/models/echo:generateContent", b"{", 400),
        (
            "POST",
            "/v1beta/models/echo:embedContent",
            {"content": {"parts": [{"text": "a"}]}, "outputDimensionality": 5000},
            400,
        ),
        ("GET", "/v1beta/models/echo:generateContent", None, 405),
        ("GET", "/v1/models/echo:generateContent", None, 405),
        ("POST", "/v1beta/models/echo:predict", HI, 404),
        ("GET", "/v1beta/cachedContents", None, 404),
        ("GET", "/v1beta/models?pageSize=many", None, 400),
    ],
)
def test_errors_have_googles_shape(
    server: ServerProcess, method: str, path: str, body: Any, status: int
) -> None:
    reply = wire.request(method, server.url + path, body)
    error = reply.json()["error"]
    assert (reply.status, error["code"]) == (status, status)
    assert error["message"]
    assert error["status"].isupper()
    assert reply.headers["x-request-id"]


def test_the_model_may_be_percent_encoded(server: ServerProcess, vendor: NativeVendor) -> None:
    said = sdk.dump(sdk.response([sdk.text("Hi")]))
    vendor.will_answer(Answer([json.dumps(said).encode()]))
    assert post(server, "org%2Frelayed", "generateContent").status == 200
    assert post(server, "strict%3A1b", "generateContent").status == 200


# --------------------------------------------------------------------------------------------------
# Gemini itself: bytes there and back
# --------------------------------------------------------------------------------------------------

WHOLE = sdk.dump(
    sdk.response([sdk.thought("Hm"), types.Part(text="It is 20 °C.", thought_signature=b"seal")])
)
PRETTY = json.dumps(WHOLE, indent=2, ensure_ascii=False).encode()
EVENTS = [
    sdk.dump(sdk.response([sdk.thought("Hm")], None)),
    sdk.dump(sdk.response([types.Part(text="It is", thought_signature=b"seal")], None)),
    {**sdk.dump(sdk.response([sdk.text(" 20 °C.")])), "novelty": 1.0},
]


def test_relays_bytes(vendor: NativeVendor, server: ServerProcess) -> None:
    stream = sdk.stream_bytes(EVENTS)
    pieces = [stream[:70], stream[70:]]
    vendor.will_answer(Answer([PRETTY]), streamed=Answer(pieces))
    sent = b'{"novel": 1.0, "contents": [{"parts": [{"text": "Hi"}]}], "cachedContent": "x"}'
    whole = post(server, "org/relayed", "generateContent", sent)
    asked = vendor.last
    assert (asked.method, asked.path) == ("POST", "/v1beta/models/gemini-3-pro:generateContent")
    assert asked.headers["x-goog-api-key"] == KEY
    assert asked.content == (
        b'{"novel":1.0,"contents":[{"parts": [{"text": "Hi"}]}],"cachedContent":"x"}'
    )
    assert whole.body == PRETTY
    events = post(server, "org/relayed", "streamGenerateContent?alt=sse", sent)
    assert vendor.last.path == "/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse"
    assert events.body == stream
    array = post(server, "org/relayed", "streamGenerateContent", sent)
    assert vendor.last.path == "/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse"
    assert array.json() == EVENTS


def test_relays_to_the_official_client(vendor: NativeVendor, client: genai.Client) -> None:
    vendor.will_answer(Answer([PRETTY]), streamed=Answer([sdk.stream_bytes(EVENTS)]))
    whole = client.models.generate_content(model="org/relayed", contents="Hi")
    assert (whole.text, whole.model_version) == ("It is 20 °C.", "gemini")
    assert parts_of(whole)[1].thought_signature == b"seal"
    events = client.models.generate_content_stream(model="org/relayed", contents="Hi")
    assert "".join(event.text or "" for event in events) == "It is 20 °C."


def test_relays_every_call(vendor: NativeVendor, client: genai.Client) -> None:
    vendor.will_answer(Answer([b'{"totalTokens": 7}']))
    assert client.models.count_tokens(model="org/relayed", contents="Hi").total_tokens == 7
    assert vendor.last.path == "/v1beta/models/gemini-3-pro:countTokens"
    vendor.will_answer(Answer([b'{"embeddings": [{"values": [1.0]}]}']))
    embedded = client.models.embed_content(
        model="org/relayed",
        contents="a",
        config=types.EmbedContentConfig(task_type="RETRIEVAL_QUERY"),
    )
    assert [each.values for each in embedded.embeddings or ()] == [[1.0]]
    assert vendor.last.path == "/v1beta/models/gemini-3-pro:batchEmbedContents"
    (request,) = vendor.last.body["requests"]
    assert (request["model"], request["taskType"]) == ("models/gemini-3-pro", "RETRIEVAL_QUERY")


def test_names_the_vendors_model_wherever_there_is_one(
    vendor: NativeVendor, server: ServerProcess
) -> None:
    vendor.will_answer(Answer([b'{"totalTokens": 7}']))
    inner = {"model": "models/org/relayed", **HI}
    post(server, "org/relayed", "countTokens", {"generateContentRequest": inner})
    assert vendor.last.body == {"generateContentRequest": {"model": "models/gemini-3-pro", **HI}}


def test_counts_for_other_clients_too(vendor: NativeVendor, server: ServerProcess) -> None:
    vendor.will_answer(Answer([b'{"totalTokens": 7}']))
    body = {"model": "org/relayed", "messages": [{"role": "user", "content": "Hi"}]}
    reply = wire.request("POST", f"{server.url}/v1/messages/count_tokens", body)
    assert reply.json() == {"input_tokens": 7}
    assert vendor.last.body == {"generateContentRequest": {"model": "models/gemini-3-pro", **HI}}


def test_relays_errors_as_they_are(vendor: NativeVendor, server: ServerProcess) -> None:
    own = b'{\n  "error": {"code": 404, "message": "%b", "status": "NOT_FOUND"}\n}'
    for method in ("generateContent", "streamGenerateContent?alt=sse"):
        vendor.will_answer(Answer([own % b"no such model"], status=404))
        reply = post(server, "org/relayed", method)
        assert (reply.status, reply.body) == (404, own % b"no such model")
        vendor.will_answer(Answer([own % KEY.encode()], status=404))
        assert post(server, "org/relayed", method).body == own % b"***"
        details = [{"reason": "API_KEY_INVALID"}]
        error = {"error": {"code": 400, "message": "API key not valid", "details": details}}
        vendor.will_answer(Answer([json.dumps(error).encode()], status=400))
        reply = post(server, "org/relayed", method)
        assert reply.status == 502
        assert "API key configured for it" in reply.json()["error"]["message"]
    vendor.will_answer(Answer([own % b"no such model"], status=404))
    (item,) = post(server, "org/relayed", "streamGenerateContent").json()
    assert item == json.loads(own % b"no such model")


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ([b'data: {"error": {"code": 503, "message": "busy"}}\r\n\r\n'], "busy"),
        ([b"data: nonsense\r\n\r\n"], "makes no sense"),
        ([], "before the reply was complete"),
    ],
)
def test_a_relayed_stream_that_fails_says_so(
    vendor: NativeVendor, server: ServerProcess, pieces: list[bytes], message: str
) -> None:
    begun = sdk.stream_bytes(EVENTS[:2])
    vendor.will_answer(Answer([begun, *pieces]))
    events = post(server, "org/relayed", "streamGenerateContent?alt=sse").body
    assert events.startswith(begun)
    failed = json.loads(events[len(begun) :].removeprefix(b"data: "))
    assert message in failed["error"]["message"]
    *said, failed = post(server, "org/relayed", "streamGenerateContent").json()
    assert said == EVENTS[:2]
    assert message in failed["error"]["message"]


@pytest.mark.parametrize("candidates", [1, 2])
def test_every_candidate_has_to_come_to_its_end(
    vendor: NativeVendor, server: ServerProcess, candidates: int
) -> None:
    vendor.will_answer(Answer([sdk.stream_bytes(EVENTS)]))
    body = {**HI, "generationConfig": {"candidateCount": candidates}}
    last = post(server, "org/relayed", "streamGenerateContent", body).json()[-1]
    assert ("error" in last) is (candidates == 2)


def test_a_blocked_prompt_is_a_whole_reply(vendor: NativeVendor, server: ServerProcess) -> None:
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {}}
    vendor.will_answer(Answer([sdk.stream_bytes([blocked])]))
    assert post(server, "org/relayed", "streamGenerateContent").json() == [blocked]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (PRETTY, 200),
        (json.dumps(EVENTS).encode(), 200),
        (b"<html>", 502),
        (b"", 502),
        (b"[1]", 502),
    ],
)
def test_what_is_no_stream(
    vendor: NativeVendor, server: ServerProcess, body: bytes, status: int
) -> None:
    vendor.will_answer(Answer([body] if body else []))
    reply = post(server, "org/relayed", "streamGenerateContent")
    assert reply.status == status
    if status == 200:
        assert reply.json() == (EVENTS if body.startswith(b"[") else [WHOLE])
