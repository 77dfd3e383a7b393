"""What is kept for clients, and who works on it: responses, files, batches, vector stores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from llama_compat.distribution import Distribution, FilesSettings, ServerSettings
from providers.base import Provider, ProviderStartError
from providers.shared import Shared
from routing.storage.responses import ResponseStore

if TYPE_CHECKING:
    from routing.batches.files import FileStore
    from routing.batches.worker import BatchWorker
    from routing.parts.parts import Parts
    from routing.vector_stores.service import VectorStores


def responses_of(server: ServerSettings, earlier: Parts | None) -> Shared[ResponseStore] | None:
    """Where responses are kept; None where none are."""
    settings = server.responses_store
    if settings is None:
        return None
    if earlier is not None:
        before = earlier.distribution.server
        if (settings, server.storage) == (before.responses_store, before.storage):
            return earlier.responses
    store = ResponseStore(settings, server.storage.get_secret_value())
    return Shared(store, store.stop)


def files_of(server: ServerSettings, earlier: Parts | None) -> Shared[FileStore] | None:
    """Where files are kept; None where none are."""
    if server.files is None and server.batches is None and server.vector_stores is None:
        return None
    settings = server.files or FilesSettings()
    from routing.batches.files import FileStore

    if earlier is not None and earlier.files is not None:
        before = earlier.distribution.server.storage
        if (settings, server.storage) == (earlier.files.value.settings, before):
            return earlier.files
    store = FileStore(settings, server.storage.get_secret_value())
    return Shared(store, store.stop)


def batches_of(
    server: ServerSettings, files: Shared[FileStore] | None, earlier: Parts | None
) -> Shared[BatchWorker] | None:
    """Who works on batches; None where there are none."""
    settings = server.batches
    if settings is None:
        return None
    from routing.batches.worker import BatchWorker

    assert files is not None
    if earlier is not None and earlier.batches is not None and earlier.files is files:
        before = earlier.distribution.server
        if before.batches == settings and (
            before.shutdown_grace_seconds == server.shutdown_grace_seconds
        ):
            return earlier.batches
    worker = BatchWorker(files.value, settings, server.shutdown_grace_seconds)
    return Shared(worker, worker.stop)


def vector_stores_of(
    server: ServerSettings, files: Shared[FileStore] | None, earlier: Parts | None
) -> Shared[VectorStores] | None:
    """What is made of files to be searched; None for nothing.

    Raises:
        ProviderStartError: numpy is missing.
    """
    settings = server.vector_stores
    if settings is None:
        return None
    try:
        from routing.vector_stores.service import VectorStores
        from routing.vector_stores.stores import StoreTable
    except ImportError as error:
        if error.name != "numpy":
            raise
        raise ProviderStartError(
            "`server.vector_stores`: needs numpy: pip install 'llama-compat[vector-stores]'."
        ) from None
    assert files is not None
    if earlier is not None and earlier.vector_stores is not None and earlier.files is files:
        before = earlier.distribution.server
        if (settings, server.storage) == (before.vector_stores, before.storage):
            return earlier.vector_stores
    stores = VectorStores(StoreTable(settings, files.value, server.storage.get_secret_value()))
    return Shared(stores, stores.stop)


def check_batches(distribution: Distribution, providers: Mapping[str, Provider]) -> None:
    """See to it that who is to hand batches to vendors can.

    Raises:
        ProviderStartError: a provider's vendor has no batch API, or none that is known here.
    """
    for each in distribution.providers:
        if each.batches.via == "vendor" and providers[each.id].batches() is None:
            raise ProviderStartError(
                f"Provider '{each.id}': '{each.type}' has no batch API of its vendor's. Leave out"
                " `batches: {via: vendor}`, and its lines are asked by requests."
            )
    for model in distribution.models:
        named = [each.provider for each in distribution.targets_of(model)]
        if (
            model.batches is not None
            and model.batches.via == "vendor"
            and all(providers[each].batches() is None for each in named)
        ):
            raise ProviderStartError(
                f"Model '{model.id}': none of its providers has a batch API of its vendor's. Leave"
                " out `batches: {via: vendor}`, and its lines are asked by requests."
            )
