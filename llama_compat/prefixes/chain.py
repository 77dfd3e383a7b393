"""A prompt as a chain of hashes: two prompts begin alike for as far as their chains are the same.

    text    | block 0 | block 1 | block 2 | rest
    chain     h(root + 0) -> h(. + 1) -> h(. + 2)

Each hash stands for its block and all before it, as an engine's KV blocks do, so that what two
prompts have in common is looked up hash by hash, and no text is kept or compared.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import blake2b

import msgspec
from msgspec import Raw

from llama_compat.exchange import Call

Chain = Sequence[bytes]
"""A hash for each full block of a prompt, the first block's first."""

BLOCK_BYTES = 512
"""Of text in a block: some 130 tokens, which take an engine about as long to compute as it takes
to decide where they go. vLLM's blocks have 16 tokens, those of its router 128 characters."""

MOST_BLOCKS = 512
"""Of a prompt that are looked at. What two prompts of so many have in common, they mostly have in
common to their end."""

_MOST_BYTES = BLOCK_BYTES * MOST_BLOCKS
_FORMATTED_BYTES = 4 * _MOST_BYTES
"""What is longer is not brought into one form: that takes half a nanosecond for each byte."""

HASH_BYTES = 8
"""Of a block's hash."""

# Where a client wants Anthropic's cache to end: it moves on with every turn, and no model reads it.
# In a text of the conversation a quotation mark has a backslash before it.
_CACHE_CONTROL = re.compile(rb',"cache_control":\{[^{}]*\}|"cache_control":\{[^{}]*\},')


def chain_of(call: Call) -> Chain:
    """The chain of what `call` has a model read, in the order in which it is read; empty where
    nothing is generated, or where it is shorter than a block.

    Nothing is decoded: what counts is the JSON that the client sent, without the white space
    between its values. Prompts of several clients that write it in another order of members have
    nothing in common.
    """
    if not call.extent.made:
        return ()
    return chain_over(text_of(call), call)


def text_of(call: Call) -> bytes:
    """What the chain of `call` is of."""
    fields = call.fields
    return b"".join(
        [_in_one_form(fields[name]) for name in call.extent.prompt.names if name in fields]
    )


def chain_over(text: bytes, call: Call) -> Chain:
    """The chain of `call`, of which this is the text."""
    before = _root(call.fields.get("cache_salt"))
    chain = []
    for at in range(0, min(len(text), _MOST_BYTES) - BLOCK_BYTES + 1, BLOCK_BYTES):
        block = before + text[at : at + BLOCK_BYTES]
        before = blake2b(block, digest_size=HASH_BYTES).digest()
        chain.append(before)
    return chain


def _root(salt: Raw | None) -> bytes:
    """What stands before the first block: what is cached under one `cache_salt` is nothing to
    those who send another."""
    if salt is None or salt == _NO_SALT:
        return b""
    return blake2b(bytes(salt), digest_size=HASH_BYTES, person=b"cache_salt").digest()


_NO_SALT = Raw(b"null")


def _in_one_form(raw: Raw) -> bytes:
    size = memoryview(raw).nbytes
    if size > _FORMATTED_BYTES:
        return bytes(memoryview(raw)[:_MOST_BYTES])
    try:
        text = msgspec.json.format(bytes(raw), indent=-1)
    except msgspec.DecodeError:
        text = bytes(raw)  # what only Python's own JSON reads
    return _CACHE_CONTROL.sub(b"", text) if b'"cache_control"' in text else text
