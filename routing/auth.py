"""Who is calling."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Iterator

from llama_compat.errors import invalid_api_key
from llama_compat.exchange import ANYBODY, Principal

KEY_HEADERS = frozenset({b"x-api-key", b"x-goog-api-key"})
"""Where Anthropic's and Google's clients put a key; OpenAI's send `Authorization: Bearer KEY`."""


class Authenticator:
    """Lets in whoever brings one of `api_keys`; everybody where there are none."""

    def __init__(self, api_keys: Iterable[str]) -> None:
        self._keys = [(key.encode(), _principal(key)) for key in api_keys]

    def principal(self, headers: Iterable[tuple[bytes, bytes]]) -> Principal:
        """Whose key there is among a request's `headers` (names in lower case).

        Every key is compared, each in constant time, so that timing tells nothing of them.

        Raises:
            APIError: 401.
        """
        if not self._keys:
            return ANYBODY
        found: Principal | None = None
        for sent in _sent_keys(headers):
            for key, principal in self._keys:
                if hmac.compare_digest(sent, key):
                    found = principal
        if found is None:
            raise invalid_api_key()
        return found


def _principal(key: str) -> Principal:
    return Principal(f"key-{hashlib.sha256(key.encode()).hexdigest()[:12]}")


def _sent_keys(headers: Iterable[tuple[bytes, bytes]]) -> Iterator[bytes]:
    for name, value in headers:
        if name == b"authorization":
            scheme, _, token = value.partition(b" ")
            if scheme.lower() == b"bearer":
                yield token.strip()
        elif name in KEY_HEADERS:
            yield value.strip()
