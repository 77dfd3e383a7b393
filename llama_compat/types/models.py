"""What is told of a model."""

from __future__ import annotations

from msgspec import Struct


class ModelInfo(Struct, frozen=True):
    """What a list of models shows of one.

    Attributes:
        id: what clients ask for.
        created: in seconds since 1970.
        owned_by: the provider's id.
        context_length: in tokens, if it is known.
        max_output_tokens: of a reply, if it is known.
        input, output: what it reads and gives (`text`, `image`, `audio`, `video`, `document`; one
            that makes no replies gives `embeddings` or `rerank`, as OpenRouter calls it); None
            where nobody knows.
        shutdown: when its vendor ends it, if that is announced: a date such as 2027-01-14.
        parent: the model that it is with an adapter, if it is that.
        root: that adapter.
    """

    id: str
    created: int
    owned_by: str
    context_length: int | None = None
    max_output_tokens: int | None = None
    input: tuple[str, ...] | None = None
    output: tuple[str, ...] | None = None
    shutdown: str | None = None
    parent: str | None = None
    root: str | None = None

    @property
    def generates(self) -> bool:
        """Whether it makes replies; so it is taken where nobody knows."""
        return self.output is None or not {"embeddings", "rerank"}.issuperset(self.output)
