"""Who leaves takes nobody else's prompt along: those who stay are answered to their own."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import pytest

from routing.ingress.apis import CLIENT_APIS
from tests.abuse.connections import post
from tests.abuse.websockets import HANDSHAKE, create
from tests.clients.scripted_models import Asked, Said, ScriptedModels
from tests.integration.server_process import ServerProcess, running, write_template

pytest.importorskip("torch", reason="needs the extra 'torch', to make tiny models")

ENGINES = ("echo", "torch", "llama_cpp")
MODELS = (*ENGINES, "torch-embeds", "llama_cpp-embeds", "torch-ranks")

MARKS = range(1, 25)
"""How many words a prompt has, by which its tokens are told from those of the others."""

CLIENTS = 48
STAY = 1 / 3
"""The share of the clients that wait for their answer."""

ANSWER_SECONDS = 120
"""Nobody who stays waits longer, whatever else the machine does."""

ANSWERS, ANSWERS_OF_ABUSE = 400, 1000

Told = int | list[float]
"""What an answer says of the prompt that it is to: its tokens, or what it means."""

CLOSE = 1e-3
"""Vectors of one text are not as far from each other, whatever it is computed with."""


def count(*names: str) -> Callable[[bytes], int | None]:
    """Tokens of a prompt: the sum of what an answer, or a stream, says last under each name."""
    patterns = [re.compile(rb'"%s": ?(\d+)' % name.encode()) for name in names]

    def told(answer: bytes) -> int | None:
        found = [each.findall(answer) for each in patterns]
        return sum(int(each[-1]) for each in found if each) if any(found) else None

    return told


def vector(answer: bytes) -> list[float] | None:
    """The first numbers of an answer, which are those of its vector."""
    found = re.search(rb"\[(-?\d[^][]*)\]", answer)
    return [float(each) for each in found[1].split(b",")] if found else None


@dataclass(frozen=True)
class Ask:
    """One way to ask for something.

    Attributes:
        operation: what a client API calls it.
        path: where; it may name the model.
        body: of a model and a text, asking for one token where there are any.
        told: what an answer says of its prompt; None of one that says nothing.
        kind: of the models that it is for: those that generate, embed or rank.
        websocket: whether it is a message of a WebSocket.
    """

    operation: str
    path: str
    body: Callable[[str, str], dict[str, Any]]
    told: Callable[[bytes], Told | None]
    kind: Literal["", "embeds", "ranks"] = ""
    websocket: bool = False


def _said(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def _chat(model: str, text: str) -> dict[str, Any]:
    return {"model": model, "messages": _said(text), "max_tokens": 1}


def _contents(model: str, text: str) -> dict[str, Any]:
    return {"contents": [{"role": "user", "parts": [{"text": text}]}]}


def _generate(model: str, text: str) -> dict[str, Any]:
    return {**_contents(model, text), "generationConfig": {"maxOutputTokens": 1}}


def _embed(model: str, text: str) -> dict[str, Any]:
    return {"model": f"models/{model}", "content": {"parts": [{"text": text}]}}


def _response(model: str, text: str) -> dict[str, Any]:
    return {"model": model, "input": text, "max_output_tokens": 1}


def _rerank(model: str, text: str) -> dict[str, Any]:
    return {"model": model, "query": "Which?", "documents": [text, "a"]}


OF_OLLAMA = {"stream": False, "options": {"num_predict": 1}}
OF_MESSAGES = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
GEMINI = "/v1beta/models/{model}"

CALLS = {
    "chat": Ask("chat", "/v1/chat/completions", _chat, count("prompt_tokens")),
    "completions": Ask(
        "completions",
        "/v1/completions",
        lambda model, text: {"model": model, "prompt": text, "max_tokens": 1},
        count("prompt_tokens"),
    ),
    "responses": Ask("responses", "/v1/responses", _response, count("input_tokens")),
    "messages": Ask("messages", "/v1/messages", _chat, count(*OF_MESSAGES)),
    "gemini": Ask(
        "gemini_generate", f"{GEMINI}:generateContent", _generate, count("promptTokenCount")
    ),
    "interactions": Ask(
        "interactions",
        "/v1beta/interactions",
        lambda model, text: {
            "model": model,
            "input": text,
            "generation_config": {"max_output_tokens": 1},
            "store": False,
        },
        count("total_input_tokens"),
    ),
    "ollama": Ask(
        "ollama_chat",
        "/api/chat",
        lambda model, text: {"model": model, "messages": _said(text), **OF_OLLAMA},
        count("prompt_eval_count"),
    ),
}
"""One for each client API; who abuses has the others too."""

OTHER_CALLS = {
    "chat, several choices": Ask(
        "chat",
        "/v1/chat/completions",
        lambda model, text: {**_chat(model, text), "n": 3},
        count("prompt_tokens"),
    ),
    "chat, streamed": Ask(
        "chat",
        "/v1/chat/completions",
        lambda model, text: {
            **_chat(model, text),
            "stream": True,
            "stream_options": {"include_usage": True},
        },
        count("prompt_tokens"),
    ),
    "completions, several choices": Ask(
        "completions",
        "/v1/completions",
        lambda model, text: {"model": model, "prompt": text, "max_tokens": 1, "n": 3},
        count("prompt_tokens"),
    ),
    "responses, streamed": Ask(
        "responses",
        "/v1/responses",
        lambda model, text: {**_response(model, text), "stream": True},
        count("input_tokens"),
    ),
    "responses, over a WebSocket": Ask(
        "responses", "/v1/responses", _response, count("input_tokens"), websocket=True
    ),
    "responses, counted": Ask(
        "input_tokens",
        "/v1/responses/input_tokens",
        lambda model, text: {"model": model, "input": text},
        count("input_tokens"),
    ),
    "messages, streamed": Ask(
        "messages",
        "/v1/messages",
        lambda model, text: {**_chat(model, text), "stream": True},
        count(*OF_MESSAGES),
    ),
    "messages, counted": Ask(
        "count_tokens",
        "/v1/messages/count_tokens",
        lambda model, text: {"model": model, "messages": _said(text)},
        count("input_tokens"),
    ),
    "gemini, streamed": Ask(
        "gemini_generate",
        f"{GEMINI}:streamGenerateContent?alt=sse",
        _generate,
        count("promptTokenCount"),
    ),
    "gemini, counted": Ask(
        "gemini_count_tokens", f"{GEMINI}:countTokens", _contents, count("totalTokens")
    ),
    "interactions, streamed": Ask(
        "interactions",
        "/v1beta/interactions",
        lambda model, text: {**CALLS["interactions"].body(model, text), "stream": True},
        count("total_input_tokens"),
    ),
    "ollama, streamed": Ask(
        "ollama_chat",
        "/api/chat",
        lambda model, text: {**CALLS["ollama"].body(model, text), "stream": True},
        count("prompt_eval_count"),
    ),
    "ollama, generated": Ask(
        "ollama_generate",
        "/api/generate",
        lambda model, text: {"model": model, "prompt": text, **OF_OLLAMA},
        count("prompt_eval_count"),
    ),
    "embeddings": Ask(
        "embeddings",
        "/v1/embeddings",
        lambda model, text: {"model": model, "input": text},
        vector,
        kind="embeds",
    ),
    "ollama, embedded": Ask(
        "ollama_embed",
        "/api/embed",
        lambda model, text: {"model": model, "input": text},
        vector,
        kind="embeds",
    ),
    "ollama, embedded in the old way": Ask(
        "ollama_embeddings",
        "/api/embeddings",
        lambda model, text: {"model": model, "prompt": text},
        vector,
        kind="embeds",
    ),
    "gemini, embedded": Ask(
        "gemini_embed", f"{GEMINI}:embedContent", _embed, vector, kind="embeds"
    ),
    "gemini, embedded by the batch": Ask(
        "gemini_batch_embed",
        f"{GEMINI}:batchEmbedContents",
        lambda model, text: {"requests": [_embed(model, text)]},
        vector,
        kind="embeds",
    ),
    "rerank": Ask("rerank", "/v1/rerank", _rerank, count("prompt_tokens"), kind="ranks"),
    "rerank, Cohere's second": Ask(
        "rerank_v2", "/v2/rerank", _rerank, count("prompt_tokens"), kind="ranks"
    ),
}

SEARCH = {"type": "web_search"}
CLAUDES_SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 2}


def found(answer: bytes) -> int | None:
    """The number that the model has found, and no one else's: every number in the answer is it."""
    numbers = set(re.findall(rb"mark(\d+)found", answer))
    return int(numbers.pop()) if len(numbers) == 1 else None


