"""Text that may be anybody's, made fit for a line of a log or a column of a table."""

from __future__ import annotations

MAX_LENGTH = 1000
"""So many characters are kept."""


def one_line(text: str, max_length: int = MAX_LENGTH) -> str:
    """`text` without what would forge lines of a log or fill it."""
    text = text[:max_length]
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in text
    )
