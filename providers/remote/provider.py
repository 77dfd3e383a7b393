"""What all remote providers have: a connection pool, and the list of the vendor's models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, ClassVar

from providers.base import Provider, ProviderConfig, ProviderModel
from providers.remote.config import RemoteConfig
from providers.remote.relaying.json_objects import read_object
from providers.remote.upstream.discovery import Discovery
from providers.remote.upstream.exchanges import Upstream, UpstreamExchange


class RemoteProvider(Provider):
    """A provider that is reached over HTTP.

    A subclass says what headers its requests have, how the vendor lists its models, and what is
    asked of it.
    """

    Config: ClassVar[type[ProviderConfig]] = RemoteConfig
    pays_each_choice = True
    config: RemoteConfig

    def __init__(
        self, provider_id: str, config: ProviderConfig, models: Sequence[ProviderModel]
    ) -> None:
        super().__init__(provider_id, config, models)
        self.parameters = self.parameters - self.config.unsupported_parameters
        self.upstream = Upstream(
            provider_id,
            self.config,
            self.request_headers(),
            self.config.request_credentials(provider_id),
        )
        self._discovery = Discovery(
            provider_id, self.live_models, self.config.models_refresh_seconds
        )
        self._running = AsyncExitStack()

    @property
    def api_key(self) -> str:
        """The template's key; empty if there is none."""
        key = self.config.api_key
        return "" if key is None else key.get_secret_value().strip()

    def request_headers(self) -> dict[str, str]:
        """The headers of each request, the key's among them."""
        return {"authorization": f"Bearer {self.api_key}"} if self.api_key else {}

    async def listed(
        self, listing: UpstreamExchange, parse: Callable[[Mapping[str, Any]], list[str]]
    ) -> list[str]:
        """The models that an answer lists.

        Raises:
            APIError: 502, it is no list, or larger than the template lets one be; what went wrong
                with the vendor.
        """
        async with listing as response:
            return await read_object(self.id, response, parse, max_bytes=self.config.max_list_bytes)

    def is_same_vendor(self, other: RemoteProvider) -> bool:
        """Whether the other one's vendor is this one's, at the same address."""
        return type(other) is type(self) and other.config.base_url == self.config.base_url

    def adopt(self, previous: Provider) -> None:
        """Take over what is known of the vendor's models, if it is the same vendor."""
        if isinstance(previous, RemoteProvider) and self.is_same_vendor(previous):
            self._discovery.models = previous.discovered_models()

    async def start(self) -> None:
        """Open the connection pool, and look for models if the template wants it; a vendor that
        takes its time to list them is not waited for."""
        self._running.push_async_callback(self.upstream.stop)
        await self.upstream.start()
        if self.config.models == "discover":
            self._running.push_async_callback(self._discovery.stop)
            await self._discovery.start()

    async def stop(self) -> None:
        """Close what `start` opened."""
        await self._running.aclose()

    def discovered_models(self) -> Sequence[str]:
        """What the vendor listed last, if the template wants its models."""
        return self._discovery.models
