"""How long a client has kept its server waiting."""

from __future__ import annotations

from time import monotonic

from routing.http.limits import PROGRESS_BYTES


class Patience:
    """The time since which something is waited for: a head, a body, the next request.

    Attributes:
        since: on the clock of `time.monotonic`.
        fresh: whether no head has come yet: that of the first request has to come in time from the
            very beginning.
        progress: bytes of a body since then.
    """

    __slots__ = ("fresh", "progress", "since")

    def __init__(self) -> None:
        self.fresh = True
        self.progress = 0
        self.since = monotonic()

    def begin(self, now: float | None = None) -> None:
        """Something is waited for from `now` on, or from this moment."""
        self.since, self.progress = monotonic() if now is None else now, 0

    def moves(self, now: float) -> bool:
        """Whether enough of a body has come to begin anew at `now`."""
        if self.progress < PROGRESS_BYTES:
            return False
        self.begin(now)
        return True
