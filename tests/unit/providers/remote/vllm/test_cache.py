"""A server's cache, as its events tell it, in blocks of prompts' characters."""

from __future__ import annotations

import pytest

from llama_compat.prefixes.held import blocks_in
from providers.remote.vllm import cache as vllm_cache
from providers.remote.vllm.cache import ServerCache
from providers.remote.vllm.messages import (
    AllRemoved,
    BlocksRemoved,
    BlocksStored,
    Event,
    EventBatch,
)

A, B = b"A" * 8, b"B" * 8
TOKENS = list(range(10))


def took(cache: ServerCache, *events: Event) -> list[bytes]:
    cache.take(EventBatch(1.0, events))
    return list(blocks_in(cache.held.news().stored))


def learned() -> ServerCache:
    """One that knows a prompt of ten tokens, four of which are a block's."""
    cache = ServerCache()
    took(cache, BlocksStored([99], None, [77, 77], 2))
    cache.learn([(A, 4), (B, 9)], TOKENS)
    return cache


def test_a_block_of_characters_is_held_when_its_full_blocks_of_tokens_are() -> None:
    cache = learned()
    assert took(cache, BlocksStored([1], None, TOKENS[:2], 2)) == []
    assert took(cache, BlocksStored([2], 1, TOKENS[2:4], 2)) == [A]
    # The ninth token lies in a block with the tenth, which is of what comes after.
    assert took(cache, BlocksStored([3, 4], 2, TOKENS[4:8], 2)) == [A, B]
    assert took(cache, BlocksRemoved([4])) == [A]
    assert took(cache, BlocksRemoved([1, 12345])) == []


def test_what_is_there_before_the_prompt_is_known_counts() -> None:
    cache = ServerCache()
    took(cache, BlocksStored([1, 2], None, TOKENS[:4], 2))
    cache.learn([(A, 4)], TOKENS)
    assert blocks_in(cache.held.news().stored) == [A]


def test_a_block_whose_parent_nobody_has_told_of_is_not_known() -> None:
    cache = learned()
    assert took(cache, BlocksStored([2], 1, TOKENS[2:4], 2)) == []
    assert took(cache, BlocksStored([3], 2, TOKENS[4:6], 2)) == []


def test_an_adapter_s_blocks_are_nobody_else_s() -> None:
    cache = learned()
    assert took(cache, BlocksStored([1, 2], None, TOKENS[:4], 2, is_plain=False)) == []
    assert took(cache, BlocksStored([3], 2, TOKENS[4:6], 2)) == []


def test_one_that_is_cleared_holds_nothing() -> None:
    cache = learned()
    assert took(cache, BlocksStored([1, 2], None, TOKENS[:4], 2)) == [A]
    assert took(cache, AllRemoved()) == []
    assert took(cache, BlocksStored([2], 1, TOKENS[2:4], 2)) == []
    assert took(cache, BlocksStored([1, 2], None, TOKENS[:4], 2)) == [A]


def test_one_with_blocks_of_another_size_is_another_server() -> None:
    cache = learned()
    took(cache, BlocksStored([1, 2], None, TOKENS[:4], 2))
    took(cache, BlocksStored([1], None, TOKENS[:4], 4))
    assert not cache.held.knows(A)
    cache.learn([(A, 4)], TOKENS)
    assert blocks_in(cache.held.news().stored) == [A]


def test_no_more_blocks_are_known_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_cache, "MOST_BLOCKS", 3)
    cache = learned()
    assert took(cache, BlocksStored([1, 2], None, TOKENS[:4], 2)) == [A]
    for number in range(5):
        took(cache, BlocksStored([10 + number], None, [number, 50], 2))
        assert len(cache._known) <= 4
    # It is followed anew from there: what was known before is not.
    assert took(cache, BlocksStored([3], 2, TOKENS[4:6], 2)) == []
    assert took(cache, BlocksStored([1, 2], None, TOKENS[:4], 2)) == [A]
