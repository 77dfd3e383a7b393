"""Aliases that stand for many names: in `claude-*` the `*` is any text, or none.

Nothing else has a meaning in them: names of models hold brackets and question marks.
"""

from __future__ import annotations

ANY = "*"

MAX_NAME = 200
"""A longer name matches no pattern: replies repeat what a client calls a model, in every chunk."""


def is_pattern(alias: str) -> bool:
    """Whether `alias` stands for more than itself."""
    return ANY in alias


def matches(pattern: str, name: str) -> bool:
    """Whether `pattern` stands for `name`; in time that grows no faster than `name`."""
    first, *between, last = pattern.split(ANY)
    at, end = len(first), len(name) - len(last)
    if len(name) > MAX_NAME or at > end:
        return False
    if not (name.startswith(first) and name.endswith(last)):
        return False
    for piece in between:
        found = name.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True


def letters(pattern: str) -> int:
    """How much of a name `pattern` says: of those that stand for one, the one that says most is
    meant."""
    return len(pattern) - pattern.count(ANY)


def overlap(one: str, other: str) -> bool:
    """Whether there are names that both patterns stand for."""
    waiting, seen = [(0, 0)], set()
    while waiting:
        at, elsewhere = state = waiting.pop()
        if state in seen:
            continue
        seen.add(state)
        mine, theirs = one[at : at + 1], other[elsewhere : elsewhere + 1]
        if not mine and not theirs:
            return True
        if ANY in (mine, theirs):
            # It ends here, or takes one more character of the other.
            if mine:
                waiting.append((at + 1, elsewhere))
            if theirs:
                waiting.append((at, elsewhere + 1))
        elif mine == theirs:
            waiting.append((at + 1, elsewhere + 1))
    return False
