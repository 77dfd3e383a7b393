"""All that a runtime has which may be that of the runtime before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from llama_compat.distribution import Distribution
from llama_compat.reasoning.memory import ReasoningMemory
from providers.base import Provider
from providers.shared import Shared
from routing.parts.layered import caches_of, reasoning_of, tools_of
from routing.parts.providers import providers_of, replicas_of, residency_of
from routing.parts.storing import batches_of, files_of, responses_of, vector_stores_of
from routing.parts.watching import access_of, audit_of, fleet_of

if TYPE_CHECKING:
    from providers.local.residency.residency import Residency
    from routing.access.access import Access
    from routing.batches.files import FileStore
    from routing.batches.worker import BatchWorker
    from routing.cache.exact import ExactCache
    from routing.fleet.fleet import Fleet
    from routing.observability.audit import Audit
    from routing.replicas.cluster import ReplicaCluster
    from routing.storage.responses import ResponseStore
    from routing.tools.toolbox import ServerTools
    from routing.vector_stores.service import VectorStores


class Parts:
    """What several runtimes may have, one after another: each ends with the last that has it.

    Args:
        distribution: what is to be served.
        earlier: those of the runtime in whose place this one comes. What is to be the same is taken
            over from it.

    Attributes:
        distribution: what they were made for.
        replicas: models on a Ray cluster; None where no provider has any there.
        residency: who says which models are in memory; None where all of them are.
        providers: by id.
        fleet: the other gateways that serve the same; None where the template names no store.
        access: stored keys, and where limits are counted; None where there is neither.
        responses: where responses are kept; None where the template wants none kept.
        files: where files are kept; None where it wants none.
        batches: works on them; None where there are none.
        vector_stores: what is made of files; None where there are none.
        audit: what whoever runs the server does to it; None where nobody can.
        reasoning: what models thought when they called tools; None where no vendor wants it back.
        caches: of replies, by model, None for a model without; None where no model has one.
        tools: what the server runs for models; None for nothing.

    Raises:
        ProviderStartError: something that one of them needs is not installed.
    """

    def __init__(self, distribution: Distribution, earlier: Parts | None) -> None:
        server = distribution.server
        self.distribution = distribution
        self.replicas: Shared[ReplicaCluster] | None = replicas_of(distribution, earlier)
        self.residency: Shared[Residency] | None = residency_of(distribution, earlier)
        self.providers: Mapping[str, Shared[Provider]] = providers_of(
            distribution, earlier, self.replicas, self.residency
        )
        self.fleet: Shared[Fleet] | None = fleet_of(distribution, earlier)
        self.access: Shared[Access] | None = access_of(
            distribution, earlier, None if self.fleet is None else self.fleet.value
        )
        self.responses: Shared[ResponseStore] | None = responses_of(server, earlier)
        self.files: Shared[FileStore] | None = files_of(server, earlier)
        self.batches: Shared[BatchWorker] | None = batches_of(server, self.files, earlier)
        self.vector_stores: Shared[VectorStores] | None = vector_stores_of(
            server, self.files, earlier
        )
        self.audit: Shared[Audit] | None = audit_of(server, earlier)
        self.reasoning: ReasoningMemory | None = reasoning_of(
            server, [each.value for each in self.providers.values()], earlier
        )
        self.caches: dict[str, ExactCache | None] | None = caches_of(distribution, earlier)
        self.tools: Shared[ServerTools] | None = tools_of(
            distribution, None if self.vector_stores is None else self.vector_stores.value, earlier
        )
