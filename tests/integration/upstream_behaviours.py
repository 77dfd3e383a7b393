"""What the scripted upstream does for each model: what vendors do, and what goes wrong there.

A function's name is the model's, with `-` for `_`.
"""

from __future__ import annotations

import gzip
import json
from typing import Any

from tests.integration.scripted_upstream import Exchange, at_path, behaviour

OWN_NAME = "vendor-model-2024-11-20"
"""What the upstream calls every model in its replies."""

PIECES = ["Hel", "lo, ", "wörld ", "🙂", "!"]
TEXT = "".join(PIECES)
USAGE = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
HUGE_TEXT = "x" * 4_000_000

FULL_REPLY = (
    b'{ "id":"up-1",\n  "object": "chat.completion", "created":1700000000,'
    b' "model": "vendor-model-2024-11-20", "choices" : [{"index":0, "message": {"role":"assistant",'
    b' "content":"Hello, w\\u00f6rld \\ud83d\\ude42!", "annotations":[], "audio": null},'
    b' "logprobs":null, "finish_reason":"stop", "score": 1.0}],'
    b' "usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12,"cost": 1.50e-3},'
    b' "system_fingerprint":null, "x_vendor": {"model":"inner",'
    b'"big":123456789012345678901234567890,'
    b' "float":1.0,"tiny":1E-7}}'
)
"""A reply whose spelling is the vendor's own: spaces, escapes, long and oddly written numbers."""


def completion(message: dict[str, Any] | None = None, **members: Any) -> dict[str, Any]:
    """A whole reply."""
    return {
        "id": "up-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": OWN_NAME,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": TEXT, **(message or {})},
                "finish_reason": "stop",
            }
        ],
        "usage": USAGE,
        **members,
    }


def chunk(
    delta: dict[str, Any], finish_reason: str | None = None, **members: Any
) -> dict[str, Any]:
    """One chunk of a stream."""
    return {
        "id": "up-1",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": OWN_NAME,
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
        **members,
    }


def usage_chunk() -> dict[str, Any]:
    """The chunk that a stream ends with where the usage was asked for."""
    return {**chunk({}), "choices": [], "usage": USAGE}


def text_chunks() -> list[dict[str, Any]]:
    """All chunks of a stream that says `TEXT`, the usage left out."""
    said = [chunk({"content": piece}) for piece in PIECES]
    return [chunk({"role": "assistant", "content": ""}), *said, chunk({}, "stop")]


def as_events(chunks: list[dict[str, Any]], line_end: str = "\n") -> bytes:
    """A whole stream's bytes, its characters not escaped, with `[DONE]` at its end."""
    lines = [json.dumps(one, ensure_ascii=False) for one in chunks]
    return "".join(f"data: {line}{line_end}{line_end}" for line in [*lines, "[DONE]"]).encode()


async def answer(exchange: Exchange, chunks: list[dict[str, Any]]) -> None:
    """A stream of these chunks, the usage after them if it was asked for, and `[DONE]`."""
    await exchange.start_stream()
    for one in chunks:
        await exchange.event(one)
    if exchange.wants_usage:
        await exchange.event(usage_chunk())
    await exchange.done()


BEGUN_EVENTS = 3


async def begin(exchange: Exchange, pieces: int = BEGUN_EVENTS - 1) -> None:
    """The start of a stream: the role and some of `PIECES`."""
    await exchange.start_stream()
    for one in text_chunks()[: 1 + pieces]:
        await exchange.event(one)


# What is right ------------------------------------------------------------------------------------


@at_path("/v1/models")
async def list_models(exchange: Exchange) -> None:
    ids = ["plain", "org/plain", "catalog/prefixed"]
    await exchange.json({"object": "list", "data": [{"id": one, "object": "model"} for one in ids]})


