"""Gemini's dialect: what is sent, what comes back, and that nothing is lost on the way."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from llama_compat.dialects import gemini
from llama_compat.dialects.gemini import StreamParser, render_request, render_schema
from llama_compat.errors import APIError
from llama_compat.events import Collector
from llama_compat.types import (
    AnyToolCall,
    ChatCompletionRequest,
    ChatCompletionResponse,
    CompletionMessage,
    Content,
    ContentPart,
    EmbeddingRequest,
    EmbeddingResponse,
    GreedySamplingStrategy,
    ImageContent,
    Message,
    ResponseFormat,
    SamplingParams,
    StopReason,
    StreamEvent,
    SystemMessage,
    TextContent,
    ThinkingForm,
    TokenLogProb,
    TokenLogProbs,
    ToolCall,
    ToolChoice,
    ToolDefinition,
    ToolResponseMessage,
    TopKSamplingStrategy,
    TopPSamplingStrategy,
    UnparseableToolCall,
    Usage,
    UserMessage,
)
from providers.remote.relaying.json_events import JSONEvents
from tests import sdk_gemini as sdk
from tests.unit import vocabulary

ANY_SIGNATURE = "skip_thought_signature_validator"

# --------------------------------------------------------------------------------------------------
# The other direction: what Gemini reads and writes
# --------------------------------------------------------------------------------------------------


def read_request(body: dict[str, Any]) -> ChatCompletionRequest:
    config = body.get("generationConfig", {})
    efforts = {0: "none", 1024: "low", 8192: "medium", 24576: "high"}
    thinking = config.get("thinkingConfig")
    schema = config.get("responseSchema")
    shape = ResponseFormat("json_schema", schema=read_schema(schema)) if schema else None
    if shape is None and config.get("responseMimeType"):
        shape = ResponseFormat("json_object")
    wanted = config.get("responseLogprobs")
    return ChatCompletionRequest(
        model="gemini-3.8-flash",
        messages=(
            *(
                SystemMessage(part["text"])
                for part in body.get("systemInstruction", {}).get("parts", ())
            ),
            *(message for content in body["contents"] for message in read_content(content)),
        ),
        sampling=read_sampling(config),
        tools=tuple(
            ToolDefinition(
                tool["name"],
                tool.get("description"),
                read_schema(tool["parameters"]) if "parameters" in tool else None,
            )
            for offered in body.get("tools", ())
            for tool in offered["functionDeclarations"]
        ),
        tool_choice=read_tool_choice(body),
        response_format=shape,
        reasoning_effort=efforts[thinking["thinkingBudget"]] if thinking else None,
        logprobs=config.get("logprobs", 0) if wanted else None,
    )


def read_tool_choice(body: dict[str, Any]) -> ToolChoice | None:
    config = body.get("toolConfig", {}).get("functionCallingConfig")
    if config is None:
        return None
    modes: dict[str, Any] = {"AUTO": "auto", "ANY": "required", "NONE": "none"}
    return ToolChoice(modes[config["mode"]], *config.get("allowedFunctionNames", ()))


def read_content(content: dict[str, Any]) -> list[Message]:
    parts = content["parts"]
    if content["role"] == "model":
        text = "".join(part.get("text", "") for part in parts)
        return [
            CompletionMessage.of(text, tuple(read_call(p) for p in parts if "functionCall" in p))
        ]
    if "functionResponse" in parts[0]:
        given = [part for part in parts if "functionResponse" in part]
        said = {**content, "parts": parts[len(given) :]}
        return [
            *(read_response(part["functionResponse"]) for part in given),
            *(read_content(said) if said["parts"] else ()),
        ]
    return [UserMessage(read_parts(parts))]


def read_response(response: dict[str, Any]) -> ToolResponseMessage:
    text = response["response"]["output"]
    images = [read_part(part) for part in response.get("parts", ())]
    return ToolResponseMessage(response["id"], (TextContent(text), *images) if images else text)


def read_parts(parts: Sequence[dict[str, Any]]) -> Content:
    read = tuple(read_part(part) for part in parts)
    return read[0].text if len(read) == 1 and isinstance(read[0], TextContent) else read


def read_part(part: dict[str, Any]) -> ContentPart:
    if "text" in part:
        return TextContent(part["text"])
    inline = part["inlineData"]
    return ImageContent(f"data:{inline['mimeType']};base64,{inline['data']}")


def read_call(part: dict[str, Any]) -> AnyToolCall:
    call = part["functionCall"]
    if "INVALID_JSON" in call["args"]:
        return UnparseableToolCall(call["id"], call["name"], call["args"]["INVALID_JSON"])
    signature = part.get("thoughtSignature")
    return ToolCall(
        call["id"],
        call["name"],
        call["args"],
        msgspec.json.encode(call["args"]).decode(),
        None if signature == ANY_SIGNATURE else signature,
    )


def read_sampling(config: dict[str, Any]) -> SamplingParams:
    temperature, top_p = config.get("temperature", 1.0), config.get("topP", 1.0)
    strategy: Any = TopPSamplingStrategy(temperature, top_p)
    if temperature == 0:
        strategy = GreedySamplingStrategy()
    elif "topK" in config:
        strategy = TopKSamplingStrategy(config["topK"], temperature, top_p)
    return SamplingParams(
        strategy,
        config.get("maxOutputTokens"),
        tuple(config.get("stopSequences", ())),
        config.get("seed"),
        config.get("frequencyPenalty", 0.0),
        config.get("presencePenalty", 0.0),
    )


def read_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """A Gemini schema as a JSON Schema."""
    read: dict[str, Any] = {
        name: value
        for name, value in schema.items()
        if name not in ("propertyOrdering", "nullable") and (name, value) != ("format", "enum")
    }
    if "type" in read:
        read["type"] = read["type"].lower()
    if "properties" in read:
        read["properties"] = {
            name: read_schema(schema["properties"][name]) for name in schema["propertyOrdering"]
        }
    if "items" in read:
        read["items"] = read_schema(read["items"])
    if "anyOf" in read:
        read["anyOf"] = [read_schema(each) for each in read["anyOf"]]
    if schema.get("nullable") and "anyOf" in read:
        read["anyOf"].append({"type": "null"})
    elif schema.get("nullable"):
        read["type"] = [read["type"], "null"]
    return read


def write_reply(response: ChatCompletionResponse) -> types.GenerateContentResponse:
    said = response.completion_message
    parts: list[types.Part] = [sdk.thought(said.reasoning)] if said.reasoning else []
    if said.content:
        assert isinstance(said.content, str)
        parts.append(sdk.text(said.content))
    for call in said.tool_calls:
        assert isinstance(call, ToolCall)
        part = sdk.function_call(call.tool_name, call.arguments, call.call_id)
        if call.thought_signature is not None:
            signed = {"thoughtSignature": call.thought_signature}
            part = types.Part.model_validate_json(
                json.dumps({**part.model_dump(by_alias=True, exclude_none=True), **signed})
            )
        parts.append(part)
    refused = said.stop_reason is StopReason.content_filter
    usage = response.usage
    assert usage.reasoning_tokens is not None
    return sdk.response(
        parts,
        types.FinishReason.SAFETY if refused else types.FinishReason.STOP,
        types.GenerateContentResponseUsageMetadata(
            prompt_token_count=usage.prompt_tokens,
            candidates_token_count=usage.completion_tokens - usage.reasoning_tokens,
            thoughts_token_count=usage.reasoning_tokens,
            cached_content_token_count=usage.cached_tokens,
        ),
    )


# --------------------------------------------------------------------------------------------------
# Schemas
# --------------------------------------------------------------------------------------------------

descriptions = st.fixed_dictionaries({}, optional={"description": st.text(max_size=5)})


@st.composite
def schemas(draw: st.DrawFn, depth: int = 2) -> dict[str, Any]:
    """Schemas that the subset can say, in the form in which they come back from it."""
    kinds = ["string", "enum", "date", "integer", "number", "boolean"]
    kind = draw(st.sampled_from(kinds + (["array", "object", "anyOf"] if depth else [])))
    described = draw(descriptions)
    inner = schemas(depth - 1)
    if kind == "anyOf":
        cases = draw(st.lists(inner, min_size=2, max_size=3))
        return {**described, "anyOf": cases + draw(st.sampled_from([[], [{"type": "null"}]]))}
    bodies: dict[str, dict[str, Any]] = {
        "string": {"type": "string", "maxLength": 9, "pattern": "a+"},
        "enum": {"type": "string", "enum": ["a", "b"]},
        "date": {"type": "string", "format": "date-time"},
        "integer": {"type": "integer", "minimum": 0, "maximum": 9},
        "number": {"type": "number"},
        "boolean": {"type": "boolean"},
    }
    if kind == "array":
        body = {"type": "array", "items": draw(inner), "minItems": 1}
    elif kind == "object":
        body = draw(objects(depth - 1))
    else:
        body = bodies[kind]
    nullable = draw(st.booleans())
    return {**body, **described, **({"type": [body["type"], "null"]} if nullable else {})}


@st.composite
def objects(draw: st.DrawFn, depth: int = 1) -> dict[str, Any]:
    keys = st.text("zyxab", min_size=1, max_size=3)
    properties = draw(st.dictionaries(keys, schemas(depth), min_size=1, max_size=3))
    return {"type": "object", "properties": properties, "required": sorted(properties)[:1]}


@given(objects(2))
def test_a_schema_comes_back_as_it_was(schema: dict[str, Any]) -> None:
    rendered = render_schema(schema)
    assert rendered is not None
    types.Schema.model_validate(rendered)
    read = read_schema(rendered)
    assert read == schema
    assert json.dumps(read["properties"]) == json.dumps(schema["properties"])


STRING = {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "rendered"),
    [
        (
            {
                "$ref": "#/$defs/A",
                "description": "x",
                "$defs": {"A": {"$ref": "#/$defs/B"}, "B": STRING},
            },
            {"type": "STRING", "description": "x"},
        ),
        ({"$ref": "#/definitions/a~1b", "definitions": {"a/b": STRING}}, {"type": "STRING"}),
        ({"oneOf": [STRING, {"type": "null"}]}, {"type": "STRING", "nullable": True}),
        ({"allOf": [STRING], "title": "x"}, {"type": "STRING", "title": "x"}),
        ({"const": "a"}, {"type": "STRING", "enum": ["a"], "format": "enum"}),
        ({"enum": ["a"]}, {"type": "STRING", "enum": ["a"], "format": "enum"}),
        (
            {"type": ["string", "null"], "enum": ["a", None]},
            {"type": "STRING", "enum": ["a"], "format": "enum", "nullable": True},
        ),
        ({**STRING, "$schema": "x", "default": "a", "examples": ["b"]}, {"type": "STRING"}),
        (
            {"properties": {"a": STRING}, "additionalProperties": False},
            {
                "type": "OBJECT",
                "properties": {"a": {"type": "STRING"}},
                "propertyOrdering": ["a"],
            },
        ),
    ],
)
def test_what_the_subset_says_in_its_own_way(schema: Any, rendered: Any) -> None:
    assert render_schema(schema) == rendered
    types.Schema.model_validate(rendered)


TREE = {"type": "object", "properties": {"left": {"$ref": "#"}}}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"type": "array"},
        {"type": "null"},
        {"type": ["string", "integer"]},
        {"type": "integer", "enum": [1, 2]},
        {**STRING, "format": "uri"},
        {**STRING, "not": {"const": "a"}},
        {"type": "integer", "multipleOf": 2},
        {"type": "object", "properties": {"a": True}},
        {"type": "object", "properties": {"a": STRING}, "additionalProperties": STRING},
        {"anyOf": [STRING], "oneOf": [STRING]},
        {"anyOf": [STRING, STRING], "type": "string"},
        {"allOf": [STRING, STRING]},
        {"$ref": "https://example.com/schema"},
        {"$ref": "#/$defs/missing"},
        TREE,
        {**STRING, "enum": ["", "a"]},
        {"type": "object", "properties": {"a": STRING}, "required": ["a", "b"]},
    ],
)
def test_what_the_subset_can_not_say(schema: Any) -> None:
    assert render_schema(schema) is None


def test_references_that_unfold_without_end_are_not_unfolded() -> None:
    layers = {
        f"L{n}": {
            "type": "object",
            "properties": {name: {"$ref": f"#/$defs/L{n + 1}"} for name in "abcdefgh"},
        }
        for n in range(9)
    }
    assert render_schema({"$ref": "#/$defs/L0", "$defs": {**layers, "L9": STRING}}) is None


# --------------------------------------------------------------------------------------------------
# Requests
# --------------------------------------------------------------------------------------------------

tools = st.builds(
    ToolDefinition, vocabulary.names, st.none() | vocabulary.texts, st.none() | objects()
)


@st.composite
def requests(draw: st.DrawFn) -> ChatCompletionRequest:
    offered = tuple(draw(st.lists(tools, max_size=2)))
    choices: list[ToolChoice | None] = [None]
    if offered:
        choices += [ToolChoice("auto"), ToolChoice("required"), ToolChoice("none")]
        choices.append(ToolChoice("required", offered[0].tool_name))
    shapes = st.builds(ResponseFormat, st.just("json_schema"), st.none(), objects())
    sampling = structs.replace(
        draw(vocabulary.samplings(max_temperature=2.0)),
        seed=draw(st.none() | st.integers(0, 2**31 - 1)),
        frequency_penalty=draw(st.sampled_from([0.0, 0.5, -1.0])),
        presence_penalty=draw(st.sampled_from([0.0, 0.5, -1.0])),
    )
    return ChatCompletionRequest(
        model="gemini-3.8-flash",
        messages=draw(vocabulary.conversations(signed=True)),
        sampling=sampling,
        tools=offered,
        tool_choice=draw(st.sampled_from(choices)),
        response_format=draw(st.none() | st.just(ResponseFormat("json_object")) | shapes),
        reasoning_effort=draw(st.sampled_from([None, "none", "low", "medium", "high"])),
        logprobs=draw(st.none() | st.integers(0, 20)),
    )


@given(requests())
def test_a_request_comes_back_as_it_was(request: ChatCompletionRequest) -> None:
    told = structs.replace(request, thinking=ThinkingForm("budget"))
    body = json.loads(msgspec.json.encode(render_request(told)))
    sdk.check_request(body)
    assert read_request(body) == request


def test_the_sdk_does_not_take_everything() -> None:
    body = rendered(UserMessage("Hi"))
    for wrong in (
        {"generationConfig": {"max_tokens": 5}},
        {"toolConfig": {"mode": "ANY"}},
        {"tools": [{"functionDeclarations": [{"parameters": {"$ref": "#"}}]}]},
    ):
        with pytest.raises(ValueError, match="validation error"):
            sdk.check_request({**body, **wrong})


def rendered(*messages: Message, model: str = "gemini-3-pro", **members: Any) -> Any:
    body = render_request(ChatCompletionRequest(model, messages, **members))
    sdk.check_request(body)
    return body


def call(call_id: str, signature: str | None = None) -> ToolCall:
    return ToolCall(call_id, f"tool_{call_id}", {}, "{}", signature)


def function_call(call_id: str, **members: str) -> dict[str, Any]:
    return {"functionCall": {"id": call_id, "name": f"tool_{call_id}", "args": {}}, **members}


def function_response(call_id: str, output: str) -> dict[str, Any]:
    response = {"output": output}
    return {"functionResponse": {"id": call_id, "name": f"tool_{call_id}", "response": response}}


def test_answers_to_calls_stand_together_under_the_names_of_their_tools() -> None:
    body = rendered(
        UserMessage("Go", name="Ada"),
        CompletionMessage.of("", (call("1"), call("2"))),
        ToolResponseMessage("2", "two"),
        SystemMessage("Hurry", role="developer"),
        ToolResponseMessage("1", "one"),
        CompletionMessage.of("", reasoning="not sent back"),
        UserMessage("So?"),
    )
    assert body["systemInstruction"] == {"parts": [{"text": "Hurry"}]}
    assert body["contents"] == [
        {"role": "user", "parts": [{"text": "Go"}]},
        {"role": "model", "parts": [function_call("1"), function_call("2")]},
        {
            "role": "user",
            "parts": [
                function_response("1", "one"),
                function_response("2", "two"),
                {"text": "So?"},
            ],
        },
    ]


def test_messages_of_the_model_in_a_row_are_one_turn() -> None:
    body = rendered(
        UserMessage("Go"),
        CompletionMessage.of("Well,"),
        CompletionMessage.of("", (call("1"),)),
        CompletionMessage.of("", (call("2"),)),
        ToolResponseMessage("1", "one"),
        ToolResponseMessage("2", "two"),
        UserMessage("So?"),
    )
    assert [each["role"] for each in body["contents"]] == ["user", "model", "user"]
    said = [{"text": "Well,"}, function_call("1"), function_call("2")]
    assert body["contents"][1]["parts"] == said


def test_users_in_a_row_are_one_turn_and_the_model_is_never_first() -> None:
    hello, hi, well = ({"text": each} for each in ("Hello!", "Hi", "Well?"))
    body = rendered(CompletionMessage.of("Hello!"), UserMessage("Hi"), UserMessage("Well?"))
    opening, *rest = body["contents"]
    assert (opening["role"], opening["parts"][0].keys()) == ("user", {"text"})
    assert rest == [{"role": "model", "parts": [hello]}, {"role": "user", "parts": [hi, well]}]


def test_the_first_of_the_current_turns_calls_is_always_signed() -> None:
    body = rendered(
        UserMessage("Go"),
        CompletionMessage.of("", (call("1", "c2VhbGVk"), call("2"))),
        ToolResponseMessage("1", "one"),
        ToolResponseMessage("2", "two"),
        CompletionMessage.of("", (call("3"), call("4"))),
        ToolResponseMessage("3", "three"),
        ToolResponseMessage("4", "four"),
    )
    assert body["contents"][1]["parts"] == [
        function_call("1", thoughtSignature="c2VhbGVk"),
        function_call("2"),
    ]
    assert body["contents"][3]["parts"] == [
        function_call("3", thoughtSignature=ANY_SIGNATURE),
        function_call("4"),
    ]


def test_a_schema_beyond_the_subset_is_sent_as_json_schema() -> None:
    body = rendered(
        UserMessage("Hi"),
        tools=(
            ToolDefinition("f", parameters=TREE),
            ToolDefinition("g", parameters={"properties": {}}),
        ),
        response_format=ResponseFormat("json_schema", "x", TREE),
    )
    assert body["tools"] == [
        {"functionDeclarations": [{"name": "f", "parametersJsonSchema": TREE}, {"name": "g"}]}
    ]
    assert body["generationConfig"] == {
        "responseMimeType": "application/json",
        "responseJsonSchema": TREE,
    }


def test_nothing_is_sent_that_was_not_asked_for() -> None:
    assert rendered(UserMessage("Hi"), tool_choice=ToolChoice("none")) == {
        "contents": [{"role": "user", "parts": [{"text": "Hi"}]}]
    }


@pytest.mark.parametrize(
    ("model", "effort", "config"),
    [
        ("gemini-2.5-flash", "none", {"thinkingBudget": 0}),
        ("models/gemini-2.5-pro", "minimal", {"thinkingBudget": 1024, "includeThoughts": True}),
        ("gemini-3-pro", "minimal", {"thinkingLevel": "MINIMAL", "includeThoughts": True}),
        ("gemini-flash-latest", "high", {"thinkingLevel": "HIGH", "includeThoughts": True}),
    ],
)
def test_how_much_to_think(model: str, effort: str, config: dict[str, Any]) -> None:
    body = rendered(UserMessage("Hi"), model=model, reasoning_effort=effort)
    assert body["generationConfig"] == {"thinkingConfig": config}


IMAGE = ImageContent("data:image/png;base64,aGk=")


def test_instructions_alone_are_what_the_user_says() -> None:
    body = rendered(SystemMessage("Be brief."), SystemMessage("Name a colour."))
    assert body["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    assert body["contents"] == [{"role": "user", "parts": [{"text": "Name a colour."}]}]


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([SystemMessage("Hi"), CompletionMessage()], "messages"),
        ([UserMessage("")], "messages[0].content"),
        ([SystemMessage((IMAGE,)), UserMessage("Hi")], "messages[0].content"),
        ([UserMessage("Hi"), CompletionMessage.of((IMAGE,))], "messages[1].content"),
        ([UserMessage("Hi"), ToolResponseMessage("1", "Yes")], "messages[1].tool_call_id"),
        ([UserMessage((ImageContent("data:text/plain,hi"),))], "messages[0].content"),
    ],
)
def test_what_has_no_form_is_refused_by_name(messages: list[Message], param: str) -> None:
    with pytest.raises(APIError) as refused:
        rendered(*messages)
    assert (refused.value.status, refused.value.param) == (400, param)


@pytest.mark.parametrize(
    ("model", "effort"), [("gemini-3-pro", "none"), ("gemini-2.5-flash", "enormous")]
)
def test_an_effort_that_can_not_be_made_is_refused(model: str, effort: str) -> None:
    with pytest.raises(APIError) as refused:
        rendered(UserMessage("Hi"), model=model, reasoning_effort=effort)
    assert refused.value.param == "reasoning_effort"


# --------------------------------------------------------------------------------------------------
# Replies and streams
# --------------------------------------------------------------------------------------------------


def parse(whole: types.GenerateContentResponse) -> ChatCompletionResponse:
    return gemini.parse_reply(sdk.dump(whole))


def parse_events(events: Sequence[dict[str, Any]]) -> list[StreamEvent]:
    parser = StreamParser()
    parsed = [each for event in events for each in parser.push(event)]
    return [*parsed, *parser.finish()]


def collect(events: Sequence[StreamEvent]) -> ChatCompletionResponse:
    collector = Collector()
    for event in events:
        collector.add(event)
    return collector.chat_completion()


@given(vocabulary.responses(signed=True))
def test_a_reply_comes_back_as_it_was(response: ChatCompletionResponse) -> None:
    assert parse(write_reply(response)) == response


@given(st.data(), vocabulary.responses(signed=True), st.integers(1, 5))
def test_a_stream_cut_anywhere_comes_back_as_it_was(
    data: st.DataObject, response: ChatCompletionResponse, pieces: int
) -> None:
    events = sdk.stream_events(write_reply(response), pieces=pieces)
    decoder, parser, collector = JSONEvents("vendor"), StreamParser(), Collector()
    for piece in data.draw(vocabulary.cuts(sdk.stream_bytes(events))):
        for value in decoder.feed(piece):
            for event in parser.push(value):
                collector.add(event)
    assert list(decoder.flush()) == []
    for event in parser.finish():
        collector.add(event)
    assert collector.chat_completion() == response


STOP_REASONS = {
    types.FinishReason.STOP: StopReason.end_of_turn,
    types.FinishReason.MAX_TOKENS: StopReason.out_of_tokens,
    types.FinishReason.CONTINUATION: StopReason.end_of_turn,
    types.FinishReason.PUP_LIMITED_DISABLED: StopReason.end_of_turn,
}
FAILURES = {
    types.FinishReason.MALFORMED_FUNCTION_CALL,
    types.FinishReason.MALFORMED_RESPONSE,
    types.FinishReason.MISSING_THOUGHT_SIGNATURE,
    types.FinishReason.TOO_MANY_TOOL_CALLS,
    types.FinishReason.UNEXPECTED_TOOL_CALL,
}


@pytest.mark.parametrize(
    "reason", [each for each in types.FinishReason if "UNSPECIFIED" not in each.value]
)
def test_every_finish_reason(reason: types.FinishReason) -> None:
    whole = sdk.response([sdk.text("Hi")], reason)
    if reason in FAILURES:
        with pytest.raises(ValueError, match=reason.value):
            parse(whole)
        return
    stopped = STOP_REASONS.get(reason, StopReason.content_filter)
    assert parse(whole).completion_message.stop_reason is stopped
    assert collect(parse_events(sdk.stream_events(whole))) == parse(whole)


def test_calls_without_an_id_get_one() -> None:
    whole = sdk.response([sdk.function_call("f", {}), sdk.function_call("f", {})])
    one, two = parse(whole).completion_message.tool_calls
    assert one.call_id
    assert two.call_id
    assert one.call_id != two.call_id


def test_a_blocked_prompt_has_no_answer() -> None:
    feedback = types.GenerateContentResponsePromptFeedback(
        block_reason=types.BlockedReason.SAFETY, block_reason_message="Not that."
    )
    reply = parse(types.GenerateContentResponse(prompt_feedback=feedback, usage_metadata=sdk.USAGE))
    assert reply.completion_message == CompletionMessage.of(
        "", refusal="Not that.", stop_reason=StopReason.content_filter
    )
    assert reply.usage == Usage(30, 25, 10, 5)


def test_counts_that_are_not_told() -> None:
    usage = types.GenerateContentResponseUsageMetadata(prompt_token_count=3)
    assert parse(sdk.response([sdk.text("Hi")], usage=usage)).usage == Usage(3)
    assert parse(sdk.response([sdk.text("Hi")], usage=None)).usage == Usage()


def test_log_probabilities() -> None:
    chosen = [
        types.LogprobsResultCandidate(token="H", log_probability=-0.5),
        types.LogprobsResultCandidate(token="é"),
    ]
    top = types.LogprobsResultTopCandidates(candidates=chosen)
    whole = sdk.response(
        [sdk.text("Hé")],
        logprobs_result=types.LogprobsResult(chosen_candidates=chosen, top_candidates=[top]),
    )
    first, second = TokenLogProb("H", b"H", -0.5), TokenLogProb("é", "é".encode(), 0.0)
    assert parse(whole).logprobs == (
        TokenLogProbs(first, (first, second)),
        TokenLogProbs(second),
    )


def test_a_character_cut_in_two_is_one() -> None:
    events = sdk.stream_events(sdk.response([sdk.text("ab")]), pieces=2)
    for event, half in zip(events, "\ud83c\udf1e", strict=False):
        event["candidates"][0]["content"]["parts"][0]["text"] = half
    assert collect(parse_events(events)).completion_message.content == "🌞"


def test_a_stream_that_breaks_off_is_no_reply() -> None:
    events = sdk.stream_events(sdk.response([sdk.text("Hello")]))
    for length in range(len(events)):
        with pytest.raises(ValueError, match="broke off"):
            parse_events(events[:length])


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"candidates": 5},
        {"candidates": [5]},
        {"candidates": [{"content": {"parts": [5]}}]},
        {"candidates": [{"content": {"parts": [{"functionCall": {}}]}}]},
        {"promptFeedback": 5},
    ],
)
def test_nonsense_is_said_to_be_nonsense(body: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not a response of generateContent"):
        gemini.parse_reply(body)


# --------------------------------------------------------------------------------------------------
# Embeddings and models
# --------------------------------------------------------------------------------------------------


def test_embeddings() -> None:
    body = gemini.render_embedding_request(EmbeddingRequest("embedder", ("a", "b"), 7))
    assert body == {
        "requests": [
            {
                "model": "models/embedder",
                "outputDimensionality": 7,
                "content": {"parts": [{"text": text}]},
            }
            for text in "ab"
        ]
    }
    whole = types.EmbedContentResponse(
        embeddings=[types.ContentEmbedding(values=[0.5]), types.ContentEmbedding(values=[1.5])]
    )
    answer = whole.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert gemini.parse_embeddings(answer) == EmbeddingResponse(((0.5,), (1.5,)))
    for told, counted in (({"promptTokenCount": "7"}, 7), ({"promptTokenCount": -7}, 0), ([7], 0)):
        counts = gemini.parse_embeddings({**answer, "usageMetadata": told})
        assert counts.prompt_tokens == counted
    odd = [{"embeddings": [{"values": each}]} for each in (["x"], [[1.0]], [True], "x", None)]
    for nonsense in ({}, {"embeddings": [{}]}, {"embeddings": 5}, *odd):
        with pytest.raises(ValueError, match="no embeddings"):
            gemini.parse_embeddings(nonsense)


def test_models() -> None:
    listed = {"models": [{"name": "models/a"}, {"name": "tunedModels/b"}]}
    assert gemini.parse_models(listed) == ["a", "tunedModels/b"]
    assert [gemini.model_path(name) for name in gemini.parse_models(listed)] == [
        "models/a",
        "tunedModels/b",
    ]
    with pytest.raises(ValueError, match="no list"):
        gemini.parse_models({"models": [{}]})


def test_what_the_caller_set_is_sent_even_if_it_is_the_usual_default() -> None:
    # Gemini's own default for topP is another.
    sampling = SamplingParams(stated=frozenset({"temperature", "top_p"}))
    config = rendered(UserMessage("Hi"), sampling=sampling)["generationConfig"]
    assert (config["temperature"], config["topP"]) == (1.0, 1.0)
    assert "generationConfig" not in rendered(UserMessage("Hi"))


@pytest.mark.parametrize(
    ("seed", "told"),
    [
        (7, 7),
        (-7, -7),
        (2**31 - 1, 2**31 - 1),
        (2**31 + 5, 5),
        (2**40 + 7, 7),
        (-(2**40) - 1, 2**31 - 1),
    ],
)
def test_a_seed_is_of_32_bits(seed: int, told: int) -> None:
    sampling = SamplingParams(seed=seed)
    body = render_request(ChatCompletionRequest("m", (UserMessage("Hi"),), sampling))
    assert body["generationConfig"]["seed"] == told
