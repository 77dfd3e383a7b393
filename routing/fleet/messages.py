"""What gateways say to each other."""

from __future__ import annotations

import msgspec
from msgspec import Struct


class Report(Struct, array_like=True):
    """How one gateway is, told once a second.

    Attributes:
        template: the hash of the template that it serves.
        host: the machine's name.
        storage: which storage it keeps keys and budgets in, as a hash.
        uptime: seconds since it began.
        in_flight: by target, how many requests it has there; those with none are left out.
        cooling: by target, for how many seconds it is left alone.
        sent: of the last few times, with their number, by target the blocks of the prompts that
            were sent there; the last block of a prompt comes first.
        held: the same of all prompts that are remembered, for a gateway that is new.
        drained: the targets that somebody wants left alone.
        turned: of the targets that were drained or opened, how many seconds ago that was.
    """

    template: str = ""
    host: str = ""
    storage: str = ""
    uptime: float = 0.0
    in_flight: dict[str, int] = {}
    cooling: dict[str, float] = {}
    sent: list[tuple[int, dict[str, bytes]]] = []
    held: dict[str, bytes] | None = None
    drained: list[str] = []
    turned: dict[str, float] = {}


class Cooled(Struct, tag=True, frozen=True):
    """A target is left alone for so many seconds from now."""

    by: str
    target: str
    seconds: float


class Well(Struct, tag=True, frozen=True):
    """A target that was left alone is well again."""

    by: str
    target: str


class Drained(Struct, tag=True, frozen=True):
    """Somebody has drained a target, or opened it again."""

    by: str
    target: str
    is_drained: bool


class Proposed(Struct, tag=True, frozen=True):
    """A gateway was told to reload a template; its text is kept under its hash."""

    by: str
    hash: str


class Vote(Struct, tag=True, frozen=True):
    """What a gateway found wrong with a template, or nothing."""

    by: str
    hash: str
    problem: str


class Adopted(Struct, tag=True, frozen=True):
    """All gateways are to serve the template that is kept as the fleet's."""

    by: str
    hash: str


Message = Cooled | Well | Drained | Proposed | Vote | Adopted

encode = msgspec.msgpack.Encoder().encode

_REPORT = msgspec.msgpack.Decoder(Report)
_MESSAGE = msgspec.msgpack.Decoder(Message)


def report_of(data: bytes) -> Report | None:
    """A report; None for one of a version of this software that says it in another way."""
    try:
        return _REPORT.decode(data)
    except msgspec.DecodeError:
        return None


def message_of(data: bytes) -> Message | None:
    """A message; None for one of a version of this software that says it in another way."""
    try:
        found: Message = _MESSAGE.decode(data)
    except msgspec.DecodeError:
        return None
    return found
