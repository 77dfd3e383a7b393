"""Anthropic's API as a way in: what clients ask, and what they are told, as their SDK has it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from anthropic import types
from anthropic.lib.streaming._messages import accumulate_event
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from pydantic import TypeAdapter

from llama_compat.dialects.anthropic_messages import (
    StreamRenderer,
    parse_request,
    parse_token_count,
    render_model,
    render_models,
    render_request,
)
from llama_compat.dialects.anthropic_messages.input.parameters import parameters_asked
from llama_compat.dialects.anthropic_messages.operations import ANTHROPIC, COUNT_TOKENS, MESSAGES
from llama_compat.dialects.anthropic_messages.seals import without_marked
from llama_compat.dialects.base import CITED_DOCUMENTS, Asked, Labels
from llama_compat.errors import (
    APIError,
    UnsupportedHere,
    context_length_exceeded,
    invalid_api_key,
    upstream_error,
)
from llama_compat.events import Collector, reply_events
from llama_compat.types import (
    ChatCompletionRequest,
    ChatCompletionResponse,
    CompletionMessage,
    Delta,
    GreedySamplingStrategy,
    ImageContent,
    ModelInfo,
    ReasoningContent,
    ReasoningDelta,
    RefusalContent,
    ResponseFormat,
    SamplingParams,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    StreamStart,
    SystemMessage,
    TextContent,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallParseStatus,
    ToolChoice,
    ToolDefinition,
    ToolResponseMessage,
    TopKSamplingStrategy,
    TopPSamplingStrategy,
    UnparseableToolCall,
    Usage,
    UserMessage,
)
from llama_compat.wire import sse
from llama_compat.wire.json_fields import Raw, parse_fields
from tests import sdk_anthropic as sdk
from tests.unit import vocabulary

LABELS = Labels("public", "req_1", "0" * 24, 1)

# --------------------------------------------------------------------------------------------------
# Requests
# --------------------------------------------------------------------------------------------------

HI = [{"role": "user", "content": "Hi"}]
TOOL = {"name": "f", "description": "Does it", "input_schema": {"type": "object"}}
WEB_SEARCH = {"type": "web_search_20250305", "name": "web_search"}


def parsed(**members: Any) -> ChatCompletionRequest:
    body = {"model": "public", "max_tokens": 9, "messages": HI, **members}
    return parse_request(body, "own").request


def test_a_request_in_all_its_parts() -> None:
    request = parsed(
        system=[{"type": "text", "text": "One", "cache_control": {"type": "ephemeral"}}],
        temperature=0.5,
        top_p=0.9,
        top_k=5,
        stop_sequences=["END"],
        tools=[{**TOOL, "type": "custom", "strict": True, "cache_control": {"type": "ephemeral"}}],
        tool_choice={"type": "tool", "name": "f", "disable_parallel_tool_use": True},
        output_config={
            "effort": "low",
            "format": {"type": "json_schema", "schema": {"type": "object"}},
        },
        thinking={"type": "adaptive"},
        metadata={"user_id": "me"},
        stream=True,
    )
    assert request == ChatCompletionRequest(
        "own",
        (SystemMessage("One"), UserMessage("Hi")),
        sampling=SamplingParams(TopKSamplingStrategy(5, 0.5, 0.9), 9, ("END",)),
        tools=(ToolDefinition("f", "Does it", {"type": "object"}, True),),
        tool_choice=ToolChoice("required", "f"),
        parallel_tool_calls=False,
        response_format=ResponseFormat(
            "json_schema", "response", {"type": "object"}, path="output_config.format.schema"
        ),
        reasoning_effort="low",
        adaptive_thinking=True,
        user="me",
        stream=True,
    )


def test_a_request_that_asks_for_nothing_special() -> None:
    assert parsed() == ChatCompletionRequest(
        "own",
        (UserMessage("Hi"),),
        sampling=SamplingParams(TopPSamplingStrategy(), 9),
        stream=False,
    )
    assert parsed(temperature=0).sampling.strategy == GreedySamplingStrategy()
    assert parsed(temperature=1).sampling.stated == {"temperature"}


@given(vocabulary.conversations(), vocabulary.samplings())
def test_what_is_sent_to_anthropic_is_read_as_it_was_meant(
    messages: Any, sampling: SamplingParams
) -> None:
    request = ChatCompletionRequest("own", messages, sampling, tools=(ToolDefinition("f"),))
    body = json.loads(json.dumps(render_request(request, default_max_tokens=1)))
    again = parse_request(body, "own").request
    assert again.sampling == sampling
    assert render_request(again, default_max_tokens=1)["messages"] == body["messages"]


BILLING = "x-anthropic-billing-header: cc_version=2.1.153.d02; cc_entrypoint=cli; cch=0a1b2;"


@pytest.mark.parametrize(
    ("system", "text"),
    [
        ("Be brief.", "Be brief."),
        (f"{BILLING}\nBe brief.", "Be brief."),
        ([{"type": "text", "text": BILLING}, {"type": "text", "text": "Be brief."}], "Be brief."),
        ([{"type": "text", "text": f"{BILLING}\n\nBe\nbrief."}], "Be\nbrief."),
        (f"Say: {BILLING}", f"Say: {BILLING}"),
        ([{"type": "text", "text": "One"}, {"type": "text", "text": "Two"}], "One\n\nTwo"),
    ],
)
def test_the_system_prompt_without_what_changes_with_each_request(system: Any, text: str) -> None:
    assert parsed(system=system).messages[0] == SystemMessage(text)


@pytest.mark.parametrize("system", [None, "", [], BILLING, [{"type": "text", "text": BILLING}]])
def test_no_system_prompt(system: Any) -> None:
    assert parsed(system=system).messages == (UserMessage("Hi"),)


def user(*blocks: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(blocks)}]


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


PIXEL = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
REMOTE = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
PIXEL_PART = ImageContent("data:image/png;base64,aGk=")
REMOTE_PART = ImageContent("https://example.com/a.png")


def test_what_users_say() -> None:
    assert parsed(messages=user(text("Hi"))).messages == (UserMessage("Hi"),)
    assert parsed(messages=user(text("a"), PIXEL, text(""), REMOTE)).messages == (
        UserMessage((TextContent("a"), PIXEL_PART, REMOTE_PART)),
    )


def test_answers_to_calls_come_before_what_is_said_besides() -> None:
    turn = user(
        text("And?"),
        {"type": "tool_result", "tool_use_id": "1", "content": "fine", "is_error": False},
        {"type": "tool_result", "tool_use_id": "2", "is_error": True},
        {"type": "tool_result", "tool_use_id": "3", "content": [text("a"), text("b")]},
        {"type": "tool_result", "tool_use_id": "4", "content": [text("a"), PIXEL]},
        text("So?"),
    )
    assert parsed(messages=turn).messages == (
        ToolResponseMessage("1", "fine"),
        ToolResponseMessage("2", "", is_error=True),
        ToolResponseMessage("3", "a\nb"),
        ToolResponseMessage("4", (TextContent("a"), PIXEL_PART)),
        UserMessage((TextContent("And?"), TextContent("So?"))),
    )
    assert len(parsed(messages=user(turn[0]["content"][1])).messages) == 1


def test_documents_that_are_text() -> None:
    plain = {"type": "text", "media_type": "text/plain", "data": "All of it."}
    document = {"type": "document", "source": plain, "title": "Report", "context": "Of 2026"}
    inside = {"type": "document", "source": {"type": "content", "content": [text("a"), PIXEL]}}
    short = {"type": "document", "source": {"type": "content", "content": "b"}}
    assert parsed(messages=user(document, inside, short)).messages == (
        UserMessage(
            (
                TextContent("Report\n"),
                TextContent("Of 2026\n"),
                TextContent("All of it."),
                TextContent("a"),
                PIXEL_PART,
                TextContent("b"),
            )
        ),
    )


def test_what_the_model_said_comes_back_in_order() -> None:
    said = [
        {"type": "thinking", "thinking": "Hm", "signature": "c2VhbA=="},
        {"type": "thinking", "thinking": "ours", "signature": "llama_compat::"},
        {"type": "thinking", "thinking": "theirs", "signature": "llama_compat:openai:a:b"},
        {"type": "redacted_thinking", "data": "b3Bhcw=="},
        {"type": "redacted_thinking", "data": "llama_compat:openai:gAAA"},
        text("Let me see."),
        {"type": "tool_use", "id": "1", "name": "f", "input": {"a": 10**30}},
        {"type": "tool_use", "id": "2", "name": "f", "input": {"INVALID_JSON": "{"}},
    ]
    messages = [*HI, {"role": "assistant", "content": said}]
    assert parsed(messages=messages).messages[1] == CompletionMessage(
        (
            ReasoningContent("Hm", "c2VhbA==", "anthropic"),
            ReasoningContent("ours"),
            ReasoningContent("theirs", "a:b", "openai"),
            ReasoningContent("", "b3Bhcw==", "anthropic", redacted=True),
            ReasoningContent("", "gAAA", "openai", redacted=True),
            TextContent("Let me see."),
            ToolCall("1", "f", {"a": 10**30}, '{"a":1000000000000000000000000000000}'),
            UnparseableToolCall("2", "f", "{"),
        )
    )


def test_turns_of_other_kinds() -> None:
    messages = [
        {"role": "system", "content": [text("Mind this.")]},
        *HI,
        {"role": "assistant", "content": []},
        {"role": "assistant", "content": "It is"},
    ]
    assert parsed(messages=messages).messages == (
        SystemMessage("Mind this."),
        UserMessage("Hi"),
        CompletionMessage.of("It is"),
    )


FOUND = {
    "type": "search_result",
    "title": "Weather",
    "source": "https://example.com/w",
    "content": [text("Sunny.")],
    "citations": {"enabled": True},
}
CITED = {"type": "document", "source": {"type": "text", "data": "a"}, "citations": {"enabled": 1}}


@pytest.mark.parametrize(
    ("block", "is_cited"),
    [
        (FOUND, True),
        (CITED, True),
        ({"type": "tool_result", "tool_use_id": "1", "content": [FOUND]}, True),
        ({**CITED, "citations": {"enabled": False}}, False),
        ({**CITED, "citations": None}, False),
        (text("a"), False),
    ],
)
def test_what_is_to_be_cited_is_a_wish(block: dict[str, Any], is_cited: bool) -> None:
    body = {"messages": [*HI, *user(block)]}
    named = {"messages.citations": CITED_DOCUMENTS} if is_cited else {}
    assert dict(parameters_asked(body)) == named


def test_what_a_search_of_the_clients_found_is_text() -> None:
    where, said = TextContent("Weather\nhttps://example.com/w\n"), TextContent("Sunny.")
    assert parsed(messages=user(FOUND)).messages == (UserMessage((where, said)),)
    result = {"type": "tool_result", "tool_use_id": "1", "content": [FOUND]}
    told = f"{where.text}\n{said.text}"
    assert parsed(messages=user(result)).messages == (ToolResponseMessage("1", told),)
    assert parsed(messages=user(CITED)).messages == (UserMessage("a"),)


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": ["Hi"]}, "messages[0]"),
        ({"messages": [{"content": "Hi"}]}, "messages[0].role"),
        ({"messages": [{"role": "tool", "content": "Hi"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": user("Hi")}, "messages[0].content[0]"),
        ({"messages": user({"text": "Hi"})}, "messages[0].content[0].type"),
        ({"messages": user({"type": "text"})}, "messages[0].content[0].text"),
        ({"messages": user({"type": "text", "text": 5})}, "messages[0].content[0].text"),
        ({"messages": user(text("a"), {"type": "search_result"})}, "messages[0].content[1].title"),
        ({"messages": user(text("a"), {"type": "found"})}, "messages[0].content[1].type"),
        ({"messages": user({"type": "image"})}, "messages[0].content[0].source"),
        (
            {"messages": user({"type": "image", "source": {"type": "file", "file_id": "1"}})},
            "messages[0].content[0].source.type",
        ),
        (
            {"messages": user({"type": "document", "source": {"type": "base64", "data": ""}})},
            "messages[0].content[0].source.media_type",
        ),
        (
            {"messages": user({"type": "document", "source": {"type": "file", "file_id": "1"}})},
            "messages[0].content[0].source.type",
        ),
        ({"messages": user({"type": "tool_result"})}, "messages[0].content[0].tool_use_id"),
        (
            {"messages": user({"type": "tool_result", "tool_use_id": "1", "is_error": "no"})},
            "messages[0].content[0].is_error",
        ),
        (
            {
                "messages": user(
                    {
                        "type": "tool_result",
                        "tool_use_id": "1",
                        "content": [{"type": "container_upload", "file_id": "f"}],
                    }
                )
            },
            "messages[0].content[0].content[0].type",
        ),
        (
            {
                "messages": user(
                    {
                        "type": "tool_result",
                        "tool_use_id": "1",
                        "content": [{"type": "tool_reference"}],
                    }
                )
            },
            "messages[0].content[0].content[0].tool_name",
        ),
        (
            {"messages": user({"type": "tool_reference", "tool_name": "f"})},
            "messages[0].content[0].type",
        ),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "container_upload"}]}]},
            "messages[0].content[0].type",
        ),
        (
            {
                "messages": [
                    {
                        "role": "assistant",
                        "content": [{"type": "tool_use", "id": "1", "name": "f", "input": "{}"}],
                    }
                ]
            },
            "messages[0].content[0].input",
        ),
        ({"system": 5}, "system"),
        ({"system": [PIXEL]}, "system[0].type"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"temperature": 1.1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": -0.1}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"stop_sequences": "END"}, "stop_sequences"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"tools": {}}, "tools"),
        ({"tools": ["f"]}, "tools[0]"),
        ({"tools": [{"input_schema": {}}]}, "tools[0].name"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
        ({"tools": [WEB_SEARCH, {**TOOL, "strict": 1}]}, "tools[1].strict"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"tool_choice": {"type": "all"}}, "tool_choice.type"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"thinking": True}, "thinking"),
        ({"thinking": {"type": "deep"}}, "thinking.type"),
        ({"thinking": {"type": ["enabled"]}}, "thinking.type"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1023}}, "thinking.budget_tokens"),
        ({"output_config": []}, "output_config"),
        ({"output_config": {"effort": "huge"}}, "output_config.effort"),
        ({"output_config": {"format": {"type": "text"}}}, "output_config.format.type"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
        ({"output_format": {"type": "json_schema", "schema": 1}}, "output_format.schema"),
    ],
)
def test_what_is_wrong_is_named(members: dict[str, Any], param: str) -> None:
    with pytest.raises(APIError) as refused:
        parsed(**members)
    assert (refused.value.status, refused.value.param) == (400, param)
    assert f"'{param}'" in refused.value.message


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, (ToolChoice("auto"), None)),
        ({"type": "any"}, (ToolChoice("required"), None)),
        ({"type": "none"}, (ToolChoice("none"), None)),
        ({"type": "auto", "disable_parallel_tool_use": True}, (ToolChoice("auto"), False)),
        ({"type": "any", "disable_parallel_tool_use": False}, (ToolChoice("required"), None)),
        (None, (None, None)),
    ],
)
def test_tool_choices(choice: Any, expected: tuple[ToolChoice | None, bool | None]) -> None:
    request = parsed(tools=[TOOL], tool_choice=choice)
    assert (request.tool_choice, request.parallel_tool_calls) == expected
    without = parsed(tools=[{"type": "bash_20250124", "name": "bash"}], tool_choice=choice)
    assert (without.tools, without.tool_choice, without.parallel_tool_calls) == ((), None, None)


@pytest.mark.parametrize(
    ("thinking", "effort", "expected"),
    [
        (None, None, None),
        ({"type": "adaptive"}, None, None),
        ({"type": "adaptive", "display": "omitted"}, "max", "max"),
        ({"type": "between_tools"}, None, None),
        ({"type": "disabled"}, None, None),
        ({"type": "disabled"}, "low", "low"),
        ({"type": "enabled"}, None, "low"),
        ({"type": "enabled", "budget_tokens": 1024}, None, "low"),
        ({"type": "enabled", "budget_tokens": 8191}, None, "low"),
        ({"type": "enabled", "budget_tokens": 8192}, None, "medium"),
        ({"type": "enabled", "budget_tokens": 24576}, None, "high"),
        ({"type": "enabled", "budget_tokens": 60000}, None, "high"),
        ({"type": "enabled", "budget_tokens": 60000}, "medium", "medium"),
        (None, "high", "high"),
        ({"type": "adaptive"}, "high", "high"),
        ({"type": "enabled", "budget_tokens": 8192}, "high", "medium"),
    ],
)
def test_how_hard_to_think(thinking: Any, effort: str | None, expected: str | None) -> None:
    request = parsed(thinking=thinking, output_config={"effort": effort})
    assert request.reasoning_effort == expected
    assert request.adaptive_thinking is ((thinking or {}).get("type") == "adaptive")


@pytest.mark.parametrize(
    ("metadata", "user"),
    [({"user_id": "u"}, "u"), ({"user_id": ""}, None), ({"user_id": 1}, None), ("u", None)],
)
def test_who_asks_is_a_hint(metadata: Any, user: str | None) -> None:
    assert parsed(metadata=metadata).user == user


def test_the_older_place_of_the_format() -> None:
    wanted = {"type": "json_schema", "schema": {"type": "object", "a": 1}}
    older = parsed(output_format=wanted).response_format
    newer = parsed(output_config={"format": wanted}).response_format
    assert older is not None
    assert older.path == "output_format.schema"
    assert structs.replace(older, path="output_config.format.schema") == newer


@pytest.mark.parametrize(
    ("members", "asked"),
    [
        ({}, {}),
        ({"system": "Be brief.", "stream": True, "metadata": {"user_id": "1"}}, {}),
        ({"service_tier": "auto", "context_management": {"edits": []}, "speed": "fast"}, {}),
        ({"cache_control": {"type": "ephemeral"}, "container": None, "mcp_servers": []}, {}),
        ({"stop_sequences": [], "tools": [], "tool_choice": {"type": "any"}}, {}),
        ({"stop_sequences": ["a"]}, {"stop_sequences": "stop"}),
        ({"temperature": 1, "top_k": 5}, {"temperature": "temperature", "top_k": "top_k"}),
        ({"thinking": {"type": "adaptive"}}, {}),
        ({"thinking": {"type": "disabled"}}, {"thinking": "thinking"}),
        ({"thinking": {"type": "enabled"}}, {"thinking": "reasoning_effort"}),
        (
            {"output_config": {"effort": "low", "format": {}, "task_budget": 1, "other": None}},
            {
                "output_config.effort": "reasoning_effort",
                "output_config.format": "response_format",
                "output_config.task_budget": "output_config.task_budget",
            },
        ),
        (
            {"output_config": {"effort": "high"}},
            {"output_config.effort": "reasoning_effort"},
        ),
        ({"output_format": {}}, {"output_format": "response_format"}),
        ({"tools": [TOOL], "tool_choice": {"type": "auto"}}, {"tools": "tools"}),
        (
            {"tools": [TOOL], "tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
            {
                "tools": "tools",
                "tool_choice": "tool_choice",
                "tool_choice.disable_parallel_tool_use": "parallel_tool_calls",
            },
        ),
        (
            {"tools": [WEB_SEARCH], "tool_choice": {"type": "any"}},
            {"tools.web_search_20250305": "hosted_tools"},
        ),
        (
            {"mcp_servers": [{"url": "x"}], "container": "c", "brand_new": 1},
            {"mcp_servers": "mcp_servers", "container": "container", "brand_new": "brand_new"},
        ),
    ],
)
def test_what_asks_something_of_the_provider(
    members: dict[str, Any], asked: dict[str, str]
) -> None:
    body = {"model": "public", "max_tokens": 9, "messages": HI, **members}
    assert MESSAGES.parameters(body) == {"max_tokens": "max_tokens", **asked}


@pytest.mark.parametrize(
    ("members", "usual"),
    [
        ({}, []),
        ({"output_config": {"effort": "high"}}, ["output_config.effort"]),
        ({"output_config": {"effort": "max"}}, []),
        ({"thinking": {"type": "disabled"}}, ["thinking"]),
        ({"thinking": {"type": "enabled"}, "output_config": None}, []),
    ],
)
def test_what_is_so_at_anthropic_anyway(members: dict[str, Any], usual: list[str]) -> None:
    assert MESSAGES.usual(members) == usual
    assert set(usual) <= MESSAGES.parameters(members).keys()


def looked(operation: Any = MESSAGES, **members: Any) -> Asked:
    body = {"model": "public", "max_tokens": 9, "messages": HI, **members}
    given = {name: value for name, value in body.items() if value is not ...}
    asked = operation.look(parse_fields(json.dumps(given).encode()), {})
    assert isinstance(asked, Asked)
    return asked


def test_the_look() -> None:
    for asked, stream, max_tokens in (
        (looked(), False, 9),
        (looked(stream=True, max_tokens=0), True, 0),
        (looked(COUNT_TOKENS, max_tokens=...), False, None),
    ):
        assert (asked.model, asked.stream) == ("public", stream)
        assert asked.extent.max_tokens == max_tokens


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"model": ...}, "model"),
        ({"model": 5}, "model"),
        ({"max_tokens": ...}, "max_tokens"),
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": "9"}, "max_tokens"),
        ({"messages": ...}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": "Hi"}, "messages"),
        ({"stream": 1}, "stream"),
    ],
)
def test_the_look_names_what_is_wrong(members: dict[str, Any], param: str) -> None:
    with pytest.raises(APIError) as refused:
        looked(**members)
    assert (refused.value.status, refused.value.param) == (400, param)


def test_tokens_are_counted_of_the_whole_conversation() -> None:
    body = {"model": "public", "system": "Be brief.", "messages": HI, "tools": [TOOL]}
    count = parse_token_count(body, "own")
    assert count.request.messages == (SystemMessage("Be brief."), UserMessage("Hi"))
    assert count.request.tools[0].tool_name == "f"
    assert types.MessageTokensCount.model_validate_json(count.render_reply(7)).input_tokens == 7


# --------------------------------------------------------------------------------------------------
# Thinking blocks that are ours
# --------------------------------------------------------------------------------------------------


def test_only_marked_blocks_are_taken_out_and_all_else_keeps_its_bytes() -> None:
    ours = '{"type":"thinking","thinking":"x","signature":"llama_compat::"}'
    hidden = '{"data":"llama_compat:openai:1","type":"redacted_thinking"}'
    sealed = '{"type":"thinking","thinking":"\\u00fc","signature":"c2Vh\\u0062A=="}'
    quoted = '{"type":"text","text":"llama_compat: is it","n":1.0}'
    messages = (
        f'[{{"role":"user","content":"llama_compat:"}},{{"role":"assistant","content":[{ours}]}},'
        f'{{"role":"assistant","content":[{sealed},{ours},{hidden},{quoted}]}}]'
    )
    kept = bytes(without_marked(Raw(messages.encode()))).decode()
    assert json.loads(kept) == [
        {"role": "user", "content": "llama_compat:"},
        {"role": "assistant", "content": [json.loads(sealed), json.loads(quoted)]},
    ]
    assert sealed in kept
    assert quoted in kept


def test_messages_without_the_mark_are_not_looked_at() -> None:
    raw = Raw(b'[ {"role": "user", "content": [5]}]')
    assert without_marked(raw) is raw
    with pytest.raises(ValueError, match="Expected"):
        without_marked(Raw(b'[{"content": [5, "llama_compat:"]}]'))


# --------------------------------------------------------------------------------------------------
# Replies and streams
# --------------------------------------------------------------------------------------------------

EVENTS: TypeAdapter[types.RawMessageStreamEvent] = TypeAdapter(types.RawMessageStreamEvent)


def rendered(response: ChatCompletionResponse) -> types.Message:
    call = parse_request({"model": "m", "max_tokens": 9, "messages": HI}, "own")
    return types.Message.model_validate_json(
        call.render_reply([response], response.usage, LABELS), strict=True
    )


def streamed(events: Iterable[StreamEvent]) -> bytes:
    renderer, usage = StreamRenderer(LABELS), Usage()
    out = []
    for event in events:
        if isinstance(event, StreamComplete):
            usage = event.usage
        out.append(renderer.render(0, event))
    return b"".join([*out, renderer.finish(usage)])


def read(stream: bytes) -> list[dict[str, Any]]:
    """The events of a stream, each as its name and the SDK's types have it, in their order."""
    events = []
    state, blocks = "nothing", 0
    for event in sse.EventDecoder().feed(stream):
        assert event.data is not None
        value = json.loads(event.data)
        assert event.name.decode() == value["type"]
        EVENTS.validate_json(event.data, strict=True)
        match state, value["type"]:
            case "nothing", "message_start":
                state = "between"
            case "between", "content_block_start":
                assert value["index"] == blocks
                state = "inside"
            case "inside", "content_block_delta":
                assert value["index"] == blocks
            case "inside", "content_block_stop":
                assert value["index"] == blocks
                blocks += 1
                state = "between"
            case "between", "message_delta":
                state = "ending"
            case "ending", "message_stop":
                state = "ended"
            case _:
                raise AssertionError((state, value))
        events.append(value)
    assert state == "ended"
    return events


