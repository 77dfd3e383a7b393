"""Settings of what is kept and told of requests: storage, records, prices, metrics, traces, and the
cache of their replies."""

from __future__ import annotations

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from platformdirs import user_data_path
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

STORAGE_SCHEMES = ("sqlite:", "postgres://", "postgresql://")


def default_storage() -> SecretStr:
    """One SQLite file of this user's."""
    return SecretStr(f"sqlite:{user_data_path('llama-compat') / 'operations.sqlite'}")


def _is_storage(address: SecretStr) -> SecretStr:
    value = address.get_secret_value()
    if not any(value.startswith(each) and value != each for each in STORAGE_SCHEMES):
        raise ValueError("expected sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE")
    return address


def _is_pattern(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"no regular expression: {error}") from None
    return pattern


class OperationsSettings(BaseModel):
    """What the settings in this module have in common."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


StorageAddress = Annotated[SecretStr, AfterValidator(_is_storage)]
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
    """A thousand searches of rerank; one is a query with up to a hundred documents."""

    image: Annotated[float, Field(ge=0)] | None = None
    """One image that is made."""

    million_characters: Annotated[float, Field(ge=0)] | None = None
    """A million characters of text that is spoken."""

    hour: Annotated[float, Field(ge=0)] | None = None
    """An hour of sound that is transcribed or translated."""


class ExactCacheSettings(OperationsSettings):
    """Replies that are given again to requests that ask for the same."""

    ttl: Annotated[float, Field(gt=0, le=365 * 86400)] = 3600
    """Seconds after which a reply is forgotten."""

    max_bytes: Annotated[int, Field(ge=64 * 1024)] = 64 * 1024 * 1024
    """What all replies may come to; those that nobody asked for for longest make room."""

    store: Literal["memory"] = "memory"
    """Where they are kept: in the memory of the process that answered. Each worker has its own."""

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


class CacheSettings(OperationsSettings):
    """Which replies are kept, to be given again."""

    exact: ExactCacheSettings | None = None
    """To requests that are the same; `{}` for the usual way, `null` for none."""
