"""What Prometheus is told of this server.

Labels are from the template alone, never from what clients send, so that there are only so many
series: models by their id in it, what a vendor lists as `provider/*`, and no model where there is
none of the name.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import Counter as Counts
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from llama_compat.catalog.prices import NANO_DOLLARS
from llama_compat.hosted.parts import ReplyPart
from routing.observability.observers import Batch
from routing.observability.records.record import Record
from routing.observability.records.trail import outcome_of
from routing.observability.telemetry import semconv
from routing.observability.telemetry.sharing import FOLDER
from routing.policy.attempts import Attempt, Outcome, Why
from routing.request import Request

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


PARTS = ("_upper_bounds", "_buckets", "_sum")
"""Of prometheus-client's histogram: its own, and so perhaps not in the next version."""

HAS_PARTS = all(hasattr(Histogram("known", "", registry=None), part) for part in PARTS)


class BatchHistogram(Histogram):
    """A histogram that takes many values at a time, for a fraction of what `observe` costs each.

    It reaches into prometheus-client's own histogram, as there is no other way to do that. Where a
    version has other parts, it takes the values one by one.
    """

    def observe_all(self, values: Sequence[float]) -> None:
        """As `observe`, for each of `values`."""
        if not HAS_PARTS:
            for value in values:
                self.observe(value)
            return
        # A bound is looked for among the values: that is a step for each bound, not for each value.
        ordered, below = sorted(values), 0
        for bound, bucket in zip(self._upper_bounds, self._buckets, strict=True):
            up_to = bisect_right(ordered, bound)
            if up_to > below:
                bucket.inc(up_to - below)
                below = up_to
                if below == len(ordered):
                    break
        self._sum.inc(sum(values))


class _OfRoute(NamedTuple):
    """The metrics of the requests that went one way and were answered, looked up once."""

    first_token: BatchHistogram
    per_token: BatchHistogram
    input_tokens: BatchHistogram
    output_tokens: BatchHistogram
    tokens: Mapping[str, Counter]
    cost: Counter
    overhead: BatchHistogram


