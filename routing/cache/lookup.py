"""One request that the cache looks after: what is asked, and of which cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from llama_compat.exchange import Call
from routing.cache.asked import CacheableCall
from routing.cache.exact import ExactCache
from routing.request import Request

if TYPE_CHECKING:
    from routing.cache.questions.semantic import AskedQuestion


class Lookup(Struct, eq=False, gc=False):
    """One request that the cache looks after.

    Attributes:
        request: it.
        call: what it asks.
        asked: what the cache knows of that.
        cache: where its reply may be, and is kept.
        compared: what its user asks last, with a vector, where questions are compared.
    """

    request: Request
    call: Call
    asked: CacheableCall
    cache: ExactCache
    compared: AskedQuestion | None = None
