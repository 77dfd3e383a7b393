"""Lists of stop strings: one rule, in the words of each client's API."""

from __future__ import annotations

from typing import Any

import pytest

from llama_compat.dialects.anthropic_messages.input.parameters import parse_settings
from llama_compat.dialects.openai.parameters import CHECKS
from llama_compat.dialects.stop_lists import MAX_STOP_STRINGS, parse_stop_list
from llama_compat.errors import APIError

ALL = [str(number) for number in range(MAX_STOP_STRINGS)]
MORE = [*ALL, "x"]


def anthropics(value: Any) -> None:
    parse_settings({"stop_sequences": value})


def openais(value: Any) -> None:
    CHECKS["stop"]("stop", value)


def googles(value: Any) -> None:
    parse_stop_list(value, "stopSequences")


@pytest.mark.parametrize("read", [anthropics, openais, googles])
def test_as_many_as_are_looked_for(read: Any) -> None:
    read(ALL)
    with pytest.raises(APIError, match=f"at most {MAX_STOP_STRINGS} strings, got {len(MORE)}"):
        read(MORE)


def test_one_may_stand_alone_but_not_at_anthropic() -> None:
    assert parse_stop_list("x", "stop") == ["x"]
    openais("x")
    with pytest.raises(APIError, match=r"'stop_sequences' must be an array of strings\."):
        anthropics("x")


@pytest.mark.parametrize(
    ("read", "value", "words"),
    [
        (anthropics, [1], r"'stop_sequences' must be an array of strings\."),
        (anthropics, ["x", ""], "'stop_sequences': none of them can be empty."),
        (openais, 1, "Invalid type for 'stop': expected a string or an array of strings, got 1."),
        (openais, ["x", ""], "Invalid 'stop': a stop string can't be empty."),
        (googles, {"x": 1}, "'stopSequences' must be an array of strings that are not empty."),
        (googles, [""], "'stopSequences' must be an array of strings that are not empty."),
    ],
)
def test_what_is_none_is_told_in_the_words_of_its_api(read: Any, value: Any, words: str) -> None:
    with pytest.raises(APIError, match=words):
        read(value)
