"""The yardstick: as little as a relay can do in Python. It checks nothing and mends nothing.

UPSTREAM=http://... uvicorn bench.load.bare_relay:app
"""

import json
import os

import aiohttp

UPSTREAM = os.environ.get("UPSTREAM", "") + "/v1/chat/completions"
READ_BUFFER_BYTES = int(os.environ.get("READ_BUFFER_BYTES", 1 << 16))
session: aiohttp.ClientSession | None = None


async def app(scope, receive, send):
    global session
    if scope["type"] == "lifespan":
        return
    if session is None:
        connector = aiohttp.TCPConnector(limit=0)
        session = aiohttp.ClientSession(connector=connector, read_bufsize=READ_BUFFER_BYTES)
    body = b""
    while True:
        message = await receive()
        body += message["body"]
        if not message["more_body"]:
            break
    request = json.loads(body)
    request["model"] = "upstream-model"
    async with session.post(UPSTREAM, json=request) as reply:
        headers = [(b"content-type", reply.headers["content-type"].encode())]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        if request.get("stream"):
            async for part in reply.content.iter_any():
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        else:
            answer = json.loads(await reply.read())
            answer["model"] = "model"
            await send({"type": "http.response.body", "body": json.dumps(answer).encode()})
