"""Vectors that are kept, each by its own text: what is asked again of a list is left out of it."""

from __future__ import annotations

import asyncio
import base64
import sys
from array import array
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from llama_compat.dialects.base import EmbeddingTranslation, Labels
from llama_compat.dialects.openai.operations import EMBEDDINGS
from llama_compat.errors import APIError
from llama_compat.exchange import JSON_HEADERS, Call, Reply
from llama_compat.fitting.honoured import decoded
from llama_compat.off_loop import off_loop
from llama_compat.types import EmbeddingResponse, Usage
from llama_compat.wire.json_fields import to_raw
from routing.cache.keys import digest_of
from routing.cache.noticed import NoticedMembers, has_unread
from routing.cache.replies.store import Entry, ReplyStore

_NOT_ASKED = frozenset({"model", "input", "encoding_format", "user"})
"""Members that change nothing of what a text's vector is."""

_KNOWN = frozenset({"model", "user"})

_MODELS = frozenset({"model"})
"""What is named once more with each text of a list."""


class Vector(Struct, frozen=True):
    """One text's.

    Attributes:
        numbers: as 64-bit floats.
        tokens: what the text was counted for.
    """

    numbers: array[float]
    tokens: int


class CacheableEmbedding(Struct, frozen=True):
    """A request for vectors, as the cache sees it.

    Attributes:
        call: what is asked.
        translation: the way back to the client's API.
        texts: of which vectors are wanted.
        keys: by which each is found.
    """

    call: Call
    translation: EmbeddingTranslation
    texts: Sequence[str]
    keys: Sequence[bytes]

    @classmethod
    def of(cls, call: Call, model: str, where: Sequence[str]) -> CacheableEmbedding | None:
        """What `call` asks for; None where that is not text alone, or nobody here knows all of it.

        Args:
            call: the request.
            model: what the first target calls the model.
            where: whose it is, and where it goes.
        """
        if call.operation.name == EMBEDDINGS.name:
            members = decoded(call)
            try:
                translation = cast(EmbeddingTranslation, call.operation.parse(members, model))
            except APIError:
                return None
            more = {name: value for name, value in members.items() if name not in _NOT_ASKED}
        else:
            noticed = NoticedMembers(decoded(call))
            try:
                translation = cast(EmbeddingTranslation, call.operation.parse(noticed, model))
            except APIError:
                return None
            if call.headers or has_unread(noticed, translation.request, _KNOWN, _MODELS):
                return None
            dimensions = translation.request.dimensions
            more = {} if dimensions is None else {"dimensions": dimensions}
        texts = translation.request.inputs
        of_all = digest_of("embedding", [*where, sorted(call.headers.items()), more])
        keys = [digest_of("text", [of_all.hex(), text]) for text in texts]
        return cls(call, translation, texts, keys)

    def only(self, places: Sequence[int]) -> Call:
        """The same of some of the texts, in OpenAI's words."""
        call = self.call
        texts = to_raw([self.texts[place] for place in places])
        if call.operation.name == EMBEDDINGS.name:
            return replace(call, fields={**call.fields, "input": texts})
        fields: dict[str, Raw] = {"model": to_raw(call.model), "input": texts}
        dimensions = self.translation.request.dimensions
        if dimensions is not None:
            fields["dimensions"] = to_raw(dimensions)
        return replace(call, operation=EMBEDDINGS, fields=fields)

    def rendered(self, vectors: Sequence[Vector], loading: float) -> bytes:
        """The reply that has all of them; `loading` is as in `llama_compat.exchange.Reply`."""
        response = EmbeddingResponse(
            tuple(tuple(each.numbers) for each in vectors), sum(each.tokens for each in vectors)
        )
        labels = Labels.of(replace(self.call, loading=loading))
        return self.translation.render_reply(response, labels)


