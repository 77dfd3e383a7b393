"""What Prometheus is told of this server.

Labels are from the template alone, never from what clients send, so that there are only so many
series: models by their id in it, what a vendor lists as `provider/*`, and no model where there is
none of the name.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from routing.operations.observer import Observed
from routing.operations.records.prices import NANO_DOLLARS
from routing.operations.records.record import Record
from routing.operations.telemetry import semconv
from routing.operations.telemetry.sharing import FOLDER
from routing.policy.attempts import Attempt, Outcome, Why

OVERHEAD_BUCKETS = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0)

_GENAI = tuple(
    semconv.in_prometheus(name)
    for name in (
        semconv.OPERATION,
        semconv.PROVIDER,
        semconv.REQUEST_MODEL,
        semconv.RESPONSE_MODEL,
    )
)


class _OfRoute(NamedTuple):
    """The metrics of the requests that went one way and were answered, looked up once."""

    first_token: Any
    per_token: Any
    input_tokens: Any
    output_tokens: Any
    tokens: Mapping[str, Any]
    cost: Any
    overhead: Any


class Metrics:
    """All metrics of this process.

    Args:
        shared: whether several processes are scraped as one.
    """

    def __init__(self, *, shared: bool) -> None:
        self.shared = shared
        # What several processes share is read from their files, and is in no registry.
        self.registry = CollectorRegistry()
        self._ways: dict[tuple[str, ...], _OfRoute] = {}
        self._durations: dict[tuple[str, ...], Any] = {}
        self._requests: dict[tuple[str, ...], Any] = {}
        self._attempts: dict[tuple[str, ...], Any] = {}
        self._cooling_until: dict[str, float] = {}
        self._counts: dict[Any, float] = {}
        self._running = 0
        self.follower = Follower()
        self._define()

    def _define(self) -> None:
        second, by_route = "seconds", ("model", "provider")
        prometheus = semconv.in_prometheus
        self._duration = self._histogram(
            prometheus(semconv.REQUEST_DURATION, second),
            "Seconds from a request to the end of its answer.",
            (*_GENAI, prometheus(semconv.ERROR_TYPE)),
            semconv.DURATION_BUCKETS,
        )
        self._first_token = self._histogram(
            prometheus(semconv.TIME_TO_FIRST_TOKEN, second),
            "Seconds from a request to its stream's first content.",
            _GENAI,
            semconv.FIRST_TOKEN_BUCKETS,
        )
        self._per_token = self._histogram(
            prometheus(semconv.TIME_PER_OUTPUT_TOKEN, second),
            "Seconds that each token of a stream took after the first.",
            _GENAI,
            semconv.PER_TOKEN_BUCKETS,
        )
        self._token_usage = self._histogram(
            prometheus(semconv.TOKEN_USAGE),
            "Tokens of a request, and of its answer.",
            (*_GENAI, prometheus(semconv.TOKEN_TYPE)),
            semconv.TOKEN_BUCKETS,
        )
        self.requests = self._counter(
            "requests", "Requests that have ended.", ("api", "operation", *by_route, "status")
        )
        self.errors = self._counter(
            "errors", "Requests that failed, by what went wrong.", (*by_route, "error")
        )
        self.cancelled = self._counter(
            "cancelled", "Requests that were left by their client.", by_route
        )
        self.tokens = self._counter("tokens", "Tokens, by what they were.", (*by_route, "type"))
        self.cost = self._counter("cost_dollars", "What requests cost, where known.", by_route)
        self.overhead = self._histogram(
            "llama_compat_overhead_seconds",
            "Seconds of the wait for the first byte in which no target worked on it.",
            by_route,
            OVERHEAD_BUCKETS,
        )
        self.attempts = self._counter(
            "attempts", "Requests to targets.", ("target", "why", "outcome")
        )
        self.fallbacks = self._counter("fallbacks", "Attempts at another target.", ("model",))
        self.cooldowns = self._counter(
            "cooldowns", "Times that a target began to be left alone.", ("target",)
        )
        self.refused = self._counter(
            "limits_refused", "Requests refused for a limit or a budget.", ("model", "error")
        )
        self.reloads = self._counter("reloads", "Times the template was read again.", ("outcome",))
        for outcome in ("succeeded", "failed"):
            self.reloads.labels(outcome)
        self.in_flight = self._gauge("in_flight_requests", "Requests that run now.")
        self.target_in_flight = self._gauge(
            "target_in_flight_requests", "Requests that run at a target now.", ("target",)
        )
        self.target_queue = self._gauge(
            "provider_queue_requests", "Requests that wait for a provider.", ("provider",)
        )
        self.target_cooling = self._gauge(
            "target_cooling_seconds",
            "How long a target is left alone from now on.",
            ("target",),
            "livemax",
        )
        self.records_waiting = self._gauge("records_waiting", "Records that are to be written.")
        self.records_written = self._counter("records_written", "Records that were written.")
        self.records_dropped = self._counter("records_dropped", "Records that were dropped.")
        engine = ("provider", "model")
        self.engine_running = self._gauge(
            "engine_batch_size", "Sequences that an engine works on now.", engine
        )
        self.engine_waiting = self._gauge(
            "engine_waiting_sequences", "Sequences that wait for an engine.", engine
        )
        self.engine_used = self._gauge(
            "engine_used_blocks", "Blocks of an engine's KV cache in use.", engine
        )
        self.engine_blocks = self._gauge(
            "engine_blocks", "Blocks that an engine's KV cache has.", engine
        )
        self.engine_prompt = self._counter(
            "engine_prompt_tokens", "Tokens of prompts that were computed.", engine
        )
        self.engine_cached = self._counter(
            "engine_cached_tokens", "Tokens of prompts that were in the cache.", engine
        )
        self.engine_generated = self._counter(
            "engine_generated_tokens", "Tokens that an engine made.", engine
        )
        self.engine_steps = self._counter("engine_steps", "Forward passes of an engine.", engine)
        self.engine_preempted = self._counter(
            "engine_preempted_sequences", "Sequences that had to make room.", engine
        )

    def _counter(self, name: str, told: str, labels: Iterable[str] = ()) -> Counter:
        return Counter(f"llama_compat_{name}", told, labels, registry=self.registry)

    def _gauge(
        self, name: str, told: str, labels: Iterable[str] = (), mode: Any = "livesum"
    ) -> Gauge:
        return Gauge(
            f"llama_compat_{name}", told, labels, registry=self.registry, multiprocess_mode=mode
        )

    def _histogram(
        self, name: str, told: str, labels: Iterable[str], buckets: Iterable[float]
    ) -> Histogram:
        return Histogram(name, told, labels, buckets=tuple(buckets), registry=self.registry)

    # Requests -------------------------------------------------------------------------------------

    def begun(self) -> None:
        """A request has come in."""
        self._running += 1

    def ended(self, observed: Observed, record: Record, provider_name: str) -> None:
        """It has been answered, as well as could be.

        Args:
            observed: the request.
            record: what is recorded of it.
            provider_name: what OpenTelemetry calls the provider.
        """
        self._running -= 1
        model, provider = record.route, record.provider
        key = (record.api, record.operation, model, provider, str(record.status))
        requests = self._requests.get(key)
        if requests is None:
            requests = self._requests[key] = self.requests.labels(*key)
        self._count(requests)
        if record.error:
            self._failed(record)
        if record.cancelled:
            self.cancelled.labels(model, provider).inc()
        served = "" if model.endswith("/*") else record.served
        operation = semconv.OPERATIONS[observed.operation.kind]
        labels = (operation, provider_name, model, served)
        duration = self._durations.get((*labels, record.error))
        if duration is None:
            duration = self._duration.labels(*labels, record.error)
            self._durations[*labels, record.error] = duration
        duration.observe(record.duration)
        if record.overhead is not None:
            way = self._way(*labels, provider)
            way.overhead.observe(record.overhead)
            if record.first_content is not None:
                self._streamed(way, record)
            if record.input_tokens is not None:
                self._counted(way, record)
        for attempt in observed.attempts.made:
            self._attempted(attempt, model)

    def _failed(self, record: Record) -> None:
        self.errors.labels(record.route, record.provider, record.error).inc()
        if record.status == 429 and not record.attempts:
            self.refused.labels(record.route, record.error).inc()

    def _way(self, *labels: str) -> _OfRoute:
        way = self._ways.get(labels)
        if way is None:
            *genai, provider = labels
            by_route = (genai[2], provider)
            way = self._ways[labels] = _OfRoute(
                self._first_token.labels(*genai),
                self._per_token.labels(*genai),
                self._token_usage.labels(*genai, "input"),
                self._token_usage.labels(*genai, "output"),
                {kind: self.tokens.labels(*by_route, kind) for kind in _TOKENS},
                self.cost.labels(*by_route),
                self.overhead.labels(*by_route),
            )
        return way

    @staticmethod
    def _streamed(way: _OfRoute, record: Record) -> None:
        assert record.first_content is not None
        way.first_token.observe(record.first_content)
        if record.output_tokens is not None and record.output_tokens > 1:
            seconds = record.duration - record.first_content
            way.per_token.observe(seconds / (record.output_tokens - 1))

    def _counted(self, way: _OfRoute, record: Record) -> None:
        way.input_tokens.observe(record.input_tokens)
        way.output_tokens.observe(record.output_tokens)
        for kind, counter in way.tokens.items():
            if count := getattr(record, f"{kind}_tokens"):
                self._count(counter, count)
        if record.cost:
            self._count(way.cost, record.cost / NANO_DOLLARS)

    def _attempted(self, attempt: Attempt, model: str) -> None:
        target = attempt.target
        name = f"{target.provider.id}/*" if model.endswith("/*") else target.id
        key = (name, attempt.why.value, attempt.outcome.value)
        counter = self._attempts.get(key)
        if counter is None:
            counter = self._attempts[key] = self.attempts.labels(*key)
        self._count(counter)
        if attempt.why is Why.fallback:
            self.fallbacks.labels(model).inc()
        if attempt.outcome is Outcome.failed:
            until = target.cooldown.until
            if until > max(attempt.ended, self._cooling_until.get(name, 0.0)):
                self._cooling_until[name] = until
                self.cooldowns.labels(name).inc()

    def _count(self, counter: Any, amount: float = 1) -> None:
        # Counters have a lock, or a file: they are brought up to date together.
        self._counts[counter] = self._counts.get(counter, 0) + amount

    def reloaded(self, *, succeeded: bool) -> None:
        """The template was read again; or could not be, and the last one counts."""
        self.reloads.labels("succeeded" if succeeded else "failed").inc()

    # Scrapes --------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Bring all up to date."""
        self.in_flight.set(self._running)
        counts, self._counts = self._counts, {}
        for counter, amount in counts.items():
            counter.inc(amount)

    def text(self) -> bytes:
        """All of it, in Prometheus' text format; of all processes, if there are several."""
        if not self.shared:
            return generate_latest(self.registry)
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)


_TOKENS = ("input", "cached", "cache_write", "output", "reasoning")
"""The kinds of tokens: `input` and `output` are all of them, the others a part of these."""


class Follower:
    """Lets counters follow figures that others count."""

    def __init__(self) -> None:
        self._seen: dict[tuple[Any, ...], float] = {}

    def follow(self, counter: Any, figure: float, *labels: str) -> None:
        """Add to `counter` what `figure` has grown since; one that is less was begun anew."""
        key = (id(counter), *labels)
        seen = self._seen.get(key, 0.0)
        self._seen[key] = figure
        grown = figure - seen if figure >= seen else figure
        (counter.labels(*labels) if labels else counter).inc(grown)


@cache
def metrics() -> Metrics:
    """Those of this process, which outlive what is reloaded."""
    return Metrics(shared=bool(os.environ.get(FOLDER)))
