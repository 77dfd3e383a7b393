"""Who is calling."""

from __future__ import annotations

import hmac
from collections.abc import Iterable

from llama_compat.errors import invalid_api_key


class Authenticator:
    """Lets in whoever brings one of `api_keys`; everybody where there are none."""

    def __init__(self, api_keys: Iterable[str]) -> None:
        self._keys = [key.encode() for key in api_keys]

    def check(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Look for `Authorization: Bearer KEY` among a request's `headers` (names in lower case).

        Every key is compared, each in constant time, so that timing tells nothing of them.

        Raises:
            APIError: 401.
        """
        if not self._keys:
            return
        token = _bearer_token(headers)
        if not sum(hmac.compare_digest(token, key) for key in self._keys):
            raise invalid_api_key()


def _bearer_token(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    for name, value in headers:
        if name == b"authorization":
            scheme, _, token = value.partition(b" ")
            if scheme.lower() == b"bearer":
                return token.strip()
    return b""
