"""Replies that are given again, by every client API's own SDK: who gets them, who never does."""

from __future__ import annotations

import itertools
import json
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.integration import wire
from tests.integration.matrix.clients import CLIENTS, Client
from tests.integration.matrix.said import Ask
from tests.integration.native_suite import Reply, Vendor
from tests.integration.native_vendor import Answer, NativeVendor
from tests.integration.openai_vendor import OpenAIVendor
from tests.integration.server_process import ServerProcess, running, write_template
from tests.integration.test_native_anthropic import AnthropicVendor
from tests.integration.test_native_bedrock import BedrockVendor
from tests.integration.test_native_gemini import GeminiVendor

VENDORS: dict[str, type[Vendor]] = {
    "openai": OpenAIVendor,
    "anthropic": AnthropicVendor,
    "gemini": GeminiVendor,
    "bedrock": BedrockVendor,
}
TYPES = {
    "openai": "remote::passthrough",
    "anthropic": "remote::anthropic-messages",
    "gemini": "remote::gemini-native",
    "bedrock": "remote::bedrock-converse",
}
CHATS = [name for name in CLIENTS if name != "completions"]

TEXT = "It is 20 °C. 🌞\nTomorrow, too."

_numbers = itertools.count()


def question() -> str:
    """One that nobody has asked yet."""
    return f"How warm is it? ({next(_numbers)})"


@dataclass
class Behind:
    """A server with a cache, and what is behind it."""

    folder: Path
    server: ServerProcess
    vendors: dict[str, Vendor] = field(default_factory=dict)

    @property
    def records(self) -> list[dict[str, Any]]:
        """What is recorded so far."""
        with closing(sqlite3.connect(self.folder / "storage.sqlite")) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute("SELECT * FROM records")]

    def asked(self, vendor: str) -> int:
        """How often a vendor was asked since it was last told what to say."""
        return len(self.vendors[vendor].server.received)


KEYS: dict[str, Any] = {
    "teams": [{"id": "team"}],
    "keys": [
        {"name": "one", "key": "key-of-one", "budget": {"amount": 100, "period": "day"}},
        {"name": "other", "key": "key-of-other"},
        {"name": "mate-1", "key": "key-of-mate-1", "team": "team"},
        {"name": "mate-2", "key": "key-of-mate-2", "team": "team"},
    ],
}


def template(
    folder: Path, servers: dict[str, NativeVendor], *, keys: bool = False, **changes: Any
) -> Path:
    def config(name: str) -> dict[str, Any]:
        url = servers[name].url
        if name == "openai":
            return {"base_url": f"{url}/v1", **changes}
        keyed = {"base_url": url, "api_key": "sk-x"}
        return {**keyed, "apis": ["generate_content"]} if name == "gemini" else keyed

    names = {"anthropic": "claude", "bedrock": "anthropic.claude-x"}
    return write_template(
        folder / "cache.yaml",
        server={
            "storage": f"sqlite:{folder / 'storage.sqlite'}",
            "records": {},
            "cache": {"exact": {"sampled": True}},
            "responses_store": {},
        },
        **(KEYS if keys else {}),
        providers=[
            *({"id": name, "type": TYPES[name], "config": config(name)} for name in servers),
            {"id": "echo", "type": "local::echo"},
        ],
        models=[
            *(
                {"id": name, "provider": name, "provider_model": names.get(name, "theirs")}
                for name in servers
            ),
            {"id": "echo", "provider": "echo", "price": {"input": 10, "output": 10}},
            {"id": "plain", "provider": "openai", "provider_model": "x", "cache": {"exact": {}}},
            {"id": "uncached", "provider": "openai", "provider_model": "x", "cache": {}},
            {
                "id": "teams",
                "provider": "openai",
                "provider_model": "x",
                "cache": {"exact": {"sampled": True, "share": "team"}},
            },
        ],
    )


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, NativeVendor]]:
    with ExitStack() as stack:
        yield {name: stack.enter_context(vendor.server_type()) for name, vendor in VENDORS.items()}


