"""What a client says of the cache: `Cache-Control` of a request (RFC 9111, section 5.2.1)."""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from routing.asgi import RawHeaders

HEADER = b"cache-control"


class CacheControl(Struct, frozen=True):
    """The wishes that are heeded; others mean nothing here.

    Attributes:
        no_store: the request has nothing to do with the cache.
        no_cache: it is asked anew; the reply may be kept.
        max_age: seconds; what is older is not wanted.
    """

    no_store: bool = False
    no_cache: bool = False
    max_age: float | None = None


USUAL = CacheControl()
"""Of who says nothing."""


def cache_control(headers: RawHeaders) -> CacheControl:
    """What a request's headers say. A `max-age` that is no number is 0: who bounds the age, and
    can't be understood, does not want an old one."""
    said = [value for name, value in headers if name == HEADER]
    return _read(b",".join(said)) if said else USUAL


@lru_cache(maxsize=256)
def _read(said: bytes) -> CacheControl:
    no_store = no_cache = False
    max_age: float | None = None
    for directive in said.decode("latin-1").split(","):
        name, _, value = directive.partition("=")
        match name.strip().lower():
            case "no-store":
                no_store = True
            case "no-cache":
                no_cache = True
            case "max-age":
                age = _seconds(value)
                max_age = age if max_age is None else min(age, max_age)
    return CacheControl(no_store, no_cache or max_age == 0, max_age)


def _seconds(value: str) -> float:
    text = value.strip().strip('"')
    return float(min(int(text[:12]), 10**9)) if text.isascii() and text.isdigit() else 0.0
