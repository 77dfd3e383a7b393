"""Settings of the tools that the server runs."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    SecretStr,
    model_validator,
)

from llama_compat.settings.fields import Name as _Name
from llama_compat.settings.fields import NothingIsEmpty as _NothingIsEmpty
from llama_compat.settings.fields import Positive as _Positive
from llama_compat.settings.model import TemplateSettings
from llama_compat.settings.secret_kinds import ARGUMENTS

_Seconds = Annotated[float, Field(gt=0, le=3600)]


def _check_url(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ValueError("expected a URL such as https://search.example.com")
    return url.rstrip("/")


_URL = Annotated[str, AfterValidator(_check_url)]


class FieldMapping(TemplateSettings):
    """Where a search's answer has what is shown of a result; each is the members' names on the way
    to it, with dots between them."""

    results: str = "results"
    """The list of results, in the whole answer; empty where that is the list."""

    url: _Name = "url"
    """In a result: where it is."""

    title: str = "title"
    """In a result: what it is called."""

    text: str = "content"
    """In a result: what it says."""

    age: str = ""
    """In a result: how old it is; empty for nowhere."""


SearchBackend = Literal["searxng", "brave", "tavily", "exa", "http", "command", "files"]


class WebSearchSettings(TemplateSettings):
    """Who searches the web for models."""

    backend: SearchBackend
    """`searxng`, `brave`, `tavily` and `exa` are those services; `http` is any other, `command` a
    program of this machine, and `files` looks in a folder, for tests."""

    url: _URL | None = None
    """Where the service is: SearXNG's address, or for `http` the whole URL, in which `{query}` and
    `{count}` stand for what is wanted. The others have one that is known."""

    api_key: SecretStr | None = None
    """The service's key."""

    headers: dict[str, SecretStr] = {}
    """Sent with each search, for `http` and `searxng`."""

    body: dict[str, str | int | bool] | None = None
    """For `http`: the members of a JSON object that is sent by POST, in whose texts `{query}` and
    `{count}` stand for what is wanted; without it the search is a GET."""

    command: Annotated[list[_Name], _NothingIsEmpty, ARGUMENTS] = []
    """For `command`: the program and its arguments. It gets `{"query", "count"}` as JSON, and
    prints JSON."""

    env: dict[str, SecretStr] = {}
    """For `command`: the program's environment, besides `PATH` and the like."""

    folder: _Name | None = None
    """For `files`: where the files are. A file's first line is the title, and its name the path of
    the URL `https://files.example/`, unless its second line is a URL."""

    mapping: FieldMapping = FieldMapping()
    """For `http` and `command`: where the answer has what is shown."""

    max_results: Annotated[int, Field(ge=1, le=50)] = 5
    """Of one search; half as many where a request wants little (`search_context_size: low`), and
    twice as many where it wants much."""

    max_uses: _Positive = 8
    """Searches for one reply, where the request does not say less."""

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> Self:
        needed = {
            "searxng": "url",
            "http": "url",
            "brave": "api_key",
            "tavily": "api_key",
            "exa": "api_key",
            "command": "command",
            "files": "folder",
        }[self.backend]
        if not getattr(self, needed):
            raise ValueError(f"the backend '{self.backend}' needs '{needed}'")
        return self


class WebFetchSettings(TemplateSettings):
    """What models may read of the web; `{}` for the usual way."""

    max_uses: _Positive = 10
    """Pages for one reply, where the request does not say less."""

    max_bytes: _Positive = 5 * 1024 * 1024
    """Of a page; a larger one is refused."""

    allowed_domains: Annotated[list[_Name], _NothingIsEmpty] = []
    """Only these, and what is below them; with none, all."""

    blocked_domains: Annotated[list[_Name], _NothingIsEmpty] = []
    """None of these, nor of what is below them."""

    any_url: bool = False
    """Let models read URLs that nothing in the conversation names. A page could have them send what
    they know to a server of its own."""

    allow_private_addresses: bool = False
    """Read from the server's own network too: only where every caller may see all of it."""


