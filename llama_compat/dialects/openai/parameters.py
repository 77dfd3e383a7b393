"""The parameters that OpenAI's chat and text completions share: their checks and their meaning.

Source: https://platform.openai.com/docs/api-reference/chat/create and .../completions/create. The
fields beyond those (`top_k`, `repetition_penalty`, `min_p`, ...) are the extensions that vLLM and
others take.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

from llama_compat.dialects.counts import MAX_COUNT, MAX_INT32
from llama_compat.dialects.sampling import SAMPLING_DEFAULTS, sampling_members
from llama_compat.dialects.stop_lists import checked_stops, parse_stop_list
from llama_compat.errors import APIError, invalid_parameter
from llama_compat.types import (
    ChatCompletionRequest,
    GreedySamplingStrategy,
    Guide,
    SamplingParams,
    SamplingStrategy,
    TopKSamplingStrategy,
    TopPSamplingStrategy,
)
from llama_compat.wire.json_fields import JSONFields, from_raw

# --------------------------------------------------------------------------------------------------
# Checks: each takes a parameter's name and value, and raises APIError
# --------------------------------------------------------------------------------------------------

Check = Callable[[str, Any], None]
GuideKind = Literal["json_schema", "regex", "choice", "grammar"]


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _wrong_type(name: str, expected: str, value: Any) -> APIError:
    return invalid_parameter(
        name,
        f"Invalid type for '{name}': expected {expected}, got {_shown(value)}.",
        "invalid_type",
    )


def _out_of_range(name: str, value: Any, low: float, high: float | None) -> APIError:
    bounds = f"at least {low}" if high is None else f"between {low} and {high}"
    return invalid_parameter(
        name, f"Invalid value for '{name}': expected {bounds}, got {_shown(value)}."
    )


def _check_range(name: str, value: Any, low: float, high: float | None) -> None:
    if not value >= low:
        raise _out_of_range(name, value, low, high)
    most = MAX_COUNT if high is None else high
    if not value <= most:
        raise _out_of_range(name, value, low, most)


def _integer(name: str, value: Any, *, low: int, high: int | None = None) -> None:
    if type(value) is not int:
        raise _wrong_type(name, "an integer", value)
    _check_range(name, value, low, high)


def _number(name: str, value: Any, *, low: float, high: float) -> None:
    if type(value) not in (int, float):
        raise _wrong_type(name, "a number", value)
    _check_range(name, value, low, high)


def _boolean(name: str, value: Any) -> None:
    if type(value) is not bool:
        raise _wrong_type(name, "a boolean", value)


def _string(name: str, value: Any) -> None:
    if type(value) is not str:
        raise _wrong_type(name, "a string", value)


def _stop(name: str, value: Any) -> None:
    checked_stops(
        [value] if isinstance(value, str) else value,
        name,
        malformed=lambda: _wrong_type(name, "a string or an array of strings", value),
        empty=lambda: invalid_parameter(name, f"Invalid '{name}': a stop string can't be empty."),
    )


def is_token_id(value: Any) -> bool:
    """Whether `value` can be the id of a token of some model."""
    return type(value) is int and 0 <= value <= MAX_INT32


def _token_ids(name: str, value: Any) -> None:
    if type(value) is not list or not all(map(is_token_id, value)):
        raise _wrong_type(name, "an array of token ids", value)


def _schema(name: str, value: Any) -> None:
    if type(value) is str:
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise invalid_parameter(name, f"Invalid '{name}': the text is not JSON.") from None
    if type(value) is not dict:
        raise _wrong_type(name, "a JSON schema object", value)


def _choice(name: str, value: Any) -> None:
    if type(value) is not list or not all(type(item) is str for item in value) or not value:
        raise _wrong_type(name, "a non-empty array of strings", value)


GUIDES: dict[str, tuple[GuideKind, Check]] = {
    "json": ("json_schema", _schema),
    "regex": ("regex", _string),
    "choice": ("choice", _choice),
    "grammar": ("grammar", _string),
}
"""vLLM's ways of saying what a reply has to be, as `guided_...` or in `structured_outputs`."""


