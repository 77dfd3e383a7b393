"""The settings of a provider that is reached over HTTP."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr

from llama_compat.settings.secret_kinds import ADDRESS
from providers.base import ProviderConfig
from providers.remote.http1 import Seconds, Timeouts, is_header_name

if TYPE_CHECKING:
    from providers.remote.upstream.credentials import RequestCredentials


def _check_http_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("expected a URL such as https://api.example.com/v1")
    if "@" in parts.netloc:
        raise ValueError(
            "expected a URL without a name and a password: send them in the header"
            " 'authorization', under 'headers'"
        )
    if parts.query or parts.fragment:
        raise ValueError("expected a URL without '?' and '#': requests append their path to it")
    return url.rstrip("/")


def _check_proxy(url: SecretStr) -> SecretStr:
    if urlsplit(url.get_secret_value()).scheme not in ("http", "https"):
        raise ValueError("expected an HTTP proxy such as http://proxy.example.com:3128")
    return url


_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def _check_key(key: SecretStr) -> SecretStr:
    if _CONTROL.search(key.get_secret_value().strip()):
        raise ValueError("expected one line: the key has a line break or the like inside")
    return key


def _check_header_name(name: str) -> str:
    if not is_header_name(name):
        raise ValueError("expected the name of an HTTP header such as x-title")
    return name


def _check_header_value(value: SecretStr) -> SecretStr:
    text = value.get_secret_value().strip()
    if _CONTROL.search(text):
        raise ValueError("expected one line: the header has a line break or the like inside")
    return SecretStr(text)


APIKey = Annotated[SecretStr, AfterValidator(_check_key)]
Headers = dict[
    Annotated[str, AfterValidator(_check_header_name)],
    Annotated[SecretStr, AfterValidator(_check_header_value)],
]
HTTPURL = Annotated[str, AfterValidator(_check_http_url)]
ProxyURL = Annotated[SecretStr, AfterValidator(_check_proxy), ADDRESS]
ParameterName = Annotated[str, Field(pattern="^[a-z_]+$")]


class RemoteConfig(ProviderConfig):
    """What every remote provider can be told."""

    base_url: HTTPURL
    """Where the vendor's API is, up to where its paths begin."""

    api_key: APIKey | None = None
    """Sent in the way that the vendor wants it; never logged, never shown."""

    headers: Headers = Field(default_factory=dict)
    """Sent with each request, over those that this kind of provider sends anyway. Their values are
    never shown: a key may be among them."""

    timeouts: Timeouts = Timeouts()
    """How long to wait for the vendor."""

    max_connections: int = Field(default=1000, ge=0)
    """Open at a time, 0 for any number; further requests wait for one."""

    max_reply_bytes: int = Field(default=256 * 1024 * 1024, gt=0)
    """What a reply that is no stream may come to, decompressed. Streams pass through and are not
    kept, so they may be of any length."""

    max_list_bytes: int = Field(default=4 * 1024 * 1024, gt=0)
    """The same for the vendor's list of its models."""

    ca_file: Path | None = None
    """Certificates (PEM) to trust besides the system's."""

    proxy: ProxyURL | None = None
    """An HTTP proxy; without it `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` count."""

    unsupported_parameters: frozenset[ParameterName] = frozenset()
    """Parameters (OpenAI's names) that the models here can't honour, besides those that none of the
    vendor's can: `reasoning_effort` where none of them thinks."""

    models: Literal["discover"] | None = None
    """`discover` offers all models that the vendor lists, as `provider/model`."""

    models_refresh_seconds: Seconds = 300
    """How old a discovered list may get."""

    def request_credentials(self, provider: str) -> RequestCredentials[Any] | None:
        """What authorizes each request of the provider with this id, where no key does."""
        return None