_LABEL = re.compile(r"[A-Za-z0-9_-]{1,40}")


def _check_label(label: str) -> str:
    if not _LABEL.fullmatch(label):
        raise ValueError("expected letters, digits, '_' and '-', 40 at most")
    return label


class MCPServerSettings(TemplateSettings):
    """A server of the Model Context Protocol."""

    label: Annotated[str, AfterValidator(_check_label)]
    """What requests call it (`server_label`)."""

    url: _URL | None = None
    """Where it is, if it is reached by streamable HTTP; this or `command`."""

    command: Annotated[list[_Name], _NothingIsEmpty, ARGUMENTS] = []
    """The program and its arguments, if it is talked to by its standard input and output. One
    process is started for each reply, and ended with it."""

    env: dict[str, SecretStr] = {}
    """The program's environment, besides `PATH` and the like."""

    headers: dict[str, SecretStr] = {}
    """Sent with each HTTP request."""

    allowed_tools: list[_Name] | None = None
    """Only these of its tools; without it, all."""

    require_approval: Literal["always", "never"] | list[_Name] = "never"
    """Which calls wait for the user's word, whatever a request says: all, none, or those of the
    tools that are named. Only the Responses API can ask for it; others do not get such tools."""

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if bool(self.url) == bool(self.command):
            raise ValueError("give either 'url' or 'command', not both")
        return self


class MCPSettings(TemplateSettings):
    """Servers whose tools models may call; needs `pip install 'llama-compat[mcp]'`."""

    servers: Annotated[list[MCPServerSettings], _NothingIsEmpty] = []
    """The template's own, which requests name by their labels."""

    from_requests: bool = False
    """Let requests name servers by URL (`server_url`); only those on the public internet are
    connected to."""

    allow_private_addresses: bool = False
    """Connect to those in the server's own network too."""

    max_tools: _Positive = 128
    """Of one server; more are left out."""

    @model_validator(mode="after")
    def _labels_differ(self) -> Self:
        labels = [each.label for each in self.servers]
        if len(set(labels)) < len(labels):
            raise ValueError("two of 'servers' have the same 'label'")
        return self

    def own(self, label: str, url: str) -> MCPServerSettings | None:
        """The template's server that a request means by a label, and a URL if it gives one."""
        named = (each for each in self.servers if each.label == label)
        return next((each for each in named if url in ("", each.url)), None)


class FileSearchSettings(TemplateSettings):
    """Search in the files of vector stores."""

    max_results: Annotated[int, Field(ge=1, le=50)] = 10
    """Pieces of files that one search gives, where the request does not say."""

    max_uses: _Positive = 8
    """Searches for one reply."""


class ToolsSettings(TemplateSettings):
    """Tools that the server runs for models, and how far it goes for one reply."""

    web_search: WebSearchSettings | None = None
    """The web search of OpenAI, Anthropic and Google, for models whose vendors have none, or none
    that can be told what a request says of it."""

    web_fetch: WebFetchSettings | None = None
    """Anthropic's web fetch, for the same."""

    file_search: FileSearchSettings | None = None
    """`file_search` of the Responses API, in the vector stores of this server
    (`server.vector_stores`); `{}` for the usual way. Stores that are not here are the vendor's."""

    mcp: MCPSettings | None = None
    """`mcp` of the Responses API and `mcp_servers` of the Messages API, for the same."""

    max_turns: Annotated[int, Field(ge=2, le=100)] = 10
    """How often a model is asked for one reply; the last time it may call no tool of the server's.
    """

    max_parallel: Annotated[int, Field(ge=1, le=64)] = 4
    """Calls of one reply side by side."""

    max_seconds: _Seconds = 30
    """For one call."""

    max_result_bytes: Annotated[int, Field(ge=256)] = 64 * 1024
    """What a call gives to the model; the rest is cut off."""

    max_tokens: _Positive | None = None
    """Of all prompts and completions of one reply, after which the model is not asked again."""

    max_cost: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """In US dollars, the same; for models whose price is known."""
