"""Which requests are the same: by how they are written, and by what they mean."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from llama_compat.dialects.anthropic_messages.operations import MESSAGES
from llama_compat.dialects.base import Operation
from llama_compat.dialects.gemini.operations import GENERATE
from llama_compat.dialects.ollama.operations import CHAT as OLLAMA_CHAT
from llama_compat.dialects.openai.operations import CHAT, COMPLETIONS
from llama_compat.dialects.openai_responses.operations import RESPONSES
from llama_compat.distribution import ExactCacheSettings
from llama_compat.exchange import Principal
from routing.cache.keys import SHORT_BYTES, Meaning, Written, belongs_to, meaning, written
from tests.unit.calls import call_of

WHERE = ["key a", "m", "up/m"]

MEMBERS: dict[str, list[Any]] = {
    "temperature": [0, 0.5, 0.7],
    "top_p": [0.1, 0.2],
    "max_tokens": [5, 6],
    "max_completion_tokens": [7, 8],
    "seed": [1, 2],
    "stop": ["a", ["a", "b"]],
    "frequency_penalty": [0.5, 1],
    "presence_penalty": [0.5, 1],
    "logit_bias": [{"1": 2}, {"1": 3}],
    "logprobs": [True],
    "n": [2, 3],
    "reasoning_effort": ["low", "high"],
    "verbosity": ["low", "high"],
    "response_format": [{"type": "json_object"}],
    "service_tier": ["flex"],
    "min_p": [0.1],
    "unknown": [1, "x", {"y": 1}],
    "tools": [
        [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}]
        for name in ("f", "g")
    ],
}
"""What may be asked besides, and values that are not the same."""

MESSAGES_ASKED = st.lists(
    st.fixed_dictionaries(
        {
            "role": st.sampled_from(["user", "assistant", "system"]),
            "content": st.text(min_size=1, max_size=8),
        }
    ),
    min_size=1,
    max_size=3,
)


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.sets(st.sampled_from(sorted(MEMBERS)), max_size=5))
    more = {name: draw(st.sampled_from(MEMBERS[name])) for name in names}
    return {"model": "m", "messages": draw(MESSAGES_ASKED), **more}


SETTINGS = ExactCacheSettings()


def as_written(body: dict[str, Any] | bytes, operation: Operation = CHAT) -> Written:
    return written(call_of(body, operation), WHERE, SETTINGS)


def as_meant(body: dict[str, Any], operation: Operation = CHAT) -> Meaning | None:
    return meaning(call_of(body, operation), "theirs", WHERE)


def shuffled(value: Any, random: Any) -> Any:
    if isinstance(value, dict):
        items = [(name, shuffled(each, random)) for name, each in value.items()]
        random.shuffle(items)
        return dict(items)
    return [shuffled(each, random) for each in value] if isinstance(value, list) else value


@given(bodies(), st.randoms(use_true_random=False), st.sampled_from([None, 1, 4]))
def test_order_and_white_space_do_not_count(
    body: dict[str, Any], random: Any, indent: int | None
) -> None:
    other = json.dumps(shuffled(body, random), indent=indent, ensure_ascii=indent is None).encode()
    assert as_written(body) == as_written(other)


@given(bodies(), bodies())
def test_what_asks_for_something_else_is_another(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (as_written(one).key == as_written(other).key) is same


@pytest.mark.parametrize("name", sorted(MEMBERS))
def test_every_member_has_a_part_in_what_is_meant(name: str) -> None:
    body = {"messages": [{"role": "user", "content": "x"}], "temperature": 0.9}
    meant = [as_meant(body), *(as_meant({**body, name: value}) for value in MEMBERS[name])]
    keys = [each.key for each in meant if each is not None and each.key is not None]
    assert len(set(keys)) == len(keys)
    assert meant[0] is not None
    assert meant[0].key is not None


@given(bodies(), st.sampled_from(sorted(MEMBERS)), st.data())
def test_every_member_counts(body: dict[str, Any], name: str, data: st.DataObject) -> None:
    value = data.draw(st.sampled_from(MEMBERS[name]))
    if body.get(name) != value:
        assert as_written(body).key != as_written({**body, name: value}).key


@pytest.mark.parametrize("leaves_memory", [False, True])
@pytest.mark.parametrize("text", ["x", "x" * SHORT_BYTES])
def test_the_form_is_another_and_the_key_the_same(text: str, leaves_memory: bool) -> None:
    body = {"messages": [{"role": "user", "content": text}]}
    forms = [
        written(call_of(each), WHERE, SETTINGS, leaves_memory=leaves_memory)
        for each in (
            body,
            {**body, "stream": True},
            {**body, "stream": True, "stream_options": {"include_usage": True}},
            {**body, "model": "alias"},
            {**body, "model": "alias", "stream": True},
        )
    ]
    assert len({each.key for each in forms}) == 1
    assert len({key for each in forms for key in each.keys}) == 6


def test_nobody_can_read_a_key_that_leaves_memory_and_none_is_long() -> None:
    body = {"messages": [{"role": "user", "content": "a secret"}]}
    inside, outside = as_written(body), written(call_of(body), WHERE, SETTINGS, leaves_memory=True)
    assert all(b"a secret" in key for key in inside.keys)
    assert not any(b"a secret" in key for key in outside.keys)
    long = as_written({"messages": [{"role": "user", "content": "x" * SHORT_BYTES}]})
    assert all(len(key) < SHORT_BYTES for key in long.keys)


def test_where_it_goes_and_whose_it_is_and_what_vendors_are_told_counts() -> None:
    call = call_of({"messages": [{"role": "user", "content": "x"}]})
    beta = replace(call, headers={"anthropic-beta": "x"})
    found = [
        written(call, WHERE, SETTINGS),
        written(call, ["key b", *WHERE[1:]], SETTINGS),
        written(beta, WHERE, SETTINGS),
    ]
    assert len({each.key for each in found}) == 3
    meant = [meaning(call, "x", where) for where in (WHERE, ["key b", *WHERE[1:]])]
    assert len({each.key for each in meant if each is not None}) == 2
    told = meaning(beta, "x", WHERE)
    assert told is not None
    assert told.key is None
    version = meaning(replace(call, headers={"anthropic-version": "2023-06-01"}), "x", WHERE)
    assert version is not None
    assert meant[0] is not None
    assert version.key == meant[0].key


SAME: list[tuple[Operation, dict[str, Any]]] = [
    (CHAT, {"messages": [{"role": "user", "content": "x"}], "max_tokens": 9, "temperature": 0}),
    (
        MESSAGES,
        {"messages": [{"role": "user", "content": "x"}], "max_tokens": 9, "temperature": 0},
    ),
    (RESPONSES, {"input": "x", "max_output_tokens": 9, "temperature": 0, "store": False}),
    (
        GENERATE,
        {
            "contents": [{"role": "user", "parts": [{"text": "x"}]}],
            "generationConfig": {"maxOutputTokens": 9, "temperature": 0},
        },
    ),
    (
        OLLAMA_CHAT,
        {
            "messages": [{"role": "user", "content": "x"}],
            "options": {"num_predict": 9, "temperature": 0},
        },
    ),
]


def test_every_api_means_the_same() -> None:
    meant = [as_meant(body, operation) for operation, body in SAME]
    keys = {None if each is None else each.key for each in meant}
    assert len(keys) == 1
    assert None not in keys


def test_a_text_that_is_continued_is_not_a_conversation() -> None:
    found = as_meant({"prompt": "x", "max_tokens": 9, "temperature": 0}, COMPLETIONS)
    asked = as_meant(SAME[0][1])
    assert found is not None
    assert asked is not None
    assert found.key not in (asked.key, None)


@pytest.mark.parametrize(
    ("more", "kept"),
    [
        ({}, []),
        ({"temperature": 0}, [""]),
        ({"temperature": 1, "seed": 0}, [""]),
        ({"temperature": 0, "n": 2}, ["choices"]),
        ({"temperature": 0, "tools": MEMBERS["tools"][0]}, ["tools"]),
        ({"temperature": 0.1}, []),
    ],
)
def test_what_is_kept_only_where_that_is_asked_for(more: dict[str, Any], kept: list[str]) -> None:
    meant = as_meant({"messages": [{"role": "user", "content": "x"}], **more})
    assert meant is not None
    settings = {
        name: ExactCacheSettings.model_validate({name: True} if name else {})
        for name in ("", "choices", "tools")
    }
    allowed = [name for name, each in settings.items() if meant.may_be_kept(each)]
    assert allowed == (list(settings) if kept == [""] else kept)
    assert meant.may_be_kept(ExactCacheSettings(sampled=True, tools=True, choices=True))


def test_whose_it_is() -> None:
    alone, mate = Principal("a"), Principal("a", team="a")
    assert belongs_to(alone, "all") == belongs_to(mate, "all")
    assert belongs_to(mate, "key") == belongs_to(alone, "key")
    assert belongs_to(mate, "team") == belongs_to(Principal("b", team="a"), "team")
    assert belongs_to(mate, "team") != belongs_to(alone, "team")
    assert belongs_to(alone, "team") == belongs_to(alone, "key")


def test_half_a_character_and_large_numbers_have_a_key() -> None:
    body = rb'{"model":"m","messages":[{"role":"user","content":"\ud83c"}],"seed":%s}'
    numbers = [b"1", b"99999999999999999999999", b"99999999999999999999998"]
    keys = {as_written(body % number).key for number in numbers}
    assert len(keys) == 3


@given(bodies(), st.sampled_from([CHAT, MESSAGES, OLLAMA_CHAT]), st.booleans())
def test_what_may_be_kept_unread_may_be_once_it_is_read(
    body: dict[str, Any], operation: Operation, sampled: bool
) -> None:
    settings = ExactCacheSettings(sampled=sampled)
    call = call_of(body, operation)
    seen = written(call, WHERE, settings, body=json.dumps(body).encode())
    assert seen.key == written(call, WHERE, settings).key
    meant = meaning(call, "theirs", WHERE)
    if seen.may_be_kept and meant is not None:
        assert meant.may_be_kept(settings)


@pytest.mark.parametrize("options", [{}, {"search_context_size": "low"}])
def test_a_search_is_a_tool_whatever_is_said_of_it(options: dict[str, Any]) -> None:
    meant = as_meant(
        {"messages": [{"role": "user", "content": "Hi"}], "web_search_options": options}
    )
    assert meant is not None
    assert meant.tools
    assert not meant.may_be_kept(ExactCacheSettings(sampled=True))
    plain = as_meant({"messages": [{"role": "user", "content": "Hi"}], "web_search_options": None})
    assert plain is not None
    assert not plain.tools


@pytest.mark.parametrize("word", ["tool", "a_function", "search"])
def test_words_of_tools_in_a_text_are_none(word: str) -> None:
    """However many: a pattern that goes back for each of them takes 20 minutes for these."""
    body = {"model": "m", "messages": [{"role": "user", "content": word * 200_000}]}
    settings = ExactCacheSettings(sampled=True)
    assert written(call_of(body), WHERE, settings).may_be_kept
    for name in (word, f"x_{word}s", f"{word}_x"):
        assert not written(call_of({**body, name: 1}), WHERE, settings).may_be_kept
