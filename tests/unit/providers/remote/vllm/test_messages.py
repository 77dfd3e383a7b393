"""vLLM's batches of events, in both forms in which it writes them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from providers.remote.vllm.messages import (
    AllRemoved,
    BlocksRemoved,
    BlocksStored,
    MalformedBatch,
    batch_of,
    blocks_of,
)


def encoded(events: list[dict[str, Any]], *, as_arrays: bool) -> bytes:
    if as_arrays:
        return msgspec.msgpack.encode([1.5, [list(each.values()) for each in events], 0])
    return msgspec.msgpack.encode({"ts": 1.5, "events": events})


def stored(**members: Any) -> dict[str, Any]:
    return {
        "type": "BlockStored",
        "block_hashes": [b"a" * 32, b"b" * 32],
        "parent_block_hash": None,
        "token_ids": [1, 2, 3, 4],
        "block_size": 2,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "extra_keys": None,
        "group_idx": None,
        **members,
    }


def removed(**members: Any) -> dict[str, Any]:
    return {"type": "BlockRemoved", "block_hashes": [7, 8], "medium": "GPU", **members}


both_forms = pytest.mark.parametrize("as_arrays", [True, False])


@both_forms
def test_what_it_tells(as_arrays: bool) -> None:
    cleared = {"type": "AllBlocksCleared"}
    batch = batch_of(encoded([stored(), removed(), cleared], as_arrays=as_arrays))
    assert batch.time == 1.5
    assert batch.events == [
        BlocksStored([b"a" * 32, b"b" * 32], None, [1, 2, 3, 4], 2),
        BlocksRemoved([7, 8]),
        AllRemoved(),
    ]


@both_forms
@pytest.mark.parametrize(
    ("members", "is_plain"),
    [
        ({"extra_keys": [None, None]}, True),
        ({"lora_id": 3}, False),
        ({"lora_name": "mine"}, False),
        ({"extra_keys": [["salt"], None]}, False),
    ],
)
def test_what_more_than_tokens_tells_apart_is_marked(
    as_arrays: bool, members: dict[str, Any], is_plain: bool
) -> None:
    (event,) = batch_of(encoded([stored(**members)], as_arrays=as_arrays)).events
    assert isinstance(event, BlocksStored)
    assert event.is_plain is is_plain


@both_forms
@pytest.mark.parametrize("members", [{"medium": "CPU"}, {"group_idx": 1}])
def test_what_lies_elsewhere_is_left_out(as_arrays: bool, members: dict[str, Any]) -> None:
    events = [stored(**members), {**removed(), "group_idx": None, **members}]
    assert batch_of(encoded(events, as_arrays=as_arrays)).events == []


def test_an_event_of_a_kind_that_is_new_is_passed_over() -> None:
    told = [{"type": "BlockMoved", "block_hashes": [1]}, removed()]
    assert batch_of(encoded(told, as_arrays=False)).events == [BlocksRemoved([7, 8])]


def test_older_ones_have_fewer_members() -> None:
    told = [1.5, [["BlockStored", [5], 4, [1, 2], 2, None], ["BlockRemoved", [5]]]]
    assert batch_of(msgspec.msgpack.encode(told)).events == [
        BlocksStored([5], 4, [1, 2], 2),
        BlocksRemoved([5]),
    ]


@pytest.mark.parametrize(
    "told",
    [
        None,
        [],
        [1.5],
        ["soon", []],
        {"events": []},
        [1.5, [[]]],
        [1.5, [["BlockStored", 3]]],
        [1.5, [["BlockStored", [5], None, ["a"], 2, None]]],
        [1.5, [["BlockRemoved", "abc"]]],
    ],
)
def test_what_is_no_batch_is_said_to_be_none(told: Any) -> None:
    with pytest.raises(MalformedBatch):
        batch_of(msgspec.msgpack.encode(told))
    with pytest.raises(MalformedBatch):
        batch_of(b"\xc1")


def test_a_block_is_known_by_all_tokens_up_to_its_end() -> None:
    one, other = blocks_of([1, 2, 3, 4, 5, 6, 7], 2), blocks_of([9, 2, 3, 4, 5, 6], 2)
    assert len(one) == len(other) == 3
    assert not set(one) & set(other)
    assert blocks_of([1, 2, 3, 4, 0, 0], 2)[:2] == one[:2]
