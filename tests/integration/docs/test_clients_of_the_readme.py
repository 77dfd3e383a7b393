"""What the README says that SDKs need is all that they need."""

from __future__ import annotations

import re
from collections.abc import Iterator

import anthropic
import ollama
import openai
import pytest
from google import genai

from tests.documents import ROOT
from tests.integration.server_process import ServerProcess, running

NEEDED = dict(
    re.findall(r"^\| ([^|]+) \| `(.+)` \|$", (ROOT / "README.md").read_text("utf-8"), re.M)
)
MESSAGES = [{"role": "user", "content": "Hello!"}]

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running("echo") as process:
        yield process


def made(client: str, server: ServerProcess) -> object:
    text = NEEDED[client].replace("http://localhost:8321", server.url)
    names = {"OpenAI": openai.OpenAI, "Anthropic": anthropic.Anthropic, "genai": genai}
    return eval(text, names)


def test_openai_s(server: ServerProcess) -> None:
    client = made("OpenAI SDK", server)
    assert isinstance(client, openai.OpenAI)
    reply = client.chat.completions.create(model="echo", messages=MESSAGES)  # type: ignore[arg-type]
    assert reply.choices[0].message.content == "Hello!"


def test_anthropic_s(server: ServerProcess) -> None:
    client = made("Anthropic SDK", server)
    assert isinstance(client, anthropic.Anthropic)
    reply = client.messages.create(model="echo", max_tokens=9, messages=MESSAGES)  # type: ignore[arg-type]
    assert reply.content[0].text == "Hello!"  # type: ignore[union-attr]


def test_google_s(server: ServerProcess) -> None:
    client = made("Google Gen AI SDK", server)
    assert isinstance(client, genai.Client)
    assert client.models.generate_content(model="echo", contents="Hello!").text == "Hello!"


def test_ollama_s(server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    name, _, address = NEEDED["Ollama's clients"].partition("=")
    monkeypatch.setenv(name, address.replace("http://localhost:8321", server.url))
    reply = ollama.Client().chat(model="echo", messages=MESSAGES)
    assert reply.message.content == "Hello!"
