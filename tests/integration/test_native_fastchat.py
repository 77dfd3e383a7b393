"""The OpenAI client, a server with `remote::fastchat`, and FastChat's controller and workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from fastchat.conversation import get_conv_template

from tests.integration import wire
from tests.integration.fastchat_worker import CONTEXT_LENGTH, TEMPLATE, TEXT
from tests.integration.server_process import free_port, running, write_template

MODELS = [
    "greets",
    "tells",
    "runs-out",
    "never-says-why",
    "is-cut",
    "crashes",
    "fails",
    "fails-later",
    "scores",
    "holds",
]
MESSAGES: list[Any] = [{"role": "user", "content": "Hello?"}]
SYSTEM = get_conv_template(TEMPLATE).system_message
READY_SECONDS = 60


class FastChat:
    """A controller and its workers, each a process."""

    def __init__(self, log_folder: Path) -> None:
        self._environment = {**os.environ, "LOGDIR": str(log_folder)}
        self._log = (log_folder / "processes.log").open("wb")
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        port = str(free_port())
        command = ["fastchat.serve.controller", "--host", "127.0.0.1", "--port", port]
        self.controller = self._start(port, command)
        self._wait_for(self.controller, "/test_connection")

    def start_worker(self, *models: str) -> str:
        """Start a worker of `models`; its address once the controller knows it."""
        port = str(free_port())
        command = ["tests.integration.fastchat_worker", port, self.controller, *models]
        address = self._start(port, command)
        self._wait_for(address, "/hung_up")
        listed = wire.request("POST", f"{self.controller}/list_models", {}).json()
        assert set(models) <= set(listed["models"])
        return address

    def kill(self, address: str) -> None:
        """End the process at `address` at once."""
        process = self._processes.pop(address)
        process.kill()
        process.wait()

    def close(self) -> None:
        for address in list(self._processes):
            self.kill(address)
        self._log.close()

    def _start(self, port: str, command: list[str]) -> str:
        address = f"http://127.0.0.1:{port}"
        self._processes[address] = subprocess.Popen(
            [sys.executable, "-m", *command],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        return address

    def _wait_for(self, address: str, path: str) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            if self._processes[address].poll() is not None:
                break
            try:
                assert wire.request("GET", address + path).status == 200
                return
            except OSError:
                time.sleep(0.05)
        pytest.fail(f"{address} did not start. The log:\n{Path(self._log.name).read_text()}")


@pytest.fixture(scope="module")
def fastchat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FastChat]:
    one = FastChat(tmp_path_factory.mktemp("fastchat"))
    try:
        yield one
    finally:
        one.close()


@pytest.fixture(scope="module")
def worker(fastchat: FastChat) -> str:
    """The address of the worker that has all of `MODELS`."""
    return fastchat.start_worker(*MODELS)


@pytest.fixture(scope="module")
def client(
    fastchat: FastChat, worker: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[openai.OpenAI]:
    config = {
        "base_url": fastchat.controller,
        "models": "discover",
        "models_refresh_seconds": 0.001,
        "embedding_batch_size": 2,
    }
    names = [*MODELS, "mortal"]
    template = write_template(
        tmp_path_factory.mktemp("server") / "fastchat.yaml",
        providers=[{"id": "fastchat", "type": "remote::fastchat", "config": config}],
        models=[{"id": name, "provider": "fastchat"} for name in names],
    )
    with (
        running(template) as process,
        openai.OpenAI(base_url=process.base_url, api_key="x", max_retries=0, timeout=60) as one,
    ):
        yield one


def stream(client: openai.OpenAI, model: str, **options: Any) -> tuple[str, str | None, Any]:
    """The text, finish reason and usage of a streamed chat."""
    chunks = client.chat.completions.create(
        model=model,
        messages=MESSAGES,
        stream=True,
        stream_options={"include_usage": True},
        **options,
    )
    text, reason, usage = "", None, None
    for chunk in chunks:
        usage = chunk.usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reason = choice.finish_reason or reason
    return text, reason, usage


def told(client: openai.OpenAI, **options: Any) -> dict[str, Any]:
    """What a chat request makes a worker get."""
    reply = client.chat.completions.create(**{"model": "tells", "messages": MESSAGES, **options})
    got = json.loads(reply.choices[0].message.content)
    assert isinstance(got, dict)
    return got


# --------------------------------------------------------------------------------------------------
# Chat
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["greets", "never-says-why"])
def test_says_what_the_model_says_streaming_or_not(client: openai.OpenAI, model: str) -> None:
    reply = client.chat.completions.create(model=model, messages=MESSAGES)
    assert reply.choices[0].message.content == TEXT
    assert reply.choices[0].finish_reason == "stop"
    assert stream(client, model) == (TEXT, "stop", reply.usage)
    assert reply.usage is not None
    assert reply.usage.prompt_tokens == len(f"{SYSTEM} USER: Hello? ASSISTANT:".split())
    assert reply.usage.completion_tokens == 5


def test_asks_the_worker_with_its_own_template(client: openai.OpenAI) -> None:
    got = told(
        client,
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Yes?"},
            {"role": "user", "content": [{"type": "text", "text": "Bye"}]},
        ],
    )
    assert got == {
        "model": "tells",
        "prompt": "Be brief. USER: Hi ASSISTANT: Yes?</s>USER: Bye ASSISTANT:",
        "echo": False,
        "max_new_tokens": CONTEXT_LENGTH - 8 - 1,
    }


def test_sends_the_parameters(client: openai.OpenAI) -> None:
    got = told(
        client,
        temperature=0.5,
        top_p=0.9,
        max_completion_tokens=7,
        stop="END",
        frequency_penalty=0.1,
        presence_penalty=0.2,
        extra_body={"top_k": 4, "repetition_penalty": 1.5},
    )
    assert {name: got[name] for name in got if name not in ("model", "prompt", "echo")} == {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 4,
        "max_new_tokens": 7,
        "stop": ["END"],
        "frequency_penalty": 0.1,
        "presence_penalty": 0.2,
        "repetition_penalty": 1.5,
    }


def test_says_that_it_ran_out_of_tokens(client: openai.OpenAI) -> None:
    reply = client.chat.completions.create(model="runs-out", messages=MESSAGES)
    assert reply.choices[0].finish_reason == "length"
    assert stream(client, "runs-out")[1] == "length"


def test_makes_several_choices(client: openai.OpenAI) -> None:
    reply = client.chat.completions.create(model="greets", messages=MESSAGES, n=3)
    assert [choice.message.content for choice in reply.choices] == [TEXT] * 3


@pytest.mark.parametrize(("content", "max_tokens"), [("word " * 70, None), ("Hi", 60)])
def test_refuses_what_does_not_fit_the_context(
    client: openai.OpenAI, content: str, max_tokens: int | None
) -> None:
    for streamed in (False, True):
        with pytest.raises(openai.BadRequestError) as refused:
            client.chat.completions.create(
                model="greets",
                messages=[{"role": "user", "content": content}],
                max_tokens=openai.omit if max_tokens is None else max_tokens,
                stream=streamed,
            )
        assert refused.value.code == "context_length_exceeded"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tools", [{"type": "function", "function": {"name": "f"}}]),
        ("response_format", {"type": "json_object"}),
        ("logit_bias", {"5": 1}),
    ],
)
def test_refuses_what_workers_can_t_do(client: openai.OpenAI, name: str, value: Any) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(**{"model": "greets", "messages": MESSAGES, name: value})
    assert refused.value.param == name


@pytest.mark.parametrize(("name", "value"), [("seed", 1), ("reasoning_effort", "low")])
def test_leaves_wishes_out_that_workers_can_t_fulfil(
    client: openai.OpenAI, name: str, value: Any
) -> None:
    raw = client.chat.completions.with_raw_response.create(
        **{"model": "greets", "messages": MESSAGES, name: value}
    )
    assert raw.headers["x-llama-compat-dropped"] == name


def test_refuses_the_answer_of_a_tool(client: openai.OpenAI) -> None:
    answer: Any = {"role": "tool", "tool_call_id": "c", "content": "22 degrees"}
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="greets", messages=[*MESSAGES, answer])
    assert refused.value.param == "messages[1]"


def test_chats_with_log_probabilities(client: openai.OpenAI) -> None:
    reply = client.chat.completions.create(model="scores", messages=MESSAGES, logprobs=True)
    logprobs = reply.choices[0].logprobs
    assert logprobs is not None
    assert [(one.token, one.logprob) for one in logprobs.content or ()] == [
        ("Hel", -0.5),
        ("lo", -0.25),
        ("!", -2.0),
    ]
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="greets", messages=MESSAGES, logprobs=True)
    assert refused.value.param == "logprobs"


# --------------------------------------------------------------------------------------------------
# What goes wrong
# --------------------------------------------------------------------------------------------------


def test_passes_a_worker_s_error_on(client: openai.OpenAI) -> None:
    for streamed in (False, True):
        with pytest.raises(openai.InternalServerError, match="CUDA out of memory") as failed:
            client.chat.completions.create(model="fails", messages=MESSAGES, stream=streamed)
        assert (failed.value.status_code, failed.value.code) == (503, "upstream_out_of_memory")


@pytest.mark.parametrize(
    ("model", "message"),
    [("fails-later", "CUDA out of memory"), ("is-cut", "broke"), ("crashes", "broke")],
)
def test_says_when_a_stream_fails(client: openai.OpenAI, model: str, message: str) -> None:
    texts: list[str] = []
    chunks = client.chat.completions.create(model=model, messages=MESSAGES, stream=True)
    with pytest.raises(openai.APIError, match=message):
        texts.extend(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert "".join(texts) == "Hello"
    with pytest.raises(openai.InternalServerError, match=message):
        client.chat.completions.create(model=model, messages=MESSAGES)


def test_hangs_up_when_the_client_does(client: openai.OpenAI, worker: str) -> None:
    def hung_up() -> int:
        count = wire.request("GET", f"{worker}/hung_up").json()
        assert isinstance(count, int)
        return count

    before = hung_up()
    with client.chat.completions.create(model="holds", messages=MESSAGES, stream=True) as chunks:
        assert any(chunk.choices[0].delta.content for chunk in chunks)
    deadline = time.monotonic() + 20
    while hung_up() == before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert hung_up() == before + 1


def test_goes_on_with_another_worker_until_there_is_none(
    client: openai.OpenAI, fastchat: FastChat
) -> None:
    def chat() -> Any:
        return client.chat.completions.create(model="mortal", messages=MESSAGES)

    with pytest.raises(openai.InternalServerError) as failed:
        chat()
    assert (failed.value.status_code, failed.value.code) == (503, "no_worker")

    first, second = fastchat.start_worker("mortal"), fastchat.start_worker("mortal")
    assert [chat().choices[0].message.content for _ in range(4)] == ["Still here."] * 4
    fastchat.kill(first)
    assert [chat().choices[0].message.content for _ in range(4)] == ["Still here."] * 4
    fastchat.kill(second)
    with pytest.raises(openai.InternalServerError, match="no worker") as failed:
        chat()
    assert (failed.value.status_code, failed.value.code) == (503, "no_worker")
    with pytest.raises(openai.InternalServerError, match="no worker"):
        client.embeddings.create(model="mortal", input="text")


# --------------------------------------------------------------------------------------------------
# Text completions, embeddings, the list of models
# --------------------------------------------------------------------------------------------------


def test_continues_a_prompt_as_it_is(client: openai.OpenAI) -> None:
    reply = client.completions.create(model="tells", prompt="Once upon", max_tokens=9, echo=True)
    assert json.loads(reply.choices[0].text) == {
        "model": "tells",
        "prompt": "Once upon",
        "echo": True,
        "max_new_tokens": 9,
    }
    chunks = client.completions.create(model="greets", prompt=["a", "b"], stream=True)
    texts = ["", ""]
    for chunk in chunks:
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == [TEXT, TEXT]


def test_continues_with_log_probabilities(client: openai.OpenAI) -> None:
    reply = client.completions.create(model="scores", prompt="Say", logprobs=1)
    assert reply.choices[0].logprobs is not None
    assert reply.choices[0].logprobs.tokens == ["Hel", "lo", "!"]
    assert reply.choices[0].logprobs.token_logprobs == [-0.5, -0.25, -2.0]


@pytest.mark.parametrize(
    ("name", "value"), [("prompt", [1, 2]), ("suffix", "the end"), ("best_of", 3), ("logprobs", 2)]
)
def test_refuses_what_workers_can_t_continue(client: openai.OpenAI, name: str, value: Any) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(**{"model": "greets", "prompt": "Once", name: value})
    assert refused.value.param == name


def test_embeds_in_batches(client: openai.OpenAI) -> None:
    reply = client.embeddings.create(model="greets", input=["a", "bb", "ccc"])
    assert [each.embedding for each in reply.data] == [[1.0, 2.0], [2.0, 2.0], [3.0, 1.0]]
    assert reply.usage.total_tokens == 3
    with pytest.raises(openai.InternalServerError, match="CUDA out of memory"):
        client.embeddings.create(model="fails", input="a")
    with pytest.raises(openai.BadRequestError) as refused:
        client.embeddings.create(model="greets", input="a", dimensions=2)
    assert refused.value.param == "dimensions"


def test_lists_the_controller_s_models(client: openai.OpenAI) -> None:
    assert {f"fastchat/{name}" for name in MODELS} <= {model.id for model in client.models.list()}
    reply = client.chat.completions.create(model="fastchat/greets", messages=MESSAGES)
    assert (reply.model, reply.choices[0].message.content) == ("fastchat/greets", TEXT)
