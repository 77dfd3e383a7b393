"""Cooldown: a target that keeps failing is left alone for a while, and then tried by one request.

And a target that whoever runs the server has drained: it gets no request until it is opened again.

As in a circuit breaker (M. Nygard, "Release It!"): closed while all is well, open while the target
cools, half-open from then until one request, the probe, has shown how it is.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol

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


class Probe:
    """The one request that shows how a target is that has cooled. Whoever began it ends it by
    `Cooldown.end`, whatever became of the request."""

    __slots__ = ("lapses",)

    def __init__(self, lapses: float) -> None:
        self.lapses = lapses
        """When another request may probe too, as this one takes so long."""


class Watcher(Protocol):
    """Who sees to it that other gateways know where a target stands."""

    def cooled(self, seconds: float) -> None:
        """It is left alone for so long from now on."""
        ...

    def well(self) -> None:
        """It is well again."""
        ...

    def may_probe(self, now: float) -> bool:
        """Whether a request of this gateway may show how it is."""
        ...

    def turned_away(self, *, is_drained: bool) -> None:
        """Somebody has drained it, or opened it again."""
        ...


class Cooldown:
    """Where one target stands, and the only one who knows: closed (`until` is 0), open (before
    `until`), or half-open, with a probe or without. Times are in seconds, on any clock that does
    not go back.

    A probe counts until it is ended, until the target opens or closes for another reason, or until
    it lapses; whatever it shows later is what any other request shows.

    Attributes:
        until: when the cooling ends, or ended; 0 once a request has gone well since.
        is_drained: whether somebody wants it left alone, however it is.
        watcher: who is told, and asked before a probe; None where there is one gateway.
    """

    __slots__ = ("_failures", "_probe", "is_drained", "until", "watcher")

    def __init__(self) -> None:
        self.until = 0.0
        self.is_drained = False
        self.watcher: Watcher | None = None
        self._probe: Probe | None = None
        self._failures: deque[float] = deque(maxlen=1024)

    def admits(self, now: float) -> bool:
        """Whether a request may go there now: all while it is well, one that probes after it has
        cooled."""
        if self.is_drained:
            return False
        if not self.until:
            return True
        if now < self.until or self.is_probed(now):
            return False
        return self.watcher is None or self.watcher.may_probe(now)

    def is_probed(self, now: float) -> bool:
        """Whether a request is on its way there that is to show how it is."""
        return self._probe is not None and now < self._probe.lapses

    def begin(self, now: float, rule: CooldownRule) -> Probe | None:
        """A request goes there; the probe that it is, if it is one."""
        if not self.until or not self.admits(now):
            return None
        self._probe = Probe(now + rule.seconds)
        return self._probe

    def end(self, probe: Probe) -> None:
        """The request that probed has ended, whatever it has shown before: the next may probe if
        that was nothing."""
        if probe is self._probe:
            self._probe = None

    def recent_failures(self, now: float, rule: CooldownRule) -> int:
        """How many failures in a row there are that count still."""
        while self._failures and now - self._failures[0] > rule.within:
            self._failures.popleft()
        return len(self._failures)

    def answers(self, probe: Probe) -> None:
        """The request that probed has got content: the target is well again."""
        if probe is self._probe:
            self._close()

    def went_well(self, begun: float) -> None:
        """A request that was sent at `begun` came to its end without a fault; one from before the
        last failure says nothing of how it is since."""
        if self._failures:
            if begun < self._failures[-1]:
                return
            self._failures.clear()
        if self.until or self._probe is not None:
            self._close()

    def failed(
        self,
        now: float,
        rule: CooldownRule,
        *,
        at_once: bool = False,
        retry_after: float | None = None,
        probe: Probe | None = None,
    ) -> None:
        """A request failed.

        Args:
            now: the time.
            rule: the model's.
            at_once: the failure is of a kind that the next request would meet too.
            retry_after: in so many seconds the vendor wants to be asked again. That takes the
                place of the rule's seconds and needs no row; but a probe that fails shows that its
                word did not hold. 0 says nothing: only the rule counts.
            probe: what `begin` gave for it.
        """
        self._failures.append(now)
        probed = probe is not None and probe is self._probe
        if retry_after:
            seconds = min(retry_after, MAX_RETRY_AFTER)
            self._cool(now, max(seconds, rule.seconds) if probed else seconds)
        elif at_once or probed or self.recent_failures(now, rule) >= rule.failures:
            self._cool(now, rule.seconds)

    def learn(self, until: float) -> None:
        """Another gateway has found out where the target stands: as `until` is to be."""
        self._set(max(self.until, until) if until else 0.0)

    def drain(self) -> None:
        """Leave it alone until it is opened again; what runs there goes on to its end."""
        self._turn(is_drained=True)

    def open(self) -> None:
        """Let requests go there again, and go by what they show. That it cools is forgotten too:
        somebody has looked after it."""
        if self.is_drained or self.until:
            self._failures.clear()
            self._close()
        self._turn(is_drained=False)

    def _turn(self, *, is_drained: bool) -> None:
        if is_drained == self.is_drained:
            return
        self.is_drained = is_drained
        if self.watcher is not None:
            self.watcher.turned_away(is_drained=is_drained)

    def learn_drained(self, *, is_drained: bool) -> None:
        """It was drained or opened at another gateway."""
        self.is_drained = is_drained

    def _cool(self, now: float, seconds: float) -> None:
        self._set(max(self.until, now + seconds))
        if self.watcher is not None:
            self.watcher.cooled(self.until - now)

    def _close(self) -> None:
        self._set(0.0)
        if self.watcher is not None:
            self.watcher.well()

    def _set(self, until: float) -> None:
        self.until = until
        self._probe = None
