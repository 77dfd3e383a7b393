"""The events that vLLM publishes (`vllm/distributed/kv_events.py`, read 2026-11-23).

A message has three frames: the topic, a number (8 bytes, big-endian, from 0 on), and a batch in
msgpack. Its structs came as arrays at first, `[ts, events, ...]` with `["BlockStored", ...]` in
them, and come as maps in newer versions, `{"ts": ..., "events": [{"type": "BlockStored", ...}]}`;
both are read. Members are only ever added at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct

from llama_compat.prefixes.held import BlockOfTokens

EngineHash = int | bytes
"""What the server calls a block: a number in older versions, bytes in newer ones."""

GPU = "GPU"
"""The medium of blocks that attention reads; others lie where they have to be fetched from."""


class BlocksStored(Struct):
    """Blocks that follow each other are in the cache.

    Attributes:
        blocks: what the server calls them.
        parent: the one before them; None for a prompt's first.
        tokens: of all of them.
        size: how many of these are in each.
        is_plain: whether nothing but the tokens tells them from others: no adapter, no image, no
            salt.
    """

    blocks: Sequence[EngineHash]
    parent: EngineHash | None
    tokens: Sequence[int]
    size: int
    is_plain: bool = True


class BlocksRemoved(Struct):
    """Blocks are not in the cache any more."""

    blocks: Sequence[EngineHash]


class AllRemoved(Struct):
    """The cache is empty."""


Event = BlocksStored | BlocksRemoved | AllRemoved


class EventBatch(Struct):
    """What a step of the engine has changed.

    Attributes:
        time: seconds since 1970, at the server.
        events: in their order; those of a kind that is not known are left out.
    """

    time: float
    events: Sequence[Event]


class MalformedBatch(Exception):
    """It is no batch of events, or of a version that says it in another way."""


_STORED = (
    *("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium"),
    *("lora_name", "extra_keys", "group_idx"),
)
_REMOVED = ("block_hashes", "medium", "group_idx")

_decode = msgspec.msgpack.Decoder().decode


def batch_of(payload: bytes) -> EventBatch:
    """A batch.

    Raises:
        MalformedBatch: it is none.
    """
    try:
        told = _decode(payload)
        time, events = (told["ts"], told["events"]) if isinstance(told, dict) else told[:2]
        return EventBatch(
            float(time), [event for each in events if (event := _event(each)) is not None]
        )
    except (msgspec.MsgspecError, LookupError, TypeError, ValueError) as error:
        raise MalformedBatch(f"{type(error).__name__}: {error}") from None


def _event(told: Any) -> Event | None:
    if isinstance(told, dict):
        kind, members = told["type"], told
    else:
        kind = told[0]
        names = {"BlockStored": _STORED, "BlockRemoved": _REMOVED}.get(kind, ())
        members = dict(zip(names, told[1:], strict=False))
    if kind == "AllBlocksCleared":
        return AllRemoved()
    # Of models with several kinds of attention the first group's count, as each has all tokens.
    if (members.get("medium") or GPU).upper() != GPU or members.get("group_idx"):
        return None
    if kind == "BlockRemoved":
        return msgspec.convert({"blocks": members["block_hashes"]}, BlocksRemoved)
    if kind != "BlockStored":
        return None
    return msgspec.convert(
        {
            "blocks": members["block_hashes"],
            "parent": members["parent_block_hash"],
            "tokens": members["token_ids"],
            "size": members["block_size"],
            "is_plain": _is_plain(members),
        },
        BlocksStored,
    )


def _is_plain(members: Mapping[str, Any]) -> bool:
    if members.get("lora_id") is not None or members.get("lora_name") is not None:
        return False
    return not any(members.get("extra_keys") or ())


def block_after(before: BlockOfTokens, tokens: Sequence[int]) -> BlockOfTokens:
    """What a block of these tokens is known by here, whatever a server calls it: servers that do
    not share a seed have other hashes for the same."""
    return _hash(before + b"".join([each.to_bytes(8, "big", signed=True) for each in tokens]))


def blocks_of(tokens: Sequence[int], size: int) -> Sequence[BlockOfTokens]:
    """The same of all full blocks of a prompt."""
    before, blocks = b"", []
    for at in range(0, len(tokens) - size + 1, size):
        before = block_after(before, tokens[at : at + size])
        blocks.append(before)
    return blocks


def _hash(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()
