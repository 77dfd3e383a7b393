"""Provider type -> class, imported only when a template names it."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from llama_compat.distribution.problems import UnknownProviderType
from providers.base import Provider, ProviderConfig
from providers.remote.vendors import VENDORS

CLASSES = {
    "local::echo": "providers.local.echo:EchoProvider",
    "local::llama_cpp": "providers.local.llama_cpp_engine.provider:LlamaCppProvider",
    "local::torch": "providers.local.torch_engine.provider:TorchProvider",
    "remote::anthropic-messages": "providers.remote.anthropic_messages:AnthropicMessagesProvider",
    "remote::fastchat": "providers.remote.fastchat:FastChatProvider",
    "remote::gemini-native": "providers.remote.gemini_native:GeminiProvider",
    "remote::ollama-native": "providers.remote.ollama_native:OllamaProvider",
}
"""Types with a class of their own; those that speak OpenAI are rows of `VENDORS`."""


def provider_types() -> list[str]:
    """Every type that a template can name."""
    return sorted({*CLASSES, *VENDORS})


@cache
def provider_class(provider_type: str) -> type[Provider]:
    """The class that serves `provider_type`, such as `remote::openai`.

    Raises:
        UnknownProviderType: there is no such type.
    """
    if provider_type in VENDORS:
        from providers.remote.openai import vendor_provider

        return vendor_provider(provider_type)
    if provider_type not in CLASSES:
        raise UnknownProviderType(provider_type, provider_types())
    module, _, name = CLASSES[provider_type].partition(":")
    loaded: type[Provider] = getattr(import_module(module), name)
    return loaded


def config_model(provider_type: str) -> type[ProviderConfig]:
    """The class of the settings that `provider_type` has.

    Raises:
        UnknownProviderType: there is no such type.
    """
    return provider_class(provider_type).Config