def _structured_outputs(name: str, value: Any) -> None:
    if type(value) is not dict:
        raise _wrong_type(name, "an object", value)
    said = [member for member in value if value[member] is not None]
    for member in said:
        if member not in GUIDES:
            raise invalid_parameter(f"{name}.{member}", f"Unknown parameter: '{name}.{member}'.")
        GUIDES[member][1](f"{name}.{member}", value[member])
    if len(said) != 1:
        raise invalid_parameter(name, f"'{name}' needs exactly one of {', '.join(GUIDES)}.")


def _stream_options(name: str, value: Any) -> None:
    if type(value) is not dict:
        raise _wrong_type(name, "an object", value)
    if value.get("include_usage") is not None:
        _boolean(f"{name}.include_usage", value["include_usage"])


_TOKEN_ID_DIGITS = len(str(MAX_INT32))


def _object(name: str, value: Any) -> None:
    if type(value) is not dict:
        raise _wrong_type(name, "an object", value)


def _logit_bias(name: str, value: Any) -> None:
    _object(name, value)
    for token, bias in value.items():
        # Its length first: Python refuses to make a number of thousands of digits.
        digits = token.isascii() and token.isdigit() and len(token) <= _TOKEN_ID_DIGITS
        if not digits or not is_token_id(int(token)):
            raise invalid_parameter(
                name, f"Invalid key in '{name}': {_shown(token)} is not a token id."
            )
        try:
            _number(f"{name}.{token}", bias, low=-100, high=100)
        except APIError as error:
            raise invalid_parameter(name, error.message, error.code) from None


CHECKS: dict[str, Check] = {
    "max_tokens": partial(_integer, low=1),
    "max_completion_tokens": partial(_integer, low=1),
    "n": partial(_integer, low=1, high=128),
    "temperature": partial(_number, low=0, high=2),
    "top_p": partial(_number, low=0, high=1),
    "top_k": partial(_integer, low=-1, high=MAX_INT32),
    "frequency_penalty": partial(_number, low=-2, high=2),
    "presence_penalty": partial(_number, low=-2, high=2),
    "repetition_penalty": partial(_number, low=0.01, high=100),
    "seed": partial(_integer, low=-(2**63), high=2**63 - 1),
    "stop": _stop,
    "stream": _boolean,
    "stream_options": _stream_options,
    "logit_bias": _logit_bias,
    "top_logprobs": partial(_integer, low=0, high=20),
    "parallel_tool_calls": _boolean,
    "user": _string,
    "min_p": partial(_number, low=0, high=1),
    "min_tokens": partial(_integer, low=0),
    "stop_token_ids": _token_ids,
    "ignore_eos": _boolean,
    "include_stop_str_in_output": _boolean,
    "allowed_token_ids": _token_ids,
    "priority": partial(_integer, low=-(2**31), high=2**31 - 1),
    "cache_salt": _string,
    "return_token_ids": _boolean,
    "structured_outputs": _structured_outputs,
    **{f"guided_{member}": check for member, (_, check) in GUIDES.items()},
}
CHAT_CHECKS: dict[str, Check] = {
    **CHECKS,
    "logprobs": _boolean,
    "chat_template_kwargs": _object,
}
COMPLETION_CHECKS: dict[str, Check] = {
    **CHECKS,
    # With `echo` a caller may want no more than the prompt's own log probabilities.
    "max_tokens": partial(_integer, low=0),
    "logprobs": partial(_integer, low=0, high=20),
    "best_of": partial(_integer, low=1, high=128),
    "echo": _boolean,
}

EMBEDDING_CHECKS: dict[str, Check] = {
    "dimensions": partial(_integer, low=1),
    "user": _string,
}


