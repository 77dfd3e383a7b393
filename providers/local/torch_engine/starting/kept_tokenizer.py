"""A fast tokenizer kept in parts, and put together part by part.

The library `tokenizers` takes one apart that is JSON in a single call, which keeps all of Python
waiting meanwhile: a tenth of a second for a vocabulary of 50,000 tokens, and longer for a larger
one. Of its parts the same is made in several calls, the longest of which takes a third of that, and
between which an engine has its turn.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from tokenizers import AddedToken, Tokenizer, models

from providers.local.threads.giving_way import piece

_EMPTY = {"type": "WordLevel", "vocab": {}, "unk_token": ""}
"""A model in the place of its own."""

_Vocabulary = dict[str, int] | list[tuple[str, float]]


class KeptTokenizer(msgspec.Struct, frozen=True):
    """The parts of a tokenizer.

    Attributes:
        frame: JSON of all but its model and its added tokens; of everything where it can't be put
            together from parts.
        kind: of its model, a class of `tokenizers.models`; None where the frame is everything.
        options: of its model.
        vocabulary: its tokens with their numbers; of a Unigram model with their scores, in order.
        merges: the pairs of tokens that become one, in order, where the model has such.
        added: the tokens that stand beside those of its model, in order.
    """

    frame: str
    kind: str | None = None
    options: Mapping[str, Any] = {}
    vocabulary: msgspec.Raw = msgspec.Raw(b"{}")
    merges: msgspec.Raw = msgspec.Raw(b"null")
    added: Sequence[Mapping[str, Any]] = ()

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> KeptTokenizer:
        """Its parts, of which the very same is made.

        Raises:
            Exception: it has parts in Python, which can't be kept.
        """
        with piece():
            text = tokenizer.to_str()
        with piece():
            whole = json.loads(text)
        with piece():
            parts = _parts_of(whole)
        try:
            made = parts.made()
            with piece():
                if made.to_str() == text:
                    return parts
        except Exception:  # of a kind that can't be made of these, whatever it stumbles over
            pass
        return cls(text)

    def made(self) -> Tokenizer:
        """The tokenizer."""
        tokenizer = Tokenizer.from_str(self.frame)
        if self.kind is None:
            return tokenizer
        given = dict(self.options)
        with piece():
            given["vocab"] = msgspec.json.decode(self.vocabulary, type=_Vocabulary)
        with piece():
            merges = msgspec.json.decode(self.merges, type=list[tuple[str, str]] | None)
        if merges is not None:
            given["merges"] = merges
        with piece():
            tokenizer.model = getattr(models, self.kind)(**given)
        with piece():
            tokenizer.add_tokens([AddedToken(**each) for each in self.added])
        return tokenizer


def _parts_of(whole: dict[str, Any]) -> KeptTokenizer:
    """The parts of what a tokenizer writes of itself."""
    model = whole["model"]
    added = [{name: each[name] for name in each if name != "id"} for each in whole["added_tokens"]]
    options = {
        name: value
        for name, value in model.items()
        if name not in ("type", "vocab", "merges") and value is not None
    }
    return KeptTokenizer(
        frame=json.dumps({**whole, "model": _EMPTY, "added_tokens": []}),
        kind=model["type"],
        options=options,
        vocabulary=msgspec.Raw(msgspec.json.encode(model["vocab"])),
        merges=msgspec.Raw(msgspec.json.encode(model.get("merges"))),
        added=added,
    )
