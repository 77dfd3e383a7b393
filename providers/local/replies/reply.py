"""Sampled tokens made into the events of a stream."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from llama_compat.text.stop_strings import StopStrings
from llama_compat.types import (
    SamplingParams,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    StreamStart,
    TextDelta,
    TokenLogProb,
    TokenLogProbs,
    Usage,
)
from providers.local.engine import Ended, Engine, Generation, Prefilled, TokenScores, Vocabulary

if TYPE_CHECKING:
    from providers.local.replies.detokenizer import Detokenizer


async def text_events(
    engine: Engine,
    generation: Generation,
    *,
    echo: str | None = None,
    shown_tokens: Collection[int] = frozenset(),
    with_token_ids: bool = False,
) -> AsyncGenerator[StreamEvent, None]:
    """The events of a reply that is nothing but text.

    Args:
        engine: generates; its generation is cancelled when a stop string ends the text.
        generation: what is asked of it.
        echo: the prompt's text, if the reply begins with it.
        shown_tokens: special tokens that are part of the text.
        with_token_ids: whether the events say which tokens prompt and reply are made of.

    Raises (from the generator):
        APIError: as in `Engine.generate`.
    """
    vocabulary, prompt_ids = engine.model.vocabulary, generation.prompt_ids
    reply = ReplyText(
        vocabulary,
        prompt_ids,
        generation.sampling,
        with_logprobs=generation.logprobs is not None,
        with_token_ids=with_token_ids,
        shown_tokens=shown_tokens,
    )
    cached_tokens = 0

    def complete(reason: StopReason) -> StreamComplete:
        usage = Usage(len(prompt_ids), reply.tokens, cached_tokens=cached_tokens)
        return StreamComplete(reason, usage, reply.stop_string)

    async with aclosing(engine.generate(generation)) as batches:
        async for outputs in batches:
            for output in outputs:
                if isinstance(output, Prefilled):
                    cached_tokens = output.cached_tokens
                    yield StreamStart(len(prompt_ids), prompt_ids if with_token_ids else None)
                    if echo is not None:
                        yield _echoed(echo, vocabulary, generation, output)
                elif isinstance(output, Ended):
                    rest = reply.end(output.token_id)
                    if rest is not None:
                        yield rest
                    yield complete(output.stop_reason)
                else:
                    progress = reply.push(output.token_id, output.scores)
                    if progress is not None:
                        yield progress
                    if reply.stopped:
                        rest = reply.end()
                        if rest is not None:
                            yield rest
                        yield complete(StopReason.end_of_turn)
                        return


def _echoed(
    text: str, vocabulary: Vocabulary, generation: Generation, prefilled: Prefilled
) -> StreamProgress:
    if not generation.prompt_logprobs:
        return StreamProgress(TextDelta(text))
    scores = [None, *prefilled.scores]
    return StreamProgress(
        TextDelta(text),
        tuple(
            describe_token(vocabulary, token_id, score)
            for token_id, score in zip(generation.prompt_ids, scores, strict=True)
        ),
    )


class ReplyText:
    """The text of one sequence as it is shown, and the log probabilities that go with it.

    A token's log probabilities come with the first of its text that is shown. Tokens of which
    nothing is shown, because a stop string cut them off, have none; so the tokens and the text
    agree.

    Args:
        vocabulary: of the model.
        prompt_ids: what the reply follows.
        sampling: with the strings that end it, and when.
        with_logprobs: whether the events carry log probabilities.
        with_token_ids: whether they carry the ids of all tokens, also of those that show nothing.
        shown_tokens: special tokens that are part of the text.

    Attributes:
        tokens: how many were generated.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        prompt_ids: Sequence[int],
        sampling: SamplingParams,
        *,
        with_logprobs: bool,
        with_token_ids: bool = False,
        shown_tokens: Collection[int] = frozenset(),
    ) -> None:
        self.tokens = 0
        self._vocabulary = vocabulary
        self._detokenizer: Detokenizer = vocabulary.detokenizer(prompt_ids, shown_tokens)
        self._stops = StopStrings(sampling.stop)
        self._min_tokens = sampling.min_tokens
        self._shows_stop = sampling.include_stop_str_in_output
        self._with_logprobs = with_logprobs
        self._length = 0  # of the text so far, in characters, shown or held back
        self._shown = 0
        self._unshown: deque[tuple[int, TokenLogProbs]] = deque()
        self._any_logprobs = False
        self._token_ids: list[int] | None = [] if with_token_ids else None

    @property
    def stopped(self) -> bool:
        """Whether a stop string has ended the reply."""
        return self._stops.stopped

    @property
    def stop_string(self) -> str | None:
        """Which one."""
        return self._stops.matched

    def push(self, token_id: int, scores: TokenScores | None) -> StreamProgress | None:
        """What the next token adds to what is shown, if anything; `scores` if they are wanted."""
        self._count(token_id)
        if scores is not None:
            entry = describe_token(self._vocabulary, token_id, scores)
            self._unshown.append((self._length, entry))
        return self._progress(self._shown_of(self._detokenizer.push(token_id)))

    def end(self, token_id: int | None = None) -> StreamProgress | None:
        """What is still to be shown when there are no more tokens, if anything.

        Args:
            token_id: the token that ended the reply, if one did.
        """
        if token_id is not None:
            self._count(token_id)
        text = self._shown_of(self._detokenizer.flush()) + self._stops.flush()
        return self._progress(text, last=True)

    def _count(self, token_id: int) -> None:
        self.tokens += 1
        if self._token_ids is not None:
            self._token_ids.append(token_id)

    def _shown_of(self, text: str) -> str:
        self._length += len(text)
        if self.tokens < self._min_tokens:
            return text
        stopped = self._stops.stopped
        shown, _ = self._stops.push(text)
        if self._shows_stop and self._stops.matched is not None and not stopped:
            shown += self._stops.matched
        return shown

    def _progress(self, text: str, *, last: bool = False) -> StreamProgress | None:
        self._shown += len(text)
        token_ids = None
        if self._token_ids and (text or last):
            token_ids, self._token_ids = tuple(self._token_ids), []
        if not self._with_logprobs:
            if not text and token_ids is None:
                return None
            return StreamProgress(TextDelta(text), None, self.tokens, token_ids=token_ids)
        everything = last and not self.stopped
        logprobs = []
        while self._unshown and (everything or self._unshown[0][0] < self._shown):
            logprobs.append(self._unshown.popleft()[1])
        # A reply without any token still has the (empty) list that was asked for.
        needed = last and (not self._any_logprobs or token_ids is not None)
        if not text and not logprobs and not needed:
            return None
        self._any_logprobs = True
        return StreamProgress(TextDelta(text), tuple(logprobs), self.tokens, token_ids=token_ids)


def describe_token(
    vocabulary: Vocabulary, token_id: int, scores: TokenScores | None
) -> TokenLogProbs:
    """A token and its alternatives as a reply shows them; `scores` None for a prompt's first."""
    if scores is None:
        return TokenLogProbs(_describe(vocabulary, token_id, None))
    return TokenLogProbs(
        _describe(vocabulary, token_id, scores.logprob),
        tuple(_describe(vocabulary, other, logprob) for other, logprob in scores.top),
    )


def _describe(vocabulary: Vocabulary, token_id: int, logprob: float | None) -> TokenLogProb:
    token_bytes = vocabulary.token_bytes(token_id)
    try:
        token = token_bytes.decode()
    except UnicodeDecodeError:
        # Part of a character: OpenAI's way of writing it, which keeps different parts different.
        token = "bytes:" + "".join(f"\\x{byte:02x}" for byte in token_bytes)
    return TokenLogProb(token, token_bytes, logprob)
