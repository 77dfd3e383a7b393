"""What a request may come to, as the dialect of each client API reads it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from llama_compat.dialects.anthropic_messages import operations as messages
from llama_compat.dialects.base import Operation
from llama_compat.dialects.gemini import operations as gemini
from llama_compat.dialects.gemini_interactions import operations as interactions
from llama_compat.dialects.ollama import operations as ollama
from llama_compat.dialects.openai import operations as openai
from llama_compat.dialects.openai_responses import operations as responses
from llama_compat.errors import APIError
from llama_compat.extent import (
    BYTES_PER_TOKEN,
    IMAGE_TOKENS,
    MAX_TOKENS,
    Extent,
    Prompt,
    about_tokens,
    largest,
)
from llama_compat.types import Usage
from llama_compat.wire.json_fields import parse_fields

SAID = [{"role": "user", "content": "Hello there"}]
ASKED: dict[str, tuple[Operation, dict[str, Any]]] = {
    "openai.CHAT": (openai.CHAT, {"messages": SAID}),
    "openai.COMPLETIONS": (openai.COMPLETIONS, {"prompt": "Hello there"}),
    "openai.EMBEDDINGS": (openai.EMBEDDINGS, {"input": "Hello there"}),
    "responses.RESPONSES": (responses.RESPONSES, {"input": SAID}),
    "responses.COMPACT": (responses.COMPACT, {"input": SAID}),
    "responses.INPUT_TOKENS": (responses.INPUT_TOKENS, {"input": SAID}),
    "messages.MESSAGES": (messages.MESSAGES, {"messages": SAID, "max_tokens": 9}),
    "messages.COUNT_TOKENS": (messages.COUNT_TOKENS, {"messages": SAID}),
    "gemini.GENERATE": (gemini.GENERATE, {"contents": SAID}),
    "gemini.STREAM_EVENTS": (gemini.STREAM_EVENTS, {"contents": SAID}),
    "gemini.STREAM_ARRAY": (gemini.STREAM_ARRAY, {"contents": SAID}),
    "gemini.COUNT_TOKENS": (gemini.COUNT_TOKENS, {"contents": SAID}),
    "gemini.EMBED": (gemini.EMBED, {"content": {"parts": [{"text": "Hello there"}]}}),
    "gemini.BATCH_EMBED": (
        gemini.BATCH_EMBED,
        {"requests": [{"content": {"parts": [{"text": "Hello there"}]}}]},
    ),
    "interactions.INTERACTIONS": (interactions.INTERACTIONS, {"input": "Hello there"}),
    "ollama.CHAT": (ollama.CHAT, {"messages": SAID}),
    "ollama.GENERATE": (ollama.GENERATE, {"prompt": "Hello there"}),
    "ollama.RAW_GENERATE": (ollama.RAW_GENERATE, {"prompt": "Hello there", "raw": True}),
    "ollama.EMBED": (ollama.EMBED, {"input": "Hello there"}),
    "ollama.EMBEDDINGS": (ollama.EMBEDDINGS, {"prompt": "Hello there"}),
}
"""The least that each call can ask."""


def extent(name: str, **members: Any) -> Extent:
    operation, least = ASKED[name]
    body = {"model": "m", **least, **members}
    return operation.look(parse_fields(json.dumps(body).encode()), {"model": "m"}).extent


def config(**members: Any) -> dict[str, Any]:
    return {"generationConfig": members}


def options(**members: Any) -> dict[str, Any]:
    return {"options": members}


@pytest.mark.parametrize(
    ("operation", "members", "tokens"),
    [
        ("openai.CHAT", {"max_tokens": 1000}, 1000),
        ("openai.CHAT", {"max_completion_tokens": 1000, "n": 3}, 3000),
        ("openai.CHAT", {"max_completion_tokens": 1, "max_tokens": 900_000}, 900_000),
        ("openai.CHAT", {"max_completion_tokens": 900_000, "max_tokens": 1}, 900_000),
        ("openai.CHAT", {"max_tokens": 1000, "n": None}, 1000),
        ("openai.CHAT", {"max_tokens": 10, "n": 2, "best_of": 7}, 70),
        ("openai.COMPLETIONS", {"max_tokens": 1000, "prompt": ["a"] * 100}, 100_000),
        ("openai.COMPLETIONS", {"max_tokens": 1000, "prompt": "a"}, 1000),
        ("openai.COMPLETIONS", {"max_tokens": 1000, "prompt": [1, 2, 3]}, 1000),
        ("openai.COMPLETIONS", {"max_tokens": 1000, "prompt": [[1, 2], [3]]}, 2000),
        (
            "openai.COMPLETIONS",
            {"max_tokens": 1000, "prompt": ["a"] * 5, "n": 2, "best_of": 3},
            15_000,
        ),
        ("openai.COMPLETIONS", {"max_tokens": 1000, "n": 2}, 2000),
        ("openai.COMPLETIONS", {"max_tokens": 0, "echo": True}, 0),
        ("openai.EMBEDDINGS", {"input": ["a"] * 100}, 0),
        ("responses.RESPONSES", {"max_output_tokens": 1000}, 1000),
        ("responses.COMPACT", {"max_output_tokens": 1000}, 1000),
        ("responses.INPUT_TOKENS", {}, 0),
        ("messages.MESSAGES", {"max_tokens": 1000}, 1000),
        ("messages.MESSAGES", {"max_tokens": 0}, 0),
        ("messages.COUNT_TOKENS", {"max_tokens": 1000}, 0),
        ("gemini.GENERATE", config(maxOutputTokens=1000), 1000),
        ("gemini.GENERATE", config(maxOutputTokens=1000, candidateCount=8), 8000),
        ("gemini.GENERATE", config(max_output_tokens=1000.0, candidate_count=8), 8000),
        ("gemini.GENERATE", config(maxOutputTokens="1000"), 1000),
        ("gemini.STREAM_EVENTS", config(maxOutputTokens=1000, candidateCount=8), 8000),
        ("gemini.STREAM_ARRAY", config(maxOutputTokens=1000, candidateCount=8), 8000),
        ("gemini.COUNT_TOKENS", config(maxOutputTokens=1000), 0),
        (
            "interactions.INTERACTIONS",
            {"generation_config": {"max_output_tokens": 1000}},
            1000,
        ),
        ("interactions.INTERACTIONS", {}, 512),
        ("gemini.EMBED", {}, 0),
        ("gemini.BATCH_EMBED", {}, 0),
        ("ollama.CHAT", options(num_predict=1000), 1000),
        ("ollama.CHAT", options(num_predict=1000.0), 1000),
        ("ollama.GENERATE", options(num_predict=1000), 1000),
        ("ollama.RAW_GENERATE", options(num_predict=1000), 1000),
        ("ollama.EMBED", {"input": ["a"] * 100, **options(num_predict=1000)}, 0),
        ("ollama.EMBEDDINGS", {}, 0),
    ],
)
def test_tokens_that_may_be_generated(operation: str, members: dict[str, Any], tokens: int) -> None:
    assert extent(operation, **members).usage(512).completion_tokens == tokens


@pytest.mark.parametrize(
    "members",
    [
        config(maxOutputTokens=1, max_output_tokens=900_000),
        {**config(maxOutputTokens=1), "generation_config": {"maxOutputTokens": 900_000}},
    ],
)
def test_a_limit_that_is_there_twice_is_none(members: dict[str, Any]) -> None:
    with pytest.raises(APIError, match="twice"):
        extent("gemini.GENERATE", **members)


GENERATING = [name for name, (each, _) in ASKED.items() if each.kind in ("chat", "completion")]
COUNTING = [name for name, (each, _) in ASKED.items() if each.kind == "token_count"]
READING = [each for each in ASKED if each not in COUNTING]


@pytest.mark.parametrize("operation", sorted({*GENERATING} - {"messages.MESSAGES"}))
def test_how_long_a_reply_is_that_may_be_of_any_length_is_a_guess(operation: str) -> None:
    found = extent(operation)
    assert found.max_tokens is None
    assert (found.given, found.made) == (1, 1)
    assert found.usage(512).completion_tokens == 512


@pytest.mark.parametrize("operation", READING)
def test_what_is_read_counts(operation: str) -> None:
    assert 3 <= extent(operation).prompt.tokens <= 15


@pytest.mark.parametrize("operation", COUNTING)
def test_counting_tokens_costs_nothing(operation: str) -> None:
    assert extent(operation).usage(512) == Usage()


LONG = "word " * 800


@pytest.mark.parametrize(
    ("operation", "members"),
    [
        ("openai.CHAT", {"tools": [{"description": LONG}]}),
        ("openai.CHAT", {"functions": [{"description": LONG}]}),
        ("openai.COMPLETIONS", {"suffix": LONG}),
        ("openai.COMPLETIONS", {"prompt": [LONG[:400]] * 10}),
        ("openai.COMPLETIONS", {"prompt": [7] * 1000}),
        ("openai.COMPLETIONS", {"prompt": [[7] * 100] * 10}),
        ("openai.EMBEDDINGS", {"input": [LONG[:400]] * 10}),
        ("openai.EMBEDDINGS", {"input": [[100_000] * 100] * 10}),
        ("responses.RESPONSES", {"instructions": LONG}),
        ("responses.RESPONSES", {"tools": [{"description": LONG}]}),
        ("responses.COMPACT", {"instructions": LONG}),
        ("messages.MESSAGES", {"system": LONG}),
        ("messages.MESSAGES", {"tools": [{"description": LONG}]}),
        ("gemini.GENERATE", {"systemInstruction": {"parts": [{"text": LONG}]}}),
        ("gemini.GENERATE", {"system_instruction": {"parts": [{"text": LONG}]}}),
        ("gemini.GENERATE", {"tools": [{"functionDeclarations": [{"description": LONG}]}]}),
        ("gemini.EMBED", {"content": {"parts": [{"text": LONG}]}}),
        ("gemini.BATCH_EMBED", {"requests": [{"content": {"parts": [{"text": LONG[:400]}]}}] * 10}),
        ("interactions.INTERACTIONS", {"system_instruction": LONG}),
        ("interactions.INTERACTIONS", {"tools": [{"description": LONG}]}),
        ("ollama.CHAT", {"tools": [{"function": {"description": LONG}}]}),
        ("ollama.GENERATE", {"system": LONG}),
        ("ollama.GENERATE", {"suffix": LONG}),
        ("ollama.EMBED", {"input": [LONG[:400]] * 10}),
    ],
)
def test_all_that_a_model_reads_counts(operation: str, members: dict[str, Any]) -> None:
    assert 1000 <= extent(operation, **members).prompt.tokens <= 1150


def test_an_image_counts_whatever_its_size() -> None:
    assert Prompt({"p": Raw(b'"data:image/png;base64,AAAA"')}, "p").tokens == IMAGE_TOKENS
    assert Prompt({"p": Raw(b'["%b"]' % (b"A" * 4000))}, "p").tokens == IMAGE_TOKENS + 1
    pictured = extent("ollama.GENERATE", images=["A" * 4000]).prompt.tokens
    assert IMAGE_TOKENS < pictured < IMAGE_TOKENS + 10


def test_a_part_of_a_token_is_one() -> None:
    sizes = (0, 1, BYTES_PER_TOKEN, BYTES_PER_TOKEN + 1)
    assert [about_tokens(size) for size in sizes] == [0, 1, 1, 2]


def test_choices_that_are_given_and_made() -> None:
    found = extent("openai.COMPLETIONS", prompt=["a", "b"], n=2, best_of=3)
    assert (found.given, found.made) == (4, 6)
    assert extent("openai.COMPLETIONS", prompt=["a", "b"], n=2).made == 4
    assert extent("openai.EMBEDDINGS", input=["a"] * 1000).made == 0


@pytest.mark.parametrize(
    ("named", "found"),
    [
        ((), None),
        ((None, None), None),
        ((5,), 5),
        ((1, 900_000), 900_000),
        ((None, 0), 0),
        ((-5,), None),
        ((-5, 3), 3),
        ((7.0, 7.5), 8),
        (("40",), 40),
        (("-40", "forty", "", [], {}, True), None),
        ((10**400,), MAX_TOKENS),
        ((float("inf"),), MAX_TOKENS),
        ((float("nan"), float("-inf")), None),
        (("9" * 5000,), MAX_TOKENS),
    ],
)
def test_the_largest_of_several_limits(named: tuple[Any, ...], found: int | None) -> None:
    assert largest(*named) == found


NUMBERS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=-(10**400), max_value=10**400),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=2),
)


@given(st.data())
def test_no_request_comes_to_less_than_nothing(data: st.DataObject) -> None:
    """Whatever numbers a client names: it is refused, or comes to an amount that can be counted."""
    operation = data.draw(st.sampled_from(list(ASKED)))
    one, other = data.draw(NUMBERS), data.draw(NUMBERS)
    named = {
        "max_tokens": one,
        "max_completion_tokens": other,
        "max_output_tokens": one,
        "n": data.draw(NUMBERS),
        "best_of": data.draw(NUMBERS),
        "options": {"num_predict": one},
        "generationConfig": {"maxOutputTokens": one, "candidateCount": other},
    }
    try:
        found = extent(operation, **{name: named[name] for name in data.draw(_SOME_NAMES)})
    except APIError:
        return
    usage = found.usage(512)
    assert 0 <= usage.prompt_tokens <= MAX_TOKENS
    assert 0 <= usage.completion_tokens <= MAX_TOKENS
    assert found.made >= (1 if operation in GENERATING else 0)


_SOME_NAMES = st.sets(
    st.sampled_from(
        (
            "max_tokens",
            "max_completion_tokens",
            "max_output_tokens",
            "n",
            "best_of",
            "options",
            "generationConfig",
        )
    )
)
