"""Gemini's API as a way in: what its clients ask, and what they are answered."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from llama_compat.dialects import gemini
from llama_compat.dialects.base import CHECKED_ARGUMENTS, EMBEDDING_PURPOSE, Labels, Operation
from llama_compat.dialects.gemini.input.contents import parse_contents
from llama_compat.dialects.gemini.models import render_model, render_models
from llama_compat.dialects.gemini.operations import (
    BATCH_EMBED,
    COUNT_TOKENS,
    EMBED,
    GEMINI,
    GEMINI_ARRAY,
    GENERATE,
    STREAM_ARRAY,
    STREAM_EVENTS,
)
from llama_compat.dialects.gemini.schema import parse_schema, render_schema
from llama_compat.errors import APIError, model_not_found
from llama_compat.hosted.vocabulary import (
    Comparison,
    FileSearchTool,
    MCPTool,
    WebFetchTool,
    WebSearchTool,
)
from llama_compat.types import (
    AnyToolCall,
    ChatCompletionRequest,
    CompletionMessage,
    EmbeddingRequest,
    EmbeddingResponse,
    ImageContent,
    Message,
    ModelInfo,
    ResponseFormat,
    SamplingParams,
    SystemMessage,
    TextContent,
    ToolCall,
    ToolChoice,
    ToolDefinition,
    ToolResponseMessage,
    TopKSamplingStrategy,
    UnparseableToolCall,
    UserMessage,
)
from llama_compat.wire import sse
from llama_compat.wire.json_fields import parse_fields
from tests.unit import vocabulary
from tests.unit.vocabulary import names, texts

LABELS = Labels("public", "req_1", unique="abc")

HI = [{"role": "user", "parts": [{"text": "Hi"}]}]
THINKING = {"thinkingConfig": {"includeThoughts": True}}
IN_JSON = "generationConfig.responseJsonSchema"
FUNCTIONS = [{"functionDeclarations": [{"name": "f"}, {"name": "g"}, {"name": "h"}]}]


def parse(operation: Operation = GENERATE, **body: Any) -> Any:
    return operation.parse({"contents": HI, **body}, "own")


def data_of(stream: bytes) -> list[bytes]:
    return [event.data or b"" for event in sse.EventDecoder().feed(stream)]


def asked(**body: Any) -> dict[str, str]:
    return dict(GENERATE.parameters({"contents": HI, **body}))


# --------------------------------------------------------------------------------------------------
# Round trips: what this server asks Gemini is what Gemini's clients ask this server
# --------------------------------------------------------------------------------------------------


def as_object(call: AnyToolCall) -> AnyToolCall:
    """Arguments that are no object go as a member of one."""
    if isinstance(call, ToolCall):
        return call
    arguments = {"INVALID_JSON": call.arguments_json}
    text = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    return ToolCall(call.call_id, call.tool_name, arguments, text)


def as_read(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """`messages` as one reads them whose system messages are one, and whose calls have objects."""
    system = tuple(TextContent(str(m.content)) for m in messages if isinstance(m, SystemMessage))
    read: list[Message] = []
    if system:
        read.append(SystemMessage(system[0].text if len(system) == 1 else system))
    for message in messages:
        if isinstance(message, CompletionMessage):
            parts = (
                as_object(part) if isinstance(part, ToolCall | UnparseableToolCall) else part
                for part in message.parts
            )
            read.append(CompletionMessage(tuple(parts)))
        elif not isinstance(message, SystemMessage):
            read.append(message)
    return tuple(read)


properties = st.fixed_dictionaries(
    {"type": st.sampled_from(["string", "integer", "number", "boolean"])},
    optional={"description": texts},
) | st.builds(
    lambda values: {"type": "string", "enum": values},
    st.lists(texts, min_size=1, unique=True),
)
schemas: st.SearchStrategy[dict[str, Any]] = st.recursive(
    properties,
    lambda inner: (
        st.builds(lambda items: {"type": "array", "items": items}, inner)
        | st.builds(
            lambda fields: {"type": "object", "properties": fields, "required": [*fields][:1]},
            st.dictionaries(names, inner, min_size=1, max_size=3),
        )
    ),
    max_leaves=5,
)
objects = st.builds(
    lambda fields: {"type": "object", "properties": fields},
    st.dictionaries(names, schemas, min_size=1, max_size=2),
)


@st.composite
def requests(draw: st.DrawFn) -> ChatCompletionRequest:
    tools = draw(
        st.lists(
            st.builds(ToolDefinition, names, st.none() | texts, st.none() | objects),
            max_size=3,
            unique_by=lambda tool: tool.tool_name,
        ).map(tuple)
    )
    choices = [None, ToolChoice("required"), ToolChoice("none")]
    if len(tools) == 1:
        choices.append(ToolChoice("required", tools[0].tool_name))
    return ChatCompletionRequest(
        model="gemini-3-pro",
        messages=draw(vocabulary.conversations(signed=True)),
        sampling=draw(vocabulary.samplings(max_temperature=2.0)),
        tools=tools,
        tool_choice=draw(st.sampled_from(choices)) if tools else None,
        response_format=draw(
            st.sampled_from([None, ResponseFormat("json_object")])
            | st.builds(
                lambda schema: ResponseFormat("json_schema", "response", schema),
                objects,
            )
        ),
        reasoning_effort=draw(st.sampled_from([None, "minimal", "low", "medium", "high"])),
        logprobs=draw(st.sampled_from([None, 0, 5])),
        stream=False,
    )


@given(requests())
def test_a_request_survives_the_round_trip(request: ChatCompletionRequest) -> None:
    body = json.loads(json.dumps(gemini.render_request(request)))
    (read,) = GENERATE.parse(body, "gemini-3-pro").requests  # type: ignore[union-attr]
    wanted = request.response_format
    if wanted is not None and wanted.schema is not None:
        # Which of two members a schema stands in is seen from what it has.
        (where,) = body["generationConfig"].keys() & {"responseSchema", "responseJsonSchema"}
        wanted = structs.replace(wanted, path=f"generationConfig.{where}")
    messages = as_read(request.messages)
    assert read == structs.replace(request, messages=messages, response_format=wanted)


@given(objects)
def test_a_schema_survives_the_round_trip(schema: dict[str, Any]) -> None:
    rendered = render_schema(schema)
    assert rendered is not None
    assert parse_schema(json.loads(json.dumps(rendered)), "x") == schema


# --------------------------------------------------------------------------------------------------
# What is asked of the provider
# --------------------------------------------------------------------------------------------------


def config(**members: Any) -> dict[str, Any]:
    return {"generationConfig": members}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, {}),
        ({"systemInstruction": {"parts": []}, "safetySettings": [{}], "labels": {"a": "b"}}, {}),
        ({"system_instruction": {"parts": []}, "safety_settings": [{}]}, {}),
        ({"cachedContent": "cachedContents/x"}, {"cachedContent": "cachedContent"}),
        ({"cached_content": "cachedContents/x"}, {"cached_content": "cached_content"}),
        ({"novelty": 1}, {"novelty": "novelty"}),
        (config(), {}),
        (config(candidateCount=2, topK=0, responseMimeType="text/plain"), {}),
        (config(responseModalities=["TEXT"], mediaResolution="LOW", stopSequences=[]), {}),
        (
            config(temperature=1, topP=0.9, topK=3, maxOutputTokens=5, seed=1),
            {
                "generationConfig.temperature": "temperature",
                "generationConfig.topP": "top_p",
                "generationConfig.topK": "top_k",
                "generationConfig.maxOutputTokens": "max_tokens",
                "generationConfig.seed": "seed",
            },
        ),
        (
            {"generation_config": {"max_output_tokens": 5, "stop_sequences": ["x"]}},
            {
                "generation_config.max_output_tokens": "max_tokens",
                "generation_config.stop_sequences": "stop",
            },
        ),
        (
            config(responseMimeType="application/json", responseSchema={}),
            {
                "generationConfig.responseMimeType": "response_format",
                "generationConfig.responseSchema": "response_format",
            },
        ),
        (
            config(responseMimeType="text/x.enum"),
            {"generationConfig.responseMimeType": "responseMimeType"},
        ),
        (
            config(responseModalities=["AUDIO"]),
            {"generationConfig.responseModalities": "responseModalities"},
        ),
        (config(logprobs=3), {}),
        (
            config(responseLogprobs=True, logprobs=3),
            {
                "generationConfig.responseLogprobs": "logprobs",
                "generationConfig.logprobs": "top_logprobs",
            },
        ),
        (config(thinkingConfig={"includeThoughts": True}), {}),
        (config(thinkingConfig={"thinkingBudget": 0}), {}),
        (config(thinkingConfig={"thinkingBudget": -1}), {}),
        (
            config(thinkingConfig={"thinkingBudget": 100}),
            {"generationConfig.thinkingConfig": "reasoning_effort"},
        ),
        (
            {"generation_config": {"thinking_config": {"thinking_level": "HIGH"}}},
            {"generation_config.thinking_config": "reasoning_effort"},
        ),
        (config(speechConfig={}), {"generationConfig.speechConfig": "speechConfig"}),
        ({"tools": FUNCTIONS}, {"tools": "tools"}),
        ({"tools": FUNCTIONS[0]}, {"tools": "tools"}),
        ({"tools": [{"function_declarations": [{"name": "f"}]}]}, {"tools": "tools"}),
        ({"tools": []}, {}),
        (
            {"tools": [{"googleSearch": {}}, {"codeExecution": {}, "url_context": {}}]},
            {
                "tools.googleSearch": "hosted_tools",
                "tools.codeExecution": "hosted_tools",
                "tools.url_context": "hosted_tools",
            },
        ),
        ({"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}, {}),
        (
            {"tools": FUNCTIONS, "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}}},
            {"tools": "tools"},
        ),
        (
            {"tools": FUNCTIONS, "tool_config": {"function_calling_config": {"mode": "ANY"}}},
            {"tools": "tools", "tool_config": "tool_choice"},
        ),
        (
            {"tools": FUNCTIONS, "toolConfig": {"functionCallingConfig": {"mode": "VALIDATED"}}},
            {"tools": "tools", "toolConfig.functionCallingConfig.mode": CHECKED_ARGUMENTS},
        ),
        (
            {"tools": FUNCTIONS, "toolConfig": {"retrievalConfig": {}}},
            {"tools": "tools", "toolConfig.retrievalConfig": "retrievalConfig"},
        ),
    ],
)
def test_what_is_asked_of_the_provider(body: dict[str, Any], expected: dict[str, str]) -> None:
    assert asked(**body) == expected


@pytest.mark.parametrize(
    ("thinking", "effort"),
    [
        ({}, None),
        ({"includeThoughts": True}, None),
        ({"thinkingBudget": -1}, None),
        ({"thinkingBudget": 0}, "none"),
        ({"thinkingBudget": 1}, "low"),
        ({"thinkingBudget": 1024}, "low"),
        ({"thinkingBudget": 8192}, "medium"),
        ({"thinkingBudget": 24576}, "high"),
        ({"thinkingLevel": "MINIMAL"}, "minimal"),
        ({"thinking_level": "high"}, "high"),
        ({"thinkingLevel": "THINKING_LEVEL_UNSPECIFIED"}, None),
    ],
)
def test_how_much_to_think(thinking: dict[str, Any], effort: str | None) -> None:
    call = parse(generationConfig={"thinkingConfig": thinking})
    assert call.request.reasoning_effort == effort
    assert call.include_thoughts is (thinking == {"includeThoughts": True})


def test_the_configuration_in_either_spelling() -> None:
    camel = {
        "temperature": 0.5,
        "topK": 40.0,
        "maxOutputTokens": 9,
        "stopSequences": ["a", "b", "c", "d", "e"],
        "presencePenalty": 0.5,
        "responseMimeType": "application/json",
        "responseJsonSchema": {"type": "object"},
        "responseLogprobs": True,
        "logprobs": 2,
    }
    snake = {
        "temperature": 0.5,
        "top_k": 40,
        "max_output_tokens": 9,
        "stop_sequences": ["a", "b", "c", "d", "e"],
        "presence_penalty": 0.5,
        "response_mime_type": "application/json",
        "response_json_schema": {"type": "object"},
        "response_logprobs": True,
        "logprobs": 2,
    }
    request = parse(generationConfig=camel).request
    assert request == parse(generation_config=snake).request
    assert request.sampling == SamplingParams(
        strategy=TopKSamplingStrategy(40, 0.5),
        max_tokens=9,
        stop=("a", "b", "c", "d", "e"),
        presence_penalty=0.5,
    )
    assert request.response_format == ResponseFormat(
        "json_schema", "response", {"type": "object"}, path=IN_JSON
    )
    assert request.logprobs == 2


@pytest.mark.parametrize(
    ("calling", "names", "choice"),
    [
        ({}, "fgh", None),
        ({"mode": "AUTO"}, "fgh", None),
        ({"mode": "MODE_UNSPECIFIED"}, "fgh", None),
        ({"mode": "NONE"}, "fgh", ToolChoice("none")),
        ({"mode": "ANY"}, "fgh", ToolChoice("required")),
        ({"mode": "ANY", "allowedFunctionNames": ["g"]}, "g", ToolChoice("required", "g")),
        ({"mode": "ANY", "allowedFunctionNames": ["h", "f"]}, "fh", ToolChoice("required")),
        ({"mode": "VALIDATED", "allowed_function_names": ["g"]}, "g", None),
    ],
)
def test_which_functions_may_be_called(
    calling: dict[str, Any], names: str, choice: ToolChoice | None
) -> None:
    request = parse(tools=FUNCTIONS, toolConfig={"functionCallingConfig": calling}).request
    assert [tool.tool_name for tool in request.tools] == list(names)
    assert request.tool_choice == choice


STORE = {"fileSearchStoreNames": ["fileSearchStores/vs_1"]}


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        ({"google_search": {}}, WebSearchTool("web_search")),
        (
            {"googleSearch": {"exclude_domains": ["a.example"]}},
            WebSearchTool("web_search", blocked_domains=("a.example",)),
        ),
        ({"urlContext": {}}, WebFetchTool("web_fetch")),
        ({"url_context": {}}, WebFetchTool("web_fetch")),
        ({"fileSearch": STORE}, FileSearchTool("file_search", ("vs_1",))),
        (
            {"file_search": {"file_search_store_names": ["vs_1"], "topK": 3}},
            FileSearchTool("file_search", ("vs_1",), 3),
        ),
        (
            {"fileSearch": {**STORE, "metadataFilter": "year > 1930"}},
            FileSearchTool("file_search", ("vs_1",), None, Comparison("gt", "year", 1930)),
        ),
        ({"mcpServers": [{"name": "docs"}]}, MCPTool("docs")),
        (
            {
                "mcpServers": [
                    {
                        "name": "docs",
                        "streamableHttpTransport": {
                            "url": "https://x",
                            "headers": {"authorization": "Bearer y"},
                        },
                    }
                ]
            },
            MCPTool("docs", "https://x", headers={"authorization": "Bearer y"}),
        ),
        (
            {"mcp_servers": {"streamable_http_transport": {"url": "https://x"}}},
            MCPTool("mcp", "https://x"),
        ),
    ],
)
def test_a_tool_that_the_server_runs(tool: dict[str, Any], expected: Any) -> None:
    if not isinstance(tool.get("mcp_servers"), dict):
        types.Tool.model_validate(tool)
    for tools in (tool, [tool], [*FUNCTIONS, tool]):
        assert parse(tools=tools).request.hosted == (expected,)
    assert not set(asked(tools=[tool]).values()) - {"hosted_tools"}


def test_several_tools_that_the_server_runs() -> None:
    servers = [{"name": "a"}, {"name": "b"}]
    declared = [{"name": "web_search"}]
    tools = [
        {"functionDeclarations": declared, "googleSearch": {}, "urlContext": {}},
        {"mcpServers": servers, "fileSearch": STORE, "google_search": {}},
    ]
    assert parse(tools=tools).request.hosted == (
        WebSearchTool("web_search_2"),
        WebFetchTool("web_fetch"),
        FileSearchTool("file_search", ("vs_1",)),
        MCPTool("a"),
        MCPTool("b"),
    )


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({"urlContext": 1}, "tools[0].urlContext"),
        ({"fileSearch": {}}, "tools[0].fileSearch.fileSearchStoreNames"),
        (
            {"file_search": {"file_search_store_names": [1]}},
            "tools[0].file_search.file_search_store_names[0]",
        ),
        ({"fileSearch": {**STORE, "top_k": 0}}, "tools[0].fileSearch.top_k"),
        (
            {"fileSearch": {**STORE, "metadataFilter": "a:b"}},
            "tools[0].fileSearch.metadataFilter",
        ),
        ({"mcpServers": [1]}, "tools[0].mcpServers[0]"),
        ({"mcpServers": [{"name": 1}]}, "tools[0].mcpServers[0].name"),
        (
            {"mcpServers": [{"streamableHttpTransport": 1}]},
            "tools[0].mcpServers[0].streamableHttpTransport",
        ),
        (
            {"mcpServers": [{"streamableHttpTransport": {"url": 1}}]},
            "tools[0].mcpServers[0].streamableHttpTransport.url",
        ),
    ],
)
def test_what_is_malformed_of_such_a_tool_is_named(tool: dict[str, Any], param: str) -> None:
    with pytest.raises(APIError) as refused:
        parse(tools=[tool])
    assert (refused.value.status, refused.value.param) == (400, param)


def test_calls_of_googles_own_tools_are_neither_shown_nor_told_to_others() -> None:
    types.ToolConfig.model_validate({"includeServerSideToolInvocations": True})
    for tools in ([{"urlContext": {}}], [*FUNCTIONS, {"urlContext": {}}]):
        for config in ("toolConfig", "tool_config"):
            named = asked(tools=tools, **{config: {"includeServerSideToolInvocations": True}})
            assert named[f"{config}.includeServerSideToolInvocations"] == "hosted_setting"
    parts = [
        {"toolCall": {"id": "a", "toolType": "URL_CONTEXT", "args": {"urls": ["https://a"]}}},
        {"tool_response": {"id": "a", "toolType": "URL_CONTEXT"}, "thoughtSignature": "c2ln"},
        {"text": "It is long."},
    ]
    types.Content.model_validate({"role": "model", "parts": parts})
    request = parse(contents=[*HI, {"role": "model", "parts": parts}, *HI]).request
    assert request.messages[1] == CompletionMessage((TextContent("It is long."),))


def test_what_nobody_reads_of_such_a_tool_is_named() -> None:
    transport = {"url": "https://x", "timeout": "3s", "terminateOnClose": False}
    tools = [
        {"googleSearch": {"searchTypes": {"imageSearch": {}}, "excludeDomains": ["a"]}},
        {"fileSearch": {**STORE, "other": 1}, "urlContext": {"x": 1}},
        {"mcpServers": [{"name": "a", "streamableHttpTransport": transport, "y": 1}]},
    ]
    settings = {path for path, name in asked(tools=tools).items() if name == "hosted_setting"}
    assert settings == {
        "tools.googleSearch.searchTypes",
        "tools.fileSearch.other",
        "tools.urlContext.x",
        "tools.mcpServers.y",
        "tools.mcpServers.streamableHttpTransport.timeout",
    }


def test_functions_in_both_ways_to_write_them() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    googles = {"type": "OBJECT", "properties": {"x": {"type": "INTEGER"}}, "required": ["x"]}
    declarations = [
        {"name": "a", "description": "A", "parameters": googles},
        {"name": "b", "parametersJsonSchema": schema},
        {"name": "c", "parameters_json_schema": schema},
        {"name": "d"},
    ]
    tools = [{"functionDeclarations": declarations[:2]}, {"functionDeclarations": declarations[2:]}]
    assert parse(tools=[*tools, {"googleSearch": {}}]).request.tools == (
        ToolDefinition("a", "A", schema),
        ToolDefinition("b", None, schema),
        ToolDefinition("c", None, schema),
        ToolDefinition("d"),
    )


@pytest.mark.parametrize(
    ("googles", "schema"),
    [
        ({"type": "STRING", "nullable": True}, {"type": ["string", "null"]}),
        (
            {"type": "STRING", "format": "enum", "enum": ["a"], "nullable": True},
            {"type": ["string", "null"], "enum": ["a", None]},
        ),
        (
            {"type": "ARRAY", "items": {}, "minItems": "2"},
            {"type": "array", "items": {}, "minItems": 2},
        ),
        (
            {"any_of": [{"type": "STRING"}], "nullable": True},
            {"anyOf": [{"type": "string"}, {"type": "null"}]},
        ),
        ({"type": "TYPE_UNSPECIFIED", "example": 1}, {"examples": [1]}),
        ({"type": "object", "nullable": False}, {"type": "object"}),
        ({"type": "INTEGER", "format": "int32"}, {"type": "integer", "format": "int32"}),
    ],
)
def test_schemas_of_googles(googles: dict[str, Any], schema: dict[str, Any]) -> None:
    assert parse_schema(googles, "x") == schema


def test_properties_are_in_the_order_that_was_wanted() -> None:
    given = {
        "properties": {name: {"type": "STRING"} for name in "abc"},
        "propertyOrdering": ["c", "a", "z"],
    }
    assert list(parse_schema(given, "x")["properties"]) == ["c", "a", "b"]


# --------------------------------------------------------------------------------------------------
# Contents
# --------------------------------------------------------------------------------------------------


def test_contents_in_every_form() -> None:
    assert parse_contents({"parts": {"text": "Hi"}}) == (UserMessage("Hi"),)
    assert parse_contents([{"parts": ["Hi"]}]) == (UserMessage("Hi"),)
    parts = [
        {"text": "Look"},
        {"inline_data": {"mime_type": "image/png", "data": "-_8"}},
        {"fileData": {"fileUri": "https://example.com/a.png"}},
        {"fileData": {"mimeType": "image/png", "fileUri": "data:image/png;base64,AA=="}},
    ]
    (message,) = parse_contents([{"role": "user", "parts": parts}])
    assert message == UserMessage(
        (
            TextContent("Look"),
            ImageContent("data:image/png;base64,+/8="),
            ImageContent("https://example.com/a.png"),
            ImageContent("data:image/png;base64,AA=="),
        )
    )


def test_answers_and_words_in_one_content_keep_their_order() -> None:
    contents = [
        {
            "role": "model",
            "parts": [{"functionCall": {"name": "f"}}, {"functionCall": {"name": "g"}}],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "g", "response": {"output": "G"}}},
                {"function_response": {"name": "f", "response": {"error": "F"}}},
                {"text": "So?"},
            ],
        },
    ]
    model, *rest = parse_contents(contents)
    assert isinstance(model, CompletionMessage)
    first, second = (call.call_id for call in model.tool_calls)
    assert rest == [
        ToolResponseMessage(second, "G"),
        ToolResponseMessage(first, "F", is_error=True),
        UserMessage("So?"),
    ]


@pytest.mark.parametrize(
    ("response", "text", "is_error"),
    [
        ({"output": "x"}, "x", False),
        ({"result": "x"}, "x", False),
        ({"output": {"a": 1}}, '{"a":1}', False),
        ({"error": "x"}, "x", True),
        ({"error": {"a": 1}}, '{"a":1}', True),
        ({"degrees": 20}, '{"degrees":20}', False),
        ({"output": "x", "a": 1}, '{"output":"x","a":1}', False),
        ({}, "{}", False),
    ],
)
def test_what_a_tool_says(response: dict[str, Any], text: str, is_error: bool) -> None:
    part = {"functionResponse": {"id": "c", "name": "f", "response": response}}
    assert parse_contents([{"parts": [part]}]) == (ToolResponseMessage("c", text, is_error),)


def test_a_failed_tool_says_so_to_gemini() -> None:
    request = ChatCompletionRequest(
        "gemini-3-pro",
        (
            CompletionMessage((ToolCall("c", "f", {}, "{}"),)),
            ToolResponseMessage("c", "no", is_error=True),
        ),
    )
    part = gemini.render_request(request)["contents"][-1]["parts"][0]
    assert part["functionResponse"]["response"] == {"error": "no"}


def test_the_signature_that_always_passes_is_no_seal() -> None:
    call = {"functionCall": {"name": "f"}, "thoughtSignature": "skip_thought_signature_validator"}
    (message,) = parse_contents([{"role": "model", "parts": [call]}])
    assert isinstance(message, CompletionMessage)
    assert isinstance(message.parts[0], ToolCall)
    assert message.parts[0].thought_signature is None


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"contents": None}, "contents"),
        ({"contents": []}, "contents"),
        ({"contents": "Hi"}, "contents"),
        ({"contents": [5]}, "contents[0]"),
        ({"contents": [{"role": "wizard", "parts": []}]}, "contents[0].role"),
        ({"contents": [{"role": ["user"], "parts": []}]}, "contents[0].role"),
        ({"contents": [{"parts": "Hi"}]}, "contents[0].parts"),
        ({"contents": [{"parts": [5]}]}, "contents[0].parts[0]"),
        ({"contents": [{"parts": [{}]}]}, "contents[0].parts[0]"),
        ({"contents": [{"parts": [{"executableCode": {}}]}]}, "contents[0].parts[0]"),
        ({"contents": [{"parts": [{"text": 5}]}]}, "contents[0].parts[0].text"),
        (
            {"contents": [{"parts": [{"inlineData": {"mimeType": "image/png"}}]}]},
            "contents[0].parts[0].inlineData.data",
        ),
        (
            {"contents": [{"parts": [{"inlineData": {"mimeType": "video/mp4", "data": "AA"}}]}]},
            "contents[0].parts[0].inlineData.mimeType",
        ),
        *(
            (
                {"contents": [{"parts": [{"fileData": {"fileUri": uri}}]}]},
                "contents[0].parts[0].fileData.fileUri",
            )
            for uri in (
                "gs://bucket/a.png",
                "files/abc",
                "https://generativelanguage.googleapis.com/v1beta/files/abc",
                "https://www.youtube.com/watch?v=x",
                "file:///etc/passwd",
            )
        ),
        (
            {"contents": [{"role": "model", "parts": [{"functionCall": {}}]}]},
            "contents[0].parts[0].functionCall.name",
        ),
        (
            {
                "contents": [
                    {"role": "model", "parts": [{"functionCall": {"name": "f", "args": 5}}]}
                ]
            },
            "contents[0].parts[0].functionCall.args",
        ),
        ({"systemInstruction": "Be brief"}, "systemInstruction"),
        (
            {
                "system_instruction": {
                    "parts": [{"inlineData": {"mimeType": "image/png", "data": "A"}}]
                }
            },
            "systemInstruction",
        ),
        ({"generationConfig": []}, "generationConfig"),
        (config(temperature=3), "generationConfig.temperature"),
        (config(maxOutputTokens="seven"), "generationConfig.maxOutputTokens"),
        (config(stopSequences=[""]), "generationConfig.stopSequences"),
        (config(candidateCount=9), "generationConfig.candidateCount"),
        (config(candidateCount=0), "generationConfig.candidateCount"),
        (config(responseLogprobs=True, logprobs=21), "generationConfig.logprobs"),
        (config(responseSchema=[]), "generationConfig.responseSchema"),
        (config(responseSchema={"properties": 5}), "generationConfig.responseSchema"),
        (config(responseJsonSchema=[]), "generationConfig.responseJsonSchema"),
        (
            config(thinkingConfig={"thinkingLevel": "DEEP"}),
            "generationConfig.thinkingConfig.thinkingLevel",
        ),
        (
            config(thinkingConfig={"thinkingBudget": "x"}),
            "generationConfig.thinkingConfig.thinkingBudget",
        ),
        ({"tools": "x"}, "tools"),
        ({"tools": [{"functionDeclarations": [{}]}]}, "tools[0].functionDeclarations[0].name"),
        (
            {"tools": FUNCTIONS, "toolConfig": {"functionCallingConfig": {"mode": "SOME"}}},
            "toolConfig.functionCallingConfig.mode",
        ),
        (
            {
                "tools": FUNCTIONS,
                "toolConfig": {
                    "functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["z"]}
                },
            },
            "toolConfig.functionCallingConfig.allowedFunctionNames",
        ),
    ],
)
def test_what_is_malformed_is_named(body: dict[str, Any], param: str) -> None:
    with pytest.raises(APIError) as refused:
        parse(**body)
    assert (refused.value.status, refused.value.param) == (400, param)


# --------------------------------------------------------------------------------------------------
# Counts, embeddings, models and errors
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "stream"),
    [(GENERATE, False), (STREAM_EVENTS, True), (STREAM_ARRAY, True), (COUNT_TOKENS, False)],
)
def test_the_look(operation: Operation, stream: bool) -> None:
    path = {"model": "org/name:8b"}
    body = b'{"generation_config": {"max_output_tokens": 7}}'
    generates = operation is not COUNT_TOKENS
    asked = operation.look(parse_fields(body), path)
    assert (asked.model, asked.stream) == ("org/name:8b", stream)
    assert asked.extent.max_tokens == (7 if generates else None)
    for nothing in (b"{}", b'{"generationConfig": null}', b'{"generationConfig": []}'):
        asked = operation.look(parse_fields(nothing), path)
        assert (asked.model, asked.stream) == ("org/name:8b", stream)
        assert (asked.extent.made, asked.extent.max_tokens) == (int(generates), None)


def test_token_counts() -> None:
    whole = {"model": "models/own", "contents": HI, "systemInstruction": {"parts": [{"text": "S"}]}}
    call = COUNT_TOKENS.parse({"generateContentRequest": whole}, "own")
    assert call.request.messages == (SystemMessage("S"), UserMessage("Hi"))
    assert COUNT_TOKENS.parse({"contents": HI}, "own").request.messages == (UserMessage("Hi"),)
    rendered = call.render_reply(7)  # type: ignore[union-attr, call-arg, arg-type]
    assert types.CountTokensResponse.model_validate_json(rendered).total_tokens == 7
    request = ChatCompletionRequest("own", (UserMessage("Hi"),))
    asked_of_gemini = gemini.render_count_request(request)
    assert asked_of_gemini == {"generateContentRequest": {"model": "models/own", "contents": HI}}
    assert gemini.parse_token_count({"totalTokens": 7}) == 7
    for no_count in ({}, {"totalTokens": -1}, {"totalTokens": True}, {"totalTokens": "7"}):
        with pytest.raises(ValueError, match="totalTokens"):
            gemini.parse_token_count(no_count)


def embed(text: str, **members: Any) -> dict[str, Any]:
    return {"model": "models/own", "content": {"parts": [{"text": text}]}, **members}


def test_embeddings() -> None:
    one = EMBED.parse(embed("a", outputDimensionality=2), "own")
    assert one.request == EmbeddingRequest("own", ("a",), 2)
    rendered = one.render_reply(EmbeddingResponse(((1.0, 2.5),)), LABELS)  # type: ignore[union-attr, call-arg, arg-type]
    assert json.loads(rendered) == {"embedding": {"values": [1.0, 2.5]}}
    batch = BATCH_EMBED.parse({"requests": [embed("a"), embed("b")]}, "own")
    assert batch.request == EmbeddingRequest("own", ("a", "b"))
    vectors = EmbeddingResponse(((1.0,), (2.0,)))
    rendered = batch.render_reply(vectors, LABELS)  # type: ignore[union-attr, call-arg, arg-type]
    parsed = types.EmbedContentResponse.model_validate_json(rendered)
    assert [each.values for each in parsed.embeddings or ()] == [[1.0], [2.0]]
    assert gemini.parse_embeddings(json.loads(rendered)) == vectors


@given(st.lists(texts, min_size=1, max_size=3), st.none() | st.integers(1, 9))
def test_an_embedding_request_survives_the_round_trip(
    inputs: list[str], dimensions: int | None
) -> None:
    request = EmbeddingRequest("own", tuple(inputs), dimensions)
    body = json.loads(json.dumps(gemini.render_embedding_request(request)))
    assert BATCH_EMBED.parse(body, "own").request == request


def test_what_is_asked_of_one_that_embeds() -> None:
    assert EMBED.parameters(embed("a", outputDimensionality=2, taskType="X")) == {
        "outputDimensionality": "dimensions",
        "taskType": EMBEDDING_PURPOSE,
    }
    body = {"requests": [embed("a", output_dimensionality=2), embed("b", title="T")]}
    assert BATCH_EMBED.parameters(body) == {
        "requests.output_dimensionality": "dimensions",
        "requests.title": EMBEDDING_PURPOSE,
    }


@pytest.mark.parametrize(
    ("operation", "body", "param"),
    [
        (EMBED, {}, "content"),
        (EMBED, embed(""), "content"),
        (EMBED, embed("a", outputDimensionality=0), "outputDimensionality"),
        (BATCH_EMBED, {}, "requests"),
        (BATCH_EMBED, {"requests": [5]}, "requests[0]"),
        (BATCH_EMBED, {"requests": [embed("a"), {}]}, "requests[1].content"),
        (BATCH_EMBED, {"requests": [embed("a"), embed("a", outputDimensionality=2)]}, "requests"),
    ],
)
def test_what_can_t_be_embedded(operation: Operation, body: dict[str, Any], param: str) -> None:
    with pytest.raises(APIError) as refused:
        operation.parse(body, "own")
    assert (refused.value.status, refused.value.param) == (400, param)


def test_models_as_the_official_client_reads_them() -> None:
    infos = [ModelInfo(f"org/m{index}", 1, "torch", 8192) for index in range(3)]
    rendered = render_model(infos[0])
    assert "generateContent" in rendered.pop("supportedGenerationMethods")  # the client renames it
    model = types.Model.model_validate_json(json.dumps(rendered))
    assert (model.name, model.input_token_limit) == ("models/org/m0", 8192)
    embedder = ModelInfo("e", 1, "torch", input=("text",), output=("embeddings",))
    assert render_model(embedder)["supportedGenerationMethods"] == ["embedContent"]
    first = render_models(infos, 2, "")
    second = render_models(infos, 2, first["nextPageToken"])
    assert gemini.parse_models(first) == ["org/m0", "org/m1"]
    assert gemini.parse_models(second) == ["org/m2"]
    assert "nextPageToken" not in second
    assert gemini.parse_models(render_models(infos, 0, "nonsense")) == [
        "org/m0",
        "org/m1",
        "org/m2",
    ]


def test_errors() -> None:
    error = model_not_found("x", ["y"])
    message = "The model 'x' does not exist. Available: y."
    body = {
        "error": {
            "code": 404,
            "message": message,
            "status": "NOT_FOUND",
            "details": [
                {
                    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                    "reason": "MODEL_NOT_FOUND",
                    "domain": "llama_compat",
                },
                {
                    "@type": "type.googleapis.com/google.rpc.BadRequest",
                    "fieldViolations": [{"field": "model", "description": message}],
                },
            ],
        }
    }
    assert json.loads(GEMINI.render_error(error, "req_1")) == body
    assert json.loads(GEMINI_ARRAY.render_error(error, "req_1")) == [body]
    assert json.loads(data_of(GEMINI.render_stream_error(error, "req_1"))[0]) == body
    assert json.loads(GEMINI_ARRAY.render_stream_error(error, "req_1")) == [body]
    error.vendor_body = ("ollama", b'{"error": "x"}')
    assert json.loads(GEMINI.render_error(error, "req_1")) == body
    error.vendor_body = ("gemini", b'{\n  "error": {}\r\n}\n')
    assert GEMINI.render_error(error, "req_1") == b'{\n  "error": {}\r\n}\n'
    assert GEMINI.render_stream_error(error, "req_1") == b'data: {   "error": {}  }\r\n\r\n'


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (400, "INVALID_ARGUMENT"),
        (401, "UNAUTHENTICATED"),
        (403, "PERMISSION_DENIED"),
        (404, "NOT_FOUND"),
        (413, "INVALID_ARGUMENT"),
        (429, "RESOURCE_EXHAUSTED"),
        (500, "INTERNAL"),
        (502, "UNAVAILABLE"),
        (503, "UNAVAILABLE"),
        (504, "DEADLINE_EXCEEDED"),
    ],
)
def test_googles_words_for_statuses(status: int, word: str) -> None:
    error = APIError(status, "x", headers={"retry-after": "7"})
    said = json.loads(GEMINI.render_error(error, ""))["error"]
    assert (said["code"], said["status"]) == (status, word)
    assert said["details"] == [
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}
    ]
