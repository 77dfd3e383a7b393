"""An answer of status 200 that is no reply is an error, whoever asks and whoever is asked.

Each call that a provider answers, relayed or translated, against a real HTTP server.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp import web

from llama_compat.dialects.anthropic_messages import operations as messages
from llama_compat.dialects.base import Operation
from llama_compat.dialects.gemini import operations as gemini_operations
from llama_compat.dialects.ollama import operations as ollama_operations
from llama_compat.dialects.openai import operations as openai
from llama_compat.dialects.openai_responses import operations as responses
from llama_compat.errors import APIError
from llama_compat.exchange import Target
from providers.answer import answer
from providers.registry import provider_type as type_of
from providers.remote.relaying.whole_replies import check_reply, reply_fields
from providers.remote.upstream.vendor_errors import NO_ERROR
from tests.unit.calls import call_of
from tests.unit.providers.remote.openai.test_provider import vendor_that

HI = [{"role": "user", "content": "Hi"}]
CHATS: dict[str, tuple[Operation, dict[str, Any]]] = {
    "chat": (openai.CHAT, {"messages": HI}),
    "responses": (responses.RESPONSES, {"input": "Hi"}),
    "messages": (messages.MESSAGES, {"messages": HI, "max_tokens": 9}),
    "gemini": (gemini_operations.GENERATE, {"contents": [{"parts": [{"text": "Hi"}]}]}),
    "ollama": (ollama_operations.CHAT, {"messages": HI, "stream": False}),
}
OTHERS: dict[str, tuple[Operation, dict[str, Any]]] = {
    "completions": (openai.COMPLETIONS, {"prompt": "Hi"}),
    "ollama-generate": (ollama_operations.GENERATE, {"prompt": "Hi", "stream": False}),
}
EMBEDDINGS: dict[str, tuple[Operation, dict[str, Any]]] = {
    "embeddings": (openai.EMBEDDINGS, {"input": "Hi"}),
    "gemini-embed": (gemini_operations.EMBED, {"content": {"parts": [{"text": "Hi"}]}}),
    "gemini-embeds": (
        gemini_operations.BATCH_EMBED,
        {"requests": [{"model": "models/public", "content": {"parts": [{"text": "Hi"}]}}]},
    ),
    "ollama-embed": (ollama_operations.EMBED, {"input": "Hi"}),
    "ollama-embeddings": (ollama_operations.EMBEDDINGS, {"prompt": "Hi"}),
}
COUNTS: dict[str, tuple[Operation, dict[str, Any]]] = {
    "count_tokens": (messages.COUNT_TOKENS, {"messages": HI}),
    "gemini-count": (gemini_operations.COUNT_TOKENS, {"contents": [{"parts": [{"text": "Hi"}]}]}),
}
ALL = {**CHATS, **OTHERS, **EMBEDDINGS, **COUNTS}
ANSWERS = {
    "remote::openai": [*CHATS, *OTHERS, *EMBEDDINGS],
    "remote::deepseek": [*CHATS],
    "remote::anthropic-messages": [*CHATS, *OTHERS, *COUNTS],
    "remote::gemini-native": [*ALL],
    "remote::ollama-native": [*CHATS, *OTHERS, *EMBEDDINGS],
}

BODIES = [
    (b"{}", "has no '|broke off|reply"),
    (b'{"detail": "no such route"}', "no such route"),
    (b'{"id": "1", "object": "what"}', "has no '|broke off|reply"),
    (
        b'{"choices": [], "data": [], "candidates": [], "embeddings": []}',
        "has no |no choices|no embeddings|broke off|reply|vectors|embedding",
    ),
    (b"null", "makes no sense|text instead of JSON|expected a JSON object"),
]


@pytest.mark.parametrize(
    ("body", "says"), BODIES, ids=["empty", "detail", "other", "lists", "null"]
)
@pytest.mark.parametrize(
    ("provider_type", "name"), [(each, name) for each, names in ANSWERS.items() for name in names]
)
async def test_what_is_no_reply_is_no_answer(
    provider_type: str, name: str, body: bytes, says: str
) -> None:
    async def answers(request: web.Request) -> web.StreamResponse:
        return web.Response(body=body, content_type="application/json")

    operation, asked = ALL[name]
    settings = {"api_key": "sk-x"}
    made = type_of(provider_type)
    async with vendor_that(answers) as vendor:
        settings["base_url"] = vendor.url
        provider = made.make("mine", made.config.validate(settings), ())
        await provider.start()
        try:
            with pytest.raises(APIError, match=says) as raised:
                await answer(
                    provider, call_of({"model": "public", **asked}, operation), Target("own")
                )
        finally:
            await provider.stop()
    assert raised.value.status == 502


# The rule -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "complaint"),
    [
        ({"a": 1}, None),
        ({"b": []}, None),
        ({"a": 1, "error": None}, None),
        ({"a": None}, "no 'a' or 'b'"),
        ({}, "no 'a' or 'b'"),
        ({"a": 1, "error": "Busy"}, "Busy"),
        ({"error": "Busy"}, "Busy"),
        ({"detail": "Busy"}, "Busy"),
        ({"a": 1, "detail": "Busy"}, None),
        ({"error": {"message": "Busy", "code": 429}}, "Busy"),
    ],
)
def test_raw_and_decoded_members_are_checked_alike(
    members: dict[str, Any], complaint: str | None
) -> None:
    body = json.dumps(members).encode()
    for check in (
        lambda: check_reply("p", members, body, ["a", "b"]),
        lambda: reply_fields("p", body, ["a", "b"]),
    ):
        if complaint is None:
            check()
            continue
        with pytest.raises(APIError, match=complaint) as raised:
            check()
        assert raised.value.status == (429 if "429" in str(members) else 502)


@pytest.mark.parametrize("name", ["choices", "candidates", "data", "embeddings"])
@pytest.mark.parametrize("empty", [b"[]", b"[ ]", b"[\n]"])
def test_an_empty_list_of_what_was_asked_for_is_none(name: str, empty: bytes) -> None:
    body = b'{"%s": %s}' % (name.encode(), empty)
    with pytest.raises(APIError, match=f"no '{name}'"):
        reply_fields("p", body, [name])
    with pytest.raises(APIError, match=f"no '{name}'"):
        check_reply("p", json.loads(body), body, [name])
    assert reply_fields("p", body[:-1] + b', "promptFeedback": {}}', [name, "promptFeedback"])
    assert reply_fields("p", b'{"%s": [{}]}' % name.encode(), [name])


@pytest.mark.parametrize("name", ["content", "output"])
def test_a_model_may_have_nothing_to_say(name: str) -> None:
    assert reply_fields("p", b'{"%s": []}' % name.encode(), [name])


def test_a_reply_may_say_that_it_failed() -> None:
    body = b'{"a": 1, "error": {"message": "Busy"}}'
    assert reply_fields("p", body, ["a"], may_have_failed=True)["error"] not in NO_ERROR
    with pytest.raises(APIError, match="Busy"):
        reply_fields("p", body, ["b"], may_have_failed=True)
