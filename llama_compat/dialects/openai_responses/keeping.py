"""What a store of responses brings to one request, and what it gets of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from llama_compat.dialects.base import Operation
from llama_compat.errors import invalid_parameter


class Keeping:
    """One response that is, or may be, kept.

    Args:
        response_id: what the response is called.
        store: whether it is kept.
        background: whether nobody waits for it.
        earlier: the items of the conversation so far, which go before the request's own.
        references: items that the request only names, by id.

    Attributes:
        created: when it was asked for, in seconds since 1970.
        response: the response object, once it has come to its end.
    """

    def __init__(
        self,
        response_id: str,
        *,
        store: bool,
        background: bool = False,
        earlier: Sequence[Mapping[str, Any]] = (),
        references: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.created = int(time.time())
        self.response_id = response_id
        self.store = store
        self.background = background
        self.earlier = earlier
        self.references = references or {}
        self.response: dict[str, Any] | None = None


def kept(operation: Operation, keeping: Keeping) -> Operation:
    """`operation`, of responses or of interactions, for one request, with what a store brings to
    it: each time that it is parsed, for a reply of its own."""
    parse: Callable[..., Any] = operation.parse

    def parse_kept(body: Mapping[str, Any], model: str) -> Any:
        return parse(body, model, keeping=copy(keeping))

    return replace(operation, parse=parse_kept)


def refuse_unkept(body: Mapping[str, Any], noun: str, how_to_keep: str) -> None:
    """Refuse what a request asks of a store that is not there.

    It is never dropped, whatever the template says: a part of the question would be missing.

    Args:
        body: the request.
        noun: what its API calls a reply.
        how_to_keep: such replies; for messages.

    Raises:
        APIError: 400.
    """
    member, code = f"previous_{noun}_id", f"previous_{noun}_not_found"
    previous = body.get(member)
    if previous is not None:
        told = f"The {noun} '{previous}' is not known. {how_to_keep}"
        raise invalid_parameter(member, told, code)
    if body.get("background"):
        raise invalid_parameter(
            "background",
            f"Nothing runs in the background here. {how_to_keep}",
            "unsupported_parameter",
        )


HOW_TO_KEEP = (
    "This server keeps no responses. Send the whole conversation in 'input', or turn its store on"
    " in the template: `server: {responses_store: {}}`."
)
