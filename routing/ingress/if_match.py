"""`If-Match`: the version of what somebody read, so that nobody's later change is written over."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header

IfMatch = Annotated[str | None, Header(alias="if-match", max_length=200)]


def version_in(if_match: str | None) -> str | None:
    """The version that the header names (RFC 9110, 13.1.1), quoted or not; None without one."""
    return None if if_match is None else if_match.strip().removeprefix("W/").strip('"')
