"""Chats, completions and embeddings: replies that are mended, whole or as they stream."""

from __future__ import annotations

import logging

from llama_compat.dialects.openai.repair import CHAT, TEXT, ReplyKind, StreamMender
from llama_compat.dialects.openai.usage import read_usage, wants_usage
from llama_compat.exchange import JSON_HEADERS, Call, Reply
from llama_compat.wire.json_fields import JSONFields, encode_fields
from providers.remote.openai.relays.event_stream import EventStream
from providers.remote.openai.relays.replies import completion_fields, embedding_fields
from providers.remote.openai.requests import model_json, wants_base64
from providers.remote.relaying.streams import stream_reply
from providers.remote.upstream.exchanges import UpstreamExchange, UpstreamResponse
from providers.remote.upstream.vendor_errors import relayed_headers

log = logging.getLogger(__name__)

REPLY_KINDS: dict[str, ReplyKind] = {"chat": CHAT, "completions": TEXT}


async def relay_completion(provider: str, call: Call, exchange: UpstreamExchange) -> Reply:
    """What a vendor replies to a chat, a completion or a request for embeddings.

    Args:
        provider: its id, for messages.
        call: what was asked.
        exchange: with the vendor.

    Raises:
        APIError: whatever went wrong with the vendor.
    """
    if call.operation.name == "embeddings":
        return await _embeddings(provider, call, exchange)
    if call.stream:
        return await _stream(provider, call, exchange)
    return await _completion(provider, call, exchange)


async def _embeddings(provider: str, call: Call, exchange: UpstreamExchange) -> Reply:
    async with exchange as response:
        fields = embedding_fields(
            provider,
            await response.read(),
            model_json(call.model),
            as_base64=wants_base64(call.fields),
        )
    return _whole_reply(response, fields)


async def _completion(provider: str, call: Call, exchange: UpstreamExchange) -> Reply:
    kind = REPLY_KINDS[call.operation.name]
    async with exchange as response:
        body = await response.read()
        fields = completion_fields(provider, body, kind, model_json(call.model))
    return _whole_reply(response, fields)


async def _stream(provider: str, call: Call, exchange: UpstreamExchange) -> Reply:
    include_usage, continuous_usage = wants_usage(call.fields)
    kind, model = REPLY_KINDS[call.operation.name], model_json(call.model)
    mender = StreamMender(
        kind,
        model,
        include_usage=include_usage,
        continuous_usage=continuous_usage,
        wanted_choices=call.extent.given,
    )
    stream = EventStream(provider, mender, kind, model)

    def look_for_usage() -> None:
        if include_usage and stream.usage is None:
            log.warning(
                "%s: provider '%s' sent no usage although it was asked for",
                call.request_id,
                provider,
            )

    return await stream_reply(provider, exchange, stream, at_end=look_for_usage)


def _whole_reply(response: UpstreamResponse, fields: JSONFields) -> Reply:
    return Reply(
        encode_fields(fields),
        headers={**relayed_headers(response.headers), **JSON_HEADERS},
        read_usage=lambda: read_usage(fields.get("usage")),
    )
