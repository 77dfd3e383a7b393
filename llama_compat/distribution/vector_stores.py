"""Settings of vector stores: what is made of files, so that a text in them is found."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from llama_compat.distribution.observability import OperationsSettings

_Count = Annotated[int, Field(ge=1)]


class VectorStoresSettings(OperationsSettings):
    """Vector stores (`/v1/vector_stores`): files of `/v1/files` in pieces that are found by their
    words and by what they mean. They are in `server.storage`; needs `llama-compat[vector-stores]`.
    """

    embedding_model: Annotated[str, Field(min_length=1)]
    """The model of this template that makes vectors of texts. A store keeps the model that it was
    made with, whatever the template says later."""

    dimensions: _Count | None = None
    """Numbers that a vector is asked to have; None for as many as the model gives."""

    chunk_tokens: Annotated[int, Field(ge=100, le=4096)] = 800
    """About so many tokens a piece has, where the request does not say; as many as the embedding
    model holds at most."""

    chunk_overlap_tokens: Annotated[int, Field(ge=0, le=2048)] = 400
    """So many of them are the last ones of the piece before; half of `chunk_tokens` at most."""

    embed_together: Annotated[int, Field(ge=1, le=2048)] = 32
    """Pieces that one request to the embedding model has."""

    concurrency: Annotated[int, Field(ge=1, le=64)] = 2
    """Files that one process works on at a time."""

    attempts: Annotated[int, Field(ge=1, le=100)] = 8
    """How often a file is tried while the embedding model can't be had, each time after a longer
    wait, before it has failed. Tries in which some of it was done do not count."""

    lease_seconds: Annotated[float, Field(gt=0, le=3600)] = 15
    """A process that says nothing for so long is taken for dead, and another goes on with its file.
    By the clock of the storage: what the servers' own say does not matter."""

    read_seconds: Annotated[float, Field(gt=0, le=3600)] = 60
    """How long it may take to find the text of a file, such as a PDF."""

    memory_bytes: Annotated[int, Field(ge=0)] = 256 * 1024 * 1024
    """Vectors that each process keeps at hand once they were read for a search, where it is this
    process that compares them; the next search need not read them. With pgvector there are none."""

    max_file_bytes: _Count = 32 * 1024 * 1024
    """Of one file; a larger one fails."""

    max_file_chunks: _Count = 20_000
    """Pieces of one file; one that comes to more fails."""

    max_key_chunks: _Count = 200_000
    """Pieces in all stores of one key together; a file that would be over it fails."""

    max_key_bytes: _Count = 2 * 1024 * 1024 * 1024
    """What the texts and vectors of all stores of one key may come to; the same."""

    max_key_stores: _Count = 1000
    """Stores that one key may have; one more is refused with 413."""

    @model_validator(mode="after")
    def _overlap_is_half_at_most(self) -> Self:
        if self.chunk_overlap_tokens * 2 > self.chunk_tokens:
            raise ValueError("'chunk_overlap_tokens' can be half of 'chunk_tokens' at most")
        return self
