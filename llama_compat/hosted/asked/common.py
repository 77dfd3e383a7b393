"""What several APIs say of the server's tools in the same way: domains, where the user is, how much
is wanted; and what is not known here of what they say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, cast

from llama_compat.dialects.gemini.members import spelling, spellings
from llama_compat.dialects.members import as_list, as_object, optional_text_in, wrong_type
from llama_compat.errors import invalid_parameter
from llama_compat.hosted.vocabulary import UserLocation, kind_of

_PLACES = UserLocation.__struct_fields__

_WEB = frozenset(
    {"name", "filters", "allowed_domains", "blocked_domains", "max_uses", "cache_control"}
)

_READ: Mapping[str, frozenset[str]] = {
    "web_search": _WEB | {"user_location", "search_context_size"},
    "web_fetch": _WEB | {"max_content_tokens", "citations"},
    "file_search": frozenset({"vector_store_ids", "max_num_results", "filters", "ranking_options"}),
    "mcp": frozenset(
        {
            "server_label",
            "server_url",
            "connector_id",
            "authorization",
            "headers",
            "allowed_tools",
            "require_approval",
            "mcp_server_name",
            "default_config",
            "configs",
            "cache_control",
        }
    ),
}
"""The settings of each kind of tool that are read, in OpenAI's words and Anthropic's."""

_USUAL: Mapping[str, tuple[Any, ...]] = {
    "external_web_access": (True,),
    "response_inclusion": ("full",),
    "search_content_types": (["text"],),
    "use_cache": (True,),
}
"""Values of others that ask for what is so anyway; of all others those do that are empty."""


def unread_settings(tool: Mapping[str, Any], path: str) -> Iterator[str]:
    """The paths of the settings of a tool that are not known here, where it is one that a server
    runs."""
    named = tool.get("type")
    kind = kind_of(named) if isinstance(named, str) else None
    if kind is None:
        return
    for name, value in tool.items():
        if name == "type" or name in _READ[kind] or value is None:
            continue
        if value in _USUAL[name] if name in _USUAL else not value:
            continue
        if name == "allowed_callers" and isinstance(value, list) and "direct" in value:
            continue
        yield f"{path}.{name}"


def googles_spelling(tool: Mapping[str, Any], name: str) -> str:
    """How the member `name` is written in a tool of Google's: those of Interactions, which have a
    type, have but one spelling, and generateContent takes two."""
    return spellings(name)[-1] if "type" in tool else spelling(tool, name)


ContextSize = Literal["low", "medium", "high"]


def parse_context_size(value: Any, path: str) -> ContextSize:
    """`search_context_size`, which may be missing.

    Raises:
        APIError: 400, it is none.
    """
    if value is None:
        return "medium"
    if value not in ("low", "medium", "high"):
        raise invalid_parameter(path, f"'{path}' must be 'low', 'medium' or 'high'.")
    return cast(ContextSize, value)


def parse_texts(value: Any, path: str) -> tuple[str, ...]:
    """A list of texts, which may be missing.

    Raises:
        APIError: 400, it is none.
    """
    texts = as_list(value, path)
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise wrong_type(f"{path}[{index}]", "a string")
    return tuple(texts)


def parse_location(value: Any, path: str) -> UserLocation | None:
    """Where the user is (`{"type": "approximate", "city": ...}`); chat completions have the members
    one level further in.

    Raises:
        APIError: 400 with the path of what is malformed.
    """
    if value is None:
        return None
    location: Mapping[str, Any] = as_object(value, path)
    if isinstance(location.get("approximate"), dict):
        location, path = location["approximate"], f"{path}.approximate"
    told = UserLocation(*(optional_text_in(location, name, path) for name in _PLACES))
    return told if told.members else None
