"""Who is calling."""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial

from pydantic import SecretStr

from llama_compat.distribution import ServerSettings
from llama_compat.errors import APIError, invalid_api_key, team_not_found
from llama_compat.exchange import ANYBODY, Principal
from llama_compat.wire.retry_after import retry_after
from routing.access.keys.ring import KeyRing
from routing.access.keys.secret import digest_of
from routing.asgi import RawHeaders

ADMIN = "/admin/"
"""What the paths begin with that the admin key opens, and no other key."""

KEY_HEADERS = frozenset({b"authorization", b"x-api-key", b"x-goog-api-key"})
"""Where OpenAI's (`Bearer KEY`), Anthropic's and Google's clients put a key."""


class Authenticator:
    """Lets in whoever brings one of the keys of `ring`; everybody where it is open.

    Args:
        ring: the keys.
        clock: seconds since 1970.
    """

    def __init__(self, ring: KeyRing, clock: Callable[[], float] = time.time) -> None:
        self._ring = ring
        self._clock = clock

    def principal(self, headers: RawHeaders) -> Principal:
        """Whose key there is among a request's `headers` (names in lower case).

        Keys are looked up by their hash, so that timing tells nothing of them.

        Raises:
            APIError: 401; 403, the key's team is not in the template any more.
        """
        if self._ring.is_open:
            return ANYBODY
        ring = self._ring
        for name, value in headers:
            if name in KEY_HEADERS and (digest := _digest(name, value)):
                key = ring.find(digest)
                if key is not None and key.is_good(self._clock()):
                    principal = key.principal
                    if not ring.has_team(principal):
                        # Nobody knows its team's limits; without them it would have none.
                        raise team_not_found(principal.team or "")
                    return principal
        raise invalid_api_key()

    def is_new(self, headers: RawHeaders) -> bool:
        """Whether there is a key among a request's `headers` that nobody here has heard of."""
        digests = (_digest(name, value) for name, value in headers if name in KEY_HEADERS)
        return any(digest and self._ring.find(digest) is None for digest in digests)


def keys_unavailable() -> APIError:
    """503 for a key that is not known here, while nobody can look whether there is one."""
    return APIError(
        503,
        "This server does not know this key, and can't look for it at the moment. Ask again later.",
        code="keys_unavailable",
        headers=retry_after(2),
    )


class Overseers:
    """Who may see how all of the server does: `/metrics`, and the targets in `/health`.

    They are who brings the metrics key, the admin key or one of the server's own keys; where there
    are no keys at all, everybody. Keys that were made for somebody are for asking models.

    Args:
        settings: the server's.
        is_open: whether everybody is let in.
    """

    def __init__(self, settings: ServerSettings, *, is_open: bool) -> None:
        special = (key for key in (settings.metrics_key, settings.admin_key) if key is not None)
        self._keys = [key.get_secret_value().encode() for key in (*special, *settings.api_keys)]
        self._is_open = is_open and settings.metrics_key is None

    def see(self, headers: RawHeaders) -> bool:
        """Whether a request with these `headers` comes from one of them."""
        return self._is_open or any(_same(sent, self._keys) for sent in _sent_keys(headers))


def not_an_overseer() -> APIError:
    """403: a good key that does not open what tells of all of the server."""
    return APIError(
        403,
        "This API key does not open the server's metrics: they are for `server.metrics_key`,"
        " `server.admin_key` and `server.api_keys` of its template.",
        code="metrics_not_allowed",
    )


def _same(sent: bytes, keys: Iterable[bytes]) -> bool:
    """Whether `sent` is one of `keys`; in constant time, so that timing tells nothing of them."""
    return any(list(map(partial(hmac.compare_digest, sent), keys)))


class AdminGate:
    """Lets in whoever brings the admin key, and nobody where there is none.

    Args:
        key: the admin key.
    """

    def __init__(self, key: SecretStr | None) -> None:
        self._key = None if key is None else key.get_secret_value().encode()

    def check(self, headers: RawHeaders) -> None:
        """Make sure that the admin key is among `headers`.

        Raises:
            APIError: 401, it is not; 403, there is none.
        """
        if self._key is None:
            raise APIError(
                403,
                "This server has no admin routes: set `server.admin_key` in its template.",
                code="admin_disabled",
            )
        if not any(_same(sent, [self._key]) for sent in _sent_keys(headers)):
            raise APIError(
                401,
                "Incorrect or missing admin key. Send it as 'Authorization: Bearer KEY'.",
                type="invalid_request_error",
                code="invalid_admin_key",
                headers={"www-authenticate": "Bearer"},
            )


def _sent_keys(headers: RawHeaders) -> Iterator[bytes]:
    for name, value in headers:
        if name in KEY_HEADERS and (sent := _sent_in(name, value)):
            yield sent


def _sent_in(name: bytes, value: bytes) -> bytes:
    """The key in one of `KEY_HEADERS`; an empty one is none, whatever the keys are."""
    if name != b"authorization":
        return value.strip()
    scheme, _, token = value.partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b""


def _digest(name: bytes, value: bytes) -> str:
    """The digest of that key, empty for none."""
    return (_known_digest if len(value) <= REMEMBERED_BYTES else _digest_in)(name, value)


def _digest_in(name: bytes, value: bytes) -> str:
    sent = _sent_in(name, value)
    return digest_of(sent) if sent else ""


REMEMBERED_BYTES = 256
"""Of a longer header, which is none of our keys, nothing is remembered."""

# What a key opens is not remembered: one that is revoked opens nothing from then on.
_known_digest = lru_cache(maxsize=1024)(_digest_in)
