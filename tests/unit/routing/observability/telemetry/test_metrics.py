"""What is counted of requests."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import pytest

pytest.importorskip("prometheus_client")

from prometheus_client import CollectorRegistry, Histogram

from llama_compat.dialects.openai.operations import CHAT
from llama_compat.distribution import Distribution, ModelSettings, ProviderSettings
from llama_compat.hosted.parts import ReplyPart
from routing.observability.observers import Batch
from routing.observability.records.trail import MOST_STEPS
from routing.observability.telemetry import metrics as metrics_module
from routing.observability.telemetry import semconv
from routing.observability.telemetry.meter import Meter
from routing.observability.telemetry.metrics import (
    HAS_PARTS,
    PARTS,
    BatchHistogram,
    Follower,
    Metrics,
    metrics,
)
from routing.policy.attempts import Attempt, Outcome, Why
from routing.policy.targets import ProviderState, States
from routing.request import Request
from tests.unit.routing.observability.records.records import record

DISTRIBUTION = Distribution(
    providers=[ProviderSettings(id="up", type="local::echo")],
    models=[ModelSettings(id="m", provider="up")],
)


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    """The one sample with these labels; None where there is none."""
    found = [
        sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    assert len(found) <= 1, found
    return found[0] if found else None


def counted(
    *records: Any, attempts: tuple[Attempt, ...] = (), parts: Sequence[ReplyPart] = ()
) -> Metrics:
    metrics = Metrics(shared=False)
    for each in records:
        metrics.ended(Batch("chat", [each], [attempts], [None], [parts], [102.0]), "openai")
    return metrics


def test_prometheus_clients_histogram_has_the_parts_that_are_reached_into() -> None:
    assert HAS_PARTS, (
        f"prometheus-client {version('prometheus-client')} has no more {' and '.join(PARTS)} in its"
        " histogram: each value is observed by itself, which is slow, until BatchHistogram of"
        " routing/observability/telemetry/metrics.py knows the new ones"
    )


@pytest.mark.parametrize("has_parts", [True, False])
def test_many_values_at_a_time_are_those_one_by_one(
    has_parts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_module, "HAS_PARTS", has_parts)
    values = [0.0, 0.1, 0.10001, 0.5, 0.7, 30.0]
    together = BatchHistogram("seconds", "", registry=None, buckets=(0.1, 0.5, 1.0))
    single = Histogram("seconds", "", registry=None, buckets=(0.1, 0.5, 1.0))
    together.observe_all(values)
    for each in values:
        single.observe(each)
    assert samples(together) == samples(single)


def samples(histogram: Histogram) -> list[tuple[str, dict[str, str], float]]:
    """All that it tells, but for when it was made."""
    return [
        (each.name, each.labels, each.value)
        for family in histogram.collect()
        for each in family.samples
        if not each.name.endswith("_created")
    ]


def test_tokens_cost_and_times() -> None:
    streamed = record(
        stream=1,
        first_content=0.5,
        duration=2.5,
        overhead=0.002,
        output_tokens=11,
        cached_tokens=40,
        reasoning_tokens=4,
    )
    metrics = counted(streamed, record(cost=None))
    tokens = {kind: value(metrics, "llama_compat_tokens_total", type=kind) for kind in
              ("input", "output", "cached", "cache_write", "reasoning")}  # fmt: skip
    # What has no overhead was answered by nobody, and is not counted here.
    assert tokens == {"input": 100, "output": 11, "cached": 40, "cache_write": 0, "reasoning": 4}
    assert value(metrics, "llama_compat_cost_dollars_total") == pytest.approx(1e-6)
    assert value(metrics, "gen_ai_server_request_duration_seconds_sum") == 2.75
    assert value(metrics, "gen_ai_server_time_to_first_token_seconds_sum") == 0.5
    assert value(metrics, "gen_ai_server_time_per_output_token_seconds_sum") == 0.2
    assert value(metrics, "llama_compat_overhead_seconds_sum") == 0.002
    assert value(metrics, "gen_ai_client_token_usage_sum", gen_ai_token_type="output") == 11
    assert value(metrics, "llama_compat_requests_total") == 2


def test_a_stream_of_one_token_has_no_further_ones() -> None:
    metrics = counted(record(first_content=0.1, overhead=0.0, output_tokens=1))
    assert value(metrics, "gen_ai_server_time_per_output_token_seconds_count") == 0
    assert value(metrics, "gen_ai_server_time_to_first_token_seconds_count") == 1


def test_what_failed_and_what_was_refused() -> None:
    metrics = counted(
        record(error="timeout", status=504),
        record(error="rate_limit", status=429, attempts=0),
        record(error="rate_limit", status=429, attempts=1),
        record(cancelled=1, guardrails="pii:redact secrets:monitor"),
    )
    assert value(metrics, "llama_compat_errors_total", error="timeout") == 1
    assert value(metrics, "llama_compat_errors_total", error="rate_limit") == 2
    assert value(metrics, "llama_compat_limits_refused_total") == 1
    assert value(metrics, "llama_compat_cancelled_total") == 1
    labels = {"model": "m", "guardrail": "pii", "verdict": "redact"}
    assert value(metrics, "llama_compat_guardrails_total", **labels) == 1


def test_what_a_vendor_lists_is_one_series() -> None:
    target = ProviderState("up").target("one-of-thousands")
    attempt = Attempt(target)
    attempt.cancel()
    metrics = counted(
        record(route="up/*", served="one-of-thousands", overhead=0.0), attempts=(attempt,)
    )
    names = {value for family in metrics.registry.collect() for each in family.samples for value in
             each.labels.values()}  # fmt: skip
    assert "up/*" in names
    assert not any("thousands" in name for name in names)


def test_attempts() -> None:
    target = ProviderState("up").target("gpt")
    answered, fallback = Attempt(target), Attempt(target, Why.fallback)
    answered.outcome, fallback.outcome = Outcome.answered, Outcome.failed
    metrics = counted(record(), attempts=(answered, fallback))
    attempts = "llama_compat_attempts_total"
    assert value(metrics, attempts, target="up/gpt", why="first", outcome="answered") == 1
    assert value(metrics, attempts, target="up/gpt", why="fallback", outcome="failed") == 1
    assert value(metrics, "llama_compat_fallbacks_total", model="m") == 1
    assert value(metrics, "llama_compat_cooldowns_total") is None


PARTS_RUN = [
    ReplyPart("turn", begun=100.1, ended=100.5),
    ReplyPart("tool", "their_name", "mcp", begun=100.5, ended=100.75),
    ReplyPart("tool", "their_name", "mcp", begun=100.75, ended=101.75, error="unavailable"),
    ReplyPart("tool", "their_name", "mcp", begun=101.5),
]
"""What a reply is made of in which the server ran a tool three times, the last until the end."""


def test_tools_that_the_server_ran_by_their_kind() -> None:
    metrics = counted(record(route="m"), record(route="m"), parts=PARTS_RUN)
    name = "llama_compat_tool_calls_total"
    assert value(metrics, name, model="m", tool="mcp", outcome="answered") == 2
    assert value(metrics, name, model="m", tool="mcp", outcome="failed") == 2
    assert value(metrics, name, model="m", tool="mcp", outcome="cancelled") == 2
    assert value(metrics, "llama_compat_tool_seconds_sum", tool="mcp") == 3.5
    assert value(counted(record()), "llama_compat_tool_seconds_sum") is None


def test_all_of_them_are_counted_and_not_those_alone_that_a_record_keeps() -> None:
    parts = [*PARTS_RUN[1:2]] * (3 * MOST_STEPS)
    metrics = counted(record(route="m"), parts=parts)
    name = "llama_compat_tool_calls_total"
    assert value(metrics, name, model="m", tool="mcp", outcome="answered") == 3 * MOST_STEPS


def test_searches_of_vendors() -> None:
    metrics = counted(record(searches=2), record(), record(searches=1))
    name = "llama_compat_searches_total"
    assert value(metrics, name, model="m", provider="up") == 3
    assert value(counted(record()), name, model="m", provider="up") is None


def test_a_cooldown_is_counted_once() -> None:
    target = ProviderState("up").target("gpt")
    attempt = Attempt(target)
    attempt.outcome, attempt.ended = Outcome.failed, 100.0
    target.cooldown.until = 115.0
    metrics = counted(record(), record(), attempts=(attempt,))
    assert value(metrics, "llama_compat_cooldowns_total", target="up/gpt") == 1


async def test_what_runs_now() -> None:
    before, now = ([Request(CHAT, "req")], [Request(CHAT, f"req-{each}") for each in range(2)])
    told = metrics()
    gauge = "llama_compat_in_flight_requests"
    meters = [Meter(DISTRIBUTION, {}, States(), None) for _ in range(2)]
    for meter, running in zip(meters, (before, now), strict=True):
        meter.watch(running)
    await meters[1].text()
    assert value(told, gauge) == 3
    before.clear()
    await meters[1].text()
    assert value(told, gauge) == 2
    await meters[0].stop()
    now.pop()
    await meters[1].stop()
    assert told.running == []


def test_many_values_at_a_time_are_as_many_one_by_one() -> None:
    edges = [0.0, 0.01, 0.010001, 0.02, 0.5, 81.92, 82.0, 1e9]
    registry = CollectorRegistry()
    both = [
        BatchHistogram(name, "", ["label"], buckets=semconv.DURATION_BUCKETS, registry=registry)
        for name in ("one", "many")
    ]
    for each in edges:
        both[0].labels("x").observe(each)
    both[1].labels("x").observe_all(edges[:5])
    both[1].labels("x").observe_all(edges[5:])
    both[1].labels("x").observe_all([])
    one, many = (
        {
            (sample.name.removeprefix(family.name), sample.labels.get("le")): sample.value
            for sample in family.samples
            if not sample.name.endswith("_created")
        }
        for family in registry.collect()
    )
    assert many == pytest.approx(one)
    assert one["_count", None] == len(edges)


def test_a_counter_follows_a_figure_that_may_begin_anew() -> None:
    metrics, follower = Metrics(shared=False), Follower()
    for figure in (3, 3, 5, 2):
        follower.follow(metrics.engine_steps, figure, "local", "tiny")
        follower.follow(metrics.records_written, figure)
    assert value(metrics, "llama_compat_engine_steps_total") == 7
    assert value(metrics, "llama_compat_records_written_total") == 7


def test_names_are_opentelemetry_s() -> None:
    attributes = pytest.importorskip(
        "opentelemetry.semconv._incubating.attributes.gen_ai_attributes"
    )
    known = {getattr(attributes, name) for name in dir(attributes) if name.startswith("GEN_AI_")}
    ours = {
        value
        for name, value in vars(semconv).items()
        if name.isupper() and isinstance(value, str) and value.startswith("gen_ai.")
    }
    metrics = pytest.importorskip("opentelemetry.semconv._incubating.metrics.gen_ai_metrics")
    known |= {getattr(metrics, name) for name in dir(metrics) if name.startswith("GEN_AI_")}
    # Newer than what the package has.
    newer = {
        semconv.REQUEST_STREAM,
        semconv.TIME_TO_FIRST_CHUNK,
        semconv.REASONING_TOKENS,
    }
    assert ours - known <= newer


@pytest.mark.parametrize(
    ("type", "name"),
    [
        ("remote::openai", "openai"),
        ("remote::azure", "azure.ai.openai"),
        ("remote::anthropic-messages", "anthropic"),
        ("remote::gemini-native", "gcp.gemini"),
        ("remote::xai", "x_ai"),
        ("local::torch", "torch"),
    ],
)
def test_providers_are_named_as_opentelemetry_does(type: str, name: str) -> None:
    assert semconv.provider_name(type) == name


def test_buckets() -> None:
    assert semconv.TOKEN_BUCKETS[:4] == (1, 4, 16, 64)
    assert semconv.TOKEN_BUCKETS[-1] == 67108864
    assert semconv.DURATION_BUCKETS[:3] == (0.01, 0.02, 0.04)
    assert semconv.DURATION_BUCKETS[-1] == 81.92


def test_names_in_prometheus() -> None:
    assert semconv.in_prometheus(semconv.TOKEN_USAGE) == "gen_ai_client_token_usage"
    assert semconv.in_prometheus("a.b_c", "seconds") == "a_b_c_seconds"
