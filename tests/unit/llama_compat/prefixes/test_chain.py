"""Prompts as chains of hashes: what two have in common, and what never is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_compat.dialects.anthropic_messages.operations import COUNT_TOKENS, MESSAGES
from llama_compat.dialects.base import Operation
from llama_compat.dialects.openai.operations import CHAT, COMPLETIONS, EMBEDDINGS
from llama_compat.exchange import Call
from llama_compat.prefixes.chain import BLOCK_BYTES, MOST_BLOCKS, Chain, chain_of
from tests.unit.calls import call_of

SYSTEM = "You are told what to do. " * 200


def chat(*said: str, **body: Any) -> Call:
    roles = ("system", *("user", "assistant") * len(said))
    messages = [{"role": role, "content": text} for role, text in zip(roles, said, strict=False)]
    return call_of({"messages": messages, **body})


def common(one: Call | bytes, other: Call | bytes) -> int:
    """How many blocks two prompts have in common."""
    chains: list[Chain] = [
        chain_of(each if isinstance(each, Call) else call_of(each)) for each in (one, other)
    ]
    pairs = list(zip(*chains, strict=False))
    same = [first == second for first, second in pairs]
    begun = same.index(False) if False in same else len(same)
    assert not any(same[begun:])  # nothing in common after the first difference
    return begun


def test_a_conversation_goes_on_from_what_it_was() -> None:
    first, then = chat(SYSTEM, "Hi " * 300), chat(SYSTEM, "Hi " * 300, "Yes?", "No.")
    assert common(first, then) >= len(chain_of(first)) - 1 > 8


def test_those_of_another_user_share_the_system_prompt() -> None:
    one, other = chat(SYSTEM, "first " * 300), chat(SYSTEM, "second " * 300)
    assert common(one, other) == len(SYSTEM) // BLOCK_BYTES
    assert common(chat("x" + SYSTEM), one) == 0


def test_tools_are_read_first_wherever_they_stand() -> None:
    tools = [{"type": "function", "function": {"name": "f", "description": "what " * 200}}]
    messages = [{"role": "user", "content": "text " * 300}]
    before = json.dumps({"model": "m", "tools": tools, "messages": messages}).encode()
    after = json.dumps({"model": "m", "messages": messages, "tools": tools}).encode()
    assert common(before, after) == len(chain_of(call_of(before))) > 4
    assert common(before, json.dumps({"model": "m", "messages": messages}).encode()) == 0


def test_white_space_between_values_does_not_matter() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "te xt: " * 300}]}
    compact = json.dumps(body, separators=(",", ":")).encode()
    assert common(compact, json.dumps(body, indent=3).encode()) == len(chain_of(call_of(compact)))


def test_where_anthropic_s_cache_ends_does_not_matter() -> None:
    def ask(marked: int, *, first: bool = False) -> Call:
        texts = [f"{number} " * 400 for number in range(4)]
        parts = [{"type": "text", "text": text} for text in texts]
        mark = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
        parts[marked] = {**mark, **parts[marked]} if first else {**parts[marked], **mark}
        body = {"max_tokens": 9, "messages": [{"role": "user", "content": parts}]}
        return call_of(body, MESSAGES)

    assert common(ask(0), ask(3)) == common(ask(0), ask(2, first=True)) == len(chain_of(ask(1))) > 5


def test_a_salt_has_nothing_in_common_with_another() -> None:
    plain, salted = chat(SYSTEM, "Hi"), chat(SYSTEM, "Hi", cache_salt="a")
    assert common(plain, salted) == common(salted, chat(SYSTEM, "Hi", cache_salt="b")) == 0
    assert common(salted, chat(SYSTEM, "Hi", cache_salt="a")) == len(chain_of(plain))
    assert common(plain, chat(SYSTEM, "Hi", cache_salt=None)) == len(chain_of(plain))


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        (EMBEDDINGS, {"input": SYSTEM}),
        (COUNT_TOKENS, {"messages": [{"role": "user", "content": SYSTEM}]}),
        (CHAT, {"messages": [{"role": "user", "content": "short"}]}),
    ],
)
def test_nothing_to_go_by(operation: Operation, body: dict[str, Any]) -> None:
    assert not chain_of(call_of(body, operation))


def test_a_prompt_of_any_size_is_looked_at_so_far() -> None:
    assert len(chain_of(call_of({"prompt": "x" * 10_000_000}, COMPLETIONS))) == MOST_BLOCKS


def test_what_only_python_reads_is_no_fault() -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":"%b \\ud83d"}]}' % (b"x" * 600)
    assert len(chain_of(call_of(body))) == 1


@given(st.text(max_size=3000), st.text(max_size=3000), st.text(max_size=3000))
def test_what_begins_alike_has_that_in_common(begin: str, one: str, other: str) -> None:
    calls = [call_of({"prompt": begin + end}, COMPLETIONS) for end in (one, other) if begin + end]
    if len(calls) == 2:
        shared = len(json.dumps(begin, ensure_ascii=False).encode("utf-8", "replace"))
        least = min(shared - 2, *(len(chain_of(each)) * BLOCK_BYTES for each in calls))
        assert common(*calls) >= least // BLOCK_BYTES - 1
