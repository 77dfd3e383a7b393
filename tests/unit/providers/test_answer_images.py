"""Images in a reply: each client gets them where its API has a place for them, or is told."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp import web
from msgspec import structs

from llama_compat.dialects.gemini import operations as gemini_operations
from llama_compat.errors import APIError
from llama_compat.exchange import Target
from providers.answer import answer
from providers.registry import provider_type as type_of
from tests.unit.calls import call_of
from tests.unit.providers.remote.openai.test_provider import vendor_that
from tests.unit.providers.remote.relaying.test_whole_replies import CHATS

URLS = ["data:image/png;base64,AAAA", "data:image/webp;base64,BBBB"]
INLINE = [{"mimeType": "image/png", "data": "AAAA"}, {"mimeType": "image/webp", "data": "BBBB"}]


def gemini_reply(stream: bool) -> bytes:
    drawn = [
        {"inlineData": INLINE[0], "thought": True},
        {"text": "Look: "},
        *({"inlineData": each} for each in INLINE),
        {"text": "Nice."},
    ]
    candidates = [{"content": {"parts": drawn}, "finishReason": "STOP"}]
    body = json.dumps({"candidates": candidates}).encode()
    return b"data: " + body + b"\r\n\r\n" if stream else body


def openrouter_reply(stream: bool) -> bytes:
    images = [{"type": "image_url", "image_url": {"url": url}} for url in URLS]
    said: dict[str, Any] = {"role": "assistant", "content": "Look: Nice.", "images": images}
    choice = {"index": 0, "finish_reason": "stop"}
    body = {"id": "1", "created": 1, "model": "m", "object": "chat.completion"}
    if not stream:
        return json.dumps({**body, "choices": [{**choice, "message": said}]}).encode()
    return b"data: %b\n\ndata: [DONE]\n\n" % (
        json.dumps(
            {**body, "object": "chat.completion.chunk", "choices": [{**choice, "delta": said}]}
        ).encode()
    )


VENDORS = {"remote::gemini-native": gemini_reply, "remote::passthrough": openrouter_reply}


async def said(provider_type: str, client: str, *, stream: bool) -> bytes:
    """All that the client gets."""

    async def draws(request: web.Request) -> web.StreamResponse:
        return web.Response(body=VENDORS[provider_type](stream))

    operation, asked = CHATS[client]
    if client == "gemini":  # which says so in the path
        operation = gemini_operations.STREAM_EVENTS if stream else operation
    else:
        asked = {**asked, "stream": stream}
    made = type_of(provider_type)
    async with vendor_that(draws) as vendor:
        settings = {"api_key": "sk-x", "base_url": vendor.url}
        provider = made.make("mine", made.config.validate(settings), ())
        await provider.start()
        try:
            call = structs.replace(call_of(asked, operation), stream=stream)
            reply = await answer(provider, call, Target("gemini-3-pro"))
            if isinstance(reply.body, bytes):
                return reply.body
            return reply.first + b"".join([piece async for piece in reply.body])
        finally:
            await provider.stop()


STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@STREAMED
@pytest.mark.parametrize("provider_type", VENDORS)
async def test_openais_clients_get_images_where_openrouter_has_them(
    provider_type: str, stream: bool
) -> None:
    body = await said(provider_type, "chat", stream=stream)
    if stream:
        chunks = [json.loads(line[6:]) for line in body.splitlines() if line.startswith(b"data: {")]
        messages = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    else:
        messages = [choice["message"] for choice in json.loads(body)["choices"]]
    images = [image for message in messages for image in message.get("images") or ()]
    assert [image["image_url"]["url"] for image in images] == URLS
    assert "".join(message.get("content") or "" for message in messages) == "Look: Nice."


@STREAMED
async def test_geminis_clients_get_the_images_of_others(stream: bool) -> None:
    body = await said("remote::passthrough", "gemini", stream=stream)
    texts = [line[6:] for line in body.splitlines() if line.startswith(b"data: ")]
    responses = [json.loads(text) for text in texts] if stream else [json.loads(body)]
    parts = [
        part
        for response in responses
        for candidate in response["candidates"]
        for part in candidate["content"]["parts"]
    ]
    assert [part["inlineData"] for part in parts if "inlineData" in part] == INLINE


@STREAMED
@pytest.mark.parametrize("client", ["responses", "messages", "ollama"])
@pytest.mark.parametrize("provider_type", VENDORS)
async def test_who_has_no_place_for_an_image_is_told(
    provider_type: str, client: str, stream: bool
) -> None:
    with pytest.raises(APIError, match=r"'mine': the model replied with an image") as raised:
        await said(provider_type, client, stream=stream)
    assert (raised.value.status, raised.value.code) == (400, "unsupported_capability")
