"""Headers that a request to a vendor has because of the request here that it is for.

They are the context's, not an argument, for they have to reach the vendor whatever lies between:
the vocabulary knows nothing of headers.
"""

from __future__ import annotations

from contextvars import ContextVar

from providers.remote.http1.headers import HeaderBlock

OUTGOING: ContextVar[HeaderBlock | None] = ContextVar("outgoing", default=None)
"""Their lines, beside those that the provider's settings have."""
