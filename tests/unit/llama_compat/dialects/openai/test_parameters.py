"""The parameters of OpenAI's requests: what is refused, and what the rest means."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llama_compat.dialects.openai.parameters import (
    CHAT_CHECKS,
    COMPLETION_CHECKS,
    EMBEDDING_CHECKS,
    check_parameters,
    parameters_set,
    parse_sampling,
    render_sampling,
)
from llama_compat.dialects.openai_responses.operations import RESPONSE_CHECKS
from llama_compat.dialects.stop_lists import MAX_STOP_STRINGS
from llama_compat.errors import APIError
from llama_compat.types import (
    GreedySamplingStrategy,
    SamplingParams,
    TopKSamplingStrategy,
    TopPSamplingStrategy,
)
from llama_compat.wire.json_fields import parse_fields


def checked(checks: Any = CHAT_CHECKS, /, **body: Any) -> dict[str, Any]:
    return check_parameters(parse_fields(json.dumps(body).encode()), checks)


GOOD: list[tuple[str, list[Any]]] = [
    ("max_tokens", [1, 10**9]),
    ("max_completion_tokens", [1]),
    ("n", [1, 128]),
    ("temperature", [0, 0.0, 1, 2, 2.0]),
    ("top_p", [0, 0.5, 1]),
    ("top_k", [-1, 0, 40]),
    ("frequency_penalty", [-2, 0, 2.0]),
    ("presence_penalty", [-2.0, 2]),
    ("repetition_penalty", [0.5, 1, 1.3]),
    ("seed", [0, -(2**63), 2**63 - 1]),
    ("stop", ["x", [], ["x"] * MAX_STOP_STRINGS]),
    ("stream", [True, False]),
    ("logit_bias", [{}, {"50256": -100, "1": 1.5}]),
    ("logprobs", [True, False]),
    ("top_logprobs", [0, 20]),
    ("parallel_tool_calls", [True]),
    ("user", ["me", ""]),
    ("min_p", [0, 0.05, 1]),
    ("min_tokens", [0, 5]),
    ("stop_token_ids", [[], [0, 7]]),
    ("ignore_eos", [True, False]),
    ("include_stop_str_in_output", [True]),
    ("allowed_token_ids", [[], [3]]),
    ("priority", [-1, 0, 2**31 - 1]),
    ("cache_salt", ["x"]),
    ("return_token_ids", [True, False]),
    ("chat_template_kwargs", [{}, {"enable_thinking": False}]),
    ("guided_json", [{}, '{"type": "object"}']),
    ("guided_regex", ["a+"]),
    ("guided_choice", [["a", "b"]]),
    ("guided_grammar", ['start: "a"']),
    ("structured_outputs", [{"json": {}}, {"choice": ["a"], "regex": None}]),
]

BAD: list[tuple[str, list[Any]]] = [
    ("max_tokens", [0, -1, 1.0, "1", True, [1]]),
    ("max_completion_tokens", [0, 1.5]),
    ("n", [0, 129, "2"]),
    ("temperature", [-0.1, 2.1, "hot", True, float("1e400")]),
    ("top_p", [-0.1, 1.1, "x"]),
    ("top_k", [-2, 0.5]),
    ("frequency_penalty", [-2.1, 2.1, "x"]),
    ("presence_penalty", [-3, 3]),
    ("repetition_penalty", [0, -1, 101]),
    ("seed", [1.5, "x", True, 2**63, -(2**63) - 1]),
    ("stop", [1, [1], ["x"] * (MAX_STOP_STRINGS + 1), "", ["x", ""], {"x": 1}]),
    ("stream", ["true", 1]),
    ("logit_bias", [[], {"word": 1}, {"-1": 1}, {"²": 1}]),
    ("logprobs", [1, "yes"]),
    ("top_logprobs", [-1, 21, True]),
    ("parallel_tool_calls", [1]),
    ("user", [1]),
    ("min_p", [-0.1, 1.1, "x"]),
    ("min_tokens", [-1, 0.5]),
    ("stop_token_ids", [[-1], ["x"], 7, [True]]),
    ("ignore_eos", [1]),
    ("include_stop_str_in_output", ["yes"]),
    ("allowed_token_ids", [[1.5], {}]),
    ("priority", [2**31, "high"]),
    ("cache_salt", [1]),
    ("return_token_ids", [1, "true"]),
    ("chat_template_kwargs", [[], "enable_thinking", 1]),
    ("guided_json", [5, "{", "[]"]),
    ("guided_regex", [["a"]]),
    ("guided_choice", [[], [1], "a"]),
    ("guided_grammar", [{}]),
    ("structured_outputs", [{}, [], {"regex": "a", "choice": ["b"]}]),
]


def rows(table: list[tuple[str, list[Any]]]) -> list[tuple[str, Any]]:
    return [(name, value) for name, values in table for value in values]


def test_every_check_has_good_and_bad_examples():
    assert {name for name, _ in GOOD} | {"stream_options"} == set(CHAT_CHECKS)
    assert {name for name, _ in BAD} | {"stream_options"} == set(CHAT_CHECKS)


@pytest.mark.parametrize(("name", "value"), rows(GOOD))
def test_good_values_pass_unchanged(name, value):
    beside = {"logprobs": True} if name == "top_logprobs" else {}
    assert checked(**beside, **{name: value}) == {**beside, name: value}


def test_alternatives_go_with_log_probabilities():
    for body in ({"top_logprobs": 2}, {"top_logprobs": 2, "logprobs": False}):
        with pytest.raises(APIError) as raised:
            checked(**body)
        assert (raised.value.status, raised.value.param) == (400, "top_logprobs")
        assert raised.value.message == (
            "The 'top_logprobs' parameter is only allowed when 'logprobs' is enabled."
        )
    # None of them is what there is anyway; and the Responses API has no `logprobs`.
    assert checked(top_logprobs=0) == {"top_logprobs": 0}
    assert checked(RESPONSE_CHECKS, top_logprobs=2) == {"top_logprobs": 2}


@pytest.mark.parametrize(("name", "value"), rows(BAD))
def test_bad_values_are_refused_by_name(name, value):
    raw = json.dumps({name: value}).replace("Infinity", "1e400")
    with pytest.raises(APIError) as raised:
        check_parameters(parse_fields(raw.encode()), CHAT_CHECKS)
    assert (raised.value.status, raised.value.param) == (400, name)
    assert raised.value.code in ("invalid_type", "invalid_value")
    assert f"'{name}'" in raised.value.message


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, "Invalid value for 'temperature': expected between 0 and 2, got 3."),
        ("x" * 99, "Invalid type for 'temperature': expected a number, got '" + "x" * 56 + "...."),
    ],
)
def test_the_message_says_what_was_expected(value, message):
    with pytest.raises(APIError) as raised:
        checked(temperature=value)
    assert raised.value.message == message


def test_a_bias_out_of_range_names_its_token():
    with pytest.raises(APIError) as raised:
        checked(logit_bias={"7": 101})
    assert raised.value.param == "logit_bias"
    assert "logit_bias.7" in raised.value.message


@pytest.mark.parametrize("name", sorted(CHAT_CHECKS))
def test_null_is_the_same_as_not_set(name):
    assert checked(**{name: None}) == {}


def test_unknown_fields_are_none_of_our_business():
    assert checked(made_up={"a": [1]}) == {}


def test_stream_options_go_with_a_stream():
    options = {"include_usage": True}
    assert checked(stream=True, stream_options=options)["stream_options"] == options
    assert checked(stream=True, stream_options={"include_usage": None})
    for body in (
        {"stream_options": options},
        {"stream": False, "stream_options": options},
        {"stream": True, "stream_options": [1]},
    ):
        with pytest.raises(APIError) as raised:
            checked(**body)
        assert raised.value.param == "stream_options"
    with pytest.raises(APIError) as raised:
        checked(stream=True, stream_options={"include_usage": "yes"})
    assert raised.value.param == "stream_options.include_usage"


def test_a_text_completion_counts_its_logprobs():
    assert checked(COMPLETION_CHECKS, logprobs=5) == {"logprobs": 5}
    for value in (True, 21):
        with pytest.raises(APIError):
            checked(COMPLETION_CHECKS, logprobs=value)


def test_no_tokens_at_all_are_wanted_only_with_an_echo():
    assert checked(COMPLETION_CHECKS, max_tokens=0, echo=True)["max_tokens"] == 0
    with pytest.raises(APIError) as raised:
        checked(COMPLETION_CHECKS, max_tokens=0)
    assert raised.value.param == "max_tokens"


def test_the_best_of_fewer_than_wanted_is_refused():
    assert checked(COMPLETION_CHECKS, best_of=2, n=2)
    assert checked(COMPLETION_CHECKS, best_of=2, n=2, stream=True)
    unstreamable = {"best_of": 3, "n": 2, "stream": True}
    for body in ({"best_of": 1, "n": 2}, {"best_of": 0}, {"echo": "x"}, unstreamable):
        with pytest.raises(APIError):
            checked(COMPLETION_CHECKS, **body)


def test_embeddings_have_checks_of_their_own():
    assert checked(EMBEDDING_CHECKS, dimensions=5, temperature=9) == {"dimensions": 5}
    with pytest.raises(APIError) as raised:
        checked(EMBEDDING_CHECKS, dimensions=0)
    assert raised.value.param == "dimensions"


# Which parameters are set -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({"model": "m", "messages": [], "prompt": "", "stream": True, "n": 2}, []),
        ({"stream_options": {"include_usage": True, "include_obfuscation": True}}, []),
        ({"stream_options": {"continuous_usage_stats": False, "other": None}}, []),
        ({"stream_options": {"other": 1}, "seed": 1}, ["stream_options.other", "seed"]),
        ({"stream_options": {"include_usage": True}, "user": "me", "metadata": {}}, []),
        ({"temperature": None, "stop": None}, []),
        ({"frequency_penalty": 0, "presence_penalty": 0.0, "logit_bias": {}, "top_k": -1}, []),
        ({"response_format": {"type": "text"}, "store": False, "suffix": "", "echo": False}, []),
        ({"tools": [], "tool_choice": "auto", "parallel_tool_calls": True}, []),
        *(
            (
                {
                    "tools": [{}],
                    "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": mode}},
                },
                asked,
            )
            for mode, asked in (("auto", ["tools"]), ("required", ["tools", "tool_choice"]))
        ),
        ({"best_of": 1, "stop": [], "logprobs": False, "repetition_penalty": 1}, []),
        ({"logprobs": 0}, ["logprobs"]),
        ({"frequency_penalty": False}, ["frequency_penalty"]),
        ({"temperature": 1, "top_p": 1}, ["temperature", "top_p"]),
        (
            {"tools": [{}], "tool_choice": "auto", "parallel_tool_calls": True},
            ["tools", "tool_choice", "parallel_tool_calls"],
        ),
        ({"made_up": 1, "suffix": "x", "best_of": 2}, ["made_up", "suffix", "best_of"]),
    ],
)
def test_what_asks_for_nothing_is_not_counted(body, names):
    assert parameters_set(body) == names


# What they mean -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "strategy"),
    [
        ({}, TopPSamplingStrategy(1.0, 1.0)),
        ({"temperature": 0}, GreedySamplingStrategy()),
        ({"temperature": 0.7, "top_p": 0}, GreedySamplingStrategy()),
        ({"temperature": 0, "top_k": 5}, GreedySamplingStrategy()),
        ({"temperature": 0.7}, TopPSamplingStrategy(0.7, 1.0)),
        ({"top_p": 0.9}, TopPSamplingStrategy(1.0, 0.9)),
        ({"top_k": 5}, TopKSamplingStrategy(5, 1.0, 1.0)),
        ({"top_k": 5, "temperature": 2, "top_p": 0.5}, TopKSamplingStrategy(5, 2.0, 0.5)),
        ({"top_k": 0}, TopPSamplingStrategy()),
        ({"top_k": -1, "temperature": None}, TopPSamplingStrategy()),
    ],
)
def test_strategies_are_chosen(body, strategy):
    assert parse_sampling(body).strategy == strategy


@pytest.mark.parametrize(
    ("body", "sampling"),
    [
        ({}, SamplingParams()),
        ({"max_tokens": 5}, SamplingParams(max_tokens=5)),
        ({"max_tokens": 5, "max_completion_tokens": 3}, SamplingParams(max_tokens=3)),
        ({"stop": "x"}, SamplingParams(stop=("x",))),
        ({"stop": ["x", "y"]}, SamplingParams(stop=("x", "y"))),
        ({"stop": None}, SamplingParams()),
        ({"seed": 3}, SamplingParams(seed=3)),
        ({"logit_bias": {"7": -1.5}}, SamplingParams(logit_bias={7: -1.5})),
        (
            {"frequency_penalty": 1, "presence_penalty": -1, "repetition_penalty": 1.2},
            SamplingParams(frequency_penalty=1, presence_penalty=-1, repetition_penalty=1.2),
        ),
        (
            {"temperature": 1, "frequency_penalty": 0},
            SamplingParams(stated=frozenset({"temperature", "frequency_penalty"})),
        ),
    ],
)
def test_sampling_is_parsed(body, sampling):
    assert parse_sampling(body) == sampling


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"temperature": 0},
        {"temperature": 1, "top_p": 1, "presence_penalty": 0},
        {"temperature": 0.5, "top_p": 0.5, "top_k": 3},
        {"max_tokens": 5, "stop": ["x"], "seed": 0, "logit_bias": {"7": 1}},
        {"frequency_penalty": 0.5, "presence_penalty": -0.5, "repetition_penalty": 1.5},
    ],
)
def test_what_was_parsed_is_rendered_as_it_came(body):
    assert render_sampling(parse_sampling(body), max_tokens_name="max_tokens") == body


def test_a_bias_is_a_float_however_it_is_spelled():
    """An engine adds the biases to numbers that are floats."""
    sampling = parse_sampling({"logit_bias": {"7": -100}})
    assert type(sampling.logit_bias[7]) is float


def test_a_seed_counts_up_with_the_choices():
    sampling = SamplingParams(seed=5)
    assert sampling.for_choice(0) is sampling
    assert sampling.for_choice(2).seed == 7
    assert SamplingParams().for_choice(2) == SamplingParams()
