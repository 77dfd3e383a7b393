"""Who wants to know of the requests of a distribution, put together as its template says.

Each is imported only where the template asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from providers.base import Provider, ProviderStartError

if TYPE_CHECKING:
    from llama_compat.distribution import Distribution
    from routing.observability.observers import Observer, Observers
    from routing.observability.records.ledger import Ledger
    from routing.observability.records.recorder import Recorder
    from routing.observability.telemetry.meter import Meter
    from routing.observability.telemetry.tracer import Tracer
    from routing.policy.targets import States


def observers_of(
    distribution: Distribution,
    providers: Mapping[str, Provider],
    states: States,
    ledger: Ledger,
) -> Observers | None:
    """Those whom a distribution has; None where it has none.

    Args:
        distribution: what is served.
        providers: by id.
        states: what is known of the targets.
        ledger: makes the records.

    Raises:
        ProviderStartError: one can't be had as the template wants it.
    """
    settings = distribution.server
    if not (settings.records or settings.traces or settings.metrics):
        return None
    from routing.observability.observers import Observers

    recorder = _recorder(distribution)
    meter = _meter(distribution, providers, states, recorder) if settings.metrics else None
    tracer = _tracer(distribution)
    found: list[Observer] = [each for each in (recorder, meter, tracer) if each is not None]
    return Observers(found, ledger, meter, recorder, tracer)


def _recorder(distribution: Distribution) -> Recorder | None:
    settings = distribution.server
    if settings.records is None:
        return None
    from routing.observability.records.record import MIGRATIONS
    from routing.observability.records.recorder import Recorder
    from routing.storage.storage import StorageError, open_storage

    try:
        storage = open_storage(settings.storage.get_secret_value(), [MIGRATIONS])
    except StorageError as error:
        raise ProviderStartError(f"`server.storage`: {error}.") from None
    return Recorder(storage, settings.records)


def _meter(
    distribution: Distribution,
    providers: Mapping[str, Provider],
    states: States,
    recorder: Recorder | None,
) -> Meter:
    try:
        from routing.observability.telemetry.meter import Meter
    except ImportError:
        raise ProviderStartError(
            "`server.metrics` needs prometheus-client: pip install 'llama-compat[metrics]'."
        ) from None
    return Meter(distribution, providers, states, recorder)


def _tracer(distribution: Distribution) -> Tracer | None:
    settings = distribution.server.traces
    if settings is None:
        return None
    from routing.observability.telemetry.tracer import Tracer

    return Tracer(distribution, settings)
