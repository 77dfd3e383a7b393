"""Counts the requests of one runtime, and looks at what there is of it now."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from llama_compat.going_on import going_on
from routing.observability.observers import Batch
from routing.observability.telemetry import semconv
from routing.observability.telemetry.metrics import metrics
from routing.policy.targets import host_of

if TYPE_CHECKING:
    from llama_compat.distribution import Distribution
    from providers.base import Provider
    from routing.access.access import Access
    from routing.fleet.fleet import Fleet
    from routing.observability.records.recorder import Recorder
    from routing.policy.targets import States, TargetSnapshot
    from routing.request import Request

LOOK_SECONDS = 1.0
"""How often a worker says how it is, so that a scrape of another one knows."""


class Meter:
    """The metrics of a runtime, from `start` to `stop`.

    Args:
        distribution: what is served.
        providers: by id.
        states: what is known of the targets.
        recorder: writes the records; None where there are none.
    """

    sample_bytes = 0
    closing = None

    def __init__(
        self,
        distribution: Distribution,
        providers: Mapping[str, Provider],
        states: States,
        recorder: Recorder | None,
    ) -> None:
        self._metrics = metrics()
        self._names = {each.id: semconv.provider_name(each.type) for each in distribution.providers}
        self._targets = {
            f"{each.provider}/{each.model}"
            for model in distribution.models
            for each in distribution.targets_of(model)
        }
        self._providers = providers
        self._states = states
        self._recorder = recorder
        self._replicas: set[tuple[str, str, str]] = set()
        self._replicated: set[tuple[str, str]] = set()
        self._running: Collection[Request] = ()
        self._fleet: Fleet | None = None
        self._access: Access | None = None
        self._looking: asyncio.Task[None] | None = None

    def watch(
        self,
        running: Collection[Request],
        fleet: Fleet | None = None,
        access: Access | None = None,
    ) -> None:
        """Count the requests that run, from now until `stop`; and tell of the other gateways, and
        of what lets requests in."""
        self._fleet, self._access = fleet, access
        self._running = running
        self._metrics.running.append(running)

    async def start(self) -> None:
        """Begin to look, where another process may be scraped in place of this one."""
        if self._metrics.shared:
            self._looking = asyncio.create_task(going_on("metrics", self._look_again))

    async def stop(self) -> None:
        """Look a last time."""
        # By identity: all that are empty are equal.
        told = self._metrics
        told.running = [each for each in told.running if each is not self._running]
        if self._looking is not None:
            self._looking.cancel()
            with suppress(asyncio.CancelledError):
                await self._looking
        self._look()

    def ended(self, batch: Batch) -> None:
        """Some requests have been answered, as well as could be."""
        self._metrics.ended(batch, self._names.get(batch.records[0].provider, ""))

    def reloaded(self, *, succeeded: bool) -> None:
        """The template was read again; or could not be, and the last one counts."""
        self._metrics.reloaded(succeeded=succeeded)

    async def text(self) -> bytes:
        """What Prometheus is told."""
        self._look()
        return await asyncio.to_thread(self._metrics.text)

    async def _look_again(self) -> None:
        while True:
            self._look()
            await asyncio.sleep(LOOK_SECONDS)

    def _look(self) -> None:
        self._metrics.in_flight.set(sum(map(len, self._metrics.running)))
        self._look_at_targets()
        self._look_at_engines()
        self._look_at_records()
        self._look_at_store()

    def _look_at_targets(self) -> None:
        told = self._metrics
        listed: dict[str, list[TargetSnapshot]] = {}
        for each in self._states.snapshots(time.monotonic()):
            if (name := f"{each.provider}/{each.model}") in self._targets:
                listed.setdefault(name, []).append(each)
        for name, replicas in listed.items():
            told.target_in_flight.labels(name).set(sum(each.in_flight for each in replicas))
            # All replicas are one target, which can be asked as long as one of them can.
            told.target_cooling.labels(name).set(min(each.cooling_seconds for each in replicas))
            told.target_queue.labels(replicas[0].provider).set(replicas[0].waiting)
        self._look_at_replicas(
            [each for replicas in listed.values() for each in replicas if each.place]
        )

    def _look_at_replicas(self, replicas: Sequence[TargetSnapshot]) -> None:
        told = self._metrics
        there = Counter((each.provider, each.model) for each in replicas)
        for labels in there.keys() | self._replicated:
            told.replicas.labels(*labels).set(there[labels])
        self._replicated |= there.keys()
        labelled = {(each.provider, each.model, each.place): each for each in replicas}
        for gone in self._replicas - labelled.keys():
            told.replica_gone(*gone)
        self._replicas = set(labelled)
        for place, each in labelled.items():
            told.replica_in_flight.labels(*place).set(each.in_flight)

    def _look_at_engines(self) -> None:
        told, follow = self._metrics, self._metrics.follower.follow
        for provider in self._providers.values():
            for model, stats in provider.engine_stats().items():
                labels = (provider.id, model)
                told.engine_running.labels(*labels).set(stats.running)
                told.engine_waiting.labels(*labels).set(stats.waiting)
                told.engine_used.labels(*labels).set(stats.used_blocks)
                told.engine_blocks.labels(*labels).set(stats.total_blocks)
                follow(told.engine_prompt, stats.prompt_tokens, *labels)
                follow(told.engine_cached, stats.cached_tokens, *labels)
                follow(told.engine_generated, stats.generated_tokens, *labels)
                follow(told.engine_guessed, stats.guessed_tokens, *labels)
                follow(told.engine_guessed_right, stats.guessed_right_tokens, *labels)
                follow(told.engine_steps, stats.steps, *labels)
                follow(told.engine_preempted, stats.preempted, *labels)
            for (model, place), stats in provider.replica_stats().items():
                if (at := (provider.id, model, host_of(place))) in self._replicas:
                    told.replica_running.labels(*at).set(stats.running)
                    told.replica_waiting.labels(*at).set(stats.waiting)
                    told.replica_used.labels(*at).set(stats.used_blocks)
                    told.replica_blocks.labels(*at).set(stats.total_blocks)

    def _look_at_records(self) -> None:
        recorder, told = self._recorder, self._metrics
        if recorder is not None:
            told.records_waiting.set(recorder.waiting)
            told.follower.follow(told.records_written, recorder.written)
            told.follower.follow(told.records_dropped, recorder.dropped)
            told.follower.follow(told.bodies_dropped, recorder.bodies_dropped)

    def _look_at_store(self) -> None:
        told = self._metrics
        if self._fleet is not None:
            told.fleet_gateways.set(self._fleet.gateways)
            told.fleet_away.set(self._fleet.is_away)
        if self._access is not None:
            told.limits_away.set(self._access.counters.is_away)
            told.follower.follow(told.limits_apart, self._access.limiter.apart)
