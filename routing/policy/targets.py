"""Targets: the provider's models that a public model leads to, and what is known of each now."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from llama_compat.catalog.facts import NOTHING, Facts
from llama_compat.error_classes import ErrorClass
from llama_compat.exchange import Target
from routing.policy.cooldown import Cooldown
from routing.policy.gate import Gate
from routing.policy.latency import PeakAverage
from routing.policy.retry import Budget

if TYPE_CHECKING:
    from llama_compat.distribution import ProviderSettings
    from providers.base import Provider
    from routing.policy.prefix.sent import SentPrefixes

_PRINTABLE = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")


@dataclass(frozen=True, slots=True)
class TargetSnapshot:
    """One target as it is now, for `/health`, the status table and metrics.

    Attributes:
        id: `provider/model`, or `provider/model@host:port` of a replica.
        provider, model: the provider's id, and its own name for the model.
        in_flight: requests that run there now, until the end of their streams.
        in_flight_elsewhere: those that the fleet's other gateways had there a moment ago.
        attempts: how many there have been.
        errors: how many of them failed.
        recent_failures: failures in a row, which is what cools a target.
        last_error: the class of the last of them; None if there was none.
        cooling_seconds: how long it is left alone from now on; 0 if it is not.
        drained: whether somebody wants it left alone until it is opened again.
        first_content_seconds: until a stream's first content, on an average that a peak moves at
            once; None if nobody has streamed yet.
        whole_reply_seconds: the same until a whole reply.
        waiting: requests that wait for room at the provider (`max_concurrent`).
        place: `host:port` of a replica; empty for what is none.
        held_blocks: of prompts, 512 bytes each, that it says are in its KV cache; None for one that
            says nothing of it, or of which nobody wants to know.
    """

    id: str
    provider: str
    model: str
    in_flight: int
    in_flight_elsewhere: int
    attempts: int
    errors: int
    recent_failures: int
    last_error: ErrorClass | None
    cooling_seconds: float
    first_content_seconds: float | None
    whole_reply_seconds: float | None
    waiting: int
    drained: bool = False
    place: str = ""
    held_blocks: int | None = None


class TargetState:
    """What is known of one model of one provider, or of one of its replicas, whatever public models
    lead to it.

    Args:
        provider: whose it is.
        model: the provider's name for it.
        place: the replica's address; empty for what is no replica.

    Attributes:
        id, place: as in `TargetSnapshot`.
        name: `provider/model`, in which all replicas are one.
        headers: how an answer names it.
        in_flight, attempts, errors, last_error: as in `TargetSnapshot`.
        elsewhere: requests that other gateways had in flight there a moment ago.
        cooldown: whether it is left alone.
        streams, wholes: how long it takes until a stream's first content, and until a whole reply.
        prefixes: the prompts that it has; None where nobody goes by them.
        multiplier: an odd number of its own, the same in every process.
    """

    __slots__ = (
        "attempts",
        "cooldown",
        "elsewhere",
        "errors",
        "failures_in_a_row",
        "headers",
        "id",
        "in_flight",
        "last_error",
        "model",
        "multiplier",
        "name",
        "place",
        "prefixes",
        "provider",
        "streams",
        "wholes",
    )

    def __init__(self, provider: ProviderState, model: str, place: str = "") -> None:
        self.name = f"{provider.id}/{model}"
        self.id = f"{self.name}@{host_of(place)}" if place else self.name
        self.provider = provider
        self.model = model
        self.place = place
        self.headers = (
            (b"x-llama-compat-provider", header_text(provider.id).encode()),
            (b"x-llama-compat-target", header_text(self.id).encode()),
        )
        self.in_flight = 0
        self.elsewhere = 0
        self.attempts = 0
        self.errors = 0
        self.failures_in_a_row = 0
        self.last_error: ErrorClass | None = None
        self.cooldown = Cooldown()
        self.streams = PeakAverage()
        self.wholes = PeakAverage()
        self.prefixes: SentPrefixes | None = None
        self.multiplier = hashed(self.id) | 1

    @property
    def busy(self) -> int:
        """Requests that run there now, whichever gateway sent them."""
        return self.in_flight + self.elsewhere

    def snapshot(self, now: float) -> TargetSnapshot:
        """How it is at `now`, on the clock of `time.monotonic`."""
        return TargetSnapshot(
            id=self.id,
            provider=self.provider.id,
            model=self.model,
            place=host_of(self.place),
            in_flight=self.in_flight,
            in_flight_elsewhere=self.elsewhere,
            attempts=self.attempts,
            errors=self.errors,
            recent_failures=self.failures_in_a_row,
            last_error=self.last_error,
            drained=self.cooldown.is_drained,
            cooling_seconds=max(self.cooldown.until - now, 0.0),
            first_content_seconds=self.streams.last or None,
            whole_reply_seconds=self.wholes.last or None,
            waiting=self.provider.gate.waiting if self.provider.gate is not None else 0,
            held_blocks=None if self.prefixes is None else self.prefixes.told,
        )


class ProviderState:
    """What is known of one provider, and of its models.

    Args:
        provider_id: the provider's id.
        settings: what the template says of it; None for one without a template.

    Attributes:
        budget: how much of what it is asked may be asked again.
        gate: lets `max_concurrent` requests in; None where there is no such limit.
        targets: by the provider's name for the model, and the replica's address if it is one's.
    """

    def __init__(self, provider_id: str, settings: ProviderSettings | None = None) -> None:
        self.id = provider_id
        self.settings = settings
        self.budget = Budget()
        self.gate: Gate | None = None
        self.targets: dict[tuple[str, str], TargetState] = {}
        if settings is not None and settings.max_concurrent is not None:
            self.gate = Gate(provider_id, settings.max_concurrent, settings.max_waiting)

    def target(self, model: str, place: str = "") -> TargetState:
        """The state of one model, or of its replica at `place`, made when it is first asked for."""
        state = self.targets.get((model, place))
        if state is None:
            state = self.targets[model, place] = TargetState(self, model, place)
        return state

    def forget_others(self, model: str, places: Collection[str]) -> None:
        """Know no more of the replicas of `model` that are not at one of `places`. What runs there
        keeps its state until it ends."""
        for known in [each for each in self.targets if each[0] == model and each[1] not in places]:
            del self.targets[known]


class States:
    """The states of all providers of a distribution, and through them of their models.

    Args:
        providers: their settings.
        previous: the states until now: a provider whose settings are the same keeps its own, with
            the counters of what is still running. One with others begins anew, but what was drained
            stays so: somebody wants it, whatever the template says.
    """

    def __init__(
        self, providers: Iterable[ProviderSettings] = (), previous: States | None = None
    ) -> None:
        self._providers: dict[str, ProviderState] = {}
        for settings in providers:
            kept = None if previous is None else previous._providers.get(settings.id)
            if kept is None or kept.settings != settings:
                before, kept = kept, ProviderState(settings.id, settings)
                for state in () if before is None else before.targets.values():
                    if state.cooldown.is_drained:
                        kept.target(state.model, state.place).cooldown.drain()
            self._providers[settings.id] = kept

    def provider(self, provider_id: str) -> ProviderState:
        """The state of one provider, made when it is first asked for."""
        state = self._providers.get(provider_id)
        if state is None:
            state = self._providers[provider_id] = ProviderState(provider_id)
        return state

    def __iter__(self) -> Iterator[TargetState]:
        for provider in self._providers.values():
            yield from provider.targets.values()

    def snapshots(self, now: float) -> list[TargetSnapshot]:
        """Every target that is listed or has been asked, as it is at `now`."""
        return [state.snapshot(now) for state in self]


@dataclass(frozen=True, slots=True)
class LiveTarget:
    """One of the targets of a public model.

    Attributes:
        provider: who is asked.
        target: what for.
        state: what is known of it now.
        weight: its share, beside the others of its priority.
        priority: 0 for those that are asked first; the others only when none before them can.
        facts: what is known of its model.
    """

    provider: Provider
    target: Target
    state: TargetState
    weight: float = 1.0
    priority: int = 0
    facts: Facts = NOTHING

    @property
    def id(self) -> str:
        """`provider/model`, and the address of a replica."""
        return self.state.id

    @property
    def room(self) -> int | None:
        """Tokens that it holds: the template's limit or the provider's own, whichever is less; None
        if nobody knows."""
        limit, own = self.target.context_length, self.provider.context_length(self.target.model)
        if limit is None or own is None:
            return own if limit is None else limit
        return min(limit, own)

    @property
    def known_room(self) -> int | None:
        """The same for people, who are told what the catalogue says too: it may be wrong, so no
        request is refused by it."""
        room, known = self.room, self.facts.context
        return known if room is None else room

    def holds(self, tokens: int) -> bool:
        """Whether it holds so many tokens, as far as anybody knows."""
        return not tokens or (room := self.room) is None or room >= tokens


def host_of(place: str) -> str:
    """`host:port` of the address of a replica."""
    return urlsplit(place).netloc


def hashed(text: str) -> int:
    """64 bits of a hash of `text`."""
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest)


def header_text(text: str) -> str:
    """`text` for a header: what that can't hold is percent-encoded."""
    return quote(text, safe=_PRINTABLE, errors="replace")
