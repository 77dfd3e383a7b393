"""Who wants to know of the requests of a distribution, put together as its template says.

Each is imported only where the template asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from providers.base import Provider, ProviderStartError

if TYPE_CHECKING:
    from llama_compat.distribution import Distribution
    from routing.operations.limits.requests import RequestLimits
    from routing.operations.observer import Observer, Observers
    from routing.operations.records.recorder import Recorder
    from routing.operations.telemetry.meter import Meter
    from routing.operations.telemetry.tracer import Tracer
    from routing.policy.targets import States


def observers_of(
    distribution: Distribution,
    providers: Mapping[str, Provider],
    states: States,
    limits: RequestLimits | None = None,
) -> Observers | None:
    """Those whom a distribution has; None where it has none.

    Args:
        distribution: what is served.
        providers: by id.
        states: what is known of the targets.
        limits: what has to be told when requests end; None where nothing is limited.

    Raises:
        ProviderStartError: one can't be had as the template wants it.
    """
    settings = distribution.server
    wanted = settings.records, settings.traces, settings.admin_key, limits
    if wanted == (None, None, None, None) and not settings.metrics:
        return None
    from routing.operations.observer import Observers
    from routing.operations.records.prices import Prices

    recorder = _recorder(distribution)
    meter = _meter(distribution, providers, states, recorder) if settings.metrics else None
    tracer = _tracer(distribution)
    found: list[Observer] = [each for each in (recorder, meter, tracer) if each is not None]
    prices = Prices(distribution)
    return Observers(found, prices, meter, recorder, settles=limits is not None)


def _recorder(distribution: Distribution) -> Recorder | None:
    settings = distribution.server
    if settings.records is None:
        return None
    from routing.operations.records.record import MIGRATIONS
    from routing.operations.records.recorder import Recorder
    from routing.operations.store.storage import StorageError, open_storage

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
        from routing.operations.telemetry.meter import Meter
    except ImportError:
        raise ProviderStartError(
            "`server.metrics` needs prometheus-client: pip install 'llama-compat[metrics]'."
        ) from None
    return Meter(distribution, providers, states, recorder)


def _tracer(distribution: Distribution) -> Tracer | None:
    settings = distribution.server.traces
    if settings is None:
        return None
    from routing.operations.telemetry.tracer import Tracer

    return Tracer(distribution, settings)