def folded(events: Sequence[dict[str, Any]]) -> types.Message:
    """What the official SDK puts together from the events."""
    snapshot, buffers = None, {}  # type: ignore[var-annotated]
    for event in events:
        snapshot = accumulate_event(
            event=EVENTS.validate_python(event), current_snapshot=snapshot, json_bufs=buffers
        )
    assert snapshot is not None
    return types.Message.model_validate(snapshot.model_dump(exclude_none=True))


def same(one: types.Message, other: types.Message) -> None:
    assert one.model_dump(exclude_none=True) == other.model_dump(exclude_none=True)


def deltas_of(draw: st.DrawFn, part: Any, call: int) -> list[Delta]:
    """What a part comes as, cut anywhere."""

    def pieces(whole: str) -> list[str]:
        at = draw(st.lists(st.integers(0, len(whole)), max_size=3).map(sorted))
        return [whole[a:b] for a, b in zip([0, *at], [*at, len(whole)], strict=True)]

    match part:
        case TextContent(value):
            return [TextDelta(each) for each in pieces(value)]
        case ReasoningContent(value, signature, sealed_by, redacted):
            last = ReasoningDelta("", signature, sealed_by, redacted)
            if redacted:
                return [last]
            return [*[ReasoningDelta(each) for each in pieces(value)], last]
    ended = ToolCallDelta(call, ToolCallParseStatus.succeeded, tool_call=part)
    if draw(st.booleans()):
        return [ended]
    begun = ToolCallDelta(
        call, ToolCallParseStatus.started, call_id=part.call_id, tool_name=part.tool_name
    )
    coming = [
        ToolCallDelta(call, ToolCallParseStatus.in_progress, arguments=each)
        for each in pieces(part.arguments_json)
        if each
    ]
    return [begun, *(coming if part.arguments else []), ended]


