"""What is wrong with a connection or with the bytes on it, whatever they were to ask for.

Errors like those of `llama_compat.errors`, of the template's bounds on what clients send.
"""

from __future__ import annotations

from llama_compat.errors import APIError
from llama_compat.wire.retry_after import retry_after


def malformed_request(why: str = "") -> APIError:
    """400: not HTTP/1.1, or not as this server reads it."""
    return APIError(
        400,
        f"Invalid HTTP request received{': ' + why if why else ''}.",
        code="malformed_request",
    )


def compressed_body(coding: str) -> APIError:
    """415: the request's body is not sent as it is."""
    return APIError(
        415,
        f"The request body has the content-encoding {coding[:40]!r}, which this server does not"
        " undo. Send it uncompressed.",
        code="unsupported_content_encoding",
        headers={"accept-encoding": "identity"},
    )


def headers_too_large(limit: int, unit: str = "bytes") -> APIError:
    """431: the target and the headers are over the template's bound of so many `unit`."""
    setting = "max_headers" if unit == "headers" else "max_header_bytes"
    return APIError(
        431,
        f"The request's headers are more than the {limit} {unit} that this server accepts. Send"
        f" less, or raise `{setting}` in its template.",
        code="request_headers_too_large",
    )


def request_timed_out(what: str, seconds: float) -> APIError:
    """408: the request's headers, or its body, did not come in time."""
    setting = "header_seconds" if what == "headers" else "body_seconds"
    return APIError(
        408,
        f"The request's {what} did not come in time: within {seconds:g} seconds, as `{setting}` in"
        " the server's template has it. Send it again, without a pause.",
        code="request_timeout",
    )


def connection_limit_reached(seconds: float) -> APIError:
    """400: a WebSocket is as old as the template's `server.websockets.max_seconds` allows."""
    return APIError(
        400,
        f"This WebSocket has been open for {seconds:g} seconds, which is as long as one may be."
        " Open another; what ran on this one has ended.",
        code="websocket_connection_limit_reached",
    )


def too_many_connections(limit: int) -> APIError:
    """503: there are as many connections as the template's `server.max_connections` allows."""
    return APIError(
        503,
        f"This server has all the {limit} connections open that it takes at a time. Try again soon,"
        " reuse connections, or raise `max_connections` in its template.",
        code="too_many_connections",
        headers=retry_after(1),
    )


def too_many_bodies(limit: int) -> APIError:
    """503: all request bodies together would be over the template's `server.max_bodies_bytes`."""
    return APIError(
        503,
        f"The requests that this server is answering hold nearly all of the {limit} bytes that"
        " their bodies may come to together. Try again soon, or raise `max_bodies_bytes` in its"
        " template.",
        code="server_busy",
        headers=retry_after(1),
    )
