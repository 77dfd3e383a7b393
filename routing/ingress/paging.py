"""Pages of lists, as OpenAI's API shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def list_page(shown: Sequence[Mapping[str, Any]], *, more: bool) -> dict[str, Any]:
    """A page of objects, each of which has its `id`.

    Args:
        shown: they.
        more: whether the list goes on behind them, the way that it is read.
    """
    return {
        "object": "list",
        "data": list(shown),
        "first_id": shown[0]["id"] if shown else None,
        "last_id": shown[-1]["id"] if shown else None,
        "has_more": more,
    }
