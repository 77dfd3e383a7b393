"""What is in the journal: batches and their lines, as rows of its tables."""

from __future__ import annotations

from msgspec import Struct

PENDING, ASKED, GOOD, BAD, TO_HAND, HANDED = range(6)
"""How far a line has come: not asked, or to be asked again; asked by a worker; answered; failed; to
be handed to a vendor; a part of an order to one."""

OPEN = ("validating", "in_progress", "cancelling", "finalizing")
"""The states of a batch that somebody has to work on."""

ENDED = ("completed", "failed", "expired", "cancelled")

AS_CANCELLED, AS_EXPIRED, AS_KEY_GONE = "", "expired", "key"
"""Why a batch is broken off: a client wanted it, its time is over, its key is good no more."""


class Job(Struct, frozen=True):
    """A batch: the columns of the table, in their order.

    Attributes:
        api: whose client made it: `openai`, `messages`, or `command` for one without a server.
        owner: the id of the key that it belongs to.
        metadata: JSON.
        output_seconds: after so long its output is forgotten; None for never.
        claimed_by: the worker that checks its input or puts its output together.
        begun, finalizing, ended, cancelling: when, in seconds since 1970.
        reason: why it is broken off.
        model: that all of its lines ask; None where there are several, or nobody has looked.
        total, completed, failed: lines, as far as they have come.
        undone: lines that were not answered when it was broken off; they have not failed.
        cost: in billionths of a dollar, so far.
        unpriced: lines so far whose cost is not known.
        errors: JSON, what is wrong with its input.
        elsewhere: lines besides that vendors have answered, as far as they tell, and that nobody
            has read here.
    """

    id: str
    api: str
    owner: str
    endpoint: str
    input_file: str
    completion_window: str
    metadata: bytes
    output_seconds: int | None
    created: float
    expires: float
    status: str = "validating"
    claimed_by: str | None = None
    begun: float | None = None
    finalizing: float | None = None
    ended: float | None = None
    cancelling: float | None = None
    reason: str | None = None
    model: str | None = None
    total: int = 0
    completed: int = 0
    failed: int = 0
    undone: int = 0
    cost: int = 0
    unpriced: int = 0
    output_file: str | None = None
    error_file: str | None = None
    errors: bytes | None = None
    elsewhere: int = 0

    @property
    def good(self) -> int:
        """Lines that were answered: here, or by vendors, as far as they tell."""
        return self.completed + self.elsewhere


JOB_COLUMNS = Job.__struct_fields__


class LineRow(Struct, frozen=True):
    """Where a line is in the input, and what it asks for."""

    number: int
    begins: int
    size: int
    model: str


class DoneLine(Struct, frozen=True):
    """A line that has its result."""

    number: int
    is_good: bool
    result: bytes
    cost: int | None