@st.composite
def streams(draw: st.DrawFn) -> tuple[ChatCompletionResponse, list[StreamEvent]]:
    """A reply, and a stream of it in which calls come in one another's way, and end late."""
    response = draw(vocabulary.ordered_responses())
    said = response.completion_message
    parts = [
        deltas_of(draw, part, sum(isinstance(each, ToolCall) for each in said.parts[:place]))
        for place, part in enumerate(said.parts)
    ]
    events: list[StreamEvent] = [StreamStart(draw(st.integers(0, 9)))]
    begun = 0
    while any(parts):
        running = [place for place in range(begun) if parts[place]]
        may_begin = begun < len(parts) and all(
            isinstance(said.parts[place], ToolCall) for place in running
        )
        place = draw(st.sampled_from([*running, *([begun] if may_begin else [])]))
        begun = max(begun, place + 1)
        events.append(StreamProgress(parts[place].pop(0), part=place))
    assert said.stop_reason is not None
    events.append(StreamComplete(said.stop_reason, response.usage, said.stop_string))
    return response, events


@given(streams())
def test_any_stream_folds_to_the_whole_reply(
    drawn: tuple[ChatCompletionResponse, list[StreamEvent]],
) -> None:
    response, events = drawn
    collector = Collector()
    for event in events:
        collector.add(event)
    assert collector.chat_completion() == response  # the stream is one of this reply
    same(folded(read(streamed(events))), rendered(response))


