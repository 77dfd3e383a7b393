"""What the scripted upstream does where things go wrong: streams that break off, and errors.

A function's name is the model's, with `-` for `_`.
"""

from __future__ import annotations

from tests.integration.scripted_upstream import Afterwards, Exchange, behaviour
from tests.integration.upstream_behaviours import FULL_REPLY, begin, text_chunks

# Where streams break off --------------------------------------------------------------------------


@behaviour
async def cut_before_first_event(exchange: Exchange) -> None:
    await exchange.start_stream()
    exchange.cut()


@behaviour
async def cut_after_role(exchange: Exchange) -> None:
    """A first chunk that says nothing yet, and no more."""
    await begin(exchange, 0)
    await exchange.pause()
    exchange.cut()


@behaviour
async def cut_between_events(exchange: Exchange) -> None:
    await begin(exchange)
    await exchange.held()
    exchange.cut()


@behaviour
async def cut_inside_event(exchange: Exchange) -> None:
    await begin(exchange)
    await exchange.send(b'data: {"id":"up-1","choi')
    await exchange.held()
    exchange.cut()


@behaviour
async def closed_between_events(exchange: Exchange) -> None:
    """The connection closes in order, but without HTTP's end of the body."""
    await begin(exchange)
    exchange.close()


@behaviour
async def ended_before_finish_reason(exchange: Exchange) -> None:
    """HTTP's end of the body comes, but neither a `finish_reason` nor `[DONE]`."""
    await begin(exchange)


@behaviour
async def cut_after_finish_reason(exchange: Exchange) -> None:
    """All is said, and the connection closes without `[DONE]` and HTTP's end of the body."""
    await exchange.start_stream()
    for one in text_chunks():
        await exchange.event(one)
    exchange.close()


@behaviour
async def error_first(exchange: Exchange) -> None:
    await exchange.start_stream()
    await exchange.event({"error": {"message": "Slow down.", "type": "rate_limit", "code": 429}})


@behaviour
async def error_midway(exchange: Exchange) -> None:
    await begin(exchange)
    await exchange.event(
        {"error": {"message": "The GPU fell over.", "type": "server_error", "code": "gpu_lost"}}
    )
    await exchange.done()


@behaviour
async def error_event_midway(exchange: Exchange) -> None:
    """An event that is named `error`, as Anthropic's and others' are."""
    await begin(exchange)
    await exchange.send(b'event: error\ndata: {"error": {"message": "The GPU fell over."}}\n\n')


@behaviour
async def torn_event(exchange: Exchange) -> None:
    """An event that is not JSON in the middle of a stream."""
    await begin(exchange)
    await exchange.send(b'data: {"id":"up-1","choi\n\n')
    await exchange.done()


@behaviour
async def empty_stream(exchange: Exchange) -> None:
    await exchange.start_stream()


@behaviour
async def only_done(exchange: Exchange) -> None:
    await exchange.start_stream()
    await exchange.done()


@behaviour
async def hangs_between_events(exchange: Exchange) -> None:
    await begin(exchange)
    await exchange.held()


@behaviour
async def floods(exchange: Exchange) -> None:
    """A stream that says more than anybody wants to hear, as fast as it is taken."""
    await exchange.start_stream()
    while True:
        await exchange.event({"choices": [{"index": 0, "delta": {"content": "x" * 10_000}}]})


@behaviour
async def comments_forever(exchange: Exchange) -> None:
    """Keeps the connection busy and never says anything."""
    await begin(exchange)
    while not exchange.released:
        await exchange.send(b": still here\n\n")
        await exchange.pause()


@behaviour
async def hangs_inside_body(exchange: Exchange) -> None:
    """A reply that is no stream stops in the middle of its body."""
    length = ("Content-Length", str(len(FULL_REPLY)))
    await exchange.head(200, [("Content-Type", "application/json"), length])
    await exchange.raw(FULL_REPLY[:40])
    await exchange.held()


# Errors -------------------------------------------------------------------------------------------


@behaviour
async def status_400(exchange: Exchange) -> None:
    error = {"message": "Bad 'top_p'.", "type": "bad_thing", "param": "top_p", "code": "too_odd"}
    await exchange.json({"error": error}, status=400)


@behaviour
async def status_401(exchange: Exchange) -> None:
    error = {"message": "Incorrect API key: sk-up***", "code": "invalid_api_key"}
    await exchange.json({"error": error}, status=401)


@behaviour
async def status_403(exchange: Exchange) -> None:
    await exchange.json({"error": {"message": "No access to this model."}}, status=403)


@behaviour
async def status_404(exchange: Exchange) -> None:
    error = {"message": "No such model.", "type": "not_found", "code": "model_not_found"}
    await exchange.json({"error": error}, status=404)


@behaviour
async def status_422(exchange: Exchange) -> None:
    """FastAPI's shape, as many servers in Python have it."""
    problem = {"loc": ["body", "top_p"], "msg": "Input should be a number", "type": "float"}
    await exchange.json({"detail": [problem]}, status=422)