def check_parameters(fields: JSONFields, checks: Mapping[str, Check]) -> dict[str, Any]:
    """Check those of `fields` that `checks` knows; null is the same as not set.

    Returns:
        The checked parameters, decoded.

    Raises:
        APIError: 400 with the parameter's name in `param`.
    """
    checked: dict[str, Any] = {}
    for name, raw in fields.items():
        check = checks.get(name)
        if check is not None:
            value = from_raw(raw)
            if value is not None:
                check(name, value)
                checked[name] = value
    if "stream_options" in checked and not checked.get("stream"):
        raise invalid_parameter(
            "stream_options", "'stream_options' is only allowed when 'stream' is true."
        )
    # The Responses API has no `logprobs`: there alternatives alone are asked for.
    if checked.get("top_logprobs") and "logprobs" in checks and not checked.get("logprobs"):
        raise invalid_parameter(
            "top_logprobs",
            "The 'top_logprobs' parameter is only allowed when 'logprobs' is enabled.",
        )
    if checked.get("max_tokens") == 0 and not checked.get("echo"):
        raise _out_of_range("max_tokens", 0, 1, None)
    best_of, n = checked.get("best_of"), checked.get("n", 1)
    if best_of is not None and best_of < n:
        raise invalid_parameter("best_of", "'best_of' must be at least 'n'.")
    if best_of is not None and best_of > n and checked.get("stream"):
        raise invalid_parameter(
            "best_of",
            "'best_of' can't be streamed: which replies are the best is known when all have ended."
            " Leave 'stream' out, or set 'best_of' to 'n'.",
        )
    return checked


# --------------------------------------------------------------------------------------------------
# Which parameters a request sets
# --------------------------------------------------------------------------------------------------

_ALWAYS_HONOURED = frozenset({"model", "messages", "prompt", "stream", "stream_options", "n"})

HINTS = frozenset(
    {
        "user",
        "metadata",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "service_tier",
        "prediction",
    }
)
"""Fields that say something about a request and change nothing about the reply that is due."""

TOLD_HINTS = {name: name for name in sorted(HINTS) if not name.startswith("prompt_cache_")}
"""Those that are missed where they are gone: a vendor's cache works without being told of it."""


