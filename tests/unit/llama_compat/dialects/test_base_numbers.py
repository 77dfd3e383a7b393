"""Numbers that clients name: none of them leads to a crash, or to a count that is none.

What limits, choices and contexts go by is checked by each dialect's look, before a request goes
anywhere, so that it holds where the rest is relayed as it came; what else is a number is checked
where a request is translated.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_compat.dialects.anthropic_messages import operations as messages
from llama_compat.dialects.base import Operation
from llama_compat.dialects.counts import MAX_COUNT
from llama_compat.dialects.gemini import operations as gemini
from llama_compat.dialects.gemini_interactions import operations as interactions
from llama_compat.dialects.ollama import operations as ollama
from llama_compat.dialects.openai import operations as openai
from llama_compat.dialects.openai_responses import operations as responses
from llama_compat.errors import APIError
from llama_compat.extent import MAX_TOKENS
from llama_compat.wire.json_fields import from_raw, parse_fields
from llama_compat.wire.json_size import MAX_DIGITS

HI = [{"role": "user", "content": "Hi"}]
CONTENT = {"parts": [{"text": "Hi"}]}
PATH = {"model": "m"}

_CHAT = {
    "max_tokens",
    "max_completion_tokens",
    "n",
    "temperature",
    "top_p",
    "top_k",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "seed",
    "top_logprobs",
    "min_p",
    "min_tokens",
    "priority",
    "logit_bias",
    "stop_token_ids",
    "allowed_token_ids",
}
_CONFIG = {
    "maxOutputTokens",
    "candidateCount",
    "temperature",
    "topP",
    "topK",
    "seed",
    "presencePenalty",
    "frequencyPenalty",
    "logprobs",
    "max_output_tokens",
    "candidate_count",
    "thinkingConfig.thinkingBudget",
}
_OPTIONS = {
    "num_predict",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "repeat_penalty",
    "presence_penalty",
    "frequency_penalty",
    "num_ctx",
}
_GEMINI = {f"generationConfig.{name}" for name in _CONFIG}
_OLLAMA = {f"options.{name}" for name in _OPTIONS} | {"top_logprobs", "keep_alive"}

CALLS: list[tuple[Operation, dict[str, Any], set[str]]] = [
    (openai.CHAT, {"model": "m", "messages": HI, "logprobs": True}, _CHAT),
    (
        openai.COMPLETIONS,
        {"model": "m", "prompt": ["a", "b"]},
        {*_CHAT, "best_of", "logprobs"} - {"top_logprobs"},
    ),
    (openai.COMPLETIONS, {"model": "m", "prompt": "a"}, {"prompt"}),
    (openai.EMBEDDINGS, {"model": "m", "input": "a"}, {"dimensions"}),
    (
        responses.RESPONSES,
        {"model": "m", "input": "Hi"},
        {
            "max_output_tokens",
            "max_tool_calls",
            "temperature",
            "top_p",
            "top_k",
            "seed",
            "top_logprobs",
            "presence_penalty",
            "frequency_penalty",
            "repetition_penalty",
            "logit_bias",
        },
    ),
    (
        messages.MESSAGES,
        {"model": "m", "max_tokens": 9, "messages": HI, "thinking": {"type": "enabled"}},
        {"max_tokens", "temperature", "top_p", "top_k", "thinking.budget_tokens"},
    ),
    (messages.COUNT_TOKENS, {"model": "m", "messages": HI}, {"max_tokens", "temperature"}),
    (
        gemini.GENERATE,
        {"contents": CONTENT, "generationConfig": {"responseLogprobs": True}},
        _GEMINI,
    ),
    (gemini.STREAM_EVENTS, {"contents": CONTENT}, _GEMINI),
    (gemini.STREAM_ARRAY, {"contents": CONTENT}, _GEMINI),
    (gemini.COUNT_TOKENS, {"contents": CONTENT}, _GEMINI),
    (
        interactions.INTERACTIONS,
        {"model": "m", "input": "Hi"},
        {
            f"generation_config.{name}"
            for name in ("max_output_tokens", "temperature", "top_p", "seed")
        },
    ),
    (gemini.EMBED, {"content": CONTENT}, {"outputDimensionality", "output_dimensionality"}),
    (ollama.CHAT, {"model": "m", "messages": HI, "logprobs": True}, _OLLAMA),
    (ollama.GENERATE, {"model": "m", "prompt": "Hi"}, _OLLAMA),
    (ollama.RAW_GENERATE, {"model": "m", "prompt": "Hi", "raw": True}, _OLLAMA),
    (ollama.EMBED, {"model": "m", "input": "Hi"}, {"dimensions"}),
]
"""Each call, a request that is sound, and the paths of its members that are numbers."""

ROWS = [(operation, body, path) for operation, body, paths in CALLS for path in sorted(paths)]
NAMES = [f"{operation.dialect.name}-{operation.name}-{path}" for operation, _, path in ROWS]


class Literal:
    """JSON as a client writes it that Python's `json` would not."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text[:40]


