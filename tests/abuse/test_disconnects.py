"""Who leaves takes nobody else's prompt along: those who stay are answered to their own."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.abuse.connections import post
from tests.integration.server_process import COMMAND, ServerProcess, write_template

pytest.importorskip("torch", reason="needs the extra 'torch', to make tiny models")

ENGINES = ("echo", "torch", "llama_cpp")

MARKS = range(1, 25)
"""How many words a prompt has, by which its tokens are told from those of the others."""

CLIENTS = 48
STAY = 1 / 3
"""The share of the clients that wait for their answer."""

ANSWERS, ANSWERS_OF_ABUSE = 400, 4000

LATE = """\
#!{python}
# What other threads have made reaches the event loop late, as on a machine that is too busy.
import asyncio, sys
from asyncio import futures

copy = futures._copy_future_state

def copy_late(source, future):
    if not future.cancelled():
        loop = future.get_loop()
        loop.call_later(0.03, lambda: future.done() or copy(source, future))

futures._copy_future_state = copy_late
sys.argv[0] = {command!r}
from routing.cli import main
sys.exit(main())
"""


@dataclass(frozen=True)
class API:
    """One client API: a request that asks for one token, and what its answer says of the prompt."""

    path: str
    body: Callable[[str, str], dict[str, Any]]
    prompt_tokens: Callable[[dict[str, Any]], int]


def _said(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def _of_messages(usage: dict[str, Any]) -> int:
    kinds = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return sum(usage.get(kind) or 0 for kind in kinds)


APIS = {
    "chat": API(
        "/v1/chat/completions",
        lambda model, text: {"model": model, "messages": _said(text), "max_tokens": 1},
        lambda answer: answer["usage"]["prompt_tokens"],
    ),
    "completions": API(
        "/v1/completions",
        lambda model, text: {"model": model, "prompt": text, "max_tokens": 1},
        lambda answer: answer["usage"]["prompt_tokens"],
    ),
    "responses": API(
        "/v1/responses",
        lambda model, text: {"model": model, "input": text, "max_output_tokens": 16},
        lambda answer: answer["usage"]["input_tokens"],
    ),
    "messages": API(
        "/v1/messages",
        lambda model, text: {"model": model, "messages": _said(text), "max_tokens": 1},
        lambda answer: _of_messages(answer["usage"]),
    ),
    "gemini": API(
        "/v1beta/models/{model}:generateContent",
        lambda model, text: {
            "contents": [{"role": "user", "parts": [{"text": text}]}],
            "generationConfig": {"maxOutputTokens": 1},
        },
        lambda answer: answer["usageMetadata"]["promptTokenCount"],
    ),
    "ollama": API(
        "/api/chat",
        lambda model, text: {
            "model": model,
            "messages": _said(text),
            "stream": False,
            "options": {"num_predict": 1},
        },
        lambda answer: answer["prompt_eval_count"],
    ),
}


class Storm:
    """Clients of one model in one API, most of whom leave.

    Attributes:
        left: how many did.
        answered: for each who stayed, its mark and the prompt tokens of its answer.
    """

    def __init__(self, server: ServerProcess, model: str, api: API) -> None:
        self._server = server
        self._model = model
        self._api = api
        self._chosen = random.Random(f"{model}{api.path}")
        self.left = 0
        self.answered: list[tuple[int, int]] = []

    async def alone(self) -> dict[int, int]:
        """The prompt tokens of each mark, with nobody else there."""
        return {mark: await self._stay(mark) for mark in MARKS}

    async def rage(self, answers: int) -> None:
        """Until so many have been answered."""

        async def client() -> None:
            while len(self.answered) < answers:
                mark = self._chosen.choice(MARKS)
                if self._chosen.random() < STAY:
                    self.answered.append((mark, await self._stay(mark)))
                else:
                    await self._leave(mark)

        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(client())

    def _request(self, mark: int) -> bytes:
        body = self._api.body(self._model, " ".join(["mark"] * mark))
        return post(json.dumps(body).encode(), self._api.path.format(model=self._model))

    async def _stay(self, mark: int) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._server.port)
        try:
            writer.write(self._request(mark))
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 "), head
            (length,) = (
                int(line.partition(b":")[2])
                for line in head.lower().split(b"\r\n")
                if line.startswith(b"content-length:")
            )
            return self._api.prompt_tokens(json.loads(await reader.readexactly(length)))
        finally:
            writer.close()

    async def _leave(self, mark: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", self._server.port)
        writer.write(self._request(mark))
        with suppress(OSError):
            await writer.drain()
        await asyncio.sleep(self._chosen.random() * 0.005)
        writer.transport.abort()
        self.left += 1


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.tiny_ggufs import gguf_of
    from tests.tiny_models import make_model

    pytest.importorskip("llama_cpp", reason="needs the extra 'llama-cpp'")
    path = tmp_path_factory.mktemp("disconnects")
    folder = make_model(path / "tiny")
    names = {"torch": str(folder), "llama_cpp": str(gguf_of(folder, path / "tiny.gguf"))}
    return write_template(
        path / "engines.yaml",
        providers=[
            {"id": "echo", "type": "local::echo"},
            {"id": "torch", "type": "local::torch", "config": {"device": "cpu", "threads": 1}},
            {"id": "llama_cpp", "type": "local::llama_cpp", "config": {"threads": 1}},
        ],
        models=[
            {"id": each, "provider": each, "provider_model": names.get(each, each)}
            for each in ENGINES
        ],
    )


@pytest.fixture(scope="module")
def busy_server(template: Path) -> Iterator[ServerProcess]:
    """A server on whose machine there seems to be little time."""
    script = template.with_name("late")
    script.write_text(LATE.format(python=sys.executable, command=COMMAND))
    script.chmod(0o755)
    process = ServerProcess(template, executable=str(script))
    try:
        process.wait_until_ready()
        yield process
        assert process.stop() == 0
        assert "Traceback" not in process.log
    finally:
        process.kill()


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("engine", ENGINES)
async def test_who_stays_is_answered_to_his_own_prompt(
    busy_server: ServerProcess, engine: str, api: str
) -> None:
    await weathered(busy_server, engine, api, ANSWERS)


@pytest.mark.lengthy
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("engine", ENGINES)
async def test_who_stays_for_long_is_answered_to_his_own_prompt(
    busy_server: ServerProcess, engine: str, api: str
) -> None:
    await weathered(busy_server, engine, api, ANSWERS_OF_ABUSE)


async def weathered(server: ServerProcess, engine: str, api: str, answers: int) -> None:
    storm = Storm(server, engine, APIS[api])
    expected = await storm.alone()
    assert len(set(expected.values())) == len(MARKS)
    await storm.rage(answers)
    wrong = [(mark, tokens) for mark, tokens in storm.answered if tokens != expected[mark]]
    assert wrong == [], f"{len(wrong)} of {len(storm.answered)}, while {storm.left} left"
    assert storm.left > answers
