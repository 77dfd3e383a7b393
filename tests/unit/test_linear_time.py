"""What reads foreign text does no more work for each character of a long one.

The work is counted, so no machine is too busy for it. Regular expressions work where nothing
counts: they are given much text instead, with which one that begins again at each character would
be busy for minutes.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from llama_compat.dialects.fastchat import StreamParser
from llama_compat.dialects.gemini_interactions import replies as interactions
from llama_compat.dialects.openai.chat import streams as chat
from llama_compat.dialects.openai.repair.steady_chunks import SteadyChunks
from llama_compat.dialects.openai_responses import replies as responses
from llama_compat.errors import APIError
from llama_compat.hosted.asked.filter_expressions import parse_expression
from llama_compat.media.images import parse_data_url
from llama_compat.text.reasoning import ReasoningParser
from llama_compat.tools.formats import FORMATS, reply_parser
from llama_compat.types import ToolDefinition
from llama_compat.wire.json_fields import parse_fields, unicode_from_raw
from providers.local import echo
from providers.remote.upstream import vendor_errors as upstream_errors
from tests.work import CountedCode, Work, compiled, processor_bound

pytestmark = pytest.mark.alone

FACTOR = 8
LARGEST_GROWTH = 8.9
"""What is linear does 8 times the work; what is quadratic, 64 times."""

MUCH = 4 << 20
"""Characters."""
BOUND_SECONDS = 20
"""Of the processor; all that is here takes a second or two."""

TOOL = ToolDefinition("f", parameters={"properties": {"x": {"type": "string"}}})


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


def cited_interaction(text: str) -> object:
    """Its places are counted in bytes, and told from the last back to the first."""
    parser = interactions.StreamParser()
    parser.push({"event_type": "step.start", "index": 0, "step": {"type": "model_output"}})
    for place, character in enumerate(text):
        for delta in ({"type": "text", "text": character}, _annotated(place), _annotated(0)):
            parser.push({"event_type": "step.delta", "index": 0, "delta": delta})
    return parser


def _annotated(place: int) -> dict[str, Any]:
    cited = {"type": "url_citation", "url": "u", "start_index": place, "end_index": place + 1}
    return {"type": "text_annotation_delta", "annotations": [cited]}


def cited_response(text: str) -> object:
    parser = responses.StreamParser()
    added = "response.output_text.annotation.added"
    for place, character in enumerate(text):
        parser.push({"type": "response.output_text.delta", "delta": character})
        parser.push({"type": added, "annotation": _annotated(place)["annotations"][0]})
    return parser


def cited_chat(text: str) -> object:
    parser = chat.StreamParser()
    for place, character in enumerate(text):
        cited = {"url": "u", "start_index": place, "end_index": place + 1}
        delta = {"content": character, "annotations": [{"url_citation": cited}]}
        parser.push({"choices": [{"index": 0, "delta": delta}]})
    return parser


def filter_expression(text: str) -> object:
    try:
        return parse_expression("a=1" + text, "tools[0]")
    except APIError as error:
        return error


IN_ONE_CALL = (
    title,
    retry_after,
    data_url,
    steady_chunk,
    fields,
    surrogates,
    worker_text,
    filter_expression,
)
"""What leaves all or most of it to C."""

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
    (filter_expression, lambda n: " " * n, 2_000),
    (filter_expression, lambda n: '"' + '\\"' * n, 2_000),
    (cited_interaction, lambda n: "a" * n, 100),
    (cited_response, lambda n: "a" * n, 100),
    (cited_chat, lambda n: "a" * n, 100),
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


IDS = [f"{read.__qualname__.split('.')[0]}-{text(2)!r}" for read, text, _ in READERS]


@cache
def counted() -> CountedCode:
    return CountedCode(__name__)


@pytest.mark.parametrize("reader", range(len(READERS)), ids=IDS)
def test_work_grows_no_faster_than_the_text(reader: int) -> None:
    with counted().in_place() as work, processor_bound(BOUND_SECONDS):
        read, text, size = importlib.import_module(__name__).READERS[reader]
        read(text(1))  # what is made once, such as expressions
        small, large = (work.of(lambda n=n: read(text(n))) for n in (size, size * FACTOR))
    assert large / small < LARGEST_GROWTH, f"{small}, then {large}"


BY_ONE_CALL = [each for each in READERS if each[0] in IN_ONE_CALL]


@pytest.mark.parametrize(("read", "text", "size"), BY_ONE_CALL)
def test_no_expression_goes_back_for_each_character(
    read: Callable[[str], object], text: Callable[[int], str], size: int
) -> None:
    much = text(MUCH // len(text(1)))
    with processor_bound(BOUND_SECONDS):
        read(much)


QUADRATIC = """
class Kept:
    text = ""

def looked_through(text):
    return [text.count(" ", at) for at in range(0, len(text), 10)]

def gone_through(text):
    for at in range(len(text)):
        for _ in range(at):
            pass

def copied(text):
    while text:
        text = text[1:]

def grown(text):
    kept = Kept()
    for each in text:
        kept.text += each

def joined(text):
    pieces = []
    for each in text:
        pieces.append(each)
        "".join(pieces)

def searched(text):
    for each in text:
        "x" in text

def written(text):
    said = ""
    for each in text:
        said = f"{said}{each}"
"""


@pytest.mark.parametrize("name", re.findall(r"^def (\w+)", QUADRATIC, re.MULTILINE))
def test_what_is_quadratic_is_seen(name: str) -> None:
    work = Work()
    names: dict[str, Any] = {"__work__": work}
    exec(compiled(QUADRATIC, __file__), names)
    small, large = (work.of(lambda n=n: names[name](" " * n)) for n in (100, 100 * FACTOR))
    assert large / small > LARGEST_GROWTH


def test_an_expression_that_goes_back_is_ended() -> None:
    with pytest.raises(AssertionError, match="not at the end"), processor_bound(0.2):
        re.search(r"(?:<title.*?)+</title>", "<title" * MUCH)
