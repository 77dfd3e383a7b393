"""Everything here that reads foreign bytes, but for the server's own side of HTTP: by name, with
what its input is made of. `test_growth` measures them, `fuzz` feeds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from msgspec import Raw

from llama_compat.dialects.fastchat import StreamParser
from llama_compat.dialects.openai.completions import count_prompts
from llama_compat.dialects.openai.models import parse_models
from llama_compat.dialects.openai.repair import CHAT, StreamMender
from llama_compat.distribution.reading.env_references import ResolvedDocument
from llama_compat.distribution.reading.yaml_positions import read_yaml
from llama_compat.errors import APIError
from llama_compat.media.images import parse_data_url
from llama_compat.text.reasoning import ReasoningParser
from llama_compat.tools.formats import FORMATS, reply_parser
from llama_compat.types import ToolDefinition
from llama_compat.wire import sse
from llama_compat.wire.json_depth import is_deeper
from llama_compat.wire.json_fields import encode_fields, from_raw, parse_fields, unicode_from_raw
from llama_compat.wire.json_lines import JSONLines
from llama_compat.wire.json_scanner import JSONScanner
from providers.local.prompts.control_tokens import Marker
from providers.remote.http1.decoding import decoder_for
from providers.remote.http1.errors import HTTPError
from providers.remote.http1.parser import ResponseParser
from providers.remote.openai.relays.event_stream import EventStream
from providers.remote.openai.relays.responses import ResponseStream
from providers.remote.upstream.redaction import Secrets, StreamCover
from providers.remote.upstream.vendor_errors import vendor_error

Run = Callable[[bytes], object]
PIECE = 1009
"""How much comes at a time; so many bytes are no multiple of anything."""


@dataclass(frozen=True)
class Parser:
    """One reader of foreign bytes.

    Attributes:
        run: reads its argument to the end; what it raises for nonsense, it keeps to itself.
        words: what its input is made of, the special and the usual.
        begins: what comes before them in a text that gets as far as possible.
        largest: the bytes that a text may have at most, where there is a bound.
    """

    run: Run
    words: tuple[bytes, ...]
    begins: bytes = b""
    largest: int = 1 << 20


def _pieces(data: bytes) -> list[bytes]:
    return [data[begin : begin + PIECE] for begin in range(0, len(data), PIECE)]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def http_answer(data: bytes) -> object:
    parser = ResponseParser()
    try:
        for piece in _pieces(data):
            parser.feed(piece)
            parser.body.clear()
        return parser.end()
    except HTTPError as error:
        return error


def compressed(data: bytes) -> object:
    decoder = decoder_for("gzip")
    size = 0
    try:
        for piece in _pieces(data):
            decoder.feed(piece)
            while chunk := decoder.take():
                size += len(chunk)
        decoder.end()
    except HTTPError as error:
        return error
    return size


def server_sent(data: bytes) -> object:
    decoder = sse.EventDecoder()
    found = [event for piece in _pieces(data) for event in decoder.feed(piece)]
    last = decoder.flush()
    whole = sse.EventDecoder()
    assert [*found, last] == [*whole.feed(data), whole.flush()]
    return found


def chat_stream(data: bytes) -> object:
    mender = StreamMender(CHAT, Raw(b'"m"'), include_usage=False, continuous_usage=False)
    stream = EventStream("p", mender, CHAT, Raw(b'"m"'))
    return _relayed(stream, data)


def responses_stream(data: bytes) -> object:
    return _relayed(ResponseStream("p", "m"), data)


def _relayed(stream: EventStream | ResponseStream, data: bytes) -> object:
    out: list[bytes] = []
    try:
        for piece in [*_pieces(data), b""]:
            if not stream.ended:
                stream.push(piece, out)
        return out, stream.end()
    except APIError as error:
        return error


def json_fields(data: bytes) -> object:
    try:
        fields = parse_fields(data)
    except ValueError as error:
        return error
    assert parse_fields(encode_fields(fields)) == fields
    for raw in fields.values():
        try:
            from_raw(raw)
            unicode_from_raw(raw)
        except ValueError:
            continue
    return fields


def json_depth(data: bytes) -> object:
    return is_deeper(data)


def json_lines(data: bytes) -> object:
    lines = JSONLines()
    try:
        return [*(each for piece in _pieces(data) for each in lines.feed(piece)), *lines.flush()]
    except ValueError as error:
        return error


def json_scanner(data: bytes) -> object:
    scanner = JSONScanner()
    text = _text(data)
    for begin in range(0, len(text), PIECE):
        if scanner.feed(text[begin : begin + PIECE]) is not None:
            break
    return scanner.whole


def prompts(data: bytes) -> object:
    return count_prompts(Raw(data))


def vendor_list(data: bytes) -> object:
    try:
        return parse_models(data)
    except ValueError as error:
        return error


def vendor_failure(data: bytes) -> object:
    return vendor_error("p", 500, {}, data).json()


def worker_stream(data: bytes) -> object:
    lines, parser = JSONLines(b"\0"), StreamParser("p", {})
    try:
        return [
            event
            for piece in _pieces(data)
            for each in lines.feed(piece)
            for event in parser.push(each)
        ]
    except (ValueError, APIError) as error:
        return error


def data_url(data: bytes) -> object:
    try:
        return parse_data_url(_text(data), "messages[0]")
    except APIError as error:
        return error


def template(data: bytes) -> object:
    return ResolvedDocument(read_yaml(_text(data)), {"A": "a"}).problems


def covered(data: bytes) -> object:
    secrets = Secrets("sk-key-1", {"x-key": "kkkkkkk1"})
    cover = StreamCover(secrets)
    found = b"".join([*map(cover.push, _pieces(data)), cover.end()])
    assert found == secrets.cover(data)
    return found


def control_tokens(data: bytes) -> object:
    text = _text(data)
    marker = Marker(frozenset({"<|im_end|>", "<|im_start|>", "<s>", "[INST]"}))
    pieces = marker.pieces(marker.text(text))
    assert "".join(pieces) == text
    return pieces


def reasoning(data: bytes) -> object:
    parser = ReasoningParser(opened=True)
    text = _text(data)
    found = [parser.push(text[at : at + 7]) for at in range(0, len(text), 7)]
    return found, parser.flush()


_TOOL = ToolDefinition("f", parameters={"properties": {"x": {"type": "string"}}})


def _tool_calls(name: str) -> Run:
    def run(data: bytes) -> object:
        parser = reply_parser(FORMATS[name], [_TOOL])
        text = _text(data)
        found = [parser.push(text[at : at + 7]) for at in range(0, len(text), 7)]
        return found, parser.flush()

    return run


_JSON = (
    b"{", b"}", b"[", b"]", b'"', b'"a":', b",", b"\\", b"\\\\", b'\\"', b"\\ud83d", b"\\ude42",
    b"1", b"-", b"1e9", b"null", b" ", b"\n", b"\x7f", b"\xc3\xa9", b"a",
)  # fmt: skip
_CHUNK = (
    b'data: {"id":"a","object":"chat.completion.chunk","choices":[{"index":0,"delta":'
    b'{"content":"a"}}]}\n\n'
)
_CALL = (
    b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"name":"f",'
    b'"arguments":"a"}}]}}]}\n\n'
)
_EVENTS = (
    b"data:", b"data: ", b"event: ", b"event: error\n", b"id: 1", b":", b": a\n", b"\n", b"\n\n",
    b"\r", b"\r\n", b"\xef\xbb\xbf", b"a", _CHUNK, _CALL, b"data: [DONE]\n\n", b"data: {}\n\n",
    b'data: {"error":"a"}\n\n', b'data: {"type":"response.output_text.delta","delta":"a"}\n\n',
    b'data: {"type":"response.created","response":{}}\n\n', b'"reasoning', b'"content":"',
    b"\\u00e",
)  # fmt: skip
_CALLS = (
    b"<tool_call>", b"</tool_call>", b"<function=f>", b"</function>", b"<parameter=x>",
    b"</parameter>", b"[TOOL_CALLS]", b"[ARGS]", b"<|python_tag|>", b'{"name": "f", "arguments": {',
    b'"x": "', b'{"name"', b"[f(", b"x=", b"'a'", b"f(x=1)", b")]", b"}}", b"<think>", b"</think>",
    b" ", b"\n", b"a", b"<", b"\\", b'"', b",", b"[", b"]", b"(", b"{", b"}", b"\xf0\x9f\x99\x82",
)  # fmt: skip
_YAML = (
    b"a: ", b"b:", b"- ", b"\n", b"  ", b"&a ", b"*a", b"<<: ", b"[", b"]", b"{", b"}", b",", b"'",
    b'"', b"#", b"!!str ", b"? ", b"|", b">", b"${env.A}", b"${env.B:c}", b"${", b"$${", b"%", b"1",
    b"\xc3\xa9", b"---\n",
)  # fmt: skip

PARSERS: Mapping[str, Parser] = {
    "http_answer": Parser(
        http_answer,
        (
            b"HTTP/1.1 200 OK\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\n",
            b"a: b\r\n",
            b"\r\n",
            b"\n",
            b"transfer-encoding: chunked\r\n",
            b"content-length: 5\r\n",
            b"1\r\na\r\n",
            b"0\r\n\r\n",
            b"1;a=b\r\na\r\n",
            b" ",
            b"a",
            b"f",
            b":",
        ),
        begins=b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
    ),
    "compressed": Parser(
        compressed,
        (b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03", b"\x03\x00" + bytes(8), b"\x00", b"\xff"),
    ),
    "server_sent": Parser(server_sent, _EVENTS),
    "chat_stream": Parser(chat_stream, (*_EVENTS, *_JSON), begins=_CHUNK),
    "responses_stream": Parser(responses_stream, (*_EVENTS, *_JSON)),
    "json_fields": Parser(json_fields, _JSON, begins=b'{"a":"'),
    "json_depth": Parser(json_depth, _JSON, begins=b"[" * 129),
    "json_lines": Parser(json_lines, (*_JSON, b'{"a":1}\n', b"\r\n"), begins=b'{"a":1}\n'),
    "json_scanner": Parser(json_scanner, _JSON, begins=b'{"a":"'),
    "prompts": Parser(prompts, _JSON, begins=b'["'),
    "vendor_list": Parser(vendor_list, (*_JSON, b'{"id":"a"},'), begins=b'{"data":['),
    "vendor_failure": Parser(
        vendor_failure,
        (
            *_JSON,
            b"<title",
            b"<title>",
            b"</title",
            b"&amp;",
            b"<html>",
            b'"error":',
            b'"message":',
        ),
    ),
    "worker_stream": Parser(
        worker_stream, (*_JSON, b"\0", b'{"text":"a","error_code":0}\0', b"\xef\xbf\xbd")
    ),
    "data_url": Parser(data_url, (b"a", b";", b"=", b"base64", b",", b"+", b"/"), b"data:image/"),
    "template": Parser(template, _YAML, largest=1 << 16),
    "covered": Parser(covered, (b"sk-", b"key-1", b"k", b"1", b"s", b"\n", b"a", b"sk-key-1")),
    "control_tokens": Parser(
        control_tokens, (b"<|im_", b"end|>", b"start|>", b"<s>", b"<", b"|", b"[INST]", b"[", b"a")
    ),
    "reasoning": Parser(reasoning, (b"<think>", b"</think>", b"</th", b"<", b" ", b"\n", b"a")),
    **{f"tool_calls_{name}": Parser(_tool_calls(name), _CALLS) for name in FORMATS},
}
