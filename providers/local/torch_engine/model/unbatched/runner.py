"""Models that run on transformers' own code, one sequence after the other.

What such a model keeps of the tokens that it has seen goes by several names, and not all of them
can go on from it with more than one token, or at all. So a model is tried when it is loaded: what
it computes of some tokens in pieces has to be what it computes of them at once.
"""

from __future__ import annotations

import inspect
import logging
import random
from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import torch
from transformers import GenerationConfig

from providers.local.torch_engine.model.rope import rope_lengths
from providers.local.torch_engine.model.unbatched.growing_cache import new_cache
from providers.local.torch_engine.scheduling import sequence
from providers.local.torch_engine.scheduling.step import Chunk

log = logging.getLogger(__name__)

KEPT = ("past_key_values", "cache_params", "state")
"""What a forward pass calls that which it keeps of a sequence and takes again."""

TRIED_TOKENS = 40

TOLERANCE = {torch.float32: 1e-3, torch.float16: 3e-2, torch.bfloat16: 1e-1}
"""How far logits may be from each other, as a part of their length."""


class Way(Enum):
    """How a model may compute a sequence; the value says so, with the places of cuts for a try."""

    pieces = "in pieces", (0, 15, 33, 34, 35, TRIED_TOKENS)
    tokens = "its prompt at once, then a token at a time", (0, 36, 37, 38, 39, TRIED_TOKENS)
    whole = "all of its tokens anew for each", (0, TRIED_TOKENS)

    def __init__(self, words: str, cuts: tuple[int, ...]) -> None:
        self.words = words
        self.cuts = cuts


class Kept:
    """What a model keeps of a sequence, and of how many tokens."""

    def __init__(self) -> None:
        self.tokens = 0
        self.state: Any = None


class UnbatchedModel:
    """transformers' own module, of which a forward pass is a sequence's next tokens.

    Args:
        module: a causal language model, on its device and in evaluation mode.
    """

    def __init__(self, module: Any) -> None:
        self._module = module
        self._config = module.config.get_text_config()
        taken = inspect.signature(module.forward).parameters
        self._kept_as = next((name for name in KEPT if name in taken), None)
        self._takes = frozenset(taken)
        self.lengths = rope_lengths(self._config)

    @property
    def module(self) -> torch.nn.Module:
        """transformers' own."""
        module: torch.nn.Module = self._module
        return module

    @property
    def keeps(self) -> bool:
        """Whether it keeps anything of a sequence."""
        return self._kept_as is not None

    def logits(self, token_ids: Sequence[int], kept: Kept | None, wanted: int) -> torch.Tensor:
        """Logits after the last tokens: float32, `[wanted or more, vocab_size]`.

        Args:
            token_ids: those of a sequence, from its first on.
            kept: what there is of it, which goes on to the end of `token_ids`; None to compute all
                of them and keep nothing.
            wanted: after how many of them.
        """
        start = 0 if kept is None else kept.tokens
        given: dict[str, Any] = {
            "position_ids": torch.arange(start, len(token_ids), device=self._module.device)[None],
            "use_cache": kept is not None,
            "logits_to_keep": max(1, wanted),
        }
        given = {name: value for name, value in given.items() if name in self._takes}
        if kept is not None and self._kept_as is not None:
            if start == 0:
                # Others make their own.
                is_cache = self._kept_as == "past_key_values"
                kept.state = new_cache(self._config) if is_cache else None
            given[self._kept_as] = kept.state
        new = torch.tensor([list(token_ids[start:])], device=self._module.device)
        output = self._module(input_ids=new, **given)
        if kept is not None and self._kept_as is not None:
            kept.tokens = len(token_ids)
            # Some change what they are given, and do not return it.
            kept.state = output.get(self._kept_as, kept.state)
        logits: torch.Tensor = output.logits[0].float()
        return logits

    def generated(self, token_ids: Sequence[int]) -> torch.Tensor:
        """The logits of the next token, `[1, vocab_size]`, as transformers' `generate` has them."""
        given = torch.tensor([list(token_ids)], device=self._module.device)
        settings = GenerationConfig(
            max_new_tokens=1, do_sample=False, output_logits=True, return_dict_in_generate=True
        )
        output = self._module.generate(
            given, attention_mask=torch.ones_like(given), generation_config=settings
        )
        logits: torch.Tensor = output.logits[0].float()
        return logits


