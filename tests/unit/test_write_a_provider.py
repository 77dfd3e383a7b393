"""The page that shows how to write a provider: what it shows is run as it stands there."""

from __future__ import annotations

import ast
import json
import re
import shlex
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from llama_compat import mixins
from llama_compat.distribution import load_distribution
from llama_compat.wire import sse
from providers import registry
from providers.base import Provider
from routing.app import Application

PAGE = (Path(__file__).parents[2] / "docs/guides/write-a-provider.md").read_text("utf-8")
SAID = [{"role": "user", "content": "Hello there"}]


def block(language: str, title: str = "") -> str:
    """The one block of the page in this language, with this title if it has one."""
    head = re.escape(f'{language} title="{title}"' if title else language)
    (text,) = re.findall(rf"^```{head}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert isinstance(text, str)
    return text


@pytest.fixture
async def client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[httpx.AsyncClient]:
    """Asks a server with the page's template, on whose path the page's module is."""
    for language, name in (("python", "reverse.py"), ("yaml", "reverse.yaml")):
        (tmp_path / name).write_text(block(language, name))
    monkeypatch.syspath_prepend(tmp_path)
    row = ast.literal_eval(f"{{{block('python', 'providers/registry.py')}}}")
    monkeypatch.setattr(registry, "CLASSES", {**registry.CLASSES, **row})
    app = Application(load_distribution(str(tmp_path / "reverse.yaml"), registry.config_model))
    await app.start()
    transport = httpx.ASGITransport(app=app)  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://server") as asking:
        yield asking
    await app.stop()
    del sys.modules["reverse"]


async def asked(client: httpx.AsyncClient, path: str, **body: Any) -> Any:
    answer = await client.post(path, json={"model": "backwards", **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_it_answers_as_the_page_says(client: httpx.AsyncClient) -> None:
    console = block("console").replace("\\\n", "")
    (command,) = re.findall(r"^\$ (curl .*)\n", console, re.MULTILINE)
    curl, _, jq = command.partition("|")
    _, _, url, *options = shlex.split(curl)
    body = json.loads(options[options.index("-d") + 1])
    answer = await asked(client, httpx.URL(url).path, **body)
    assert shlex.split(jq)[-1] == ".choices[0].message.content"
    assert console.splitlines()[-1] == answer["choices"][0]["message"]["content"]


async def test_every_client_can_ask_it(client: httpx.AsyncClient) -> None:
    chat = await asked(client, "/v1/chat/completions", messages=SAID, max_tokens=1)
    assert chat["choices"][0]["message"]["content"] == "ereht"
    assert chat["choices"][0]["finish_reason"] == "length"
    assert chat["usage"]["total_tokens"] == 3
    text = await asked(client, "/v1/completions", prompt="Hello there")
    assert text["choices"][0]["text"] == "ereht olleH"
    message = await asked(client, "/v1/messages", messages=SAID, max_tokens=9)
    assert message["content"][0]["text"] == "ereht olleH"
    response = await asked(client, "/v1/responses", input="Hello there")
    assert response["output"][0]["content"][0]["text"] == "ereht olleH"
    counted = await asked(client, "/v1/messages/count_tokens", messages=SAID)
    assert counted["input_tokens"] == 2
    embedded = await asked(client, "/v1/embeddings", input="Hello there")
    assert embedded["data"][0]["embedding"] == [11.0, 2.0]


async def test_it_streams(client: httpx.AsyncClient) -> None:
    body = {"model": "backwards", "messages": SAID, "stream": True}
    answer = await client.post("/v1/chat/completions", json=body)
    events = [each.data for each in sse.EventDecoder().feed(answer.content) if each.data]
    assert events.pop() == b"[DONE]"
    deltas = [json.loads(each)["choices"][0]["delta"] for each in events]
    assert [each["content"] for each in deltas if each.get("content")] == ["ereht", " olleH"]


async def test_what_it_does_not_know_is_refused(client: httpx.AsyncClient) -> None:
    body = {"model": "backwards", "messages": SAID, "logprobs": True}
    answer = await client.post("/v1/chat/completions", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "logprobs")


async def test_but_for_a_mere_wish(client: httpx.AsyncClient) -> None:
    body = {"model": "backwards", "messages": SAID, "seed": 1}
    answer = await client.post("/v1/chat/completions", json=body)
    assert answer.headers["x-llama-compat-dropped"] == "seed"


def test_the_table_names_what_there_is() -> None:
    rows = re.findall(r"^\| (`\w+`|nothing) \| (.*?) \|", PAGE, re.MULTILINE)
    assert len(rows) == 5
    for written, inherited in rows:
        assert written == "nothing" or hasattr(Provider, written.strip("`"))
        for name in re.findall(r"`(\w*Mixin)`", inherited):
            assert hasattr(mixins, name)
    for name in ("loads_models", "unsupported_values", "parameters", "start", "stop"):
        assert f"`{name}`" in PAGE
        assert hasattr(Provider, name)
