"""Where a request goes: the server's address, the way there, and the target in the request."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

from providers.remote.http1.errors import InvalidURLError
from providers.remote.http1.headers import HeaderBlock, encode_headers

DEFAULT_PORTS = {"http": 80, "https": 443}

_HOST = re.compile(r"[0-9A-Za-z._~\-]+|[0-9A-Fa-f.]*:[0-9A-Fa-f:.]+(%[0-9A-Za-z._~\-]+)?")
_CONTROL = re.compile(r"[\x00-\x20\x7f]")

_KEPT = "!#$%&'()*+,/:;=?@[]~"
"""What stays as it is in a path or a query: it is escaped already where it has to be."""


class Origin(NamedTuple):
    """A server's address; `host` in ASCII and without brackets."""

    scheme: str
    host: str
    port: int

    @property
    def authority(self) -> str:
        """Host and port, for `Host` and URLs; the port only where it is not the scheme's."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}"


@dataclass(frozen=True, slots=True)
class URL:
    """An http(s) URL.

    Attributes:
        origin: the server.
        target: path and query, in ASCII; a path is at least `/`.
        credentials: `user:password`, if the URL has them.
    """

    origin: Origin
    target: str
    credentials: str | None = field(default=None, repr=False)

    @property
    def basic(self) -> str | None:
        """The value of an `authorization` header with the credentials."""
        if self.credentials is None:
            return None
        return f"Basic {base64.b64encode(self.credentials.encode()).decode()}"


def parse_url(text: str) -> URL:
    """`text` as a URL; what a path can't hold is percent-encoded, a fragment is left out.

    Raises:
        InvalidURLError: it is no http(s) URL, or none that can be asked for.
    """
    text = _CONTROL.sub(lambda found: quote(found[0]), text.strip())
    try:
        parts = urlsplit(text)
        port = parts.port
        host = _ascii_host(parts.hostname or "")
    except ValueError as error:
        raise InvalidURLError(str(error)) from None
    if parts.scheme not in DEFAULT_PORTS:
        raise InvalidURLError("it does not begin with http:// or https://")
    if not _HOST.fullmatch(host) or port == 0:
        raise InvalidURLError("its host is not valid")
    credentials = None
    if parts.username is not None:
        credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    target = quote(parts.path or "/", safe=_KEPT)
    if not target.startswith("/"):
        raise InvalidURLError("its path does not begin with /")
    if parts.query:
        target += "?" + quote(parts.query, safe=_KEPT)
    origin = Origin(parts.scheme, host, DEFAULT_PORTS[parts.scheme] if port is None else port)
    return URL(origin, target, credentials)


def _ascii_host(host: str) -> str:
    return host if host.isascii() else host.encode("idna").decode()


class NetworkRoute:
    """The way to a server, directly or by a proxy, with what each request that takes it repeats.

    Requests to an http server are forwarded by the proxy; to an https server it makes a tunnel.

    Attributes:
        key: the same for all routes whose connections are interchangeable.
        before: what stands in a request before its target; a proxy wants the whole URL.
        after: what follows it, up to the request's own headers.
    """

    __slots__ = ("after", "before", "key", "origin", "proxy")

    def __init__(self, origin: Origin, proxy: URL | None = None) -> None:
        self.origin = origin
        self.proxy = proxy
        forwarded = proxy is not None and origin.scheme == "http"
        self.key = str(origin if proxy is None or not forwarded else proxy.origin)
        if proxy is not None:
            self.key += f" by {proxy.origin} {proxy.credentials or ''}"
        self.before = str(origin).encode() if forwarded else b""
        self.after = HeaderBlock(b" HTTP/1.1\r\n") + encode_headers({"host": origin.authority})
        if forwarded:
            self.after += self.proxy_authorization

    @property
    def is_tunnel(self) -> bool:
        """Whether a proxy has to be asked to connect."""
        return self.proxy is not None and self.origin.scheme == "https"

    @property
    def proxy_authorization(self) -> HeaderBlock:
        """The header with the proxy's credentials, if it wants any."""
        basic = self.proxy and self.proxy.basic
        return encode_headers({"proxy-authorization": basic} if basic else {})