def _searching(body: Callable[[str, str], dict[str, Any]], **more: Any) -> Any:
    return lambda model, text: {**body(model, f"mark{text.count('mark')}"), **more}


HOSTED_CALLS = {
    name: Ask(operation, path, body, found, websocket=name.endswith("WebSocket"))
    for name, operation, path, body in (
        (
            "chat",
            "chat",
            "/v1/chat/completions",
            _searching(_chat, web_search_options={}, max_tokens=99),
        ),
        (
            "responses",
            "responses",
            "/v1/responses",
            _searching(_response, tools=[SEARCH], max_output_tokens=99),
        ),
        (
            "responses, streamed",
            "responses",
            "/v1/responses",
            _searching(_response, tools=[SEARCH], max_output_tokens=99, stream=True),
        ),
        (
            "messages",
            "messages",
            "/v1/messages",
            _searching(_chat, tools=[CLAUDES_SEARCH], max_tokens=99),
        ),
        (
            "messages, streamed",
            "messages",
            "/v1/messages",
            _searching(_chat, tools=[CLAUDES_SEARCH], max_tokens=99, stream=True),
        ),
    )
}
"""Calls that have the server search for them: whoever leaves does so before, during or after it."""

LAST_EVENTS = (b'"response.completed"', b'"response.incomplete"', b'"type":"error"')
"""With what a WebSocket's reply ends."""

