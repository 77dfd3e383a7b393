"""What there is on this machine to make a template of: vendors' keys, and servers that answer."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llama_compat.distribution import ProviderSettings

LOCAL_TYPES = (
    "remote::ollama",
    "remote::vllm",
    "remote::lmstudio",
    "remote::llama-cpp",
    "remote::sglang",
)
"""Servers that people run on their own machine; where each usually is stands in its vendor's row.
"""

OWNERS: Mapping[str, str] = {
    "library": "remote::ollama",
    "llamacpp": "remote::llama-cpp",
    "organization_owner": "remote::lmstudio",
    "sglang": "remote::sglang",
    "vllm": "remote::vllm",
}
"""What servers call the owner of their models, so that one at another's usual port is known."""

ANSWER_SECONDS = 1.0
MAX_ANSWER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """Something that a template can name as a provider.

    Attributes:
        id: what to call it there.
        type: the provider type.
        name: for people.
        why: how it was found.
        key_variable: the environment variable that has its key; empty if it needs none.
        base_url: where it is, if it is not where its vendor is.
        models: some that it has.
    """

    id: str
    type: str
    name: str
    why: str
    key_variable: str = ""
    base_url: str = ""
    models: tuple[str, ...] = ()


def vendors_in(environment: Mapping[str, str]) -> list[Source]:
    """Vendors whose key is in the environment."""
    from providers.remote.openai.vendors import VENDORS

    return [
        Source(
            type.removeprefix("remote::"),
            type,
            vendor.name,
            f"{vendor.key_variable} is set",
            vendor.key_variable,
        )
        for type, vendor in VENDORS.items()
        # One without an address of its own needs more than a key.
        if vendor.base_url and vendor.needs_key and environment.get(vendor.key_variable, "").strip()
    ]


def providers_of(
    vendors: Iterable[Source], environment: Mapping[str, str]
) -> list[ProviderSettings]:
    """The vendors as a template's providers, with the keys that `environment` has for them."""
    from llama_compat.distribution import ProviderSettings
    from providers.registry import config_model

    return [
        ProviderSettings(
            id=each.id,
            type=each.type,
            config=config_model(each.type).validate({"api_key": environment[each.key_variable]}),
        )
        for each in vendors
    ]


def local_servers(addresses: Mapping[str, str] | None = None) -> list[Source]:
    """Servers that answer at their usual address on this machine.

    Args:
        addresses: base URLs by provider type, in place of the usual ones.
    """
    from providers.remote.openai.vendors import VENDORS

    if addresses is None:
        addresses = {type: VENDORS[type].base_url or "" for type in LOCAL_TYPES}
    with ThreadPoolExecutor(len(addresses) or 1) as pool:
        answers = list(pool.map(_models_at, addresses.values()))
    found: list[Source] = []
    for (usual, base_url), models in zip(addresses.items(), answers, strict=True):
        if models is None:
            continue
        type = next((OWNERS[owner] for _, owner in models if owner in OWNERS), usual)
        names = tuple(name for name, _ in models)
        why = f"answers at {base_url} with {_listed(names)}"
        found.append(Source(_id(type, found), type, VENDORS[type].name, why, "", base_url, names))
    return found


def _models_at(base_url: str) -> Sequence[tuple[str, str]] | None:
    """Name and owner of each model that a server lists; None if there is no such server."""
    # Not through a proxy, whatever the environment says: it is this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{base_url}/models", timeout=ANSWER_SECONDS) as answer:
            listed = json.loads(answer.read(MAX_ANSWER_BYTES))["data"] or []
            return [(str(each["id"]), str(each.get("owned_by", ""))) for each in listed]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def _listed(names: Sequence[str]) -> str:
    if not names:
        return "no models"
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _id(type: str, others: Iterable[Source]) -> str:
    name = type.removeprefix("remote::")
    same = sum(other.type == type for other in others)
    return f"{name}-{same + 1}" if same else name
