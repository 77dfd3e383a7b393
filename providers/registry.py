"""Provider type -> what makes providers of it, imported only when a template names it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from llama_compat.distribution import ConfigModel
from llama_compat.distribution.problems import UnknownProviderType
from providers.base import Provider, ProviderConfig, ProviderModel
from providers.remote.openai.vendor import Vendor
from providers.remote.openai.vendors import VENDORS

CLASSES: Mapping[str, str] = {
    "local::echo": "providers.local.echo:EchoProvider",
    "local::llama_cpp": "providers.local.llama_cpp_engine.provider:LlamaCppProvider",
    "local::torch": "providers.local.torch_engine.provider:TorchProvider",
    "remote::anthropic-messages": "providers.remote.anthropic.provider:AnthropicMessagesProvider",
    "remote::bedrock-converse": "providers.remote.bedrock.provider:BedrockConverseProvider",
    "remote::fastchat": "providers.remote.fastchat:FastChatProvider",
    "remote::gemini-native": "providers.remote.gemini.provider:GeminiProvider",
    "remote::ollama-native": "providers.remote.ollama.provider:OllamaProvider",
    "remote::vertex": "providers.remote.gemini.vertex:VertexGeminiProvider",
    "remote::vertex-anthropic": "providers.remote.anthropic.vertex:VertexAnthropicProvider",
}
"""Types with a class of their own; those that speak OpenAI are rows of `VENDORS`."""

_OPENAI = "providers.remote.openai.provider:RemoteOpenAIProvider"

_VENDOR_CLASSES: Mapping[str, str] = {"remote::vllm": "providers.remote.vllm.provider:VLLMProvider"}
"""Types that speak OpenAI, with a class of their own for what else they have."""

_CONFIGS: Mapping[str, str] = {
    "remote::azure": "providers.remote.openai.settings:AzureConfig",
    "remote::bedrock": "providers.remote.openai.settings:BedrockOpenAIConfig",
}
"""Settings of types that have more of them than their class."""


@dataclass(frozen=True, slots=True)
class ProviderType:
    """What a template's `type` stands for; nothing is imported before it is used.

    Attributes:
        path: module and name of the class.
        config_path: module and name of its settings' class; None for the class's own `Config`.
        defaults: settings that differ from that class's.
        arguments: what the class is made with besides id, settings and models.
    """

    path: str
    config_path: str | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def provider(self) -> type[Provider]:
        """The class."""
        loaded: type[Provider] = _load(self.path)
        return loaded

    @property
    def config(self) -> ConfigModel:
        """What its settings have to be."""
        path = self.config_path
        return ConfigModel(self.provider.Config if path is None else _load(path), self.defaults)

    def make(
        self, provider_id: str, config: ProviderConfig, models: Sequence[ProviderModel]
    ) -> Provider:
        """A provider of this type."""
        made: Callable[..., Provider] = self.provider
        return made(provider_id, config, models, **self.arguments)


def provider_types() -> list[str]:
    """Every type that a template can name."""
    return sorted({*CLASSES, *VENDORS})


def provider_type(name: str) -> ProviderType:
    """The type `name`, such as `remote::openai`.

    Raises:
        UnknownProviderType: there is no such type.
    """
    if name in VENDORS:
        return _of_vendor(name, VENDORS[name])
    if name in CLASSES:
        return ProviderType(CLASSES[name])
    raise UnknownProviderType(name, provider_types())


def config_model(name: str) -> ConfigModel:
    """What the settings of the type `name` have to be; raises as `provider_type`."""
    return provider_type(name).config


def _of_vendor(name: str, vendor: Vendor) -> ProviderType:
    defaults = {} if vendor.base_url is None else {"base_url": vendor.base_url}
    path = _VENDOR_CLASSES.get(name, _OPENAI)
    return ProviderType(path, _CONFIGS.get(name), defaults, {"vendor": vendor})


def _load(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
