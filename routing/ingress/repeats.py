"""Requests that were answered from the memory of the cache, and come again byte for byte: they are
begun, let in, answered, logged and recorded as any other, and only not read."""

from __future__ import annotations

import time
from collections.abc import Callable

from llama_compat.errors import APIError
from routing.asgi import REPEAT, RawHeaders, Scope, headers_by_name
from routing.cache.replies.entries import same_bytes
from routing.ingress.answer import new_request_id
from routing.policy.attempts import Attempts
from routing.request import Request
from routing.runtime import Runtime

REQUEST_ID = b"x-request-id"

End = Callable[[Request, Runtime], None]
"""Says in the log and the records that a request has ended."""


def offer(scope: Scope, request: Request, runtime: Runtime, end: End) -> None:
    """Have the bytes of `request` answered as it is, should they come again.

    Args:
        scope: the request's.
        request: what is about to be answered.
        runtime: what answers it.
        end: ends those that come again.
    """
    repeat = scope.get("extensions", {}).get(REPEAT)
    if repeat is not None and runtime.repeats:
        sent = headers_by_name(scope).get(REQUEST_ID)
        has_id = sent is not None and sent == request.request_id.encode()
        repeat(CacheHit(request, runtime, end, request.request_id if has_id else ""))


class CacheHit:
    """One request that was answered from the memory of the cache.

    Args:
        request: as it was answered.
        runtime: what answered it.
        end: ends those that come again.
        request_id: that the client has given it; empty where it has none.
    """

    def __init__(self, request: Request, runtime: Runtime, end: End, request_id: str) -> None:
        assert request.call is not None
        assert request.hit is not None
        assert request.reading is not None
        self._runtime = runtime
        self._end = end
        self._request_id = request_id
        self._operation = request.operation
        self._principal = request.principal
        self._path = request.path
        self._raw_headers = request.attempts.headers
        self._headers = request.call.headers
        self._body = request.body
        self._reading = request.reading
        self._route = request.route
        self._hit = request.hit
        self._dialect = dialect = request.operation.dialect
        names = dialect.headers_of("")
        self.varying = frozenset({b"age", REQUEST_ID, *(name.encode() for name in names)})

    def again(self) -> RawHeaders | None:
        """Answer it once more, if its key is still good, it still goes to the same targets, and the
        same reply is still there."""
        runtime, hit = self._runtime, self._hit
        age = hit.age()
        if age is None or runtime.is_replaced:
            return None
        request_id = self._request_id or new_request_id()
        try:
            principal = runtime.authenticator.principal(self._raw_headers)
            if principal is not self._principal:
                return None
            attempts = Attempts(self._raw_headers)
            request = Request(self._operation, request_id, principal, attempts, self._path)
            request.body, request.reading = self._body, self._reading
            fields, asked = self._reading.fields, self._reading.asked
            request.asks(fields, asked, self._headers, counts_usage=runtime.counts_usage)
            runtime.route(request)
        except APIError:
            return None
        if request.route is not self._route:
            return None
        self._answered(request)
        headers = [(b"age", b"%d" % age), (REQUEST_ID, request_id.encode())]
        if self._dialect.reply_headers is not None:
            told = self._dialect.reply_headers(request_id)
            headers += [(name.encode(), value.encode()) for name, value in told.items()]
        return headers

    def _answered(self, request: Request) -> None:
        runtime, entry, call = self._runtime, self._hit.entry, request.call
        assert call is not None
        runtime.begin(request)
        request.cached, request.status = True, 200
        request.reply = reply = same_bytes(entry, call)
        reply.closed = reply.read_to_end = request.complete = True
        if call.stream and request.sample_bytes:
            request.sampled().add(entry.body)
        request.first_sent = time.monotonic()
        self._end(request, runtime)