NOT_ASKED = {"compact", "moderations", "images", "image_edits", "speech", "transcriptions"}
NOT_ASKED |= {"translations"}
"""Operations whose answers say nothing of their prompts, or that no engine has."""


class Storm:
    """Clients of one model who ask in one way, most of whom leave.

    Attributes:
        left: how many did.
        answered: for each who stayed, its mark and what it was told of its prompt.
    """

    def __init__(self, server: ServerProcess, model: str, ask: Ask) -> None:
        self._server = server
        self._model = model
        self._ask = ask
        self._chosen = random.Random(f"{model}{ask.path}")
        self._requests = {mark: self._request(mark) for mark in MARKS}
        self.left = 0
        self.answered: list[tuple[int, Told]] = []

    async def alone(self) -> dict[int, Told]:
        """What each mark is told, with nobody else there."""
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
        body = self._ask.body(self._model, " ".join(["mark"] * mark))
        if self._ask.websocket:
            return HANDSHAKE % b"" + create(**body)
        data = json.dumps(body).encode()
        asked = post(data, self._ask.path.format(model=self._model))
        return asked.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)

    async def _stay(self, mark: int) -> Told:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._server.port)
        try:
            writer.write(self._requests[mark])
            answer = b""
            async with asyncio.timeout(ANSWER_SECONDS):
                while data := await reader.read(65536):
                    answer += data
                    # A WebSocket stays open.
                    if self._ask.websocket and any(each in answer for each in LAST_EVENTS):
                        break
            head, _, body = answer.partition(b"\r\n\r\n")
            assert head.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 101 ")), answer[:1000]
            told = self._ask.told(body)
            assert told is not None, answer[:1000]
            return told
        finally:
            writer.close()

    async def _leave(self, mark: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", self._server.port)
        writer.write(self._requests[mark])
        with suppress(OSError):
            await writer.drain()
        await asyncio.sleep(self._chosen.random() * 0.005)
        writer.transport.abort()
        self.left += 1


def alike(one: Told, other: Told) -> bool:
    """Whether both are told of one prompt."""
    if isinstance(one, list) and isinstance(other, list):
        return max(abs(a - b) for a, b in zip(one, other, strict=True)) < CLOSE
    return one == other


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.tiny_ggufs import gguf_of
    from tests.tiny_models import make_embedder, make_model, make_reranker

    pytest.importorskip("llama_cpp", reason="needs the extra 'llama-cpp'")
    path = tmp_path_factory.mktemp("disconnects")
    folder = make_model(path / "tiny")
    names = {
        "echo": "echo",
        "torch": str(folder),
        "llama_cpp": str(gguf_of(folder, path / "tiny.gguf")),
        "torch-embeds": str(make_embedder(path / "embeds", positions=256)),
        "torch-ranks": str(make_reranker(path / "ranks", positions=256)),
        "llama_cpp-embeds": str(gguf_of(folder, path / "embeds.gguf", pooling=1)),
    }
    return write_template(
        path / "engines.yaml",
        providers=[
            {"id": "echo", "type": "local::echo"},
            {"id": "torch", "type": "local::torch", "config": {"device": "cpu", "threads": 1}},
            {"id": "llama_cpp", "type": "local::llama_cpp", "config": {"threads": 1}},
        ],
        models=[
            {"id": each, "provider": each.partition("-")[0], "provider_model": name}
            for each, name in names.items()
        ],
    )


@pytest.fixture(scope="module")
def busy_server(template: Path) -> Iterator[ServerProcess]:
    """A server on whose machine there seems to be little time."""
    process = ServerProcess(template, first="tests.abuse.late")
    try:
        process.wait_until_ready()
        yield process
        assert process.stop() == 0
        assert "Traceback" not in process.log
    finally:
        process.kill()


def test_the_storm_is_before_every_call_of_every_client_api() -> None:
    called = {
        operation.name
        for api in CLIENT_APIS
        for operation in (*api.operations.values(), *(each.operation for each in api.patterns))
    }
    asked = {each.operation for each in (CALLS | OTHER_CALLS).values()}
    assert called == asked | NOT_ASKED
    first = {each.operation for each in CALLS.values()}
    for api in CLIENT_APIS:
        names = {each.name for each in api.operations.values()}
        assert first & (names | {each.operation.name for each in api.patterns}), api.name
        assert not api.websockets or names & {
            each.operation for each in OTHER_CALLS.values() if each.websocket
        }


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("engine", ENGINES)
async def test_who_stays_is_answered_to_his_own_prompt(
    busy_server: ServerProcess, engine: str, call: str
) -> None:
    await weathered(busy_server, engine, CALLS[call], ANSWERS)


@pytest.mark.lengthy
@pytest.mark.parametrize("call", CALLS | OTHER_CALLS)
@pytest.mark.parametrize("engine", ENGINES)
async def test_who_stays_for_long_is_answered_to_his_own_prompt(
    busy_server: ServerProcess, engine: str, call: str
) -> None:
    ask = (CALLS | OTHER_CALLS)[call]
    if ask.kind and f"{engine}-{ask.kind}" not in MODELS:
        pytest.skip("it has no such models")
    model = f"{engine}-{ask.kind}" if ask.kind else engine
    await weathered(busy_server, model, ask, ANSWERS_OF_ABUSE)


async def weathered(server: ServerProcess, model: str, ask: Ask, answers: int) -> None:
    storm = Storm(server, model, ask)
    expected = await storm.alone()
    told = list(expected.values())
    assert not any(alike(one, other) for one, other in combinations(told, 2))
    await storm.rage(answers)
    wrong = [(mark, told) for mark, told in storm.answered if not alike(told, expected[mark])]
    print(f"{len(storm.answered)} answered, {len(wrong)} wrong, {storm.left} left")
    assert wrong == [], f"{len(wrong)} of {len(storm.answered)}, while {storm.left} left"
    assert storm.left > answers


# --------------------------------------------------------------------------------------------------
# Tools that the server runs
# --------------------------------------------------------------------------------------------------


def searcher(asked: Asked) -> Said:
    """Looks for what it is asked, and repeats what that gave."""
    if not asked.outputs:
        return Said("", [("web_search", {"query": asked.texts[-1]})])
    numbers = re.findall(r"mark\d+found", asked.outputs[-1])
    return Said(" ".join(numbers) or "nothing")


@pytest.fixture(scope="module")
def searching_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that searches files for models, of which each mark has one."""
    path = tmp_path_factory.mktemp("searching")
    files = path / "files"
    files.mkdir()
    for mark in MARKS:
        text = f"About mark{mark}\nhttps://marks.example/{mark}\nmark{mark} is mark{mark}found\n"
        (files / f"{mark}.txt").write_text(text)
    with ScriptedModels(searcher) as vendor:
        template = write_template(
            path / "searching.yaml",
            server={"tools": {"web_search": {"backend": "files", "folder": str(files)}}},
            providers=[
                {
                    "id": "scripted",
                    "type": "remote::passthrough",
                    "config": {"base_url": vendor.url, "api_key": "none"},
                }
            ],
            models=[{"id": "m", "provider": "scripted"}],
        )
        with running(template) as process:
            yield process
            assert process.stop() == 0
            assert "Traceback" not in process.log
            assert "was never retrieved" not in process.log


@pytest.mark.parametrize("call", HOSTED_CALLS)
async def test_who_stays_gets_what_was_found_for_him(
    searching_server: ServerProcess, call: str
) -> None:
    await weathered(searching_server, "m", HOSTED_CALLS[call], ANSWERS // 4)