@behaviour
async def plain(exchange: Exchange) -> None:
    if exchange.request.path.endswith("/embeddings"):
        data = {"object": "embedding", "index": 0, "embedding": [0.25, -1.0, 3e-05]}
        usage = {"prompt_tokens": 2, "total_tokens": 2}
        await exchange.json({"object": "list", "data": [data], "model": OWN_NAME, "usage": usage})
    elif exchange.wants_stream:
        await answer(exchange, text_chunks())
    else:
        await exchange.reply(FULL_REPLY)


@behaviour
async def text_completion(exchange: Exchange) -> None:
    def part(text: str, finish_reason: str | None) -> dict[str, Any]:
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish_reason}
        return {**chunk({}), "object": "text_completion", "choices": [choice]}

    if exchange.wants_stream:
        await answer(exchange, [*(part(piece, None) for piece in PIECES), part("", "stop")])
    else:
        await exchange.json({**part(TEXT, "stop"), "usage": USAGE})


@behaviour
async def one_at_a_time(exchange: Exchange) -> None:
    """One piece, and the rest when the test lets go."""
    await begin(exchange, 1)
    await exchange.held()
    for one in text_chunks()[2:]:
        await exchange.event(one)
    await exchange.done()


@behaviour
async def holds(exchange: Exchange) -> None:
    """Nothing, until the test lets go."""
    await exchange.held()
    await plain(exchange)


@behaviour
async def vendor_headers(exchange: Exchange) -> None:
    headers = [
        ("Server", "vendor-banner/9"),
        ("Set-Cookie", "session=secret"),
        ("X-Powered-By", "Vendor"),
        ("Connection", "keep-alive, X-Hop"),
        ("X-Hop", "1"),
        ("Keep-Alive", "timeout=5"),
        ("X-RateLimit-Remaining-Requests", "41"),
        ("X-RateLimit-Reset-Tokens", "6m0s"),
    ]
    if exchange.wants_stream:
        await exchange.start_stream(headers)
        await exchange.send(as_events(text_chunks()))
    else:
        await exchange.json(completion(), headers=headers)


@behaviour
async def gzipped(exchange: Exchange) -> None:
    encoding = ("Content-Encoding", "gzip")
    if exchange.wants_stream:
        await exchange.start_stream([encoding])
        await exchange.send(gzip.compress(as_events(text_chunks())))
    else:
        await exchange.reply(gzip.compress(FULL_REPLY), headers=[encoding])


# How streams are spelled --------------------------------------------------------------------------


@behaviour
async def byte_by_byte(exchange: Exchange) -> None:
    await exchange.start_stream()
    for byte in as_events(text_chunks()):
        await exchange.send(bytes([byte]))


@behaviour
async def all_at_once(exchange: Exchange) -> None:
    await exchange.start_stream()
    await exchange.send(as_events(text_chunks()))


@behaviour
async def crlf(exchange: Exchange) -> None:
    await exchange.start_stream()
    await exchange.send(as_events(text_chunks(), "\r\n"))


@behaviour
async def crlf_split(exchange: Exchange) -> None:
    """CRLF, with each TCP segment ending between the two."""
    await exchange.start_stream()
    for part in as_events(text_chunks(), "\r\n").split(b"\r")[:-1]:
        await exchange.send(part + b"\r")
    await exchange.send(b"\n")


@behaviour
async def comments(exchange: Exchange) -> None:
    await exchange.start_stream()
    await exchange.send(b": OPENROUTER PROCESSING\n\n:\n\n")
    for one in text_chunks():
        await exchange.event(one)
        await exchange.send(b": still here\n\n")
    await exchange.done()


@behaviour
async def multi_line_data(exchange: Exchange) -> None:
    await exchange.start_stream()
    for one in text_chunks():
        lines = json.dumps(one, indent=1).encode().split(b"\n")
        await exchange.send(b"".join(b"data: %b\n" % line for line in lines) + b"\n")
    await exchange.done()


@behaviour
async def byte_order_mark(exchange: Exchange) -> None:
    await exchange.start_stream()
    await exchange.send(b"\xef\xbb\xbf" + as_events(text_chunks()))


