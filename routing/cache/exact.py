"""One cache of a template: which replies are kept, and where."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from llama_compat.distribution import (
    CacheSettings,
    ExactCacheSettings,
    SemanticCacheSettings,
    ServerSettings,
)
from providers.base import ProviderStartError
from providers.shared import Shared
from routing.cache.asked import CacheScope
from routing.cache.replies.store import MemoryReplies, ReplyStore

if TYPE_CHECKING:
    from routing.cache.questions.semantic import Questions


class ExactCache(Struct, eq=False):
    """One cache of a template.

    Attributes:
        settings: which replies are kept.
        store: where.
        opened: the same, with those who have it.
        semantic: the settings of what is given to questions that are alike; None for nothing.
        questions: those that are known, with it.
        scopes: of the requests that were there, by whose they are and where they go.
    """

    settings: ExactCacheSettings
    store: ReplyStore
    opened: Shared[ReplyStore]
    semantic: SemanticCacheSettings | None = None
    questions: Questions | None = None
    scopes: dict[tuple[str, ...], CacheScope] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: CacheSettings, server: ServerSettings, name: str) -> ExactCache:
        """One that has not been started.

        Args:
            settings: its own.
            server: the template's, which say where its storage is, and its Redis.
            name: of the model that it is for; empty for all that have none of their own.

        Raises:
            ProviderStartError: it can't ever be opened.
        """
        exact, semantic = settings.exact, settings.semantic
        assert exact is not None
        store = _store_of(exact, server, name)
        questions = None
        if semantic is not None:
            from routing.cache.questions.semantic import Questions

            questions = Questions(semantic.max_questions)
        return cls(exact, store, Shared(store, store.stop), semantic, questions)

    def is_as(self, settings: CacheSettings) -> bool:
        """Whether it is what these settings want."""
        return (self.settings, self.semantic) == (settings.exact, settings.semantic)

    def scope(self, where: tuple[str, ...]) -> CacheScope:
        """The one of these requests."""
        found = self.scopes.get(where)
        if found is None:
            found = self.scopes[where] = CacheScope(where, (*where, "pin"))
        return found


def _store_of(settings: ExactCacheSettings, server: ServerSettings, name: str) -> ReplyStore:
    where = settings.store.get_secret_value()
    most, ttl = settings.max_bytes, settings.ttl
    if where == "memory":
        return MemoryReplies(most, ttl)
    from routing.cache.places.shared import SharedReplies

    if where == "sqlite":
        from routing.cache.places.storage_place import StoragePlace

        address = server.storage.get_secret_value()
        return SharedReplies(StoragePlace(address, name, most, ttl), most)
    from routing.cache.places.redis_place import RedisPlace

    url = server.counting.store.get_secret_value() if where == "redis" else where
    if not url.startswith(("redis://", "rediss://", "unix://")):
        raise ProviderStartError(
            "`cache.exact.store: redis` is the Redis of `server.fleet`, and there is none: write"
            " its URL, as in redis://localhost:6379/0"
        )
    return SharedReplies(RedisPlace(url, name, most, ttl), most)
