"""Who may ask how much, and what is known of requests: the fleet, access and limits, records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llama_compat.catalog import Catalog
from llama_compat.distribution import Distribution, ServerSettings
from providers.shared import Shared
from routing.observability.sample import HEAD_BYTES

if TYPE_CHECKING:
    from routing.access.access import Access
    from routing.access.limits.requests import RequestLimits
    from routing.fleet.fleet import Fleet
    from routing.observability.audit import Audit
    from routing.observability.observers import Observers
    from routing.observability.records.ledger import Ledger
    from routing.parts.parts import Parts


def fleet_of(distribution: Distribution, earlier: Parts | None) -> Shared[Fleet] | None:
    """The other gateways that serve the same; None where the template names no store."""
    if distribution.server.fleet is None:
        return None
    from routing.fleet.fleet import Fleet

    before = earlier.fleet if earlier else None
    fleet = Fleet.of(distribution.server)
    if before is not None and before.value.is_same(fleet):
        return before
    return Shared(fleet, fleet.stop)


def access_of(
    distribution: Distribution, earlier: Parts | None, fleet: Fleet | None
) -> Shared[Access] | None:
    """Stored keys, and where limits are counted; None where there is neither."""
    if not (distribution.server.stored_keys or distribution.has_limits or distribution.has_budgets):
        return None
    from routing.access.access import Access, access_settings

    before = earlier.access if earlier else None
    if before is not None and before.value.settings == access_settings(distribution):
        return before
    # Who knows its keys does not forget them for a storage that is away: a reload is refused then.
    gateways = (lambda: 1) if fleet is None else (lambda: fleet.gateways)
    access = Access(distribution, waits=earlier is None, gateways=gateways)
    return Shared(access, access.stop)


def limits_of(distribution: Distribution, access: Access | None) -> RequestLimits | None:
    """Which limits hold for whom; None where there are none."""
    if access is None:
        return None
    from routing.access.limits.requests import RequestLimits

    return RequestLimits(distribution, access.limiter)


def ledger_of(
    distribution: Distribution, limits: RequestLimits | None, catalog: Catalog
) -> Ledger | None:
    """Who makes records of requests; None where nobody needs any."""
    server = distribution.server
    costs = server.tools is not None and server.tools.max_cost is not None
    if not (server.records or server.traces or server.metrics or limits is not None or costs):
        return None
    from routing.observability.records.ledger import Ledger
    from routing.observability.records.prices import Prices

    return Ledger(Prices(distribution, catalog))


def sample_bytes_of(observers: Observers | None, ledger: Ledger | None) -> int:
    """How much of each body is kept for whoever wants to know of it."""
    if observers is not None:
        return observers.sample_bytes
    return 0 if ledger is None else HEAD_BYTES


def audit_of(server: ServerSettings, earlier: Parts | None) -> Shared[Audit] | None:
    """What is kept of what whoever runs the server does to it; None where nobody can."""
    if server.admin_key is None:
        return None
    from routing.observability.audit import Audit

    if (
        earlier is not None
        and earlier.audit
        and earlier.distribution.server.storage == server.storage
    ):
        return earlier.audit
    audit = Audit(server.storage.get_secret_value())
    return Shared(audit, audit.stop)
