"""Counts the requests of one runtime, and looks at what there is of it now."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from routing.observability.observers import Batch
from routing.observability.telemetry import semconv
from routing.observability.telemetry.metrics import metrics

if TYPE_CHECKING:
    from llama_compat.distribution import Distribution
    from providers.base import Provider
    from routing.observability.records.recorder import Recorder
    from routing.policy.targets import States
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
        self._running: Collection[Request] = ()
        self._looking: asyncio.Task[None] | None = None

    def watch(self, running: Collection[Request]) -> None:
        """Count those that run, from now until `stop`."""
        self._running = running
        self._metrics.running.append(running)

    async def start(self) -> None:
        """Begin to look, where another process may be scraped in place of this one."""
        if self._metrics.shared:
            self._looking = asyncio.create_task(self._look_again())

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

    def _look_at_targets(self) -> None:
        told = self._metrics
        for each in self._states.snapshots(time.monotonic()):
            if each.id not in self._targets:
                continue
            told.target_in_flight.labels(each.id).set(each.in_flight)
            told.target_cooling.labels(each.id).set(each.cooling_seconds)
            told.target_queue.labels(each.provider).set(each.waiting)

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
                follow(told.engine_steps, stats.steps, *labels)
                follow(told.engine_preempted, stats.preempted, *labels)

    def _look_at_records(self) -> None:
        recorder, told = self._recorder, self._metrics
        if recorder is not None:
            told.records_waiting.set(recorder.waiting)
            told.follower.follow(told.records_written, recorder.written)
            told.follower.follow(told.records_dropped, recorder.dropped)
            told.follower.follow(told.bodies_dropped, recorder.bodies_dropped)