@behaviour
async def other_fields(exchange: Exchange) -> None:
    """No space after the colon, and fields that say nothing here."""
    await exchange.start_stream()
    for one in text_chunks():
        data = json.dumps(one).encode()
        await exchange.send(b"event: message\nid: 7\nretry: 10\ndata:" + data + b"\n\n")
    await exchange.send(b"data:[DONE]\n\n")


@behaviour
async def huge_event(exchange: Exchange) -> None:
    await answer(exchange, [chunk({"content": HUGE_TEXT}), chunk({}, "stop")])


@behaviour
async def odd_numbers(exchange: Exchange) -> None:
    """Chunks whose spelling a relay has no business to change."""
    await exchange.start_stream()
    await exchange.send(ODD_EVENT)
    await exchange.event(chunk({}, "stop"))
    await exchange.done()


ODD_EVENT = (
    b'data: {"id":"up-1", "object":"chat.completion.chunk","created":1700000000.0,'
    b' "model":"vendor-model-2024-11-20","choices":[{"index":0,'
    b'"delta":{"role":"assistant","content":"w\\u00f6rld"},"finish_reason":null,"score":1.0}],'
    b'"x_vendor":{"big":123456789012345678901234567890,'
    b'"model":"inner"}}\n\n'
)


# What streams get wrong and a gateway mends -------------------------------------------------------


@behaviour
async def done_missing(exchange: Exchange) -> None:
    await exchange.start_stream()
    for one in text_chunks():
        await exchange.event(one)


@behaviour
async def done_twice(exchange: Exchange) -> None:
    await answer(exchange, text_chunks())
    await exchange.done()


@behaviour
async def last_event_unfinished(exchange: Exchange) -> None:
    """The last event lacks its blank line; there is no `[DONE]`."""
    await exchange.start_stream()
    *most, last = text_chunks()
    for one in most:
        await exchange.event(one)
    await exchange.send(b"data: " + json.dumps(last).encode())


@behaviour
async def usage_absent(exchange: Exchange) -> None:
    await exchange.start_stream()
    await exchange.send(as_events(text_chunks()))


@behaviour
async def usage_unasked(exchange: Exchange) -> None:
    await exchange.start_stream()
    await exchange.send(as_events([*text_chunks(), usage_chunk()]))


@behaviour
async def done_before_finish_reason(exchange: Exchange) -> None:
    """The vendor says that the stream is over, and never why."""
    await exchange.start_stream()
    await exchange.send(as_events(text_chunks()[:-1]))


@behaviour
async def ignores_stream(exchange: Exchange) -> None:
    """A whole reply, whatever was asked for."""
    await exchange.json(completion())


@behaviour
async def finish_eos(exchange: Exchange) -> None:
    await _finish(exchange, "eos")


@behaviour
async def finish_eos_token(exchange: Exchange) -> None:
    await _finish(exchange, "eos_token")


async def _finish(exchange: Exchange, reason: str) -> None:
    if exchange.wants_stream:
        await answer(exchange, [*text_chunks()[:-1], chunk({}, reason)])
    else:
        reply = completion()
        reply["choices"][0]["finish_reason"] = reason
        await exchange.json(reply)


@behaviour
async def finish_empty(exchange: Exchange) -> None:
    """An empty `finish_reason` wherever there should be null."""
    pieces = [chunk({"content": piece}, "") for piece in PIECES]
    await answer(exchange, [*pieces, chunk({}, "stop")])


@behaviour
async def reasoning(exchange: Exchange) -> None:
    await _reason(exchange, "reasoning")


@behaviour
async def reasoning_content(exchange: Exchange) -> None:
    await _reason(exchange, "reasoning_content")


async def _reason(exchange: Exchange, name: str) -> None:
    if exchange.wants_stream:
        thoughts = [chunk({name: "Let me "}), chunk({name: "think."})]
        await answer(exchange, [*thoughts, *text_chunks()])
    else:
        await exchange.json(completion({name: "Let me think."}))