DIGITS = "9" * MAX_DIGITS

NUMBERS: list[Any] = [
    *(Literal(each) for each in ("1e400", "-1e400", "1E+9999", "-0.0", "1e300", "40.0", "1e-400")),
    *(Literal(each) for each in (DIGITS, f"-{DIGITS}", f"{DIGITS[:400]}.5")),
    *(sign * 2**power + off for power in (31, 53, 63, 64) for sign in (-1, 1) for off in (-1, 0)),
    *(-1_000_000_000, -5, -2, -1, 0, 1, 2, 0.5, True, False, None, "7", "NaN", DIGITS, "", [], {}),
    *([Literal("1e400")], [-1], [2**40], [[-1]], [[2**40]], {DIGITS: 1}, {"9" * 5000: 1}),
    *({"-1": 1}, {"4": Literal("1e400")}, {str(2**31): 1}, {"²": 1}, {"a": []}),
]
"""What there is between nothing and what no machine holds; 5,000 digits are more than Python reads
as a number. A body's numbers are held to `MAX_DIGITS` before any of this is looked at."""


def encoded(value: Any) -> str:
    match value:
        case Literal():
            return value.text
        case dict():
            members = (f"{json.dumps(name)}: {encoded(each)}" for name, each in value.items())
            return f"{{{', '.join(members)}}}"
        case list():
            return f"[{', '.join(map(encoded, value))}]"
    return json.dumps(value)


def plain(name: str) -> str:
    """`name` however Google's clients spell it."""
    return name.replace("_", "").lower()


def with_member(body: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    name, _, rest = path.partition(".")
    inner = body.get(name) or {}
    return {**body, name: with_member(inner, rest, value) if rest else value}


def errors_of(operation: Operation, body: Mapping[str, Any]) -> Iterator[APIError]:
    """What each of the three readings of a request says against it; they agree on what is counted.

    Fails if one of them says it in another way, or lets a count pass that is none.
    """
    fields = parse_fields(encoded(body).encode())
    try:
        asked = operation.look(fields, PATH)
    except APIError as error:
        yield error
        return
    most = asked.extent.max_tokens
    assert most is None or 0 <= most <= MAX_COUNT
    assert 0 <= asked.extent.made <= 128 * 2
    whole = {name: from_raw(raw) for name, raw in fields.items()}
    try:
        operation.parameters(whole)
        translation: Any = operation.parse(whole, "m")
    except APIError as error:
        yield error
        return
    for request in getattr(translation, "requests", ()):
        limit = request.sampling.max_tokens
        # Where the look saw none, the dialect's own default may be there.
        assert most in (None, MAX_TOKENS, limit)


@pytest.mark.parametrize(("operation", "body", "path"), ROWS, ids=NAMES)
def test_a_number_is_taken_or_refused_by_its_name(
    operation: Operation, body: dict[str, Any], path: str
) -> None:
    assert not list(errors_of(operation, body))
    for number in NUMBERS:
        for error in errors_of(operation, with_member(body, path, number)):
            assert error.status == 400, number
            said = operation.dialect.render_error(error, "req").decode()
            assert plain(path.rpartition(".")[2]) in plain(said), number
            assert len(said) < 5000, number


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-3, 130)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([each for each in NUMBERS if not isinstance(each, list | dict)])
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3) | st.sampled_from([DIGITS, "7"]), inner, max_size=3)
    ),
    max_leaves=4,
)


