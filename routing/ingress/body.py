"""The body of a request."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any

from llama_compat.connection_errors import compressed_body, request_timed_out, too_many_bodies
from llama_compat.errors import APIError, invalid_parameter, request_too_large
from llama_compat.off_loop import LARGE_BYTES
from llama_compat.wire.json_fields import JSONFields, parse_fields
from llama_compat.wire.json_size import (
    MAX_DIGITS,
    MAX_MEMBERS,
    MAX_VALUES,
    has_too_many_values,
    with_too_long_number,
)
from routing.asgi import Receive, Scope, headers_by_name
from routing.ingress.disconnect import ClientGone

SMALL_BYTES = 64 * 1024
"""A smaller body is always let in, so that a few large ones keep nobody else out; it is the
connections that bound how many there are."""


_LENGTH_DIGITS = 20
"""Of the largest number of bytes that 64 bits hold; Python refuses to read thousands of digits."""


class Bodies:
    """What the bodies of all requests come to while these are answered.

    Args:
        limit: the template's `max_bodies_bytes`.

    Attributes:
        held: bytes now.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0

    def one(self) -> HeldBody:
        """Room for one more; a context manager that gives back what it took."""
        return HeldBody(self)


class HeldBody:
    """One request's share of `Bodies`."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._size = 0

    def grow_to(self, size: int) -> None:
        """The body has `size` bytes now.

        Raises:
            APIError: 503, all of them together would be too much.
        """
        if size <= max(SMALL_BYTES, self._size):
            return
        more = size - self._size
        if self._bodies.held + more > self._bodies.limit:
            raise too_many_bodies(self._bodies.limit)
        self._bodies.held += more
        self._size = size

    def shrink_to(self, size: int) -> None:
        """It has no more than `size` bytes any longer."""
        size = size if size > SMALL_BYTES else 0
        if size < self._size:
            self._bodies.held -= self._size - size
            self._size = size

    def __enter__(self) -> HeldBody:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bodies.held -= self._size
        self._size = 0


async def read_body(
    scope: Scope, receive: Receive, limit: int, held: HeldBody, patience: float
) -> bytes:
    """The whole body of a request.

    Args:
        scope, receive: ASGI's.
        limit: bytes that it may have.
        held: its share of what all bodies may have.
        patience: for how many seconds the server waited, if it gives up; for the message.

    Raises:
        APIError: 415, it is compressed; 413 as soon as it is known to be over `limit` bytes, 503 as
            soon as there is no room for it, 408 if the client stops sending it.
        ClientGone: the client left before it had sent everything.
    """
    if is_longer(headers_by_name(scope), limit):
        raise request_too_large(limit)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        part = part_in(message, patience)
        size += len(part)
        if size > limit:
            raise request_too_large(limit)
        held.grow_to(size)
        parts.append(part)
        if not message.get("more_body"):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def is_longer(headers: Mapping[bytes, bytes], limit: int) -> bool:
    """Whether a body says with its headers that it has more than so many bytes. What is no length
    is the server's to refuse; what comes is counted in any case.

    Raises:
        APIError: 415, it is compressed.
    """
    coding = headers.get(b"content-encoding", b"")
    if coding and coding.lower() != b"identity":
        raise compressed_body(coding.decode("latin-1"))
    length = headers.get(b"content-length", b"")
    return length.isdigit() and (len(length) > _LENGTH_DIGITS or int(length) > limit)


def part_in(message: Mapping[str, Any], patience: float) -> bytes:
    """The part of a body that a message of ASGI's brings.

    Args:
        message: that.
        patience: as for `read_body`.

    Raises:
        APIError: 408, the client has stopped sending it.
        ClientGone: the client has left.
    """
    if message["type"] == "http.disconnect":
        if message.get("late"):
            raise request_timed_out("body", patience)
        raise ClientGone
    part: bytes = message.get("body", b"")
    return part


def form_type(scope: Scope) -> str:
    """The content type of a request that is a form with files; empty for any other."""
    value: bytes = headers_by_name(scope).get(b"content-type", b"")
    is_form = value.lstrip()[: len(_FORM)].lower() == _FORM
    return value.decode("latin-1") if is_form else ""


_FORM = b"multipart/"


def parse_body(body: bytes) -> JSONFields:
    """The members of the JSON object that a request is.

    Raises:
        APIError: 400, it is none, or one that nobody could read in a moment.
    """
    if len(body) > LARGE_BYTES and has_too_many_values(body):
        raise APIError(
            400,
            f"The request body has more than {MAX_VALUES} values, or more than {MAX_MEMBERS} of"
            " them are members of objects. Split it into several requests.",
            code="too_many_values",
        )
    if not body:
        raise APIError(
            400, "The request body must be a JSON object: it is empty.", code="invalid_json"
        )
    try:
        fields = parse_fields(body)
    except ValueError as error:
        raise APIError(
            400,
            f"The request body must be a JSON object: {error}.",
            code="invalid_json",
        ) from None
    if len(body) > MAX_DIGITS:
        name = with_too_long_number(fields)
        if name is not None:
            raise invalid_parameter(
                name, f"Invalid '{name}': it holds a number of more than {MAX_DIGITS} digits."
            )
    return fields
