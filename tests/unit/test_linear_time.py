"""What reads foreign text does not take longer than the text is long.

Sizes are compared, generously: sixteen times the text may take sixty-four times as long, where
what is linear takes sixteen, and what is quadratic 256.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from llama_compat.dialects.fastchat import StreamParser
from llama_compat.dialects.openai.repair.steady_chunks import SteadyChunks
from llama_compat.errors import APIError
from llama_compat.images import parse_data_url
from llama_compat.text.reasoning import ReasoningParser
from llama_compat.tools.formats import FORMATS, reply_parser
from llama_compat.types import ToolDefinition
from llama_compat.wire.json_fields import parse_fields, unicode_from_raw
from providers.local import echo
from providers.remote.upstream import vendor_errors as upstream_errors

pytestmark = pytest.mark.alone

FACTOR = 16
LARGEST_GROWTH = 64.0
SHORTEST_SECONDS = 0.001
"""What takes less is taken for as long: clocks are no finer, and small things have their costs."""

TOOL = ToolDefinition("f", parameters={"properties": {"x": {"type": "string"}}})


def seconds(run: Callable[[str], object], text: str) -> float:
    """The CPU time of the quickest of three runs."""
    best = float("inf")
    for _ in range(3):
        begun = time.thread_time()
        run(text)
        best = min(best, time.thread_time() - begun)
    return max(best, SHORTEST_SECONDS)


def title(page: str) -> object:
    return upstream_errors._title(page)


def retry_after(text: str) -> object:
    return upstream_errors._retry_after([{"retryDelay": text}])


def data_url(text: str) -> object:
    try:
        return parse_data_url("data:image/" + text, "messages[0]")
    except APIError as error:
        return error


def steady_chunk(text: str) -> object:
    chunk = b'{"choices":[{"delta":{"content":"%b"}}]}' % text.encode()
    return SteadyChunks().learn(chunk, chunk)


def fields(text: str) -> object:
    try:
        return parse_fields(b'{"a": "\\ud83d %b"}' % text.encode())
    except ValueError as error:
        return error


def surrogates(text: str) -> object:
    return unicode_from_raw(json.dumps(text).encode())  # type: ignore[arg-type]


def worker_text(text: str) -> object:
    return StreamParser("p", {}).push({"text": text, "error_code": 0})


def reasoning_by_characters(text: str) -> object:
    parser = ReasoningParser(opened=True)
    return [parser.push(character) for character in "a" + text], parser.flush()


def whole_reply(tool_format: str) -> Callable[[str], object]:
    def run(text: str) -> object:
        parser = reply_parser(FORMATS[tool_format], [TOOL])
        return parser.push(text), parser.flush()

    return run


def reply_by_characters(tool_format: str) -> Callable[[str], object]:
    def run(text: str) -> object:
        parser = reply_parser(FORMATS[tool_format], [TOOL])
        return [parser.push(character) for character in text], parser.flush()

    return run


HERMES_CALL = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
CODER_CALL = "<tool_call><function=f><parameter=x>"

READERS: list[tuple[Callable[[str], object], Callable[[int], str], int]] = [
    (title, lambda n: "<title>" * n, 8_000),
    (title, lambda n: "<title" * n, 8_000),
    (title, lambda n: "<title>" + "</titl" * n, 8_000),
    (retry_after, lambda n: "1" * n, 50_000),
    (data_url, lambda n: "a" * n, 50_000),
    (data_url, lambda n: "a" + ";a" * n, 20_000),
    (data_url, lambda n: "a;" + "a" * n + ";base64", 50_000),
    (steady_chunk, lambda n: '"reasoning' * n, 20_000),
    (steady_chunk, lambda n: '"content": ' * n, 20_000),
    (steady_chunk, lambda n: "\\u00e" * n, 20_000),
    (fields, lambda n: "\\\\" * n, 20_000),
    (fields, lambda n: "\\ud83d" * n, 20_000),
    (surrogates, lambda n: "\ud83d" * n, 20_000),
    (worker_text, lambda n: "\ufffd" * n + "x", 20_000),
    (worker_text, lambda n: "\ufffdx" * n, 20_000),
    (echo._words, lambda n: " " * n, 20_000),
    (echo._words, lambda n: "a " * n, 20_000),
    *((whole_reply(name), lambda n: " \n" * n, 5_000) for name in FORMATS),
    *((whole_reply(name), lambda n: "<tool_call>" * n, 300) for name in FORMATS),
    *((reply_by_characters(name), lambda n: " \n" * n, 500) for name in FORMATS),
    (reply_by_characters("hermes"), lambda n: HERMES_CALL + "\n" * n, 2_000),
    (reply_by_characters("hermes"), lambda n: HERMES_CALL * n, 20),
    (reasoning_by_characters, lambda n: " " * n, 2_000),
    (reasoning_by_characters, lambda n: " </think" * n, 500),
    (whole_reply("hermes"), lambda n: HERMES_CALL * n, 20),
    (whole_reply("qwen3_coder"), lambda n: CODER_CALL + "</tool_call>" * n, 2_000),
    (whole_reply("qwen3_coder"), lambda n: CODER_CALL + "</parameter> " * n, 2_000),
    (reply_by_characters("qwen3_coder"), lambda n: CODER_CALL + "</tool_call>" * n, 100),
    (whole_reply("qwen3_coder"), lambda n: "<function=f>" * n, 100),
    (whole_reply("mistral"), lambda n: "[TOOL_CALLS]" * n, 100),
    (whole_reply("pythonic"), lambda n: "[f(\n" * n, 100),
    (whole_reply("llama3"), lambda n: '{"name"\n' * n, 100),
]


@pytest.mark.parametrize(("read", "text", "size"), READERS)
def test_time_grows_no_faster_than_the_text(
    read: Callable[[str], object], text: Callable[[int], str], size: int
) -> None:
    small = seconds(read, text(size))
    large = seconds(read, text(size * FACTOR))
    assert large / small < LARGEST_GROWTH, f"{small:.4f} s, then {large:.4f} s"


def test_what_is_quadratic_is_seen() -> None:
    def quadratic(text: str) -> object:
        return [text.count(" ", at) for at in range(0, len(text), 10)]

    small, large = (seconds(quadratic, " " * size) for size in (5_000, 5_000 * FACTOR))
    assert large / small > LARGEST_GROWTH
