"""Audio in every wire language: read, written, or refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from llama_compat.dialects.anthropic_messages import requests as anthropic
from llama_compat.dialects.bedrock_converse import requests as bedrock
from llama_compat.dialects.gemini import requests as gemini
from llama_compat.dialects.gemini.input.contents import parse_contents
from llama_compat.dialects.gemini_interactions import requests as interactions
from llama_compat.dialects.gemini_interactions.input import parse_input as parse_interaction
from llama_compat.dialects.ollama import requests as ollama
from llama_compat.dialects.openai.chat.requests import parse_messages, render_request
from llama_compat.dialects.openai_responses.input.items import parse_input
from llama_compat.errors import APIError, UnsupportedHere
from llama_compat.media.audio import format_of, media_type_of
from llama_compat.tools.formats import FORMATS, plain_messages
from llama_compat.types import (
    AudioContent,
    ChatCompletionRequest,
    CompletionMessage,
    Message,
    SystemMessage,
    TextContent,
    ToolCall,
    ToolResponseMessage,
    UserMessage,
)

DATA = "UklGRg=="
AUDIO = AudioContent("audio/wav", DATA)
HEARD = UserMessage((TextContent("What is said?"), AUDIO))
CALLED = CompletionMessage((ToolCall("call_1", "record", {}, "{}"),))
GIVEN = ToolResponseMessage("call_1", (TextContent("It:"), AUDIO))

OPENAI: Any = {"type": "input_audio", "input_audio": {"data": DATA, "format": "wav"}}
GEMINI: Any = {"inlineData": {"mimeType": "audio/wav", "data": DATA}}
INTERACTION: Any = {"type": "audio", "mime_type": "audio/wav", "data": DATA}


def test_clients_of_every_api_that_has_audio_mean_the_same() -> None:
    asked = {"type": "text", "text": "What is said?"}
    assert parse_messages([{"role": "user", "content": [asked, OPENAI]}]) == (HEARD,)
    texts = {"type": "input_text", "text": "What is said?"}
    assert parse_input([{"role": "user", "content": [texts, OPENAI]}]) == (HEARD,)
    assert parse_contents([{"parts": [{"text": "What is said?"}, GEMINI]}]) == (HEARD,)
    assert parse_interaction([asked, INTERACTION]) == (HEARD,)


@pytest.mark.parametrize("word", ["audio/x-wav", "audio/wave", "Audio/WAV"])
def test_a_type_has_one_word_whatever_it_came_as(word: str) -> None:
    [message] = parse_contents([{"parts": [{"inlineData": {"mimeType": word, "data": DATA}}]}])
    assert message.content == (AUDIO,)


@pytest.mark.parametrize(
    ("format", "media_type"), [("wav", "audio/wav"), ("mp3", "audio/mpeg"), ("flac", "audio/flac")]
)
def test_formats_and_media_types_are_the_same_in_other_words(format: str, media_type: str) -> None:
    assert media_type_of(format) == media_type
    assert format_of(AudioContent(media_type, DATA)) == format


def request_of(*messages: Message) -> ChatCompletionRequest:
    return ChatCompletionRequest("m", messages)


def test_vendors_that_hear_are_sent_it() -> None:
    asked = request_of(HEARD)
    assert render_request(asked)["messages"][0]["content"][1] == OPENAI
    assert gemini.render_request(asked)["contents"][0]["parts"][1] == GEMINI
    assert interactions.render_request(asked)["input"][0]["content"][1] == INTERACTION
    given = request_of(UserMessage("Go."), CALLED, GIVEN)
    *_, last = gemini.render_request(given)["contents"]
    assert last["parts"][0]["functionResponse"]["parts"] == [GEMINI]
    assert INTERACTION in interactions.render_request(given)["input"][-1]["result"]


@pytest.mark.parametrize(
    ("render", "whose"),
    [
        (
            lambda request: anthropic.render_request(request, default_max_tokens=9),
            "Anthropic's API",
        ),
        (bedrock.render_request, "Bedrock's API"),
        (ollama.render_request, "Ollama's API"),
    ],
)
def test_vendors_that_hear_nothing_are_named(
    render: Callable[[ChatCompletionRequest], object], whose: str
) -> None:
    with pytest.raises(UnsupportedHere, match=f"has audio, which {whose} does not take") as raised:
        render(request_of(HEARD))
    assert (raised.value.status, raised.value.code) == (400, "unsupported_content")
    assert (raised.value.param or "").startswith("messages")


@pytest.mark.parametrize(
    "read",
    [
        lambda: parse_messages([{"role": "assistant", "content": [OPENAI]}]),
        lambda: parse_contents([{"role": "model", "parts": [GEMINI]}]),
        lambda: parse_interaction([{"type": "model_output", "content": [INTERACTION]}]),
        lambda: render_request(request_of(UserMessage("Go."), CALLED, GIVEN)),
        lambda: gemini.render_request(request_of(SystemMessage((AUDIO,)), UserMessage("Go."))),
    ],
)
def test_audio_is_refused_where_none_can_be(read: Callable[[], object]) -> None:
    with pytest.raises(APIError) as raised:
        read()
    assert raised.value.status == 400
    assert "has audio" in raised.value.message


def test_what_a_tool_gave_goes_on_where_the_model_knows_no_tools() -> None:
    [*_, answer] = plain_messages(FORMATS["hermes"], (UserMessage("Go."), CALLED, GIVEN), ())
    assert AUDIO in answer.content