def parse_metadata(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What a client keeps with a request; a hint, so that None is anything that has no names."""
    given = body.get("metadata")
    return given if isinstance(given, dict) and given else None


def render_hints(request: ChatCompletionRequest) -> dict[str, str]:
    """The members of a request that are hints, in chats and in responses."""
    hints = {
        "service_tier": request.service_tier,
        "user": request.user,
        "safety_identifier": request.safety_identifier,
    }
    return {name: value for name, value in hints.items() if value is not None}


_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "response_format": ({"type": "text"},),
    "tools": ([],),
    "functions": ([],),
    "function_call": ("auto",),
    "store": (False,),
    "modalities": (["text"],),
    "best_of": (1,),
    "echo": (False,),
    "return_token_ids": (False,),
    "suffix": ("",),
    "stop": ([],),
    "top_k": (-1, 0),
    "min_p": (0,),
    "min_tokens": (0,),
    "stop_token_ids": ([],),
    "ignore_eos": (False,),
    "include_stop_str_in_output": (False,),
    "priority": (0,),
    "chat_template_kwargs": ({},),
}
"""Values that ask for what happens anyway."""

_STREAM_OPTIONS = frozenset({"include_usage", "include_obfuscation"})
"""Those that are honoured for every provider, and OpenAI's padding of chunks, a mere hint."""

_ONLY_WITH = {
    "tool_choice": "tools",
    "parallel_tool_calls": "tools",
    "function_call": "functions",
}
"""Parameters that ask for nothing where another one is not there."""


def parameters_set(body: Mapping[str, Any]) -> list[str]:
    """The parameters of the request `body` that ask something of the provider.

    Left out are those that every request has, nulls, mere hints, and values that ask for what
    happens anyway. Of `stream_options` its members are named, such as `stream_options.x`.
    """
    options = body.get("stream_options") or {}
    return [
        f"stream_options.{name}"
        for name, value in options.items()
        if value and name not in _STREAM_OPTIONS
    ] + [
        name
        for name, value in body.items()
        if value is not None
        and name not in _ALWAYS_HONOURED
        and name not in HINTS
        and not is_neutral(name, value)
        and not (name in _ONLY_WITH and not body.get(_ONLY_WITH[name]))
        and not (name == "tool_choice" and _is_open(value))
    ]


def is_neutral(name: str, value: Any) -> bool:
    """Whether the parameter `name` asks with `value` for what happens anyway."""
    return any(_same(value, neutral) for neutral in _NEUTRAL.get(name, ()))


def _is_open(choice: Any) -> bool:
    """Whether a `tool_choice` says no more than which of the tools are offered."""
    match choice:
        case {"type": "allowed_tools", "allowed_tools": {"mode": "auto"}}:
            return True
    return False


def _same(value: Any, neutral: Any) -> bool:
    # In Python 0 == False, but `"logprobs": 0` of a text completion does ask for something.
    return bool(value == neutral) and isinstance(value, bool) == isinstance(neutral, bool)


# --------------------------------------------------------------------------------------------------
# What they mean
# --------------------------------------------------------------------------------------------------


def read_parameter(name: str, value: Any, path: str) -> Any:
    """What a request says in other words than OpenAI's; None where it says nothing.

    Args:
        name: OpenAI's, one of `CHECKS`.
        value: as the client wrote it.
        path: where.

    Raises:
        APIError: 400 naming `path`, it is malformed.
    """
    if value is None:
        return None
    if name == "stop":
        return parse_stop_list(value, path)
    CHECKS[name](path, value)
    return value


def parse_sampling(body: Mapping[str, Any]) -> SamplingParams:
    """The sampling parameters of a checked request.

    `temperature` 0 (or `top_p` 0) is greedy; unset, both are 1.0.
    """
    stop = body.get("stop") or ()
    max_tokens = body.get("max_completion_tokens")
    return SamplingParams(
        strategy=_parse_strategy(body),
        max_tokens=max_tokens if max_tokens is not None else body.get("max_tokens"),
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        seed=body.get("seed"),
        frequency_penalty=body.get("frequency_penalty") or 0.0,
        presence_penalty=body.get("presence_penalty") or 0.0,
        repetition_penalty=body.get("repetition_penalty") or 1.0,
        logit_bias={
            int(token): float(bias) for token, bias in (body.get("logit_bias") or {}).items()
        },
        stated=frozenset(
            name for name, default in SAMPLING_DEFAULTS.items() if body.get(name) == default
        ),
        min_p=body.get("min_p") or 0.0,
        min_tokens=body.get("min_tokens") or 0,
        stop_token_ids=tuple(body.get("stop_token_ids") or ()),
        ignore_eos=bool(body.get("ignore_eos")),
        include_stop_str_in_output=bool(body.get("include_stop_str_in_output")),
        allowed_token_ids=tuple(body.get("allowed_token_ids") or ()),
        priority=body.get("priority") or 0,
        cache_salt=body.get("cache_salt"),
        guide=_parse_guide(body),
    )


def _parse_guide(body: Mapping[str, Any]) -> Guide | None:
    found = {f"guided_{member}": (member, body.get(f"guided_{member}")) for member in GUIDES}
    for member, value in (body.get("structured_outputs") or {}).items():
        found[f"structured_outputs.{member}"] = (member, value)
    guides = [
        Guide(
            GUIDES[member][0],
            json.loads(value) if member == "json" and isinstance(value, str) else value,
            path,
        )
        for path, (member, value) in found.items()
        if value is not None
    ]
    if len(guides) > 1:
        names = " and ".join(f"'{guide.path}'" for guide in guides)
        raise invalid_parameter(guides[1].path, f"{names} exclude each other.")
    return guides[0] if guides else None


def _parse_strategy(body: Mapping[str, Any]) -> SamplingStrategy:
    temperature, top_p = body.get("temperature"), body.get("top_p")
    temperature = 1.0 if temperature is None else float(temperature)
    top_p = 1.0 if top_p is None else float(top_p)
    if temperature == 0 or top_p == 0:
        return GreedySamplingStrategy()
    top_k = body.get("top_k") or 0
    if top_k > 0:
        return TopKSamplingStrategy(top_k, temperature, top_p)
    return TopPSamplingStrategy(temperature, top_p)


SAMPLING_PARAMETERS = frozenset(
    {
        *SAMPLING_DEFAULTS,
        "logit_bias",
        "max_completion_tokens",
        "max_tokens",
        "seed",
        "stop",
        "top_k",
    }
)
"""OpenAI's names of all that `SamplingParams` holds."""


def render_sampling(sampling: SamplingParams, *, max_tokens_name: str) -> dict[str, Any]:
    """The request members that say `sampling`; what nobody set is left out."""
    names = {name: name for name in (*SAMPLING_DEFAULTS, "top_k", "stop", "seed")}
    body = sampling_members(sampling, {**names, "max_tokens": max_tokens_name})
    if sampling.logit_bias:
        body["logit_bias"] = {str(token): bias for token, bias in sampling.logit_bias.items()}
    return body