replies = vocabulary.responses(signed=True) | vocabulary.ordered_responses(signed=True)


@given(replies)
def test_a_whole_reply_is_a_stream_of_one(response: ChatCompletionResponse) -> None:
    same(folded(read(streamed(reply_events(response)))), rendered(response))


@given(replies)
def test_what_the_model_said_can_be_sent_back(response: ChatCompletionResponse) -> None:
    content = rendered(response).model_dump(mode="json", exclude_none=True)["content"]
    messages = [*HI, {"role": "assistant", "content": content}]
    again = parsed(messages=messages).messages[1:]
    said = response.completion_message.parts
    assert (again[0].parts if again else ()) == said  # type: ignore[union-attr]


def test_the_seal_of_a_call_comes_after_it_however_late_it_is_known() -> None:
    status = ToolCallParseStatus
    calls = [ToolCall(f"c{n}", "f", {}, "{}", f"seal{n}") for n in range(3)]
    events: list[StreamEvent] = [StreamStart()]
    for n in range(3):
        begun = ToolCallDelta(n, status.started, f"c{n}", "f")
        all_of_it = ToolCallDelta(n, status.in_progress, arguments="{}")
        events += [StreamProgress(begun, part=n), StreamProgress(all_of_it, part=n)]
    events += [
        StreamProgress(ToolCallDelta(n, status.succeeded, tool_call=call), part=n)
        for n, call in enumerate(calls)
    ]
    content = folded(read(streamed([*events, StreamComplete(StopReason.end_of_message)]))).content
    assert [block.type for block in content] == ["tool_use"] * 3 + ["redacted_thinking"] * 3
    said = [block.to_dict() for block in content]
    message = parsed(messages=[{"role": "assistant", "content": said}]).messages[0]
    assert message == CompletionMessage(tuple(calls))