@behaviour
async def bare(exchange: Exchange) -> None:
    """Neither `id` nor `object` nor `created`."""

    def strip(value: dict[str, Any]) -> dict[str, Any]:
        return {name: value[name] for name in value if name not in ("id", "object", "created")}

    if exchange.wants_stream:
        await answer(exchange, [strip(one) for one in text_chunks()])
    else:
        await exchange.json(strip(completion()))


# Tool calls ---------------------------------------------------------------------------------------

ARGUMENTS = ['{"city"', ': "Zürich', '"}']


def call_fragment(arguments: str, **members: Any) -> dict[str, Any]:
    """A fragment of a streamed tool call; the function's name is in `name`."""
    function = {"arguments": arguments}
    if name := members.pop("name", None):
        function = {"name": name, "arguments": arguments}
    return {**members, "function": function}


async def _call_tools(exchange: Exchange, deltas: list[list[dict[str, Any]]]) -> None:
    said = [chunk({"tool_calls": fragments}) for fragments in deltas]
    await answer(exchange, [chunk({"role": "assistant"}), *said, chunk({}, "tool_calls")])


def _one_call(
    first: dict[str, Any], rest: dict[str, Any] | None = None
) -> list[list[dict[str, Any]]]:
    begin_, *more = ARGUMENTS
    name = {"name": "weather"}
    return [
        [call_fragment(begin_, **first, **name)],
        *[[call_fragment(part, **(rest or {}))] for part in more],
    ]


@behaviour
async def tool_call(exchange: Exchange) -> None:
    """One call as OpenAI sends it."""
    whole = {"index": 0, "id": "call_a", "type": "function"}
    await _call_tools(exchange, _one_call(whole, {"index": 0}))


@behaviour
async def tool_call_without_index(exchange: Exchange) -> None:
    await _call_tools(exchange, _one_call({"id": "call_a", "type": "function"}))


@behaviour
async def tool_call_without_id(exchange: Exchange) -> None:
    await _call_tools(exchange, _one_call({"index": 0, "type": "function"}, {"index": 0}))


@behaviour
async def tool_call_without_anything(exchange: Exchange) -> None:
    """Neither index nor id nor type."""
    await _call_tools(exchange, _one_call({}))


@behaviour
async def tool_call_id_repeated(exchange: Exchange) -> None:
    whole = {"index": 0, "id": "call_a", "type": "function"}
    await _call_tools(exchange, _one_call(whole, whole))


@behaviour
async def tool_call_name_repeated(exchange: Exchange) -> None:
    whole = {"index": 0, "id": "call_a", "type": "function", "name": "weather"}
    await _call_tools(exchange, [[call_fragment(part, **whole)] for part in ARGUMENTS])


@behaviour
async def two_tool_calls(exchange: Exchange) -> None:
    await _call_tools(
        exchange,
        [
            [call_fragment("", index=0, id="call_a", type="function", name="weather")],
            [call_fragment('{"city": "Zürich"}', index=0)],
            [call_fragment("", index=1, id="call_b", type="function", name="time")],
            [call_fragment('{"zone": "CET"}', index=1)],
        ],
    )


@behaviour
async def two_tool_calls_without_index(exchange: Exchange) -> None:
    """Two calls, told apart by their ids alone, each in one piece."""
    await _call_tools(
        exchange,
        [
            [call_fragment('{"city": "Zürich"}', id="call_a", type="function", name="weather")],
            [call_fragment('{"zone": "CET"}', id="call_b", type="function", name="time")],
        ],
    )


@behaviour
async def two_tool_calls_in_one_chunk(exchange: Exchange) -> None:
    """Two whole calls in one chunk, without index and id."""
    await _call_tools(
        exchange,
        [
            [
                call_fragment('{"city": "Zürich"}', name="weather"),
                call_fragment('{"zone": "CET"}', name="time"),
            ]
        ],
    )


@behaviour
async def whole_tool_call_without_id(exchange: Exchange) -> None:
    """A reply that is no stream, whose call lacks id and type."""
    call = {"function": {"name": "weather", "arguments": '{"city": "Zürich"}'}}
    await exchange.json(completion({"content": None, "tool_calls": [call]}))