@behaviour
async def status_429(exchange: Exchange) -> None:
    error = {"message": "Slow down.", "type": "tokens", "param": None, "code": "rate_limit"}
    headers = [
        ("Retry-After", "17"),
        ("Retry-After-Ms", "16500"),
        ("X-RateLimit-Limit-Requests", "60"),
        ("X-RateLimit-Remaining-Tokens", "0"),
        ("Set-Cookie", "session=secret"),
        ("Server", "vendor-banner/9"),
    ]
    await exchange.json({"error": error}, status=429, headers=headers)


@behaviour
async def status_429_in_time(exchange: Exchange) -> None:
    """Nothing until the test lets go, and then an error."""
    await exchange.held()
    await status_429(exchange)


@behaviour
async def status_500(exchange: Exchange) -> None:
    error = {"message": "Something broke.", "type": "server_error"}
    await exchange.json({"error": error}, status=500)


@behaviour
async def as_the_user_says(exchange: Exchange) -> None:
    """All is well, but for requests whose `user` is the status of an error."""
    status = exchange.request.json().get("user")
    if status is None:
        await exchange.reply(FULL_REPLY)
    else:
        await exchange.json({"error": {"message": "As you wish."}}, status=int(status))


@behaviour
async def status_520(exchange: Exchange) -> None:
    """What Cloudflare says in place of a vendor."""
    await exchange.head(520, [("Content-Type", "text/plain"), ("Content-Length", "15")])
    await exchange.raw(b"error code: 520")


@behaviour
async def status_498(exchange: Exchange) -> None:
    """What Groq says when its flex tier has no room."""
    error = {"message": "Flex tier capacity exceeded.", "type": "capacity_exceeded"}
    await exchange.json({"error": error}, status=498)


@behaviour
async def status_503(exchange: Exchange) -> None:
    error = {"message": "Overloaded.", "type": "overloaded"}
    headers = [("Retry-After", "30"), ("X-Request-Id", "req_of_the_vendor")]
    await exchange.json({"error": error}, status=503, headers=headers)


@behaviour
async def error_as_text(exchange: Exchange) -> None:
    """The shape of Ollama's errors."""
    await exchange.json({"error": "model 'x' not found, try pulling it first"}, status=404)


@behaviour
async def html_502(exchange: Exchange) -> None:
    page = b"<html><head><title>502 Bad Gateway</title></head><body><h1>502</h1></body></html>"
    await exchange.reply(page, status=502, content_type="text/html")


@behaviour
async def html_200(exchange: Exchange) -> None:
    await exchange.reply(b"<html><body>Please log in.</body></html>", content_type="text/html")


@behaviour
async def torn_json(exchange: Exchange) -> None:
    await exchange.reply(FULL_REPLY[:60])


@behaviour
async def json_array(exchange: Exchange) -> None:
    await exchange.reply(b"[1, 2]")


@behaviour
async def json_null(exchange: Exchange) -> None:
    await exchange.reply(b"null")


@behaviour
async def no_choices(exchange: Exchange) -> None:
    """JSON, but not a completion."""
    await exchange.reply(b'{"status": "ok"}')


@behaviour
async def empty_body(exchange: Exchange) -> None:
    await exchange.reply(b"")


@behaviour
async def empty_500(exchange: Exchange) -> None:
    await exchange.reply(b"", status=500)


@behaviour
async def error_200(exchange: Exchange) -> None:
    await exchange.json({"error": {"message": "The GPU fell over.", "code": "gpu_lost"}})


@behaviour
async def not_http(exchange: Exchange) -> None:
    await exchange.raw(b"SSH-2.0-OpenSSH_9.6\r\n")
    exchange.close()


@behaviour
async def redirect(exchange: Exchange) -> None:
    """To another host's name, where the key has no business."""
    await exchange.reply(b"", status=307, headers=[("Location", elsewhere(exchange))])


def elsewhere(exchange: Exchange) -> str:
    """The upstream itself under another name."""
    host = exchange.request.header("host") or ""
    return f"http://localhost:{host.rpartition(':')[2]}/v1/chat/completions"


@behaviour
async def cut_before_reply(exchange: Exchange) -> None:
    exchange.cut()


@behaviour
async def cut_inside_head(exchange: Exchange) -> None:
    await exchange.raw(b"HTTP/1.1 200 OK\r\nContent-Ty")
    exchange.cut()


@behaviour
async def cut_inside_body(exchange: Exchange) -> None:
    length = ("Content-Length", str(len(FULL_REPLY)))
    await exchange.head(200, [("Content-Type", "application/json"), length])
    await exchange.raw(FULL_REPLY[:40])
    exchange.close()


@behaviour
async def closes_when_reused(exchange: Exchange) -> None:
    """The connection looks kept alive and closes under the next request."""
    await exchange.reply(FULL_REPLY)
    exchange.afterwards = Afterwards.CLOSE_WHEN_REUSED