def test_the_events_of_a_reply() -> None:
    status = ToolCallParseStatus
    stream = streamed(
        [
            StreamStart(12),
            StreamProgress(ReasoningDelta("Hm"), part=0),
            StreamProgress(TextDelta("Let "), part=1),
            StreamProgress(TextDelta("me"), part=1),
            StreamProgress(ToolCallDelta(0, status.started, "c1", "f"), part=2),
            StreamProgress(ToolCallDelta(0, status.in_progress, arguments='{"a":1}'), part=2),
            StreamProgress(
                ToolCallDelta(0, status.succeeded, tool_call=ToolCall("c1", "f", {}, '{"a":1}')),
                part=2,
            ),
            StreamComplete(StopReason.end_of_message, Usage(12, 5, 4, 2, 3)),
        ]
    )
    message = {
        "id": f"msg_{'0' * 24}",
        "type": "message",
        "role": "assistant",
        "model": "public",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 12, "output_tokens": 0},
    }

    def start(index: int, **block: Any) -> dict[str, Any]:
        return {"type": "content_block_start", "index": index, "content_block": block}

    def delta(index: int, kind: str, **members: Any) -> dict[str, Any]:
        content = {"type": kind, **members}
        return {"type": "content_block_delta", "index": index, "delta": content}

    def stop(index: int) -> dict[str, Any]:
        return {"type": "content_block_stop", "index": index}

    assert read(stream) == [
        {"type": "message_start", "message": message},
        start(0, type="thinking", thinking="", signature=""),
        delta(0, "thinking_delta", thinking="Hm"),
        delta(0, "signature_delta", signature="llama_compat::"),
        stop(0),
        start(1, type="text", text=""),
        delta(1, "text_delta", text="Let "),
        delta(1, "text_delta", text="me"),
        stop(1),
        start(2, type="tool_use", id="c1", name="f", input={}),
        delta(2, "input_json_delta", partial_json='{"a":1}'),
        stop(2),
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use", "stop_sequence": None},
            "usage": {
                "input_tokens": 5,
                "cache_creation_input_tokens": 3,
                "cache_read_input_tokens": 4,
                "output_tokens": 5,
                "output_tokens_details": {"thinking_tokens": 2},
            },
        },
        {"type": "message_stop"},
    ]


