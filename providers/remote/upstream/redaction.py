"""Vendors' keys, which leave the process for their vendor alone: `***` stands in their place.

Vendors repeat what they were sent: in errors, headers, comments and debugging members. It is
covered where their bytes come in, before anything is cut, quoted or passed on, so that no way out
has to think of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from llama_compat.errors import APIError
from providers.remote.http1.headers import Headers

COVER = "***"

MIN_CHARACTERS = 8
"""Shorter values are words such as `true`, whose replacement would only spoil a message."""

PLACEHOLDERS = frozenset(
    {"lm-studio", "no-key-required", "sk-no-key-required", "not-needed", "token-abc123"}
)
"""What the manuals of local servers have people set as a key: no secrets, but words that a model
may say."""

_KEY_HEADER = re.compile("auth|key|token|secret|cookie|password|credential|signature")
_KEY = re.compile(r"(?=\D*\d)(?=[^A-Za-z]*[A-Za-z])\S{16,}")
"""What is a key by its looks: long, without blanks, letters and digits."""


class Secrets:
    """What a vendor must not give away.

    Args:
        api_key: the key, if there is one.
        headers: those that the template has sent with each request. In errors all of their values
            are redacted; in replies those that are keys by their names or looks, for the others may
            be words that a model says.
        keys: more of them.
    """

    def __init__(
        self, api_key: str | None, headers: Mapping[str, str], keys: Iterable[str] = ()
    ) -> None:
        always = [api_key or "", *keys]
        in_errors = list(_long([*always, *headers.values()]))
        of_headers = [
            value
            for name, value in headers.items()
            if _KEY_HEADER.search(name.lower()) or _KEY.fullmatch(value)
        ]
        # 'Bearer KEY' is also repeated without the word.
        of_headers += [value.rpartition(" ")[2] for value in of_headers]
        in_replies = [each for each in _long([*always, *of_headers]) if each not in PLACEHOLDERS]
        self._in_errors = _longest_first([*in_errors, *in_replies])
        self._in_headers = _longest_first(in_replies)
        forms = _longest_first(form for each in in_replies for form in _forms(each))
        self._needles = [_Needle(form.encode()) for form in forms]

    def __bool__(self) -> bool:
        return bool(self._needles)

    def cover(self, data: bytes) -> bytes:
        """`data`, all that there is, without keys."""
        for needle in self._needles:
            if needle.is_in(data):
                data = data.replace(needle.text, COVER.encode())
        return data

    def cover_headers(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """An answer's headers without keys."""
        if not self._in_headers:
            return headers
        joined = "\n".join(headers.values())
        if not any(each in joined for each in self._in_headers):
            return headers
        return Headers({name: _covered(value, self._in_headers) for name, value in headers.items()})

    def cover_error(self, error: APIError) -> None:
        """Take keys and configured headers out of all that `error` says."""
        secrets = self._in_errors
        error.message, error.type = _covered(error.message, secrets), _covered(error.type, secrets)
        error.param = error.param and _covered(error.param, secrets)
        error.code = error.code and _covered(error.code, secrets)
        if error.vendor_body is not None:
            dialect, body = error.vendor_body
            for secret in secrets:
                body = body.replace(secret.encode(), COVER.encode())
            error.vendor_body = (dialect, body)
        error.headers = {name: _covered(value, secrets) for name, value in error.headers.items()}

    def held_back(self, data: bytes) -> int:
        """How many of the last bytes of `data` may be the beginning of a key that goes on in what
        comes next."""
        if data.endswith(b"\n"):
            return 0  # as nearly all pieces of a stream do; no key has a line break
        return max((_overlap(data, needle.text) for needle in self._needles), default=0)


class _Needle:
    """A text that is looked for in all that vendors send.

    Python looks for one byte many times as fast as for several, so the one of the text that is the
    rarest in what models say is looked for first.

    Args:
        text: what to look for.

    Attributes:
        text: the same.
    """

    __slots__ = ("_rarest", "text")

    def __init__(self, text: bytes) -> None:
        self.text = text
        # What the list of the frequent does not have is rarer than all that it has.
        self._rarest = max(text, key=lambda byte: _FREQUENT.find(byte) % 256)

    def is_in(self, data: bytes) -> bool:
        """Whether the text is in `data`."""
        return self._rarest in data and self.text in data


_FREQUENT = b' etaoinsrhldcumpfgwybv",:{}_[]-.0123456789kxjqz\\/TSAICEMPNBDRHLWFGOUVYKXJQZ'
"""The bytes of JSON and of English, the most frequent first, roughly."""


class StreamCover:
    """Covers keys in a body that comes in pieces, cut anywhere.

    Args:
        secrets: what to cover.
    """

    __slots__ = ("_held", "_secrets")

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._held = b""

    def push(self, chunk: bytes) -> bytes:
        """What can be passed on of what has come; at times nothing."""
        if self._held:
            chunk = self._held + chunk
            self._held = b""
        chunk = self._secrets.cover(chunk)
        if held := self._secrets.held_back(chunk):
            self._held = chunk[-held:]
            return chunk[:-held]
        return chunk

    def end(self, chunk: bytes = b"") -> bytes:
        """What was held back and the last `chunk`, when nothing follows."""
        held, self._held = self._held, b""
        return self._secrets.cover(held + chunk)


def _long(values: Iterable[str]) -> Iterable[str]:
    return (each for each in map(str.strip, values) if len(each) >= MIN_CHARACTERS)


def _longest_first(values: Iterable[str]) -> list[str]:
    # One may be part of another, which would leave the rest of it to be seen.
    return sorted(dict.fromkeys(values), key=len, reverse=True)


def _forms(secret: str) -> Iterable[str]:
    """As it is, and as it stands in JSON: of what need not be escaped there, PHP escapes slashes,
    and Go and .NET what HTML gives a meaning."""
    for form in (secret, json.dumps(secret, ensure_ascii=False)[1:-1], json.dumps(secret)[1:-1]):
        yield form
        yield form.replace("/", "\\/")
        yield re.sub("[<>&]", lambda found: f"\\u{ord(found[0]):04x}", form)
        yield re.sub("[<>&'+`]", lambda found: f"\\u{ord(found[0]):04X}", form)


def _covered(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        if secret in text:
            text = text.replace(secret, COVER)
    return text


def _overlap(data: bytes, needle: bytes) -> int:
    """The length of the longest end of `data` that `needle` begins with, but for all of it."""
    at = data.find(needle[:1], max(0, len(data) - len(needle) + 1))
    while at >= 0:
        if needle.startswith(data[at:]):
            return len(data) - at
        at = data.find(needle[:1], at + 1)
    return 0
