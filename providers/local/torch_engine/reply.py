"""Sampled tokens made into the events of a stream."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence

from llama_compat.text.stop_strings import StopStrings
from llama_compat.types import StreamProgress, TextDelta, TokenLogProb, TokenLogProbs
from providers.local.detokenizer import Detokenizer, Vocabulary
from providers.local.torch_engine.sampler import TokenScores


class Reply:
    """The text of one sequence as it is shown, and the log probabilities that go with it.

    A token's log probabilities come with the first of its text that is shown. Tokens of which
    nothing is shown, because a stop string cut them off, have none; so the tokens and the text
    agree.

    Args:
        vocabulary: of the model.
        prompt_ids: what the reply follows.
        stops: strings that end it.
        with_logprobs: whether the events carry log probabilities.
        shown_tokens: special tokens that are part of the text.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        prompt_ids: Sequence[int],
        stops: Sequence[str],
        *,
        with_logprobs: bool,
        shown_tokens: Collection[int] = frozenset(),
    ) -> None:
        self._vocabulary = vocabulary
        self._detokenizer: Detokenizer = vocabulary.detokenizer(prompt_ids, shown_tokens)
        self._stops = StopStrings(stops)
        self._with_logprobs = with_logprobs
        self._tokens = 0
        self._length = 0  # of the text so far, in characters, shown or held back
        self._shown = 0
        self._unshown: deque[tuple[int, TokenLogProbs]] = deque()
        self._any_logprobs = False

    @property
    def stopped(self) -> bool:
        """Whether a stop string has ended the reply."""
        return self._stops.stopped

    def push(self, token_id: int, scores: TokenScores | None) -> StreamProgress | None:
        """What the next token adds to what is shown, if anything; `scores` if they are wanted."""
        self._tokens += 1
        if scores is not None:
            entry = describe_token(self._vocabulary, token_id, scores)
            self._unshown.append((self._length, entry))
        return self._progress(self._shown_of(self._detokenizer.push(token_id)))

    def end(self) -> StreamProgress | None:
        """What is still to be shown when there are no more tokens, if anything."""
        text = self._shown_of(self._detokenizer.flush()) + self._stops.flush()
        return self._progress(text, last=True)

    def _shown_of(self, text: str) -> str:
        self._length += len(text)
        shown, _ = self._stops.push(text)
        return shown

    def _progress(self, text: str, *, last: bool = False) -> StreamProgress | None:
        self._shown += len(text)
        if not self._with_logprobs:
            return StreamProgress(TextDelta(text), None, self._tokens) if text else None
        everything = last and not self.stopped
        logprobs = []
        while self._unshown and (everything or self._unshown[0][0] < self._shown):
            logprobs.append(self._unshown.popleft()[1])
        # A reply without any token still has the (empty) list that was asked for.
        if not text and not logprobs and not (last and not self._any_logprobs):
            return None
        self._any_logprobs = True
        return StreamProgress(TextDelta(text), tuple(logprobs), self._tokens)


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