class UnbatchedRunner:
    """Computes the chunks of one sequence after the other; see `model_runner.Runner`.

    Args:
        model: what it runs.
        way: how that may compute a sequence.
        vocab_size: of its logits.
    """

    def __init__(self, model: UnbatchedModel, way: Way, vocab_size: int) -> None:
        self._model = model
        self._way = way
        self._nothing = torch.empty(0, vocab_size)
        self._kept: WeakKeyDictionary[sequence.TorchSequence, Kept] = WeakKeyDictionary()

    @property
    def module(self) -> torch.nn.Module:
        """transformers' own, which has the weights."""
        return self._model.module

    def forward(self, chunks: Sequence[Chunk], chosen: torch.Tensor | None = None) -> torch.Tensor:
        """See `Runner`; sequences of which one runs at a time never await a token."""
        with torch.inference_mode():
            return torch.cat([self._forward(chunk) for chunk in chunks])

    def _forward(self, chunk: Chunk) -> torch.Tensor:
        each, start, wanted = chunk.sequence, chunk.sequence.computed, chunk.logits
        end = start + chunk.tokens
        if start == 0:
            self._kept[each] = Kept()
        if not self._may_end(end, len(each.token_ids)):
            # It comes with what follows; only for its scores all is computed once more.
            if not wanted:
                return self._nothing
            rest = len(each.token_ids) - start
            return self._model.logits(each.token_ids, None, rest)[-rest:][: chunk.tokens]
        kept = None
        if self._way is not Way.whole:
            kept = self._kept[each]
            if kept.tokens and not self._goes_on(kept.tokens, end):
                kept = self._kept[each] = Kept()
        logits = self._model.logits(each.token_ids[:end], kept, wanted)
        return logits[len(logits) - wanted :]

    def _may_end(self, end: int, known: int) -> bool:
        """Whether a piece may end there, of a sequence of which so many tokens are known."""
        if self._way is not Way.pieces:
            return end == known
        return not any(end <= length < known for length in self._model.lengths)

    def _goes_on(self, kept: int, end: int) -> bool:
        """Whether what is kept of the first tokens holds for the sequence up to `end`."""
        if self._way is Way.tokens and end - kept > 1:
            return False
        return not any(kept <= length < end for length in self._model.lengths)


# The try ------------------------------------------------------------------------------------------


def find_way(model: UnbatchedModel, vocab_size: int, dtype: torch.dtype) -> tuple[Way, int]:
    """How a model may compute a sequence, the first way whose logits are those of all at once.

    Args:
        model: what is tried.
        vocab_size: of its embeddings.
        dtype: that it computes in.

    Returns:
        That, and how many logits there are after a token.

    Raises:
        ValueError: no way can be relied on; the message says why, a part of a sentence.
    """
    chosen = random.Random(0)
    # Of the middle, where there is text: tokens that stand for media are at either end.
    token_ids = [chosen.randrange(vocab_size // 4, vocab_size // 2) for _ in range(TRIED_TOKENS)]
    with torch.inference_mode():
        expected = model.logits(token_ids, None, TRIED_TOKENS)
        if not expected.isfinite().all():
            raise ValueError("its logits are no numbers")
        if not _distance(expected[-1:], model.generated(token_ids)) <= TOLERANCE[dtype]:
            raise ValueError("what it says next is not what comes of its tokens alone")
        for way in Way if model.keeps else (Way.whole,):
            try:
                found = _computed(model, token_ids, way)
            except Exception as error:
                # Whatever its code has against going on in this way.
                log.debug("not %s: %s", way.words, error, exc_info=error)
                continue
            if _distance(found, expected) <= TOLERANCE[dtype]:
                return way, expected.shape[1]
    raise ValueError("it computes something else each time of the same tokens")


def _computed(model: UnbatchedModel, token_ids: Sequence[int], way: Way) -> torch.Tensor:
    kept = None if way is Way.whole else Kept()
    pieces: Iterator[torch.Tensor] = (
        model.logits(token_ids[:end], kept, end - start)[-(end - start) :]
        for start, end in pairwise(way.cuts)
    )
    return torch.cat(list(pieces))


def _distance(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Of the row that is farthest off, as a part of what was expected."""
    if found.shape != expected.shape:
        return float("inf")
    off = (found - expected).norm(dim=-1) / expected.norm(dim=-1).mean()
    return float(off.nan_to_num(float("inf")).max())
