"""What a template says of the server itself: how it listens, what it accepts, and what it keeps."""

from __future__ import annotations

from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, Field, SecretStr, model_validator

from llama_compat.distribution.access import (
    CorsSettings,
    FleetOrStore,
    FleetSettings,
    LimitStore,
    LimitStoreSettings,
    counted_together,
)
from llama_compat.distribution.observability import (
    BatchesSettings,
    CacheSettings,
    FilesSettings,
    RecordsSettings,
    StorageAddress,
    TracesSettings,
    default_storage,
)
from llama_compat.distribution.vector_stores import VectorStoresSettings
from llama_compat.hosted.settings import ToolsSettings
from llama_compat.settings.fields import Name as _Name
from llama_compat.settings.fields import NothingIsEmpty as _NothingIsEmpty
from llama_compat.settings.model import TemplateSettings

_Seconds = Annotated[float, Field(gt=0, le=86400)]


MIN_KEY_CHARACTERS = 8
"""A shorter key can be tried out; and an empty one would let in who sends none."""


def _check_key(key: SecretStr) -> SecretStr:
    text = key.get_secret_value().strip()
    if len(text) < MIN_KEY_CHARACTERS:
        raise ValueError(
            f"expected a key of at least {MIN_KEY_CHARACTERS} characters, got"
            f" {f'one of {len(text)}' if text else 'an empty one'}; `openssl rand -hex 24` makes"
            " a good one"
        )
    return SecretStr(text)


APIName = Literal["openai", "responses", "messages", "ollama", "gemini", "interactions"]


class ResponsesStoreSettings(TemplateSettings):
    """For how long responses, and Google's interactions, are kept, and how many."""

    path: _Name | None = None
    """An SQLite file of their own, as it was once; without it they are in `server.storage`."""

    ttl: Annotated[int, Field(ge=1)] = 30 * 24 * 3600
    """Seconds after which a response is forgotten."""

    max_bytes: Annotated[int, Field(ge=1)] = 1 << 30
    """Of responses and their input; the oldest make room for the newest."""


class ReasoningMemorySettings(TemplateSettings):
    """How much is kept of what models thought when they called tools, in the process that answered.

    What bounds is met forgets what was not asked for for longest.
    """

    seconds: _Seconds = 3600
    """What no request has needed for so long is forgotten."""

    max_turns: Annotated[int, Field(ge=1)] = 10_000
    """Replies of which it is kept."""

    max_bytes: Annotated[int, Field(ge=1024)] = 64 * 1024 * 1024
    """What all of it may come to."""


class AdminSettings(TemplateSettings):
    """What the page and `/admin/` may do besides."""

    can_edit: bool = False
    """Let who has the admin key check changed templates, and take one over. A template names
    programs to run and files to read: the admin key opens as much then as a shell of the server's
    user does."""


class WebSocketSettings(TemplateSettings):
    """How long a WebSocket is kept; all else that bounds a connection holds for it too."""

    max_seconds: Annotated[float, Field(gt=0, le=3600)] = 3600
    """From its handshake on; what runs then ends. OpenAI's Responses API has an hour."""

    idle_seconds: _Seconds = 600
    """How long it is kept while nothing is asked on it. A client's tools run meanwhile."""

    ping_seconds: _Seconds = 30
    """A client of which nothing was heard for so long is sent a ping."""

    pong_seconds: _Seconds = 120
    """How long a client may leave that without an answer."""