class Metrics:
    """All metrics of this process.

    Args:
        shared: whether several processes are scraped as one.

    Attributes:
        running: the requests that run now, of each runtime.
    """

    def __init__(self, *, shared: bool) -> None:
        self.shared = shared
        # What several processes share is read from their files, and is in no registry.
        self.registry = CollectorRegistry()
        self._ways: dict[tuple[str, ...], _OfRoute] = {}
        self._found: dict[tuple[Any, tuple[str, ...]], Any] = {}
        self._cooling_until: dict[str, float] = {}
        self.running: list[Collection[Request]] = []
        self.follower = Follower()
        self._define()

    def _define(self) -> None:
        self._define_genai()
        self._define_requests()
        self._define_targets()
        self._define_shared()
        self._define_engines()
        self._define_replicas()

    def _define_genai(self) -> None:
        """Those that OpenTelemetry has names for."""
        second, prometheus = "seconds", semconv.in_prometheus
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

    def _define_requests(self) -> None:
        by_route = ("model", "provider")
        self.requests = self._counter(
            "requests", "Requests that have ended.", ("api", "operation", *by_route, "status")
        )
        self.errors = self._counter(
            "errors", "Requests that failed, by what went wrong.", (*by_route, "error")
        )
        self.cancelled = self._counter(
            "cancelled", "Requests that were left by their client.", by_route
        )
        self.guardrails = self._counter(
            "guardrails",
            "Requests in which a guardrail came to a verdict.",
            ("model", "guardrail", "verdict"),
        )
        self.tool_calls = self._counter(
            "tool_calls", "Calls of tools that the server ran.", ("model", "tool", "outcome")
        )
        self.tool_seconds = self._histogram(
            "llama_compat_tool_seconds",
            "Seconds of a call of a tool that the server ran.",
            ("tool",),
            semconv.DURATION_BUCKETS,
        )
        self.searches = self._counter(
            "searches",
            "What is paid for by the search: of the web by vendors, of rerank.",
            by_route,
        )
        self.tokens = self._counter("tokens", "Tokens, by what they were.", (*by_route, "type"))
        self.cost = self._counter("cost_dollars", "What requests cost, where known.", by_route)
        self.overhead = self._histogram(
            "llama_compat_overhead_seconds",
            "Seconds of the wait for the first byte in which no target worked on it.",
            by_route,
            OVERHEAD_BUCKETS,
        )

    def _define_targets(self) -> None:
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

    def _define_shared(self) -> None:
        """Of what gateways share, and of what is kept."""
        self.fleet_gateways = self._gauge(
            "fleet_gateways", "Gateways seen last, this one among them.", mode="livemax"
        )
        self.fleet_away = self._gauge(
            "fleet_store_away", "1 while the fleet's store can't be asked.", mode="livemax"
        )
        self.limits_away = self._gauge(
            "limits_store_away", "1 while limits can't be counted together.", mode="livemax"
        )
        self.limits_apart = self._counter(
            "limits_apart", "Requests let in while limits could not be counted together."
        )
        self.records_waiting = self._gauge("records_waiting", "Records that are to be written.")
        self.records_written = self._counter("records_written", "Records that were written.")
        self.records_dropped = self._counter("records_dropped", "Records that were dropped.")
        self.bodies_dropped = self._counter("bodies_dropped", "Bodies that were dropped.")

    def _define_engines(self) -> None:
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
        self.engine_guessed = self._counter(
            "engine_guessed_tokens", "Tokens that an engine computed on a guess.", engine
        )
        self.engine_guessed_right = self._counter(
            "engine_guessed_right_tokens", "Tokens that an engine guessed rightly.", engine
        )
        self.engine_steps = self._counter("engine_steps", "Forward passes of an engine.", engine)
        self.engine_preempted = self._counter(
            "engine_preempted_sequences", "Sequences that had to make room.", engine
        )

    def _define_replicas(self) -> None:
        self.replicas = self._gauge(
            "replicas", "Replicas of a model that take requests now.", ("provider", "model")
        )
        replica = ("provider", "model", "replica")
        self.replica_in_flight = self._gauge(
            "replica_in_flight_requests", "Requests that run at a replica now.", replica
        )
        self.replica_running = self._gauge(
            "replica_batch_size", "Sequences that a replica's engine works on now.", replica
        )
        self.replica_waiting = self._gauge(
            "replica_waiting_sequences", "Sequences that wait for a replica's engine.", replica
        )
        self.replica_used = self._gauge(
            "replica_used_blocks", "Blocks of a replica's KV cache in use.", replica
        )
        self.replica_blocks = self._gauge(
            "replica_blocks", "Blocks that a replica's KV cache has.", replica
        )

    def replica_gone(self, *labels: str) -> None:
        """Say no more of a replica that is gone; of several processes, that it has nothing."""
        for gauge in (
            self.replica_in_flight,
            self.replica_running,
            self.replica_waiting,
            self.replica_used,
            self.replica_blocks,
        ):
            if self.shared:
                gauge.labels(*labels).set(0)
            else:
                with suppress(KeyError):
                    gauge.remove(*labels)

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
    ) -> BatchHistogram:
        return BatchHistogram(name, told, labels, buckets=tuple(buckets), registry=self.registry)

    # Requests -------------------------------------------------------------------------------------

    def ended(self, batch: Batch, provider_name: str) -> None:
        """Some have been answered, as well as could be.

        Args:
            batch: they.
            provider_name: what OpenTelemetry calls their provider.
        """
        records, first = batch.records, batch.records[0]
        route, provider, error = first.route, first.provider, first.error
        labels = (first.api, first.operation, route, provider, str(first.status))
        self._of(self.requests, *labels).inc(len(records))
        if error:
            self._of(self.errors, route, provider, error).inc(len(records))
            if first.status == 429 and not first.attempts:
                self._of(self.refused, route, error).inc(len(records))
        if first.cancelled:
            self._of(self.cancelled, route, provider).inc(len(records))
        for found in first.guardrails.split():
            name, _, verdict = found.rpartition(":")
            self._of(self.guardrails, route, name, verdict).inc(len(records))
        if searches := sum(record.searches or 0 for record in records):
            self._of(self.searches, route, provider).inc(searches)
        for parts, ended in zip(batch.parts, batch.ended, strict=True):
            if parts:
                self._parts(route, parts, ended)
        served = "" if route.endswith("/*") else first.served
        genai = (semconv.OPERATIONS[batch.kind], provider_name, route, served)
        self._of(self._duration, *genai, error).observe_all([each.duration for each in records])
        answered = [each for each in records if each.overhead is not None]
        if answered:
            self._answered(self._way(*genai, provider), answered)
        self._attempted(list(chain.from_iterable(batch.attempts)), route)

    def _parts(self, route: str, parts: Sequence[ReplyPart], ended: float) -> None:
        """Tools that the server ran for a reply, which ended then."""
        for part in parts:
            if part.kind == "tool":
                # Not by their names, which whoever runs an MCP server chooses.
                self._of(self.tool_calls, route, part.tool, outcome_of(part).value).inc()
                seconds = max(0.0, (part.ended or ended) - part.begun)
                self._of(self.tool_seconds, part.tool).observe(seconds)

    def _of(self, metric: Any, *labels: str) -> Any:
        """A metric with these labels: `labels` takes a while to find it."""
        found = self._found.get((metric, labels))
        if found is None:
            found = self._found[metric, labels] = metric.labels(*labels)
        return found

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
    def _answered(way: _OfRoute, records: Sequence[Record]) -> None:
        overhead, first, duration, cost, *tokens = zip(*map(_measures, records), strict=True)
        way.overhead.observe_all(overhead)
        begun = [each for each in first if each is not None]
        if begun:
            way.first_token.observe_all(begun)
            way.per_token.observe_all(
                [
                    (whole - until) / (count - 1)
                    for whole, until, count in zip(duration, first, tokens[_OUTPUT], strict=True)
                    if until is not None and count is not None and count > 1
                ]
            )
        way.input_tokens.observe_all([each for each in tokens[_INPUT] if each is not None])
        way.output_tokens.observe_all([each for each in tokens[_OUTPUT] if each is not None])
        for counter, counts in zip(way.tokens.values(), tokens, strict=True):
            counter.inc(sum(filter(None, counts)))
        way.cost.inc(sum(filter(None, cost)) / NANO_DOLLARS)

    def _attempted(self, attempts: Sequence[Attempt], route: str) -> None:
        for (provider, target, why, outcome), count in Counts(map(_outcome, attempts)).items():
            name = f"{provider}/*" if route.endswith("/*") else target
            self._of(self.attempts, name, why, outcome).inc(count)
            if why == Why.fallback:
                self._of(self.fallbacks, route).inc(count)
        for attempt in attempts:
            if attempt.outcome is Outcome.failed:
                self._failed(attempt, route)

    def _failed(self, attempt: Attempt, route: str) -> None:
        target = attempt.target
        name = f"{target.provider.id}/*" if route.endswith("/*") else target.name
        until = target.cooldown.until
        if until > max(attempt.ended, self._cooling_until.get(name, 0.0)):
            self._cooling_until[name] = until
            self._of(self.cooldowns, name).inc()

    def reloaded(self, *, succeeded: bool) -> None:
        """The template was read again; or could not be, and the last one counts."""
        self.reloads.labels("succeeded" if succeeded else "failed").inc()

    # Scrapes --------------------------------------------------------------------------------------

    def text(self) -> bytes:
        """All of it, in Prometheus' text format; of all processes, if there are several."""
        if not self.shared:
            return generate_latest(self.registry)
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)


_TOKENS = ("input", "cached", "cache_write", "output", "reasoning")
"""The kinds of tokens: `input` and `output` are all of them, the others a part of these."""

_INPUT, _OUTPUT = _TOKENS.index("input"), _TOKENS.index("output")

_measures = attrgetter(
    "overhead", "first_content", "duration", "cost", *(f"{kind}_tokens" for kind in _TOKENS)
)
_outcome = attrgetter("target.provider.id", "target.name", "why._value_", "outcome._value_")


class Follower:
    """Lets counters follow figures that others count."""

    def __init__(self) -> None:
        self._seen: dict[tuple[Any, ...], float] = {}

    def follow(self, counter: Any, figure: float, *labels: str) -> None:
        """Add to `counter` what `figure` has grown since; one that is less was begun anew."""
        key = (counter, *labels)
        seen = self._seen.get(key, 0.0)
        self._seen[key] = figure
        grown = figure - seen if figure >= seen else figure
        (counter.labels(*labels) if labels else counter).inc(grown)


@cache
def metrics() -> Metrics:
    """Those of this process, which outlive what is reloaded."""
    return Metrics(shared=bool(os.environ.get(FOLDER)))
