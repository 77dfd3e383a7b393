"""Settings of what is kept and told of requests: storage, records, prices, metrics, traces, the
cache of their replies, and files and batches."""

from __future__ import annotations

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from platformdirs import user_data_path
from pydantic import AfterValidator, Field, SecretStr, model_validator

from llama_compat.settings.model import TemplateSettings
from llama_compat.settings.secret_kinds import ADDRESS

STORAGE_SCHEMES = ("sqlite:", "postgres://", "postgresql://")


def default_storage() -> SecretStr:
    """One SQLite file of this user's."""
    return SecretStr(f"sqlite:{user_data_path('llama-compat') / 'operations.sqlite'}")


def _is_storage(address: SecretStr) -> SecretStr:
    value = address.get_secret_value()
    if not any(value.startswith(each) and value != each for each in STORAGE_SCHEMES):
        raise ValueError("expected sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE")
    return address


def default_files() -> str:
    """A folder of this user's."""
    return str(user_data_path("llama-compat") / "files")


def _is_pattern(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"no regular expression: {error}") from None
    return pattern


class OperationsSettings(TemplateSettings):
    """What the settings in this module have in common."""


StorageAddress = Annotated[SecretStr, AfterValidator(_is_storage), ADDRESS]
"""`sqlite:PATH` or `postgres://...`; it may hold a password."""

Days = Annotated[int, Field(ge=1)]


class RecordsSettings(OperationsSettings):
    """One record a request: how long it is kept, and what else of the request."""

    keep_days: Days = 90
    """Days after which a record is forgotten; the sums of its day stay."""

    record_bodies: Literal["errors", "all"] | None = None
    """Whose bodies are kept, the request's and the reply's: none, those that failed, or all."""

    body_max_bytes: Annotated[int, Field(ge=1)] = 64 * 1024
    """What is longer is cut off."""

    body_keep_days: Days = 7
    """Days after which a body is forgotten."""

    redact: list[Annotated[str, AfterValidator(_is_pattern)]] = []
    """Regular expressions: what they match is not kept of a body."""

    queue: Annotated[int, Field(ge=1)] = 10_000
    """So many records wait for the storage at most; what is more is counted, and not kept."""