class ServerSettings(TemplateSettings):
    """How the server listens, and what it accepts."""

    host: _Name = "127.0.0.1"
    """The address to listen on: this machine's own by default, 0.0.0.0 for every network."""

    port: Annotated[int, Field(ge=0, le=65535)] = 8321
    """0 takes a free one."""

    api_keys: Annotated[
        list[Annotated[SecretStr, AfterValidator(_check_key)]], _NothingIsEmpty
    ] = []
    """Clients send one of them; with none, everybody is let in."""

    admin_key: Annotated[SecretStr, AfterValidator(_check_key)] | None = None
    """Opens `/admin/`, and what `metrics_key` opens; without it there is no `/admin/`."""

    admin: AdminSettings = AdminSettings()
    """What may be done with the admin key besides."""

    metrics_key: Annotated[SecretStr, AfterValidator(_check_key)] | None = None
    """For who scrapes `/metrics`: opens that and the targets in `/health`, and no model. So do the
    admin key and `api_keys`; where there are no keys, everybody may, unless this is set."""

    stored_keys: bool = False
    """Let in who has a key that was made with `llama-compat keys create` or in `/admin/`; they are
    in `storage`."""

    limits: LimitStore = LimitStoreSettings()
    """Where the limits of keys, teams, models and providers are counted, if there is no `fleet`."""

    fleet: FleetOrStore | None = None
    """What this gateway shares with others that serve the same template."""

    cors: CorsSettings | None = None
    """Web pages that may use the server; none without it."""

    max_body_bytes: Annotated[int, Field(ge=1)] = 64 * 1024 * 1024
    """Larger requests are refused with 413."""

    max_bodies_bytes: Annotated[int, Field(ge=1)] = 512 * 1024 * 1024
    """What the bodies of all requests together may come to while they are answered; a request that
    would be over it is told to come again with 503."""

    max_header_bytes: Annotated[int, Field(ge=1024)] = 64 * 1024
    """Requests with longer headers, the target included, are refused with 431."""

    max_headers: Annotated[int, Field(ge=1)] = 200
    """Requests with more headers are refused with 431."""

    max_connections: Annotated[int, Field(ge=1)] = 4096
    """At a time. One more takes the place of the one that has been idle for longest, or is refused
    with 503."""

    header_seconds: _Seconds = 20
    """How long the headers of a request may take to come, or a new connection may be silent."""

    body_seconds: _Seconds = 30
    """How long a request's body may come without progress."""

    idle_seconds: _Seconds = 75
    """How long a connection is kept between two requests. Longer than the usual clients keep
    theirs, so that it is they who close it and never find it closed under a request."""

    write_seconds: _Seconds = 60
    """How long a client may leave its answer untaken before the connection is closed."""

    max_choices: Annotated[int, Field(ge=1)] = 128
    """Replies that one request may ask for: `n` of each of its prompts. More are refused."""

    apis: Annotated[list[APIName], _NothingIsEmpty] = list(get_args(APIName))
    """The client APIs that are open."""

    websockets: WebSocketSettings | None = WebSocketSettings()
    """The Responses API over WebSockets; `null` for none, which is answered 426."""

    responses_store: ResponsesStoreSettings | None = None
    """Keep responses and interactions: `store`, `previous_response_id`, `previous_interaction_id`,
    `background` and what comes with them."""

    reasoning_memory: ReasoningMemorySettings | None = ReasoningMemorySettings()
    """Keep what models thought when they called tools, where a provider has a vendor that wants it
    back, and put it back where a client lost it; `null` for nothing of it."""

    cache: CacheSettings | None = None
    """Keep replies, and give them again to who asks for the same; models may have another."""

    tools: ToolsSettings | None = None
    """Run tools for models whose vendors don't: web search, web fetch, search in files, and those
    of MCP servers."""

    files: FilesSettings | None = None
    """Keep files that clients upload; `{}` for the usual way."""

    batches: BatchesSettings | None = None
    """Work through batches of requests; `{}` for the usual way. Files are kept then, as `files`
    says, or in the usual way."""

    vector_stores: VectorStoresSettings | None = None
    """Keep vector stores, in which the texts of files are found. Files are kept then, too."""

    storage: StorageAddress = Field(default_factory=default_storage)
    """Where records, keys and the like are kept, if the template wants any: `sqlite:PATH` or
    `postgres://USER:PASSWORD@HOST/DATABASE`."""

    records: RecordsSettings | None = None
    """Keep a record of every request; `{}` for the usual way."""

    traces: TracesSettings | None = None
    """Send a span of every request, and of every attempt at a target; `{}` for the usual way."""

    metrics: bool = False
    """Tell Prometheus at `/metrics`."""

    log_usage: bool = False
    """Count the tokens of every request, for its line in the log; vendors that tell them only when
    asked are asked."""

    shutdown_grace_seconds: Annotated[int, Field(ge=0)] = 30
    """How long running requests may take to finish once the server is told to stop."""

    end_when_device_lost: bool = False
    """Whether the process ends, as on SIGTERM but with exit code 4, once a GPU has failed in a way
    that only a new process mends: for systemd and Docker, which start again what has ended, and for
    workers, which are replaced. Without it models that are elsewhere go on answering."""

    @property
    def counting(self) -> FleetSettings:
        """Where limits are counted, and what becomes of requests where that is away."""
        return counted_together(self.fleet, self.limits)

    @model_validator(mode="after")
    def _one_store(self) -> Self:
        if self.fleet is not None and "store" in self.limits.model_fields_set:
            raise ValueError(
                "'fleet' says where limits are counted too: leave out 'limits' beside it"
            )
        return self

    @model_validator(mode="after")
    def _searches_what_there_is(self) -> Self:
        wants = self.tools is not None and self.tools.file_search is not None
        if wants and self.vector_stores is None:
            raise ValueError(
                "'tools.file_search' searches vector stores: add 'vector_stores:"
                " {embedding_model: ...}' beside 'tools'"
            )
        return self
