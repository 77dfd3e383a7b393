"""What a reply says: tokens with their probabilities, what was used, and each kind of response."""

from __future__ import annotations

from msgspec import Struct

from llama_compat.types.messages import CompletionMessage, StopReason


class TokenLogProb(Struct, frozen=True):
    """One token: its text, its UTF-8 bytes (which may be part of a character), its log probability.

    The first token of an echoed prompt has no probability: `logprob` is None.
    """

    token: str
    token_bytes: bytes
    logprob: float | None


class TokenLogProbs(Struct, frozen=True):
    """The token that was chosen and the likeliest at its place, best first."""

    chosen: TokenLogProb
    top: tuple[TokenLogProb, ...] = ()


class Units(Struct, frozen=True):
    """What is paid for besides tokens, and tokens that have a price of their own; None for what
    nobody says.

    Attributes:
        searches: of rerank, of which one is a query with up to a hundred documents; or of the web,
            by the vendor itself.
        images: that were made.
        characters: that were spoken.
        seconds: of sound that was listened to.
        audio_tokens, image_tokens: the part of the prompt that was sound, and images.
        drawn_tokens: the part of the completion that was images.
    """

    searches: float | None = None
    images: float | None = None
    characters: float | None = None
    seconds: float | None = None
    audio_tokens: int | None = None
    image_tokens: int | None = None
    drawn_tokens: int | None = None


class Usage(Struct, frozen=True):
    """Tokens, as the provider's own tokenizer counts them, and what else is paid for.

    `cached_tokens` (read from a cache) and `cache_write_tokens` (written to one) are part of
    `prompt_tokens`, `reasoning_tokens` of `completion_tokens`; None where the provider does not
    say. `estimated` where nobody has counted all of it, as the reply was cut before its end.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_write_tokens: int | None = None
    units: Units | None = None
    estimated: bool = False


class CompletionResponse(Struct, frozen=True):
    """The continuation of one prompt; the ids of the tokens of both, where they were asked for."""

    content: str
    stop_reason: StopReason
    logprobs: tuple[TokenLogProbs, ...] | None = None
    usage: Usage = Usage()
    stop_string: str | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    token_ids: tuple[int, ...] | None = None


class ChatCompletionResponse(Struct, frozen=True):
    """The next message of a conversation; token ids as in `CompletionResponse`, `dropped` as in
    `StreamStart`, `service_tier` as in `StreamComplete`."""

    completion_message: CompletionMessage
    logprobs: tuple[TokenLogProbs, ...] | None = None
    usage: Usage = Usage()
    prompt_token_ids: tuple[int, ...] | None = None
    token_ids: tuple[int, ...] | None = None
    dropped: tuple[str, ...] = ()
    service_tier: str | None = None


class EmbeddingResponse(Struct, frozen=True):
    """One vector a text, in the order of the texts; `prompt_tokens` are those of all texts."""

    vectors: tuple[tuple[float, ...], ...]
    prompt_tokens: int = 0


class RankedDocument(Struct, frozen=True):
    """How much a document has to do with the query, from 0 to 1 for most models, by its place in
    the request."""

    index: int
    relevance_score: float


class RerankResponse(Struct, frozen=True):
    """The documents that were asked for, the best one first."""

    results: tuple[RankedDocument, ...]
    usage: Usage = Usage()