def _is_http(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise ValueError("expected a URL such as http://localhost:4318")
    return url.rstrip("/")


class TracesSettings(OperationsSettings):
    """Spans for OpenTelemetry: where they are sent, and how many of them."""

    endpoint: Annotated[str, AfterValidator(_is_http)] = "http://localhost:4318"
    """The base URL of a receiver of OTLP over HTTP; `/v1/traces` is appended."""

    headers: dict[str, SecretStr] = {}
    """Sent with them: a receiver's key, for example."""

    sample: Annotated[float, Field(ge=0, le=1)] = 1.0
    """The share of requests that are traced, of those that bring no trace of their own."""

    service_name: str = "llama-compat"
    """What the spans say that they come from."""

    content: bool = False
    """Whether spans have what was asked and what was said."""

    queue: Annotated[int, Field(ge=1)] = 10_000
    """The spans of so many requests wait for the receiver at most; what is more is counted, and not
    sent."""


class PriceSettings(OperationsSettings):
    """What a model costs, in US dollars: for a million tokens, and for what is not paid by the
    token. A model that is paid by something else alone has 0 for its tokens."""

    input: Annotated[float, Field(ge=0)]
    """A million tokens of prompts."""

    output: Annotated[float, Field(ge=0)]
    """A million tokens of replies."""

    cached_input: Annotated[float, Field(ge=0)] | None = None
    """Input that was read from a cache; as other input by default."""

    cache_write: Annotated[float, Field(ge=0)] | None = None
    """Input that was written to a cache; as other input by default."""

    thousand_searches: Annotated[float, Field(ge=0)] | None = None
    """A thousand searches: of the web, by the vendor itself; or of rerank, where one is a query
    with up to a hundred documents."""

    image: Annotated[float, Field(ge=0)] | None = None
    """One image that is made."""

    million_characters: Annotated[float, Field(ge=0)] | None = None
    """A million characters of text that is spoken."""

    hour: Annotated[float, Field(ge=0)] | None = None
    """An hour of sound that is transcribed or translated."""

    batch: Annotated[float, Field(ge=0, le=1)] = 0.5
    """What tokens cost in the vendor's own batches, of what they cost otherwise."""


def _is_reply_store(store: SecretStr) -> SecretStr:
    name = store.get_secret_value()
    known = name in ("memory", "sqlite", "redis")
    if not known and not name.startswith(("redis://", "rediss://", "unix://")):
        raise ValueError(
            "expected 'memory', 'sqlite', 'redis' or the URL of a Redis, as in"
            " redis://localhost:6379/0"
        )
    return store


class ExactCacheSettings(OperationsSettings):
    """Replies that are given again to requests that ask for the same."""

    ttl: Annotated[float, Field(gt=0, le=365 * 86400)] = 3600
    """Seconds after which a reply is forgotten."""

    max_bytes: Annotated[int, Field(ge=64 * 1024)] = 64 * 1024 * 1024
    """What all replies may come to; those that nobody asked for for longest make room."""

    store: Annotated[SecretStr, AfterValidator(_is_reply_store), ADDRESS] = SecretStr("memory")
    """Where they are kept: in the `memory` of the process that answered, each worker's for itself;
    with `sqlite` in `server.storage`, be that SQLite or PostgreSQL; with `redis` in the Redis of
    `server.fleet`, or in one of their own, as in `redis://localhost:6379/0`. What is not in memory
    survives a restart, and all gateways that have it share it; one that is away is an empty one."""

    share: Literal["key", "team", "all"] = "key"
    """Who is given a reply again: the key that asked for it, all keys of its team, or everybody
    who may ask for the model. Where there are no keys, everybody is one."""

    sampled: bool = False
    """Keep replies that are another each time as well: of a `temperature` above 0, which is what
    models have where a request says nothing, and no `seed`."""

    tools: bool = False
    """Keep replies to requests with tools as well."""

    choices: bool = False
    """Keep several choices to one prompt (`n`) as well."""


class SemanticCacheSettings(OperationsSettings):
    """Replies that are given again to questions that are alike. What is alike is not the same: read
    of what can go wrong before you use it."""

    model: str
    """The model of this template that makes vectors of questions."""

    threshold: Annotated[float, Field(gt=0, le=1)] = 0.95
    """So alike two questions have to be: the cosine of the angle between their vectors."""

    verify: str | None = None
    """A chat model of this template that is asked whether two questions that are alike ask for the
    same."""

    max_questions: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """So many are known, in the memory of each process; the oldest make room."""

    timeout: Annotated[float, Field(gt=0)] = 5.0
    """Seconds that finding one that is alike may take; then the request is asked."""


class CacheSettings(OperationsSettings):
    """Which replies are kept, to be given again."""

    exact: ExactCacheSettings | None = None
    """To requests that are the same; `{}` for the usual way, `null` for none."""

    semantic: SemanticCacheSettings | None = None
    """To questions that are alike as well, where all before them is the same."""

    @model_validator(mode="after")
    def _is_beside_exact(self) -> CacheSettings:
        if self.semantic is not None and self.exact is None:
            raise ValueError(
                "'semantic' needs 'exact' beside it, which says what is kept and for whom"
            )
        return self


def _is_url(url: str) -> str:
    scheme, found, rest = url.partition("://")
    if not found or not scheme.isalnum() or not rest:
        raise ValueError("expected a URL that fsspec knows, such as s3://bucket/folder")
    if "@" in rest.partition("/")[0]:
        raise ValueError("expected a URL without a key in it: fsspec reads keys from elsewhere")
    return url.rstrip("/")


class FilesSettings(OperationsSettings):
    """Files that clients upload (`/v1/files`), and those that batches make: where their contents
    lie, and how much of them. What they are called and whose they are is in `server.storage`."""

    path: Annotated[str, Field(min_length=1)] = Field(default_factory=default_files)
    """The folder that has them. Several servers that share a storage share this, too."""

    url: Annotated[str, AfterValidator(_is_url)] | None = None
    """In place of `path`, where fsspec keeps them: `s3://BUCKET/FOLDER`, say. Needs
    `llama-compat[files]` and fsspec's package for that scheme, which reads its keys itself."""

    max_bytes: Annotated[int, Field(ge=1)] = 512 * 1024 * 1024
    """Of one file; larger uploads are refused with 413."""

    max_key_bytes: Annotated[int, Field(ge=1)] = 16 * 1024 * 1024 * 1024
    """Of all files of one key together; what would be over it is refused with 413. What its
    batches make counts, and is never refused."""


class HandOverSettings(OperationsSettings):
    """How batches are worked on."""

    via: Literal["vendor", "requests"] = "requests"
    """`vendor` hands lines to the vendor's own batch API, at its price and in its time, and asks
    by requests what it can't do there: tools of the server, several replies to a line. `requests`
    asks all lines so. Vendors with such an API: OpenAI, Azure, Anthropic's Messages, Gemini's own
    API, Mistral, Groq, Together."""


class BatchesSettings(OperationsSettings):
    """Batches: lines of a file that are asked when there is room for them. Their input and output
    are files, and their journal is in `server.storage`."""

    concurrency: Annotated[int, Field(ge=1, le=4096)] = 64
    """Lines that one process asks at a time, of all batches together. A vendor that refuses some
    for now is asked fewer."""

    unknown_outcome: Literal["error", "retry"] = "error"
    """What becomes of a line that was on its way when its process died, if its target may cost
    something: an error of that code, or it is asked, and perhaps paid for, again."""

    lease_seconds: Annotated[float, Field(gt=0, le=3600)] = 15
    """A process that says nothing for so long is taken for dead, and others go on with what it
    did. By the clock of the storage: what the servers' own say does not matter."""

    max_lines: Annotated[int, Field(ge=1)] = 50_000
    """Of one batch; more are refused."""

    max_line_bytes: Annotated[int, Field(ge=1024)] = 16 * 1024 * 1024
    """Of one line; a file with a longer one is refused."""

    poll_seconds: Annotated[float, Field(gt=0, le=3600)] = 60
    """How often it is seen at most how far a vendor's own batch has come; at first more often."""
