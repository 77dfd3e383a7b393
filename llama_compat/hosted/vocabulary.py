"""Tools that the server runs, in the vocabulary: which a request asks for, and what a reply shows.

The names are those of OpenAI's Responses API
(openai 3.52.0, types/responses/tool_param.py), which has the most of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from msgspec import Struct, structs

# --------------------------------------------------------------------------------------------------
# What a request asks for
# --------------------------------------------------------------------------------------------------


class UserLocation(Struct, frozen=True):
    """Where a user is, in words; None for what nobody says.

    Attributes:
        city, region: as people call them.
        country: of two letters (ISO 3166-1).
        timezone: as IANA calls it.
    """

    city: str | None = None
    region: str | None = None
    country: str | None = None
    timezone: str | None = None

    @property
    def members(self) -> dict[str, str]:
        """What is said, by the names that OpenAI and Anthropic have for it."""
        return {name: each for name, each in structs.asdict(self).items() if each}

    def __str__(self) -> str:
        return ", ".join(self.members.values())


class WebSearchTool(Struct, frozen=True, tag="web_search"):
    """The model may search the web.

    Attributes:
        name: what the model calls it.
        allowed_domains: only results from these, and what is below them; with none, from all.
        blocked_domains: none from these, nor from what is below them.
        location: where the user is; None where nobody says.
        max_uses: how often, in this reply; None for as often as the server lets it.
        context_size: how much of what is found is wanted.
    """

    name: str
    allowed_domains: tuple[str, ...] = ()
    blocked_domains: tuple[str, ...] = ()
    location: UserLocation | None = None
    max_uses: int | None = None
    context_size: Literal["low", "medium", "high"] = "medium"


class WebFetchTool(Struct, frozen=True, tag="web_fetch"):
    """The model may read what is at an address of the web.

    Attributes:
        name, allowed_domains, blocked_domains, max_uses: as in `WebSearchTool`.
        max_content_tokens: about so much of a page is given to the model; None for as much as the
            server lets it.
    """

    name: str
    allowed_domains: tuple[str, ...] = ()
    blocked_domains: tuple[str, ...] = ()
    max_uses: int | None = None
    max_content_tokens: int | None = None


class MCPTool(Struct, frozen=True, tag="mcp"):
    """The model may call the tools of a server of the Model Context Protocol.

    Attributes:
        label: what the request calls the server.
        url: where it is; empty for one that the template has under this label.
        authorization: a token for it, from the request.
        headers: more for it, from the request.
        allowed_tools: only these of its tools; None for all.
        asks_before: which calls need the user's word: `always`, `never`, or the tools that need it;
            None for what the template says.
    """

    label: str
    url: str = ""
    authorization: str = ""
    headers: Mapping[str, str] = {}
    allowed_tools: tuple[str, ...] | None = None
    asks_before: Literal["always", "never"] | tuple[str, ...] | None = None


class Comparison(Struct, frozen=True, tag="comparison"):
    """A file's attribute is held against a value.

    Attributes:
        operator: how.
        key: the attribute's name.
        value: that; several for `in` and `nin`.
    """

    operator: Literal["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin"]
    key: str
    value: str | float | bool | tuple[str | float | bool, ...]


class Compound(Struct, frozen=True, tag="compound"):
    """All of several filters, or one of them at least, or none."""

    operator: Literal["and", "or", "none"]
    filters: tuple[Comparison | Compound, ...]


AttributeFilter = Comparison | Compound
"""Which files are meant, by their attributes."""


class Ranking(Struct, frozen=True):
    """How what is found in files is put into an order.

    Attributes:
        by_words: whether by words too; otherwise by meaning alone, each with its similarity.
        threshold: what has a lower score is left out.
        embedding_weight, text_weight: what the order by meaning counts, and that by words.
    """

    by_words: bool = True
    threshold: float = 0.0
    embedding_weight: float = 1.0
    text_weight: float = 1.0


class FileSearchTool(Struct, frozen=True, tag="file_search"):
    """The model may search the files of vector stores.

    Attributes:
        name: what the model calls it.
        stores: the ids of the stores.
        max_results: of one search; None for as many as the server gives.
        filter: only in files that pass it; None for all.
        ranking: how what is found is put into an order.
    """

    name: str
    stores: tuple[str, ...]
    max_results: int | None = None
    filter: AttributeFilter | None = None
    ranking: Ranking = Ranking()


HostedTool = WebSearchTool | WebFetchTool | MCPTool | FileSearchTool

HostedKind = Literal["web_search", "web_fetch", "file_search", "mcp"]
"""The kinds of them, as settings name them."""

WEB_SEARCH: Final = "web_search"
"""The kind of `WebSearchTool`."""

GOOGLES_TOOLS: Mapping[str, str] = {
    "googleSearch": WEB_SEARCH,
    "google_search": WEB_SEARCH,
    "urlContext": "web_fetch",
    "url_context": "web_fetch",
    "fileSearch": "file_search",
    "file_search": "file_search",
    "mcpServers": "mcp",
    "mcp_servers": "mcp",
}
"""The members of a tool by which clients of Google's generateContent ask for one, in both of their
spellings, and which tool of `HostedTool` each is."""

GOOGLES_STORES = "fileSearchStores/"
"""How the names of Google's file search stores begin; ids of this server's may have that before
them."""

NAMES: Mapping[str, str] = {
    "web_search": WEB_SEARCH,
    "web_fetch": "web_fetch",
    "mcp": "mcp",
    **GOOGLES_TOOLS,
}
"""How the names of tools' types begin in all APIs, and which tool of `HostedTool` each is."""


