"""Which language texts are in, by py3langid (https://github.com/adbar/py3langid).

A guess is taken for true only where it is sure of itself, which it is not of a few words, nor of
code: those are in no language that anybody could tell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from llama_compat.guardrails.settings import LanguageSettings

PIECE = 300
"""Characters that are judged together: enough to be sure, and few enough that what a text repeats
does not make the guess unsure."""

NO_LANGUAGE = "zxx"
"""What is no language at all has this code (ISO 639-2)."""


def outside(texts: Iterable[str], settings: LanguageSettings) -> bool:
    """Whether any of `texts` is in other languages than are allowed, for the most part.

    Those that are too short to tell are looked at as one.
    """
    short: list[str] = []
    for text in texts:
        if letters(text) < settings.min_letters:
            short.append(text)
        elif _is_outside(text, settings):
            return True
    together = "\n".join(short)
    return letters(together) >= settings.min_letters and _is_outside(together, settings)


def letters(text: str) -> int:
    """How many letters a text has. One of a script in which a word is one or two counts as three,
    and one of most other scripts than Latin as two, as in UTF-8."""
    return len("".join(filter(str.isalpha, text)).encode(errors="replace"))


def _is_outside(text: str, settings: LanguageSettings) -> bool:
    inside = outside = 0
    for piece in _pieces(text):
        language, confidence = identifier().classify(" ".join(piece.split()))
        if confidence < settings.confidence or language == NO_LANGUAGE:
            continue
        if language in settings.allow:
            inside += len(piece)
        else:
            outside += len(piece)
    if not (inside or outside):
        return settings.unknown == "block"
    return outside > inside


def _pieces(text: str) -> Iterator[str]:
    """`text` in pieces that end between words, where it has such places."""
    start = 0
    while len(text) - start > PIECE:
        end = start + PIECE
        blank = text.rfind(" ", start + PIECE // 2, end)
        end = end if blank < 0 else blank + 1
        yield text[start:end]
        start = end
    if letters(text[start:]):
        yield text[start:]


@cache
def identifier() -> Any:
    """What tells languages; the first time that takes a second, and is nothing for an event loop.

    Raises:
        ModuleNotFoundError: it is not installed.
    """
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


async def is_outside(texts: Iterable[str], settings: LanguageSettings) -> bool:
    """`outside`, in a thread."""
    return await asyncio.to_thread(outside, texts, settings)
