"""What a vendor is asked for a response: each request is one that OpenAI's SDK has types for."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from llama_compat.dialects.openai_responses.requests import has_words_for, render_request
from llama_compat.hosted.vocabulary import UserLocation, WebSearchTool
from llama_compat.types import (
    AudioContent,
    ChatCompletionRequest,
    CompletionMessage,
    GreedySamplingStrategy,
    ImageContent,
    ReasoningContent,
    RefusalContent,
    ResponseFormat,
    SamplingParams,
    SystemMessage,
    TextContent,
    ToolCall,
    ToolChoice,
    ToolDefinition,
    ToolResponseMessage,
    TopKSamplingStrategy,
    TopPSamplingStrategy,
    UserMessage,
)
from tests.sdk_responses import check_request

PICTURE = "data:image/png;base64,iVBORw0KGgo="
SEARCH = WebSearchTool("web_search")


def asked(*messages: Any, **more: Any) -> ChatCompletionRequest:
    more = {"stream": False, "vendor_search": SEARCH, **more}
    return ChatCompletionRequest("gpt-5.5", messages or (UserMessage("Hi"),), **more)


def rendered(request: ChatCompletionRequest) -> dict[str, Any]:
    assert has_words_for(request)
    body = render_request(request)
    check_request(body)
    return body


def test_a_conversation_is_sent_whole_and_in_its_order() -> None:
    body = rendered(
        asked(
            SystemMessage("Be brief.", "developer"),
            UserMessage((TextContent("See:"), ImageContent(PICTURE, "low"))),
            CompletionMessage(
                (
                    ReasoningContent("Hm."),
                    TextContent("Let me see."),
                    ToolCall("c" * 80, "see", {"a": 1}, '{"a":1}'),
                    TextContent("And"),
                    RefusalContent("no more."),
                )
            ),
            ToolResponseMessage("c" * 80, "It failed.", is_error=True),
            UserMessage("So?"),
        )
    )
    system, user, said, call, then, refusal, result, last = body["input"]
    assert system == {"type": "message", "role": "developer", "content": "Be brief."}
    assert user["content"] == [
        {"type": "input_text", "text": "See:"},
        {"type": "input_image", "image_url": PICTURE, "detail": "low"},
    ]
    assert (said["role"], said["content"]) == ("assistant", "Let me see.")
    assert (call["name"], call["arguments"]) == ("see", '{"a":1}')
    assert (then["content"], refusal["content"]) == ("And", "no more.")
    assert result["output"] == "Error: It failed."
    assert result["call_id"] == call["call_id"]
    assert len(call["call_id"]) <= 64
    assert last["content"] == "So?"
    assert body["store"] is False
    assert "stream" not in body


def test_the_search_is_told_all_that_is_asked_of_it() -> None:
    search = WebSearchTool(
        "web_search",
        allowed_domains=("a.example",),
        location=UserLocation(city="Cairo", country="EG"),
        max_uses=3,
        context_size="low",
    )
    body = rendered(asked(vendor_search=search, max_hosted_calls=5))
    assert body["tools"] == [
        {
            "type": "web_search",
            "search_context_size": "low",
            "filters": {"allowed_domains": ["a.example"]},
            "user_location": {"type": "approximate", "city": "Cairo", "country": "EG"},
        }
    ]
    assert body["max_tool_calls"] == 3
    assert body["include"] == ["web_search_call.action.sources"]


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (ToolChoice("required"), "required"),
        (ToolChoice("required", "see"), {"type": "function", "name": "see"}),
        (
            ToolChoice("required", "web_search"),
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]},
        ),
    ],
)
def test_functions_are_beside_it(choice: ToolChoice, said: Any) -> None:
    tools = (ToolDefinition("see", "Looks.", {"type": "object"}), ToolDefinition("go", strict=True))
    body = rendered(asked(tools=tools, tool_choice=choice, parallel_tool_calls=False))
    see, go, search = body["tools"]
    assert (see["strict"], see["description"]) == (False, "Looks.")
    assert go["strict"] is True
    assert search["type"] == "web_search"
    assert body["tool_choice"] == said
    assert body["parallel_tool_calls"] is False


def test_how_tokens_are_chosen_and_what_the_text_is_to_be() -> None:
    wanted = ResponseFormat("json_schema", "n", {"type": "object"}, strict=True)
    body = rendered(
        asked(
            sampling=SamplingParams(TopPSamplingStrategy(0.5, 0.9), max_tokens=100),
            response_format=wanted,
            verbosity="low",
            reasoning_effort="high",
            service_tier="flex",
            logprobs=2,
            stream=True,
        )
    )
    assert (body["temperature"], body["top_p"], body["max_output_tokens"]) == (0.5, 0.9, 100)
    assert body["text"] == {
        "format": {
            "type": "json_schema",
            "name": "n",
            "schema": {"type": "object"},
            "strict": True,
        },
        "verbosity": "low",
    }
    assert body["reasoning"] == {"effort": "high"}
    assert body["service_tier"] == "flex"
    assert "message.output_text.logprobs" in body["include"]
    assert (body["top_logprobs"], body["stream"]) == (2, True)
    greedy = rendered(asked(sampling=SamplingParams(GreedySamplingStrategy())))
    assert greedy["temperature"] == 0.0


def test_it_has_none_for_sound() -> None:
    sound = (AudioContent("audio/wav", "UklGRg=="),)
    assert not has_words_for(asked(UserMessage(sound)))
    assert not has_words_for(asked(UserMessage("Hear."), ToolResponseMessage("c", sound)))


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(stop=("x",)),
        SamplingParams(seed=1),
        SamplingParams(frequency_penalty=0.1),
        SamplingParams(logit_bias={1: 2.0}),
        SamplingParams(TopKSamplingStrategy(3)),
        SamplingParams(max_tokens=15),
    ],
)
def test_it_has_no_words_for_all_that_a_chat_has(sampling: SamplingParams) -> None:
    assert not has_words_for(asked(sampling=sampling))
    plain = structs.replace(sampling, **structs.asdict(SamplingParams()))
    assert has_words_for(asked(sampling=plain))


def test_it_has_none_for_what_a_model_has_drawn() -> None:
    assert not has_words_for(asked(CompletionMessage((ImageContent(PICTURE),))))
