"""Which wires vendors have whose API is OpenAI's, and where."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from urllib.parse import quote, urlsplit

from llama_compat.dialects.rerank.shapes import COHERES, VOYAGES
from llama_compat.errors import unsupported_capability

OPENAI_WIRES: Mapping[str, str] = MappingProxyType(
    {"chat": "/chat/completions", "completions": "/completions", "embeddings": "/embeddings"}
)
"""What a row has that does not say otherwise."""

CHAT_ONLY: Mapping[str, str] = MappingProxyType({"chat": "/chat/completions"})

CHAT_AND_EMBEDDINGS: Mapping[str, str] = MappingProxyType(
    {**CHAT_ONLY, "embeddings": "/embeddings"}
)

WITH_RESPONSES: Mapping[str, str] = MappingProxyType({**OPENAI_WIRES, "responses": "/responses"})

MODERATIONS: Mapping[str, str] = MappingProxyType({"moderations": "/moderations"})
IMAGES: Mapping[str, str] = MappingProxyType({"images": "/images/generations"})
IMAGE_EDITS: Mapping[str, str] = MappingProxyType({"image_edits": "/images/edits"})
SPEECH: Mapping[str, str] = MappingProxyType({"speech": "/audio/speech"})
LISTENING: Mapping[str, str] = MappingProxyType(
    {"transcriptions": "/audio/transcriptions", "translations": "/audio/translations"}
)
MEDIA: Mapping[str, str] = MappingProxyType(
    {**MODERATIONS, **IMAGES, **IMAGE_EDITS, **SPEECH, **LISTENING}
)

RERANK: Mapping[str, str] = MappingProxyType({"rerank": "/rerank", "rerank_v2": "/rerank"})
"""Where Cohere's API is at other vendors: of both its versions, as they tell the members apart."""

RERANK_SHAPES = {"rerank_v2": COHERES, "rerank": COHERES, "voyage_rerank": VOYAGES}
"""Whose words each wire is in; a vendor with several of them is asked by the first."""

RERANK_PARAMETERS: Mapping[str, frozenset[str]] = {
    "rerank_v2": frozenset({"max_tokens_per_doc"}),
    "rerank": frozenset(),
    "voyage_rerank": frozenset({"truncation"}),
}
"""What can be asked of each besides."""

ALL_WIRES: Mapping[str, str] = MappingProxyType(
    {
        **RERANK,
        "voyage_rerank": "/rerank",
        **MEDIA,
        **WITH_RESPONSES,
        "input_tokens": "/responses/input_tokens",
        "compact": "/responses/compact",
        "messages": "/messages",
        "count_tokens": "/messages/count_tokens",
    }
)
"""Where a wire is that a template names (`wires`) and the vendor's row does not."""

_ALONG_WITH = {
    "responses": ("input_tokens", "compact"),
    "messages": ("count_tokens",),
    "rerank": ("rerank_v2",),
}
"""What a vendor has that has the wire."""

_CAPABILITIES = {"chat": "chat completions"}
"""What a wire is called in messages, if not by its name."""


class VendorWires:
    """Those that one provider's vendor has.

    Args:
        provider: its id, for messages.
        base_url: the configured one.
        paths: where each wire is, as the vendor's row has it.
        named: the wires that the template names in their place; None for none.
        api_version: what a path may have a place for.

    Attributes:
        names: of the wires that there are.
    """

    def __init__(
        self,
        provider: str,
        base_url: str,
        paths: Mapping[str, str],
        named: Collection[str] | None,
        api_version: str,
    ) -> None:
        self._provider = provider
        self._api_version = api_version
        parts = urlsplit(base_url)
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._paths = paths
        if named is not None:
            wires = [wire for name in named for wire in (name, *_ALONG_WITH.get(name, ()))]
            self._paths = {wire: paths.get(wire, ALL_WIRES[wire]) for wire in wires}
        self.names = self._paths.keys()

    def __contains__(self, wire: str) -> bool:
        return wire in self._paths

    @property
    def responds_alone(self) -> bool:
        """Whether all that it says is said as responses."""
        return "responses" in self._paths and "chat" not in self._paths

    def place(self, wire: str, model: str) -> tuple[str, str | None]:
        """Where a wire is: the path, and the base URL that it is on if not the configured one.

        Args:
            wire: its name.
            model: the vendor's name for the model.

        Raises:
            APIError: 400, the vendor does not have it.
        """
        path = self._paths.get(wire)
        if path is None:
            raise unsupported_capability(self._provider, _CAPABILITIES.get(wire, wire))
        if "{" not in path:
            return path, None
        url = path.format(
            origin=self._origin, model=quote(model, safe=""), api_version=self._api_version
        )
        if path.startswith("{origin}"):
            return url.removeprefix(self._origin), self._origin
        return url, None
