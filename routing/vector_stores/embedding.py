"""Vectors of texts, by a model of the template: each request for some is one as any other, on the
chain of its model, at the cost of the key whose texts they are."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from llama_compat.dialects.openai.operations import EMBEDDINGS
from llama_compat.errors import APIError
from llama_compat.exchange import Principal
from llama_compat.off_loop import off_loop
from llama_compat.wire.json_fields import encode_json, parse_fields
from routing.ingress.own_requests import lasting, read_through
from routing.request import Request

if TYPE_CHECKING:
    from routing.runtime import Runtime

PATH = "/v1/embeddings"


class _Row(Struct):
    embedding: list[float]
    index: int | None = None


class _Answer(Struct):
    data: list[_Row]


class TextEmbedder:
    """Has vectors made by what a runtime serves.

    Args:
        runtime: that. It is kept running while a request is on its way.
        dimensions: numbers that a vector is to have; None for as many as the model gives.
    """

    def __init__(self, runtime: Runtime, dimensions: int | None) -> None:
        self._runtime = runtime
        self._dimensions = dimensions

    async def principal(self, owner: str) -> Principal | None:
        """Whose key has this id; None where it opens nothing any more."""
        return await self._runtime.look_for_owner(owner)

    @property
    def knows_keys(self) -> bool:
        """Whether a key that is not found is not there."""
        return self._runtime.knows_keys

    async def embed(
        self, model: str, texts: Sequence[str], principal: Principal, *, can_wait: bool = False
    ) -> list[list[float]]:
        """The vectors of texts, in their order.

        Args:
            model: of the template; the key need not be one that opens it.
            texts: they.
            principal: whose texts they are.
            can_wait: whether nobody waits for them, so that they give way to others.

        Raises:
            APIError: there are none.
        """
        body: dict[str, Any] = {"model": model, "input": list(texts), "encoding_format": "float"}
        if self._dimensions is not None:
            body["dimensions"] = self._dimensions
        runtime = self._runtime
        # Which model it is was the template's choice.
        asking = dataclasses.replace(principal, models=())
        request = Request(EMBEDDINGS, f"req_{os.urandom(12).hex()}", asking, path=PATH)
        runtime.hold()
        try:
            with lasting(request, runtime.begin):
                fields = parse_fields(encode_json(body))
                request.asks(fields, EMBEDDINGS.look(fields, {}), counts_usage=True)
                assert request.call is not None
                request.call = replace(request.call, can_wait=can_wait)
                runtime.route(request)
                content = await read_through(request, await runtime.answer(request))
                vectors = await off_loop(len(content), _vectors, content, len(texts), model)
                await request.settle()
                return vectors
        finally:
            runtime.release()


def _vectors(body: bytes, wanted: int, model: str) -> list[list[float]]:
    try:
        rows = msgspec.json.decode(body, type=_Answer).data
    except msgspec.MsgspecError as error:
        raise _no_vectors(model, str(error)) from None
    if all(row.index is not None for row in rows):
        rows.sort(key=lambda row: row.index or 0)
    sizes = {len(row.embedding) for row in rows}
    if len(rows) != wanted or len(sizes) != 1 or 0 in sizes:
        raise _no_vectors(model, f"{len(rows)} vectors came for {wanted} texts")
    return [row.embedding for row in rows]


def _no_vectors(model: str, why: str) -> APIError:
    why = f"Model '{model}' gave no vectors of texts: {why}."
    return APIError(502, why, type="upstream_error", code="upstream_error")
