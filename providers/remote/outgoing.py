"""Headers that a request to a vendor has because of the request here that it is for.

They are the context's, not an argument, for they have to reach the vendor whatever lies between:
the vocabulary knows nothing of headers.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar

OUTGOING: ContextVar[Mapping[str, str] | None] = ContextVar("outgoing", default=None)
"""Names in lower case."""