def behind_of(folder: Path, servers: dict[str, NativeVendor], **more: Any) -> Iterator[Behind]:
    with running(template(folder, servers, **more)) as process:
        vendors = {
            name: vendor(servers[name], process.base_url)  # type: ignore[call-arg]
            for name, vendor in VENDORS.items()
        }
        yield Behind(folder, process, vendors)


@pytest.fixture(scope="module")
def behind(
    tmp_path_factory: pytest.TempPathFactory, servers: dict[str, NativeVendor]
) -> Iterator[Behind]:
    """A server that lets everybody in."""
    yield from behind_of(tmp_path_factory.mktemp("cache"), servers)


@pytest.fixture(scope="module")
def keyed(
    tmp_path_factory: pytest.TempPathFactory, servers: dict[str, NativeVendor]
) -> Iterator[Behind]:
    """One with keys."""
    yield from behind_of(tmp_path_factory.mktemp("keyed"), servers, keys=True)


@pytest.fixture(scope="module")
def clients(behind: Behind) -> dict[str, Client]:
    return {name: client(behind.server.url) for name, client in CLIENTS.items()}  # type: ignore[call-arg]


# Every API ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("first", CHATS)
@pytest.mark.parametrize("vendor", VENDORS)
def test_what_one_api_was_told_another_is_told_too(
    behind: Behind, clients: dict[str, Client], vendor: str, first: str, stream: bool
) -> None:
    behind.vendors[vendor].will_say(Reply(text=TEXT, thoughts="Hm."))
    ask = Ask(vendor, question())
    said = clients[first].ask(ask, stream=stream)
    assert behind.asked(vendor) == 1
    for name in CHATS:
        for again in (False, True):
            told = clients[name].ask(ask, stream=again)
            assert (told.text, told.stop, told.tokens) == (TEXT, "end", said.tokens), name
            assert behind.asked(vendor) == 1, (name, again)


def test_texts_are_continued_from_the_cache_too(behind: Behind, clients: dict[str, Client]) -> None:
    ask = Ask("echo", question())
    said = [clients["completions"].ask(ask, stream=stream) for stream in (False, True, True)]
    assert said[0] == said[1] == said[2]
    url = f"{behind.server.base_url}/completions"
    body = {"model": "echo", "prompt": ask.text, "max_tokens": ask.max_tokens}
    assert wire.request("POST", url, body).headers["x-llama-compat-cache"] == "hit"


def test_a_response_that_is_kept_has_a_name_of_its_own(behind: Behind) -> None:
    behind.vendors["openai"].will_say(Reply(text=TEXT))
    sdk = openai.OpenAI(base_url=behind.server.base_url, api_key="x", max_retries=0)
    asked = question()
    first, second = (sdk.responses.create(model="openai", input=asked) for _ in range(2))
    with sdk.responses.stream(model="openai", input=asked) as events:
        third = events.until_done().get_final_response()
    assert behind.asked("openai") == 1
    assert len({first.id, second.id, third.id}) == 3
    for each in (first, second, third):
        assert sdk.responses.retrieve(each.id).output_text == TEXT
    follow_ups = [
        sdk.responses.create(model="openai", input="And now?", previous_response_id=each.id)
        for each in (first, second, third)
    ]
    # The three conversations are the same, so that what follows is asked once as well.
    assert behind.asked("openai") == 2
    assert {each.output_text for each in follow_ups} == {TEXT}


# What a client says of it -------------------------------------------------------------------------


def body_of(model: str, text: str | None = None, **more: Any) -> dict[str, Any]:
    content = question() if text is None else text
    return {"model": model, "messages": [{"role": "user", "content": content}], **more}


def ask(
    behind: Behind, body: dict[str, Any], key: str = "", control: str | None = None
) -> wire.Reply:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    if control is not None:
        headers["cache-control"] = control
    return wire.request("POST", f"{behind.server.base_url}/chat/completions", body, headers)


def outcome(reply: wire.Reply) -> str:
    return str(reply.headers["x-llama-compat-cache"])