def test_a_call_does_not_wait_for_one_that_has_its_whole_input() -> None:
    status = ToolCallParseStatus
    renderer = StreamRenderer(LABELS)

    def say(index: int, **members: Any) -> bytes:
        return renderer.render(0, StreamProgress(ToolCallDelta(index, **members), part=index))

    def begin(index: int) -> bytes:
        return say(index, parse_status=status.started, call_id=f"c{index}", tool_name="f")

    def go_on(index: int, arguments: str) -> bytes:
        return say(index, parse_status=status.in_progress, arguments=arguments)

    assert b"c0" in begin(0)
    assert go_on(0, '{"a": "}') == b""  # it may still turn out to be no object
    assert begin(1) == b""
    assert go_on(1, '{"b": 2}') == b""
    both = go_on(0, ' "}')
    shown = both.index(b'{\\"a\\": \\"} \\"}')
    assert shown < both.index(b"content_block_stop") < both.index(b"c1")
    third = begin(2)  # the end of the second call has not been told yet
    assert third.index(b'{\\"b\\": 2}') < third.index(b"content_block_stop") < third.index(b"c2")
    ended = ToolCall("c0", "f", {"a": "} "}, '{"a": "} "}')
    assert say(0, parse_status=status.succeeded, tool_call=ended) == b""


