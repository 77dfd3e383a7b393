"""The kinds of providers, each with something real or scripted behind it, in one server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conftest import STARTER_MODEL
from tests.integration.interactions_vendor import InteractionsVendor
from tests.integration.native_suite import Reply, Vendor
from tests.integration.native_vendor import Answer
from tests.integration.openai_vendor import OpenAIVendor
from tests.integration.server_process import ServerProcess, running, write_template
from tests.integration.test_native_anthropic import AnthropicVendor
from tests.integration.test_native_bedrock import BedrockVendor
from tests.integration.test_native_fastchat import FastChat
from tests.integration.test_native_gemini import GeminiVendor
from tests.integration.test_native_ollama import OllamaVendor
from tests.tiny_audio import make_audio_model
from tests.tiny_vision import make_vision_model

ALL = frozenset({"tools", "forced", "image", "schema", "stop", "effort", "thoughts"})


@dataclass(frozen=True)
class Kind:
    """One kind of provider.

    Attributes:
        model: the public model that leads to it.
        can: what it honours; the rest it has to refuse by name.
        vendor: the kind of vendor that is scripted behind it; None for one that is real.
        stops: the ways to end that the vendor has words for.
    """

    model: str
    can: frozenset[str]
    vendor: type[Vendor] | None = None
    stops: frozenset[str] = frozenset({"end", "length", "filter"})


KINDS: dict[str, Kind] = {
    "openai": Kind("openai", ALL | {"audio"}, OpenAIVendor),
    "anthropic-messages": Kind("anthropic", ALL, AnthropicVendor),
    "gemini-native": Kind("gemini", ALL | {"audio"}, GeminiVendor),
    "gemini-interactions": Kind("interactions", ALL | {"audio"}, InteractionsVendor),
    "ollama-native": Kind(
        "ollama", ALL - {"forced"}, OllamaVendor, stops=frozenset({"end", "length"})
    ),
    "bedrock-converse": Kind("bedrock", ALL, BedrockVendor),
    "fastchat": Kind("greets", frozenset({"stop", "image"})),
    "torch": Kind(STARTER_MODEL, frozenset({"tools", "forced", "schema", "stop"})),
    "llama_cpp": Kind("starter-gguf", frozenset({"tools", "forced", "schema", "stop"})),
    "echo": Kind("echo", frozenset({"tools", "forced", "stop"})),
}

GOOGLES = {"gemini-native": "generate_content", "gemini-interactions": "interactions"}
"""The kinds that are one type, and the API of Google's that each is scripted for."""

SEEING, HEARING = "sees", "hears"
"""Models of `torch` that take pictures, and audio."""

STARTERS = {"torch": "starter", "llama_cpp": "starter.gguf"}
"""The kinds that run a model, which is small and says what it likes, and what they call it."""


@dataclass
class Everything:
    """The server, and what is behind it.

    Attributes:
        server: it.
        vendors: those that are scripted, by kind.
    """

    server: ServerProcess
    vendors: dict[str, Vendor] = field(default_factory=dict)

    def will_say(self, kind: str, reply: Reply, *, as_text: bool = False) -> None:
        """Have the vendor of `kind` say `reply`; one that is real says what it says."""
        vendor = self.vendors.get(kind)
        if isinstance(vendor, OpenAIVendor) and as_text:
            vendor.will_say_as_text(reply)
        elif vendor is not None:
            vendor.will_say(reply)

    def will_answer(self, kind: str, answer: Answer) -> None:
        """Have the vendor of `kind` answer so, streamed or not."""
        self.vendors[kind].server.will_answer(answer)


@contextmanager
def everything(folder: Path) -> Iterator[Everything]:
    """A server that has every kind of provider."""
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(kind.vendor.server_type())
            for name, kind in KINDS.items()
            if kind.vendor
        }
        fastchat = FastChat(folder)
        stack.callback(fastchat.close)
        fastchat.start_worker("greets", "holds")

        def keyed(name: str) -> dict[str, Any]:
            return {"base_url": servers[name].url, "api_key": "sk-x"}

        configs: dict[str, tuple[str, dict[str, Any]]] = {
            "openai": ("remote::passthrough", {"base_url": f"{servers['openai'].url}/v1"}),
            "fastchat": ("remote::fastchat", {"base_url": fastchat.controller}),
            # More threads wait for each other by turning round, where many tests run.
            **{name: (f"local::{name}", {"threads": 1}) for name in STARTERS},
            "echo": ("local::echo", {}),
            **{
                name: ("remote::gemini-native", {**keyed(name), "apis": [api]})
                for name, api in GOOGLES.items()
            },
            "anthropic-messages": ("remote::anthropic-messages", keyed("anthropic-messages")),
            "bedrock-converse": ("remote::bedrock-converse", keyed("bedrock-converse")),
            "ollama-native": (
                "remote::ollama-native",
                {"base_url": servers["ollama-native"].url},
            ),
        }
        more = {
            SEEING: make_vision_model(folder / "seeing", "qwen2_5_vl"),
            HEARING: make_audio_model(folder / "hearing", "qwen2_audio"),
        }
        template = write_template(
            folder / "everything.yaml",
            providers=[
                {"id": name, "type": type, "config": config}
                for name, (type, config) in configs.items()
            ],
            models=[
                {
                    "id": kind.model,
                    "provider": name,
                    "provider_model": {
                        **STARTERS,
                        "fastchat": "greets",
                        "echo": "echo",
                        "anthropic-messages": "claude",
                        "bedrock-converse": "anthropic.claude-x",
                    }.get(name, "theirs"),
                    "context_length": 2048 if name in STARTERS else None,
                }
                for name, kind in KINDS.items()
            ]
            + [
                {"id": model, "provider": "torch", "provider_model": str(path)}
                for model, path in more.items()
            ],
        )
        process = stack.enter_context(running(template))
        yield Everything(
            process,
            {
                name: kind.vendor(servers[name], process.base_url)
                for name, kind in KINDS.items()
                if kind.vendor is not None
            },
        )
