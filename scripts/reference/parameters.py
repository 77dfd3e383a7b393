"""Which parameters each provider honours, and which client APIs are relayed to it."""

from __future__ import annotations

from collections.abc import Iterable

from llama_compat.mixins import ChatOnlyMixin
from providers.base import Provider
from providers.registry import CLASSES, provider_type
from providers.remote.openai.vendor import OPENAI_WIRES
from providers.remote.openai.vendors import VENDORS
from scripts.reference.markdown import code, table
from scripts.reference.markdown import page as page_of

INTRODUCTION = """\
A client's API reaches every provider. A provider that speaks it itself is *relayed* to: the request
goes on as it came, but for the model's name. For all others it is *translated*.
[Relayed or translated](../concepts/relayed-or-translated.md) says what that means."""

HONOURED = """\
## Parameters

[Vendors](vendors.md) that speak OpenAI take every parameter that they have themselves. These
providers speak something else. What a column does not have is refused by name, or dropped and named
where the template says `unsupported: drop`. What every request has (`model`, `messages`, `prompt`,
`stream`, `n`, `user`, ...) is not listed."""

OPERATIONS = ("chat", "completions", "embeddings", "responses", "messages")
NATIVE = (("ollama_chat",), ("gemini_generate",), ("interactions",))


def page() -> str:
    """What providers honour."""
    names = sorted(CLASSES)
    providers = [provider_type(name).provider for name in names]
    honoured = sorted(set().union(*(each.parameters for each in providers)))
    rows = [
        (code(name), *("yes" if name in each.parameters else "" for each in providers))
        for name in honoured
    ]
    return page_of(
        "What providers honour",
        INTRODUCTION,
        "## Client APIs",
        relayed(),
        HONOURED,
        capabilities(),
        table(("parameter", *map(_short, names)), rows),
    )


def relayed() -> str:
    """Which client APIs are relayed to which providers."""
    particular = sorted(
        type for type, vendor in VENDORS.items() if set(vendor.wires) != set(OPENAI_WIRES)
    )
    rows = [_of_vendor(type, VENDORS[type].wires) for type in particular]
    rows.append(_relayed("all other vendors", VENDORS["remote::passthrough"].wires))
    for type in sorted(CLASSES):
        provider = provider_type(type).provider
        embeds = provider.embed is not Provider.embed
        rows.append(_relayed(code(type), provider.relays, "translated" if embeds else ""))
    head = (
        "provider",
        *OPERATIONS[:3],
        "Responses",
        "Messages",
        "Ollama",
        "Gemini",
        "Interactions",
    )
    return table(head, rows)


def _of_vendor(type: str, wires: Iterable[str]) -> tuple[str, ...]:
    # All that a vendor does not have is translated to its chat completions.
    return _relayed(code(type), wires, otherwise="translated" if "chat" in wires else "")


def _relayed(
    name: str, wires: Iterable[str], embeddings: str = "", *, otherwise: str = "translated"
) -> tuple[str, ...]:
    has = set(wires)
    cells = ["relayed" if each in has else otherwise for each in OPERATIONS]
    if "embeddings" not in has:
        cells[2] = embeddings
    native = ["relayed" if set(each) & has else otherwise for each in NATIVE]
    return (name, *cells, *native)


def capabilities() -> str:
    """What those that speak no OpenAI can do."""
    rows = []
    for type in sorted(CLASSES):
        provider = provider_type(type).provider
        completions = "as a chat" if issubclass(provider, ChatOnlyMixin) else "yes"
        embeds = provider.openai_embeddings is not Provider.openai_embeddings
        rows.append((code(type), "yes", completions, "yes" if embeds else ""))
    return table(("provider", "chat", "completions", "embeddings"), rows)


def _short(type: str) -> str:
    return code(type.partition("::")[2])