def kind_of(name: str) -> str | None:
    """Which tool of `HostedTool` an API means by the type `name`, as in `web_search_20250305`, or
    says the work of, as in `mcp_call`; None for others."""
    for begin, kind in NAMES.items():
        rest = name.removeprefix(begin)
        if rest != name and (not rest or rest.startswith("_")):
            return kind
    return None


def free_name(wanted: str, taken: set[str]) -> str:
    """`wanted`, or what comes next that is not in `taken`, where it is from now on."""
    name, number = wanted, 2
    while name in taken:
        name = f"{wanted[:60]}_{number}"
        number += 1
    taken.add(name)
    return name


# --------------------------------------------------------------------------------------------------
# What a reply shows
# --------------------------------------------------------------------------------------------------


class WebSource(Struct, frozen=True, tag="web"):
    """Something that a tool has found in the web: where, what it is called, what it says, and how
    old it is in words."""

    url: str
    title: str = ""
    text: str = ""
    age: str | None = None

    @property
    def link(self) -> str:
        """By what a text names it."""
        return self.url


class FileSource(Struct, frozen=True, tag="file"):
    """A piece of a file that a tool has found.

    Attributes:
        file_id, filename: of the file.
        text: what it says.
        score: how well it fits, from 0 to 1.
        attributes: of the file in its store.
        store: the id of that.
    """

    file_id: str
    filename: str
    text: str = ""
    score: float = 0.0
    attributes: Mapping[str, str | float | bool] = {}
    store: str = ""

    @property
    def link(self) -> str:
        """By what a text names it."""
        return self.file_id


Source = WebSource | FileSource


CallKind = Literal[
    "web_search", "web_fetch", "file_search", "mcp", "mcp_list_tools", "mcp_approval_request"
]


class HostedCall(Struct, frozen=True, tag="hosted_call"):
    """A call that the server has run, or runs, or lets the user decide on.

    Attributes:
        call_id: the call's, as the model made it.
        kind: what it is; `mcp_list_tools` is none of the model's, and shows what a server has;
            `mcp_approval_request` waits for the user's word.
        name: the tool's own name.
        arguments_json: what the model wrote.
        server: the label of its MCP server.
        status: where it stands.
        output: what the model is told.
        error: a word for what went wrong; the words for people are in `output`.
        sources: what was found.
        tools: what the server has, each with `name`, `description`, `input_schema` and
            `annotations`.
        model_name: what the model calls the tool.
        images: what it shows to the model, as `data:` URLs.
        approval_id: the request for the user's word that it had to wait for.
        beside: whether the model has made it together with the one that is shown before it.
    """

    call_id: str
    kind: CallKind
    name: str
    arguments_json: str = "{}"
    server: str = ""
    status: Literal["in_progress", "completed", "failed"] = "in_progress"
    output: str = ""
    error: str | None = None
    sources: tuple[Source, ...] = ()
    tools: tuple[dict[str, Any], ...] = ()
    model_name: str = ""
    images: tuple[str, ...] = ()
    approval_id: str | None = None
    beside: bool = False


class HostedCallDelta(Struct, frozen=True, tag="hosted_call"):
    """News of a call that the server runs: that it runs, and then that it has ended."""

    call: HostedCall


class Citation(Struct, frozen=True):
    """A place in a text where the model names what it has found.

    Attributes:
        start, end: in characters from the beginning of its part; `end` is behind the last one.
        source: what it names.
        text: what it says there.
    """

    start: int
    end: int
    source: Source
    text: str = ""


class CitationDelta(Struct, frozen=True, tag="citation"):
    """A place in the text that has come of this part."""

    citation: Citation
