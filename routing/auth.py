"""Who is calling."""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Iterable, Iterator

from pydantic import SecretStr

from llama_compat.errors import APIError, invalid_api_key
from llama_compat.exchange import ANYBODY, Principal
from routing.operations.keys.ring import KeyRing
from routing.operations.keys.secret import digest_of

ADMIN = "/admin/"
"""What the paths begin with that the admin key opens, and no other key."""

KEY_HEADERS = frozenset({b"x-api-key", b"x-goog-api-key"})
"""Where Anthropic's and Google's clients put a key; OpenAI's send `Authorization: Bearer KEY`."""


class Authenticator:
    """Lets in whoever brings one of the keys of `ring`; everybody where it is open.

    Args:
        ring: the keys.
        clock: seconds since 1970.
    """

    def __init__(self, ring: KeyRing, clock: Callable[[], float] = time.time) -> None:
        self._ring = ring
        self._clock = clock

    def principal(self, headers: Iterable[tuple[bytes, bytes]]) -> Principal:
        """Whose key there is among a request's `headers` (names in lower case).

        Keys are looked up by their hash, so that timing tells nothing of them.

        Raises:
            APIError: 401.
        """
        if self._ring.is_open:
            return ANYBODY
        for sent in _sent_keys(headers):
            key = self._ring.find(digest_of(sent))
            if key is not None and key.is_good(self._clock()):
                return key.principal
        raise invalid_api_key()


class AdminGate:
    """Lets in whoever brings the admin key, and nobody where there is none.

    Args:
        key: the admin key.
    """

    def __init__(self, key: SecretStr | None) -> None:
        self._key = None if key is None else key.get_secret_value().encode()

    def check(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
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
        # In constant time, so that timing tells nothing of the key.
        if not any(hmac.compare_digest(sent, self._key) for sent in _sent_keys(headers)):
            raise APIError(
                401,
                "Incorrect or missing admin key. Send it as 'Authorization: Bearer KEY'.",
                type="invalid_request_error",
                code="invalid_admin_key",
                headers={"www-authenticate": "Bearer"},
            )


def _sent_keys(headers: Iterable[tuple[bytes, bytes]]) -> Iterator[bytes]:
    for name, value in headers:
        if name == b"authorization":
            scheme, _, token = value.partition(b" ")
            sent = token.strip() if scheme.lower() == b"bearer" else b""
        else:
            sent = value.strip() if name in KEY_HEADERS else b""
        # An empty one is none, whatever the keys are.
        if sent:
            yield sent
