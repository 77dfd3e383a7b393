"""What reading raises of what somebody has sent, where it is not what it should be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

MALFORMED = (AttributeError, IndexError, KeyError, TypeError)
"""What comes of reading members of a vendor's answer, where it is not what the API says: told as
ValueError."""

UNREADABLE = (*MALFORMED, RecursionError, ValueError)
"""What comes of reading what somebody has sent, where that need be nothing of the kind. A client's
request goes on as it is, for the vendor says better what is wrong with it."""


@contextmanager
def malformed_as(what: str) -> Iterator[None]:
    """What comes of reading members that are not there is told as ValueError, which begins with
    `what`."""
    try:
        yield
    except msgspec.ValidationError as error:
        raise ValueError(f"{what}: {error}") from None
    except MALFORMED as error:
        raise ValueError(f"{what}: {error!r}") from error
