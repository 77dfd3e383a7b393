"""Headers: those of a request as bytes, made once; those of an answer by name."""

from __future__ import annotations

import re
from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from typing import NewType

from llama_compat import __version__

HeaderBlock = NewType("HeaderBlock", bytes)
"""Lines of headers, each with its end: only `encode_header` and `encode_headers` make one."""

USER_AGENT = f"llama-compat/{__version__}"
"""Who asks."""

_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")


def is_header_name(name: str) -> bool:
    """Whether a header can have this name (RFC 9110, section 5.6.2)."""
    return _NAME.fullmatch(name) is not None


def encode_headers(headers: Mapping[str, str]) -> HeaderBlock:
    """The lines of `headers`.

    Raises:
        ValueError: a name or a value can't stand in a header; a line break, for one.
    """
    return HeaderBlock(b"".join([encode_header(*header) for header in headers.items()]))


def encode_header(name: str, value: str) -> HeaderBlock:
    """The line of one header; otherwise as `encode_headers`."""
    if not is_header_name(name) or not _VALUE.fullmatch(value):
        # The value may be a key.
        raise ValueError(f"the header {name!r} has characters that headers can't have")
    return HeaderBlock(f"{name}: {value.strip()}\r\n".encode())


def shown(value: str) -> str:
    """A header's value for a message: all of it or nothing, as half a key could not be redacted."""
    return repr(value) if len(value) <= 40 else f"of {len(value)} characters"


class Headers(Mapping[str, str]):
    """An answer's headers by name, in any case; where a name came twice, joined by commas."""

    __slots__ = ("_values",)

    def __init__(self, values: dict[str, str]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def items(self) -> ItemsView[str, str]:
        """Names in lower case, and values."""
        return self._values.items()

    def values(self) -> ValuesView[str]:
        """The values alone."""
        return self._values.values()

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Headers({self._values!r})"
