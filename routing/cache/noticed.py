"""Which members of a request a parser has read: what it has not, the vocabulary does not know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Any

import msgspec
from msgspec import Struct, structs


class NoticedMembers(dict[str, Any]):
    """A JSON object that notes which of its members were looked up.

    Whoever goes through all of them, or copies them, has read none: then they count as unknown,
    which costs a hit and never gives a wrong one.
    """

    __slots__ = ("read",)

    def __init__(self, members: Mapping[str, Any]) -> None:
        super().__init__({name: noticed(value) for name, value in members.items()})
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return dict.__getitem__(self, name)

    def get(self, name: str, default: Any = None) -> Any:
        """The member `name`, which is read."""
        self.read.add(name)
        return dict.get(self, name, default)

    def pop(self, name: str, *default: Any) -> Any:
        """The same, and it is gone."""
        self.read.add(name)
        return dict.pop(self, name, *default)


def noticed(value: Any) -> Any:
    """`value`, of which every object notes what is read of it."""
    if isinstance(value, dict):
        return NoticedMembers(value)
    if isinstance(value, list):
        return [noticed(each) for each in value]
    return value


def has_unread(
    members: NoticedMembers,
    known: Any,
    apart: Set[str] = frozenset(),
    marks: Set[str] = frozenset(),
) -> bool:
    """Whether there is anything in a request that nobody has read; `null` says nothing.

    Args:
        members: the request's.
        known: what has been made of it: objects that are in it as they are, such as schemas, have
            been read.
        apart: names of the request's members that are not looked into.
        marks: names of members that mean nothing, wherever they are.
    """
    return _Unread(known, marks).among(members, apart)


class _Unread:
    """Looks for what nobody has read."""

    def __init__(self, known: Any, marks: Set[str]) -> None:
        self._marks = marks
        self._known = known
        self._taken: set[bytes] | None = None

    def among(self, members: NoticedMembers, apart: Set[str] = frozenset()) -> bool:
        return any(
            each is not None and (name not in members.read or self._inside(each))
            for name, each in members.items()
            if name not in apart and name not in self._marks
        )

    def _inside(self, value: Any) -> bool:
        if isinstance(value, list):
            return any(map(self._inside, value))
        if not isinstance(value, NoticedMembers):
            return False
        return self.among(value) and not self._is_taken(value)

    def _is_taken(self, value: NoticedMembers) -> bool:
        """Whether the object is in what was made of the request, as it is."""
        if self._taken is None:
            self._taken = set(map(_encode, _objects(self._known)))
        return _encode(value) in self._taken


_encode = msgspec.json.Encoder(order="deterministic").encode


def _objects(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield value
    elif isinstance(value, Struct):
        for each in structs.astuple(value):
            yield from _objects(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _objects(each)