@given(row=st.sampled_from(CALLS), data=st.data())
def test_no_numbers_of_a_request_lead_to_a_crash_or_a_count_that_is_none(
    row: tuple[Operation, dict[str, Any], set[str]], data: st.DataObject
) -> None:
    operation, body, paths = row
    for path, value in data.draw(st.dictionaries(st.sampled_from(sorted(paths)), JSON)).items():
        body = with_member(body, path, value)
    for error in errors_of(operation, body):
        assert error.status == 400


NO_INTEGER = [-1, 1.5, "x7", True, [], 2**53, Literal("1e400")]
NOT_COUNTED = [*NO_INTEGER, "7"]

COUNTED = [
    (openai.CHAT, "max_tokens", [*NOT_COUNTED, 0]),
    (openai.CHAT, "max_completion_tokens", [*NOT_COUNTED, 0]),
    (openai.CHAT, "n", [*NOT_COUNTED, 0]),
    (openai.COMPLETIONS, "max_tokens", [*NOT_COUNTED, 0]),
    (openai.COMPLETIONS, "best_of", [*NOT_COUNTED, 0]),
    (responses.RESPONSES, "max_output_tokens", [*NOT_COUNTED, 0]),
    (messages.MESSAGES, "max_tokens", NOT_COUNTED),
    (gemini.GENERATE, "generationConfig.maxOutputTokens", [*NO_INTEGER, 0, "-7", -1_000_000_000]),
    (gemini.GENERATE, "generationConfig.max_output_tokens", [*NO_INTEGER, 0]),
    (gemini.GENERATE, "generationConfig.candidateCount", [*NO_INTEGER, 0, 9, "9"]),
    (ollama.CHAT, "options.num_predict", [-3, 1.5, "7", True, False, [], 2**53, Literal("-1e400")]),
]
"""What counts against limits, and values that count as nothing."""


@pytest.mark.parametrize(
    ("operation", "path", "values"), COUNTED, ids=[f"{row[0].name}-{row[1]}" for row in COUNTED]
)
def test_what_counts_against_limits_is_checked_before_a_request_goes_anywhere(
    operation: Operation, path: str, values: list[Any]
) -> None:
    body = next(body for each, body, _ in CALLS if each is operation)
    for value in values:
        fields = parse_fields(encoded(with_member(body, path, value)).encode())
        with pytest.raises(APIError) as refused:
            operation.look(fields, PATH)
        assert refused.value.status == 400
        assert plain(path) == plain(refused.value.param or ""), value


@pytest.mark.parametrize("path", ["generationConfig", "generationConfig.maxOutputTokens"])
def test_what_google_could_read_in_two_ways_is_not_read_in_one(path: str) -> None:
    twice = {
        "generationConfig": {"generationConfig": {"maxOutputTokens": 1}, "generation_config": {}},
        "generationConfig.maxOutputTokens": {
            "generationConfig": {"maxOutputTokens": 1, "max_output_tokens": 900_000}
        },
    }
    with pytest.raises(APIError, match="is there twice") as refused:
        gemini.GENERATE.look(parse_fields(json.dumps(twice[path]).encode()), PATH)
    assert refused.value.param == path


@pytest.mark.parametrize(
    ("value", "limit"), [(-1, None), (-2, None), (0, None), (7, 7), (7.0, 7), (None, None)]
)
def test_ollamas_words_for_no_limit(value: Any, limit: int | None) -> None:
    fields = parse_fields(json.dumps({"model": "m", "options": {"num_predict": value}}).encode())
    assert ollama.CHAT.look(fields, PATH).extent.max_tokens == limit
