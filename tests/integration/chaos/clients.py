"""Clients that ask one after the other, in several languages, and look closely at the answers."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

CLIENTS = 8

TIMEOUT_SECONDS = 30.0
"""Nobody waits longer: a request that hangs is a failure."""

QUESTION = {"messages": [{"role": "user", "content": "a b c d e"}]}


@dataclass
class Answer:
    """What a client got.

    Attributes:
        request_id: the request's.
        kind: the language, and whether it was streamed.
        status: HTTP's; 0 where there was no answer.
        text: all the content that came.
        is_whole: whether the end of the answer came too.
        error: what went wrong, in the client's language; empty if nothing did.
        seconds: until the end.
        headers: of the answer.
    """

    request_id: str
    kind: str
    status: int = 0
    text: str = ""
    is_whole: bool = False
    error: str = ""
    seconds: float = 0.0
    headers: Mapping[str, str] = field(default_factory=dict)


async def _openai_whole(answer: Answer, response: aiohttp.ClientResponse) -> None:
    body = await response.json()
    if "error" in body:
        answer.error = body["error"]["message"]
        return
    [choice] = body["choices"]
    answer.text, answer.is_whole = choice["message"]["content"], choice["finish_reason"] == "stop"


async def _openai_stream(answer: Answer, response: aiohttp.ClientResponse) -> None:
    if response.status != 200:
        await _openai_whole(answer, response)
        return
    finish_reason = None
    async for data in _events(response):
        if data == "[DONE]":
            answer.is_whole = finish_reason == "stop"
            continue
        event = json.loads(data)
        if "error" in event:
            answer.error = event["error"]["message"]
            continue
        for choice in event["choices"]:
            answer.text += choice["delta"].get("content") or ""
            finish_reason = choice["finish_reason"] or finish_reason


async def _messages_whole(answer: Answer, response: aiohttp.ClientResponse) -> None:
    body = await response.json()
    if body["type"] == "error":
        answer.error = body["error"]["message"]
        return
    [block] = body["content"]
    answer.text, answer.is_whole = block["text"], body["stop_reason"] == "end_turn"


async def _messages_stream(answer: Answer, response: aiohttp.ClientResponse) -> None:
    if response.status != 200:
        await _messages_whole(answer, response)
        return
    async for data in _events(response):
        event = json.loads(data)
        match event["type"]:
            case "error":
                answer.error = event["error"]["message"]
            case "content_block_delta":
                answer.text += event["delta"]["text"]
            case "message_stop":
                answer.is_whole = True


async def _responses_stream(answer: Answer, response: aiohttp.ClientResponse) -> None:
    if response.status != 200:
        answer.error = (await response.json())["error"]["message"]
        return
    async for data in _events(response):
        event = {} if data == "[DONE]" else json.loads(data)
        match event.get("type"):
            case "response.failed":
                answer.error = event["response"]["error"]["message"]
            case "response.output_text.delta":
                answer.text += event["delta"]
            case "response.completed":
                answer.is_whole = True


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[str]:
    async for line in response.content:
        if line.startswith(b"data: "):
            yield line[6:].decode().strip()


Read = Callable[[Answer, aiohttp.ClientResponse], Any]

KINDS: dict[str, tuple[str, dict[str, Any], Read]] = {
    "chat": ("/v1/chat/completions", QUESTION, _openai_whole),
    "chat, streamed": ("/v1/chat/completions", {**QUESTION, "stream": True}, _openai_stream),
    "messages": ("/v1/messages", {**QUESTION, "max_tokens": 99}, _messages_whole),
    "messages, streamed": (
        "/v1/messages",
        {**QUESTION, "max_tokens": 99, "stream": True},
        _messages_stream,
    ),
    "responses, streamed": (
        "/v1/responses",
        {"input": "a b c d e", "stream": True, "store": False},
        _responses_stream,
    ),
}


class Clients:
    """They ask from `start` to `stop`, each the next question when it has its answer.

    A thread of their own has them, so that a test can break things meanwhile.

    Args:
        url: the server's.
        model: whom they ask.

    Attributes:
        answers: what they got so far, in the order of the ends.
    """

    _numbers = itertools.count()
    """Of all requests, as vendors answer several of these after each other."""

    def __init__(self, url: str, model: str = "smart") -> None:
        self._url = url
        self._model = model
        self._stopping = False
        self._thread = threading.Thread(target=lambda: asyncio.run(self._ask_all()))
        self.answers: list[Answer] = []

    def __enter__(self) -> Clients:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ask no more; the answers that are on their way are waited for."""
        self._stopping = True
        self._thread.join()

    def wait_for(self, count: int, of: Callable[[Answer], bool] = lambda answer: True) -> None:
        """Wait until there are `count` more answers, from now on, of which `of` is true."""
        begun, deadline = len(self.answers), time.monotonic() + 2 * TIMEOUT_SECONDS
        while sum(map(of, self.answers[begun:])) < count:
            assert time.monotonic() < deadline, self.answers[-20:]
            assert self._thread.is_alive(), "the clients have ended"
            time.sleep(0.01)

    async def _ask_all(self) -> None:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            await asyncio.gather(*(self._ask_on(session) for _ in range(CLIENTS)))

    async def _ask_on(self, session: aiohttp.ClientSession) -> None:
        while not self._stopping:
            number = next(self._numbers)
            kind = list(KINDS)[number % len(KINDS)]
            self.answers.append(await self._ask(session, Answer(f"request-{number}", kind)))

    async def _ask(self, session: aiohttp.ClientSession, answer: Answer) -> Answer:
        path, body, read = KINDS[answer.kind]
        body = {**body, "model": self._model}
        headers = {"x-request-id": answer.request_id}
        begun = time.monotonic()
        try:
            async with session.post(self._url + path, json=body, headers=headers) as response:
                answer.status, answer.headers = response.status, dict(response.headers)
                await read(answer, response)
        except (aiohttp.ClientError, TimeoutError) as error:
            answer.error = f"{type(error).__name__}: {error}"
        answer.seconds = time.monotonic() - begun
        return answer