def test_what_a_client_says_of_it_and_is_told(behind: Behind) -> None:
    behind.vendors["openai"].will_say(Reply(text=TEXT))
    body = body_of("openai")
    first = ask(behind, body)
    assert (outcome(first), first.headers["age"]) == ("miss", None)
    hit = ask(behind, body)
    assert (outcome(hit), hit.body) == ("hit", first.body)
    assert hit.headers["content-type"] == first.headers["content-type"]
    assert int(hit.headers["age"]) >= 0
    assert hit.headers["x-llama-compat-provider"] == "openai"
    assert hit.headers["x-llama-compat-attempts"] is None
    assert outcome(ask(behind, body, control="no-store")) == "bypass"
    assert outcome(ask(behind, body, control="no-cache")) == "bypass"
    assert outcome(ask(behind, body, control="max-age=0")) == "bypass"
    assert behind.asked("openai") == 4
    assert outcome(ask(behind, body, control="max-age=600")) == "hit"
    time.sleep(1.1)
    assert int(ask(behind, body).headers["age"]) >= 1
    anew = time.monotonic()
    assert outcome(ask(behind, body, control="max-age=1")) == "miss"
    assert int(ask(behind, body).headers["age"]) <= time.monotonic() - anew
    unseen = body_of("openai")
    assert outcome(ask(behind, unseen, control="no-store")) == "bypass"
    assert outcome(ask(behind, unseen)) == "miss"


def test_the_bytes_of_a_stream_are_those_that_came_first(behind: Behind) -> None:
    behind.vendors["openai"].will_say(Reply(text=TEXT, thoughts="Hm."))
    body = body_of("openai", stream=True)
    first, again = ask(behind, body), ask(behind, body)
    assert (outcome(first), outcome(again)) == ("miss", "hit")
    assert first.body == again.body
    assert first.body.endswith(b"data: [DONE]\n\n")
    # Another form of it is not the same bytes, but says the same.
    counted = ask(behind, {**body, "stream_options": {"include_usage": True}})
    assert outcome(counted) == "hit"
    assert b'"completion_tokens":25' in counted.body
    assert b'"completion_tokens"' not in again.body
    assert behind.asked("openai") == 1


# What is not kept ---------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", ["length", "filter"])
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_cut_or_withheld_is_asked_again(behind: Behind, stop: str, stream: bool) -> None:
    for vendor in ("openai", "anthropic", "gemini"):
        behind.vendors[vendor].will_say(Reply(text="It is", stop=stop))
        body = body_of(vendor, stream=stream)
        assert [outcome(ask(behind, body)) for _ in range(2)] == ["miss", "miss"]
        assert behind.asked(vendor) == 2


def test_errors_and_broken_streams_are_asked_again(behind: Behind) -> None:
    vendor = behind.vendors["openai"]
    vendor.server.will_answer(Answer([b"{}"], status=500))
    body = body_of("openai")
    assert [ask(behind, body).status for _ in range(2)] == [500, 500]
    chunk = {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": {"content": "It"}, "finish_reason": None}],
    }
    piece = b"data: " + json.dumps(chunk).encode() + b"\n\n"
    kind = "text/event-stream"
    vendor.server.will_answer(Answer([piece], content_type=kind, break_off=True))
    streamed = {**body, "stream": True}
    for _ in range(2):
        reply = ask(behind, streamed)
        assert outcome(reply) == "miss"
        assert b'"error"' in reply.body
    assert behind.asked("openai") == 2


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"temperature": 0.3},
        {"temperature": 0, "n": 2},
        {
            "temperature": 0,
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
        },
    ],
    ids=["sampled", "warm", "choices", "tools"],
)
def test_what_has_to_be_asked_for(behind: Behind, more: dict[str, Any]) -> None:
    behind.vendors["openai"].will_say(Reply(text=TEXT))
    body = body_of("plain", **more)
    assert [outcome(ask(behind, body)) for _ in range(2)] == ["bypass", "bypass"]


@pytest.mark.parametrize("more", [{"temperature": 0}, {"temperature": 1, "seed": 3}])
def test_what_does_not(behind: Behind, more: dict[str, Any]) -> None:
    behind.vendors["openai"].will_say(Reply(text=TEXT))
    body = body_of("plain", **more)
    assert [outcome(ask(behind, body)) for _ in range(2)] == ["miss", "hit"]


