"""Which domains of the web a tool may have to do with."""

from __future__ import annotations

from posixpath import normpath
from urllib.parse import unquote, urlsplit

from msgspec import Struct


class Domains(Struct, frozen=True):
    """Some domains.

    Attributes:
        allowed: only these, and what is below them; with none, all.
        blocked: none of these, nor of what is below them.
    """

    allowed: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()

    def has(self, url: str) -> bool:
        """Whether `url` is at one of them. A domain may be followed by a path, below which it is
        then, as in `example.com/blog`; a scheme or `*.` before it says nothing more."""
        if any(_is_at(url, each) for each in self.blocked):
            return False
        return not self.allowed or any(_is_at(url, each) for each in self.allowed)


def _is_at(url: str, domain: str) -> bool:
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    wanted, slash, path = domain.rpartition("://")[2].partition("/")
    wanted, host = _name_of(wanted.lower().removeprefix("*.")), _name_of(host)
    if host != wanted and not host.endswith(f".{wanted}"):
        return False
    return not slash or f"{_resolved(parts.path)}/".startswith(f"{_resolved(path)}/")


def _name_of(host: str) -> str:
    """A name as others write the same: without `www.`, and in ASCII where it has other letters."""
    host = host.removeprefix("www.").rstrip(".")
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode()
    except UnicodeError:
        return host


def _resolved(path: str) -> str:
    """Where a path leads to, as a server reads it."""
    return normpath("/" + unquote(path).lstrip("/")).rstrip("/")