@pytest.mark.parametrize("text", ["[1]", "x", '"a"', '{"a": x}', '{"a": "', '{"a": 1} x'])
def test_what_is_no_object_is_shown_inside_of_one(text: str) -> None:
    status, call = ToolCallParseStatus, UnparseableToolCall("c", "f", text)
    events = [
        StreamStart(),
        StreamProgress(ToolCallDelta(0, status.started, "c", "f")),
        StreamProgress(ToolCallDelta(0, status.in_progress, arguments=text[:1])),
        StreamProgress(ToolCallDelta(0, status.in_progress, arguments=text[1:])),
        StreamProgress(ToolCallDelta(0, status.failed, tool_call=call)),
        StreamComplete(StopReason.end_of_message),
    ]
    (block,) = folded(read(streamed(events))).content
    assert isinstance(block, types.ToolUseBlock)
    assert block.input == {"INVALID_JSON": text}
    message = CompletionMessage((call,), StopReason.end_of_message)
    same(folded(read(streamed(events))), rendered(ChatCompletionResponse(message)))


def test_a_call_in_which_the_tokens_run_out_keeps_what_came_inside_of_an_object() -> None:
    status, cut = ToolCallParseStatus, '{"a": "b", "c": '
    events = [
        StreamStart(),
        StreamProgress(ToolCallDelta(0, status.started, "c", "f")),
        StreamProgress(ToolCallDelta(0, status.in_progress, arguments=cut)),
        StreamProgress(
            ToolCallDelta(0, status.failed, tool_call=UnparseableToolCall("c", "f", cut))
        ),
        StreamComplete(StopReason.out_of_tokens),
    ]
    message = folded(read(streamed(events)))
    (block,) = message.content
    assert isinstance(block, types.ToolUseBlock)
    assert block.input == {"INVALID_JSON": cut}
    assert message.stop_reason == "max_tokens"


CALL = ToolCall("c", "f", {}, "{}")


@pytest.mark.parametrize(
    ("parts", "reason", "stop_string", "expected"),
    [
        ((TextContent("a"),), StopReason.end_of_turn, None, ("end_turn", None)),
        ((TextContent("a"),), StopReason.end_of_turn, "END", ("stop_sequence", "END")),
        ((TextContent("a"),), StopReason.end_of_message, None, ("end_turn", None)),
        ((CALL,), StopReason.end_of_message, None, ("tool_use", None)),
        ((CALL,), StopReason.end_of_turn, "END", ("tool_use", None)),
        ((CALL,), StopReason.out_of_tokens, None, ("max_tokens", None)),
        ((), StopReason.content_filter, None, ("refusal", None)),
        ((RefusalContent("No."),), StopReason.end_of_turn, None, ("refusal", None)),
    ],
)
def test_why_a_reply_ended(
    parts: Any, reason: StopReason, stop_string: str | None, expected: Any
) -> None:
    response = ChatCompletionResponse(CompletionMessage(parts, reason, stop_string))
    for message in (rendered(response), folded(read(streamed(reply_events(response))))):
        assert (message.stop_reason, message.stop_sequence) == expected
        if expected[0] == "refusal":
            assert message.stop_details is not None
            assert message.stop_details.explanation == (parts[0].text if parts else None)


def test_half_a_character_fails_no_stream() -> None:
    message = CompletionMessage.of(content="a\ud83d", reasoning="b\ud83d")
    body = streamed(reply_events(ChatCompletionResponse(message))).decode()
    assert "a\ufffd" in body
    assert "b\ufffd" in body


def test_a_refusal_is_also_text() -> None:
    response = ChatCompletionResponse(CompletionMessage((RefusalContent("Not that."),)))
    assert rendered(response).content == [sdk.text("Not that.")]
    same(folded(read(streamed(reply_events(response)))), rendered(response))


def test_counts_that_nobody_told_are_left_out() -> None:
    usage = json.loads(
        parse_request({"max_tokens": 9, "messages": HI}, "own").render_reply(
            [ChatCompletionResponse(CompletionMessage(), usage=Usage(5, 6))], Usage(5, 6), LABELS
        )
    )["usage"]
    assert usage == {"input_tokens": 5, "output_tokens": 6}


def test_a_stream_that_fails_says_so_last() -> None:
    failed = StreamRenderer(LABELS).fail(upstream_error("p", "broke."))
    (event,) = sse.EventDecoder().feed(failed)
    assert event.name == b"error"
    assert event.data is not None
    assert json.loads(event.data) == {
        "type": "error",
        "error": {"type": "api_error", "message": "Provider 'p': broke."},
        "request_id": "req_1",
    }


def test_a_ping_means_nothing() -> None:
    (event,) = sse.EventDecoder().feed(ANTHROPIC.keep_alive)
    assert (event.name, event.data) == (b"ping", b'{"type":"ping"}')
    assert ANTHROPIC.keep_alive_seconds == 15