class Vectors:
    """Finds vectors, and has those asked for that are not there: each text once at a time."""

    def __init__(self) -> None:
        self._asking: dict[bytes, asyncio.Future[Vector | None]] = {}

    async def answer(
        self,
        asked: CacheableEmbedding,
        store: ReplyStore,
        ask: Callable[[Call], Awaitable[Reply]],
        now: float,
        *,
        max_age: float | None = None,
        anew: bool = False,
    ) -> tuple[Reply, float | None]:
        """The reply to `asked`, and how old the oldest part of it is in seconds; None for that
        where all of it was asked for.

        Args:
            asked: which texts.
            store: where vectors are kept.
            ask: asks for those that are not there.
            now: in seconds since 1970.
            max_age: seconds; what is older is not wanted.
            anew: whether nothing that is kept is wanted.

        Raises:
            APIError: what is not there could not be had.
        """
        there: dict[int, Vector] = {}
        oldest: float | None = None
        if not anew:
            there, oldest = await self._there(asked, store, now, max_age)
        missing = [place for place in range(len(asked.texts)) if place not in there]
        if not missing:
            vectors = [there[place] for place in range(len(asked.texts))]
            return await _reply(asked, vectors, sum(each.tokens for each in vectors)), oldest
        reply, fresh = await self._ask(asked, missing, ask)
        entries = [
            Entry(
                (asked.keys[place],),
                "embedding",
                vector.numbers.tobytes(),
                Usage(prompt_tokens=vector.tokens),
                kept_at=now,
            )
            for place, vector in zip(missing, fresh, strict=False)
        ]
        await store.keep_each(entries)
        if not there and asked.call.operation.name == EMBEDDINGS.name:
            return reply, None
        if len(fresh) != len(missing):
            why = f"The model '{asked.call.model}' gave no reply with as many vectors as texts."
            raise APIError(502, why, type="upstream_error", code="upstream_error")
        there.update(zip(missing, fresh, strict=True))
        vectors = [there[place] for place in range(len(asked.texts))]
        paid = reply.usage
        tokens = 0 if paid is None else paid.prompt_tokens
        whole = await _reply(asked, vectors, tokens, reply.loading)
        whole.dropped, whole.adapted, whole.at_end = reply.dropped, reply.adapted, reply.at_end
        return whole, oldest

    async def _there(
        self, asked: CacheableEmbedding, store: ReplyStore, now: float, max_age: float | None
    ) -> tuple[dict[int, Vector], float | None]:
        """The vectors that are kept, or are on their way, by their texts' places, and how old the
        oldest is; as `answer`."""
        there: dict[int, Vector] = {}
        oldest: float | None = None
        found = await store.find_each(asked.keys, max_age)
        for place, key in enumerate(asked.keys):
            entry = found.get(key)
            if entry is not None:
                there[place] = _vector(entry)
                oldest = max(oldest or 0.0, now - entry.kept_at)
        coming = {
            place: self._asking[key]
            for place, key in enumerate(asked.keys)
            if place not in there and key in self._asking
        }
        for place, each in coming.items():
            vector = await asyncio.shield(each)
            if vector is not None:
                there[place], oldest = vector, oldest or 0.0
        return there, oldest

    async def _ask(
        self,
        asked: CacheableEmbedding,
        missing: Sequence[int],
        ask: Callable[[Call], Awaitable[Reply]],
    ) -> tuple[Reply, Sequence[Vector]]:
        loop, asking = asyncio.get_running_loop(), self._asking
        own = {
            asked.keys[place]: loop.create_future()
            for place in missing
            if asked.keys[place] not in asking
        }
        asking.update(own)
        fresh: Sequence[Vector] = ()
        try:
            call = asked.call if len(missing) == len(asked.texts) else asked.only(missing)
            if call.operation.name != EMBEDDINGS.name:
                call = asked.only(missing)
            reply = await ask(call)
            if isinstance(reply.body, bytes):
                texts = [asked.texts[place] for place in missing]
                fresh = await off_loop(len(reply.body), _read, reply.body, texts)
        finally:
            vectors = dict(zip((asked.keys[place] for place in missing), fresh, strict=False))
            for key, future in own.items():
                del asking[key]
                future.set_result(vectors.get(key))
        return reply, fresh


async def _reply(
    asked: CacheableEmbedding, vectors: Sequence[Vector], paid: int, loading: float = 0.0
) -> Reply:
    size = sum(len(each.numbers) for each in vectors) * 16
    body = await off_loop(size, asked.rendered, vectors, loading)
    usage = Usage(prompt_tokens=paid)
    return Reply(body, headers=JSON_HEADERS, read_usage=lambda: usage, loading=loading)


def _vector(entry: Entry) -> Vector:
    numbers = array("d")
    numbers.frombytes(entry.body)
    return Vector(numbers, 0 if entry.usage is None else entry.usage.prompt_tokens)


def _read(body: bytes, texts: Sequence[str]) -> Sequence[Vector]:
    """The vectors of OpenAI's reply, in the order of the texts; none where it is no such reply."""
    try:
        reply = _decode(body)
    except msgspec.MsgspecError:
        return ()
    ordered = sorted(reply.data, key=lambda each: each.index)
    if [each.index for each in ordered] != list(range(len(texts))):
        return ()
    tokens = shares(0 if reply.usage is None else reply.usage.prompt_tokens, texts)
    try:
        numbers = [_numbers(each.embedding) for each in ordered]
    except ValueError:  # no base64, or not of whole numbers
        return ()
    return [Vector(each, count) for each, count in zip(numbers, tokens, strict=True)]


def first_vector(body: bytes) -> Sequence[float]:
    """The only vector of OpenAI's reply; empty where it is no such reply."""
    vectors = _read(body, ("",))
    return vectors[0].numbers if vectors else ()


def shares(tokens: int, texts: Sequence[str]) -> list[int]:
    """What each text is counted for of the tokens of all: nobody is told, so by its length. Their
    sum is what was counted."""
    lengths = [len(text.encode(errors="replace")) for text in texts]
    total, before, counted = sum(lengths), 0, []
    at = 0
    for length in lengths:
        at += length
        upto = tokens * at // total if total else 0
        counted.append(upto - before)
        before = upto
    return counted


def _numbers(embedding: str | list[float]) -> array[float]:
    if isinstance(embedding, list):
        return array("d", embedding)
    numbers = array("f")
    numbers.frombytes(base64.b64decode(embedding))
    if sys.byteorder == "big":
        numbers.byteswap()
    return array("d", numbers)


class _Embedding(Struct):
    embedding: str | list[float]
    index: int = 0


class _Usage(Struct):
    prompt_tokens: int = 0


class _Reply(Struct):
    data: list[_Embedding]
    usage: _Usage | None = None


_decode = msgspec.json.Decoder(_Reply).decode
