"""Cooldown: a target that keeps failing is left alone for a while, and then tried by one request.

As in a circuit breaker (M. Nygard, "Release It!"): closed while all is well, open while the target
cools, half-open from then until one request, the probe, has shown how it is.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

MAX_RETRY_AFTER = 120.0
"""Seconds that a vendor's `Retry-After` counts for at most: a target is looked at again after
that, whatever it said."""


@dataclass(frozen=True, slots=True)
class CooldownRule:
    """When a target cools, and for how long.

    Attributes:
        failures: so many in a row,
        within: none of them older than these seconds,
        seconds: and it cools for these.
    """

    failures: int = 3
    within: float = 30.0
    seconds: float = 15.0


class Cooldown:
    """Where one target stands. Times are in seconds, on any clock that does not go back.

    Attributes:
        until: when the cooling ends, or ended; 0 once a request has gone well since.
    """

    __slots__ = ("_failures", "_probing", "until")

    def __init__(self) -> None:
        self.until = 0.0
        self._probing = False
        self._failures: deque[float] = deque(maxlen=1024)

    def is_cooling(self, now: float) -> bool:
        """Whether it is left alone now."""
        return now < self.until

    def admits(self, now: float) -> bool:
        """Whether a request may go there now: all while it is well, one that probes after it has
        cooled."""
        return not self.until or (now >= self.until and not self._probing)

    def begin(self, now: float) -> bool:
        """A request goes there; whether it is the probe."""
        if not self.until or now < self.until or self._probing:
            return False
        self._probing = True
        return True

    def release(self) -> None:
        """The probe ended without showing anything: its client went away."""
        self._probing = False

    def recent_failures(self, now: float, rule: CooldownRule) -> int:
        """How many failures in a row there are that count still."""
        while self._failures and now - self._failures[0] > rule.within:
            self._failures.popleft()
        return len(self._failures)

    def answers(self, *, probe: bool = False) -> None:
        """A request has got content: a target that was probed is well again."""
        if probe:
            self.until = 0.0
            self._probing = False

    def went_well(self, begun: float) -> None:
        """A request that was sent at `begun` came to its end without a fault; one from before the
        last failure says nothing of how it is since."""
        if self._failures and begun < self._failures[-1]:
            return
        self._failures.clear()
        self.until = 0.0

    def failed(
        self,
        now: float,
        rule: CooldownRule,
        *,
        at_once: bool = False,
        retry_after: float | None = None,
        probe: bool = False,
    ) -> None:
        """A request failed.

        Args:
            now: the time.
            rule: the model's.
            at_once: the failure is of a kind that the next request would meet too.
            retry_after: in so many seconds the vendor wants to be asked again.
            probe: it was the request that probed.
        """
        self._failures.append(now)
        if probe:
            self._probing = False
        if retry_after is not None:
            self._cool(now + min(max(retry_after, 0.0), MAX_RETRY_AFTER))
        elif at_once or probe or self.recent_failures(now, rule) >= rule.failures:
            self._cool(now + rule.seconds)

    def _cool(self, until: float) -> None:
        self.until = max(self.until, until)