# --------------------------------------------------------------------------------------------------
# Errors and models
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (APIError(400, "x"), 400, "invalid_request_error"),
        (APIError(422, "x"), 422, "invalid_request_error"),
        (APIError(405, "x"), 405, "invalid_request_error"),
        (invalid_api_key(), 401, "authentication_error"),
        (APIError(429, "x", code="insufficient_quota"), 402, "billing_error"),
        (APIError(403, "x"), 403, "permission_error"),
        (APIError(404, "x"), 404, "not_found_error"),
        (APIError(413, "x"), 413, "request_too_large"),
        (APIError(429, "x"), 429, "rate_limit_error"),
        (APIError(500, "x"), 500, "api_error"),
        (APIError(502, "x"), 502, "api_error"),
        (upstream_error("p", "x", code="upstream_authentication"), 502, "api_error"),
        (APIError(408, "x"), 504, "timeout_error"),
        (APIError(504, "x"), 504, "timeout_error"),
        (APIError(503, "x"), 529, "overloaded_error"),
        (APIError(529, "x"), 529, "overloaded_error"),
    ],
)
def test_the_table_of_errors(error: APIError, status: int, kind: str) -> None:
    assert ANTHROPIC.status(error) == status
    assert json.loads(ANTHROPIC.render_error(error, "req_9")) == {
        "type": "error",
        "error": {"type": kind, "message": error.message},
        "request_id": "req_9",
    }


@pytest.mark.parametrize("parse", [parse_request, parse_token_count])
def test_the_sdks_tool_runners_are_told_that_nobody_holds_a_thread(parse: Any) -> None:
    # With this code they go on without one, and with any other error they end.
    body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 9}
    parse({**body, "thread": None}, "m")
    with pytest.raises(APIError, match="holds no threads") as caught:
        parse({**body, "thread": {"type": "create"}}, "m")
    assert ANTHROPIC.status(caught.value) == 400
    said = json.loads(ANTHROPIC.render_error(caught.value, "req_9"))["error"]
    assert said["details"] == {"error_code": "thread_unsupported_request"}
    assert not caught.value.was_sent


def test_a_prompt_that_is_too_long_is_called_so() -> None:
    # Clients shorten the conversation when they read these words.
    error = context_length_exceeded(10, 20, 5)
    message = json.loads(ANTHROPIC.render_error(error, ""))["error"]["message"]
    assert message == f"prompt is too long: {error.message}"
    for other in (
        APIError(400, "Prompt is too long: 20 > 10"),
        context_length_exceeded(10, 5, 20),  # a shorter conversation would be no help
    ):
        assert json.loads(ANTHROPIC.render_error(other, ""))["error"]["message"] == other.message


def test_a_vendors_own_words_are_kept_for_those_who_understand_them() -> None:
    error = APIError(503, "x")
    error.vendor_body = ("anthropic", b'{"type": "error", "error": {}}')
    assert ANTHROPIC.render_error(error, "") == b'{"type": "error", "error": {}}'
    assert ANTHROPIC.status(error) == 503
    error.vendor_body = ("openai", b"{}")
    assert json.loads(ANTHROPIC.render_error(error, ""))["error"]["message"] == "x"
    assert ANTHROPIC.status(error) == 529


MODELS = [ModelInfo(f"m{number}", 86400 * number, "p") for number in range(25)]


def test_a_model() -> None:
    value = render_model(ModelInfo("a/b", 86400, "p", 4096))
    model = types.ModelInfo.model_validate(value)
    assert (model.id, model.display_name, model.max_input_tokens) == ("a/b", "a/b", 4096)
    assert value["created_at"] == "1970-01-02T00:00:00Z"
    assert "max_input_tokens" not in render_model(MODELS[0])


@pytest.mark.parametrize(
    ("query", "ids", "has_more"),
    [
        ({}, range(20), True),
        ({"limit": "25"}, range(25), False),
        ({"limit": "1000"}, range(25), False),
        ({"limit": "24"}, range(24), True),
        ({"after_id": "m19"}, range(20, 25), False),
        ({"after_id": "m19", "limit": "4"}, range(20, 24), True),
        ({"after_id": "m24"}, range(0), False),
        ({"before_id": "m5"}, range(5), False),
        ({"before_id": "m5", "limit": "2"}, range(3, 5), True),
        ({"before_id": "m5", "limit": "5"}, range(5), False),
        ({"after_id": "m19", "limit": "5"}, range(20, 25), False),
        ({"before_id": "m0"}, range(0), False),
    ],
)
def test_pages_of_models(query: dict[str, str], ids: range, has_more: bool) -> None:
    page = render_models(MODELS, query)
    names = [f"m{number}" for number in ids]
    assert [model["id"] for model in page["data"]] == names
    assert page["has_more"] is has_more
    assert (page["first_id"], page["last_id"]) == ((names[0], names[-1]) if names else (None, None))


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"limit": "0"}, "limit"),
        ({"limit": "1001"}, "limit"),
        ({"limit": "-1"}, "limit"),
        ({"limit": "many"}, "limit"),
        ({"limit": "9" * 5000}, "limit"),
        ({"after_id": "nobody"}, "after_id"),
        ({"before_id": "nobody"}, "before_id"),
    ],
)
def test_pages_that_there_are_not(query: dict[str, str], param: str) -> None:
    with pytest.raises(APIError) as refused:
        render_models(MODELS, query)
    assert (refused.value.status, refused.value.param) == (400, param)


@pytest.mark.parametrize(
    "block",
    [
        {"type": "container_upload", "file_id": "file_1"},
        {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
        {"type": "document", "source": {"type": "unheard_of"}},
    ],
)
def test_what_only_anthropic_s_models_take_is_left_to_them(block: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedHere, match="is for Anthropic's own models") as refused:
        parsed(messages=[{"role": "user", "content": [block]}])
    assert (refused.value.status, refused.value.code) == (400, "unsupported_content")