def test_a_model_may_have_none(behind: Behind) -> None:
    behind.vendors["openai"].will_say(Reply(text=TEXT))
    body = body_of("uncached", temperature=0)
    assert [outcome(ask(behind, body)) for _ in range(2)] == ["None", "None"]


# Whose it is --------------------------------------------------------------------------------------


def test_keys_never_share_unless_that_is_wanted(keyed: Behind) -> None:
    keyed.vendors["openai"].will_say(Reply(text=TEXT))
    body = body_of("openai")
    asked = [outcome(ask(keyed, body, f"key-of-{key}")) for key in ("one", "other", "one", "other")]
    assert asked == ["miss", "miss", "hit", "hit"]
    mates = [outcome(ask(keyed, body, f"key-of-{key}")) for key in ("mate-1", "mate-2")]
    assert mates == ["miss", "miss"]
    shared = body_of("teams")
    keys = ("mate-1", "mate-2", "one", "other")
    told = [outcome(ask(keyed, shared, f"key-of-{key}")) for key in keys]
    assert told == ["miss", "hit", "miss", "miss"]


def test_a_hit_has_the_usage_and_costs_nothing(keyed: Behind) -> None:
    body = body_of("echo")
    first, again = (ask(keyed, body, "key-of-one") for _ in range(2))
    streamed = ask(keyed, {**body, "stream": True}, "key-of-one")
    assert [outcome(each) for each in (first, again, streamed)] == ["miss", "hit", "hit"]
    assert first.json()["usage"] == again.json()["usage"]

    def recorded() -> list[dict[str, Any]]:
        return [each for each in keyed.records if each["route"] == "echo"]

    wire.eventually(lambda: len(recorded()) == 3)
    rows = recorded()
    assert [row["provider"] for row in rows] == ["echo", *["llama-compat-cache"] * 2]
    assert rows[0]["cost"] > 0
    assert [row["cost"] for row in rows[1:]] == [0, 0]
    assert len({(row["input_tokens"], row["output_tokens"]) for row in rows}) == 1
    assert [row["estimated"] for row in rows] == [0, 0, 0]
    assert [row["attempts"] for row in rows] == [1, 0, 0]
    assert {row["finish_reason"] for row in rows} == {"stop"}


# At the same time ---------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_what_many_ask_at_once_is_asked_once(behind: Behind, stream: bool) -> None:
    vendor = behind.vendors["openai"]
    vendor.will_say(Reply(text=TEXT))
    go = threading.Event()
    vendor.server._whole.after = vendor.server._streamed.after = go
    body = body_of("openai", stream=stream)
    with ThreadPoolExecutor(50) as pool:
        asking = [pool.submit(ask, behind, body) for _ in range(50)]
        wire.eventually(lambda: behind.asked("openai") == 1)
        time.sleep(0.5)
        go.set()
        replies = [each.result() for each in asking]
    assert behind.asked("openai") == 1
    assert sorted(map(outcome, replies)) == ["hit"] * 49 + ["miss"]
    assert {each.status for each in replies} == {200}
    assert len({each.body for each in replies}) == 1
    assert outcome(ask(behind, body)) == "hit"


# Another template ---------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="needs SIGHUP")
def test_a_reload_keeps_what_is_still_true(
    tmp_path: Path, servers: dict[str, NativeVendor]
) -> None:
    for behind in behind_of(tmp_path, servers):
        for name in ("openai", "anthropic"):
            behind.vendors[name].will_say(Reply(text=TEXT))
        bodies = [body_of(name) for name in ("openai", "anthropic")]
        assert [outcome(ask(behind, body)) for body in bodies] == ["miss", "miss"]
        template(tmp_path, servers, unsupported="drop")
        behind.server.send_signal(signal.SIGHUP)
        behind.server.wait_for_log("is reloaded")
        # One is asked in another way now, the other is what it was.
        assert [outcome(ask(behind, body)) for body in bodies] == ["miss", "hit"]
