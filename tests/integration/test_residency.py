"""Many models in one memory: a server with room for some of them, and clients of all."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import needs_torch
from tests.integration import wire
from tests.integration.server_process import ServerFailed, ServerProcess, running, write_template
from tests.tiny_models import make_model

pytestmark = pytest.mark.server

ADMIN = {"authorization": "Bearer an-admin-key"}

GB = 10**9
NAMES = ("a", "b", "c", "d", "e")
CLIENTS, REQUESTS = 100, 4


def template(path: Path, *names: str, simulate: dict[str, Any], **sections: Any) -> Path:
    """One of models that are simulated, with room for two of 4 GB."""
    settings = {"memory": "4GB", "step_seconds": 0.001, "step_seconds_per_sequence": 0, **simulate}
    models: list[dict[str, Any]] = [{"id": name, "provider": "echo"} for name in names]
    for model in models:
        model.update(sections.pop(model["id"], {}))
    return write_template(
        path / "residency.yaml",
        providers=[{"id": "echo", "type": "local::echo", "config": {"simulate": settings}}],
        models=models,
        server={"admin_key": "an-admin-key", "storage": f"sqlite:{path / 'kept.sqlite'}"},
        **{"memory": {"cpu": "9GB"}, **sections},
    )


def ask(server: ServerProcess, model: str, text: Any = "one two three", **more: Any) -> wire.Reply:
    body = {"model": model, "messages": [{"role": "user", "content": text}]} | more
    return wire.request("POST", f"{server.base_url}/chat/completions", body)


def memory(server: ServerProcess) -> dict[str, Any]:
    found: dict[str, Any] = server.health()["memory"]
    return found


def states(server: ServerProcess) -> dict[str, str]:
    return {each["model"]: each["state"] for each in memory(server)["models"]}


def running_models(server: ServerProcess) -> dict[str, dict[str, Any]]:
    listed = wire.request("GET", f"{server.url}/api/ps").json()["models"]
    return {each["name"]: each for each in listed}


# A hundred clients over five models with room for two ---------------------------------------------


async def streamed(client: httpx.AsyncClient, url: str, model: str, words: str) -> str:
    """What a stream says, which has to have come to its end."""
    body = {"model": model, "stream": True, "messages": [{"role": "user", "content": words}]}
    said, done = "", False
    async with client.stream("POST", url, json=body) as reply:
        assert reply.status_code == 200, await reply.aread()
        async for line in reply.aiter_lines():
            if line == "data: [DONE]":
                done = True
            elif line.startswith("data: "):
                chunk = json.loads(line.removeprefix("data: "))
                assert "error" not in chunk, chunk
                for choice in chunk["choices"]:
                    said += choice["delta"].get("content") or ""
    assert done
    return said


async def whole(client: httpx.AsyncClient, url: str, model: str, words: str) -> str:
    body = {"model": model, "messages": [{"role": "user", "content": words}]}
    reply = await client.post(url, json=body)
    assert reply.status_code == 200, reply.text
    said = reply.json()["choices"][0]["message"]["content"]
    assert isinstance(said, str)
    return said


async def watch(client: httpx.AsyncClient, url: str, seen: list[dict[str, Any]]) -> None:
    while True:
        seen.append((await client.get(f"{url}/health", headers=ADMIN)).json()["memory"])
        await asyncio.sleep(0.02)


async def everybody(
    server: ServerProcess, names: Sequence[str], clients: int, requests: int
) -> tuple[Counter[str], list[dict[str, Any]]]:
    """The replies of each model to clients that ask all of them, and what memory was seen."""
    url, chance = f"{server.base_url}/chat/completions", random.Random(7)
    answered: Counter[str] = Counter()
    seen: list[dict[str, Any]] = []

    async def one(number: int) -> None:
        async with httpx.AsyncClient(timeout=300) as client:
            for turn in range(requests):
                model = names[(number + turn) % len(names)]
                words = " ".join(["word"] * chance.randrange(1, 60)) + f" {number} {turn}"
                how = streamed if chance.random() < 0.7 else whole
                assert await how(client, url, model, words) == words
                answered[model] += 1

    async with httpx.AsyncClient(timeout=300) as client:
        watching = asyncio.create_task(watch(client, server.url, seen))
        await asyncio.gather(*map(one, range(clients)))
        watching.cancel()
        await asyncio.wait([watching])
    return answered, seen


def test_a_hundred_clients_over_five_models_with_room_for_two(tmp_path: Path) -> None:
    path = template(
        tmp_path, *NAMES, simulate={"load_seconds": 0.1}, residency={"stay_seconds": 0.2}
    )
    with running(path) as server:
        answered, seen = asyncio.run(everybody(server, NAMES, CLIENTS, REQUESTS))
        last = memory(server)
    assert dict(answered) == dict.fromkeys(NAMES, CLIENTS * REQUESTS // len(NAMES))
    assert len(seen) > 5
    for told in seen:
        assert told["devices"]["cpu"]["used"] <= told["devices"]["cpu"]["bound"] == 9 * GB
        there = [each for each in told["models"] if each["sizes"]]
        assert sum(each["sizes"]["cpu"] for each in there) == told["devices"]["cpu"]["used"]
        # Who answers is there, whoever waits for its room.
        assert all(each["state"] == "ready" for each in told["models"] if each["leases"])
    assert all(each["loads"] for each in last["models"])
    assert all(not each["leases"] and not each["waiting"] for each in last["models"])
    # Each stay answers all who wait for it, so that there are far fewer loads than requests.
    assert sum(each["loads"] for each in last["models"]) < CLIENTS


# How one waits ------------------------------------------------------------------------------------


def test_a_stream_is_kept_alive_while_its_model_is_loaded(tmp_path: Path) -> None:
    path = template(tmp_path, "a", simulate={"load_seconds": 6})
    body = {"model": "a", "stream": True, "messages": [{"role": "user", "content": "hello"}]}
    with running(path) as server:
        with wire.open_reply("POST", f"{server.base_url}/chat/completions", body) as reply:
            read = reply.read()
        assert read.startswith(b": keepalive\n\n")
        assert read.endswith(b"data: [DONE]\n\n")
        assert b"hello" in read


def test_streams_of_other_models_go_on_while_one_is_loaded(tmp_path: Path) -> None:
    path = template(tmp_path, "a", "b", simulate={"load_seconds": 1, "step_seconds": 0.02})
    text = " ".join(["word"] * 300)
    body = {"model": "a", "stream": True, "messages": [{"role": "user", "content": text}]}
    with running(path) as server:
        url = f"{server.base_url}/chat/completions"
        with wire.open_reply("POST", url, body) as reply:
            events = wire.events(reply)
            wire.next_text(events)
            load = wire.request("POST", f"{server.url}/admin/models/b/load", headers=ADMIN)
            assert load.status == 200, load.body
            assert [each["state"] for each in load.json()["data"]] == ["ready"]
            assert list(events)[-1] == b"[DONE]"


def test_what_waits_is_bounded(tmp_path: Path) -> None:
    path = template(
        tmp_path,
        "a",
        "b",
        simulate={"memory": "8GB", "step_seconds": 0.05},
        residency={"stay_seconds": 0, "wait_seconds": 0.5, "max_waiting": 1},
    )
    text = " ".join(["word"] * 100)
    body = {"model": "a", "stream": True, "messages": [{"role": "user", "content": text}]}
    with running(path) as server:
        url = f"{server.base_url}/chat/completions"
        with wire.open_reply("POST", url, body) as reply:
            events = wire.events(reply)
            wire.next_text(events)
            late = ask(server, "b")
            assert late.status == 503
            assert late.error()["code"] == "model_not_loaded"
            assert list(events)[-1] == b"[DONE]"
        assert ask(server, "b").status == 200


def test_who_goes_away_leaves_no_lease_and_no_place_in_the_queue(tmp_path: Path) -> None:
    path = template(
        tmp_path, "a", "b", simulate={"memory": "8GB", "step_seconds": 0.05}, residency={}
    )
    text = " ".join(["word"] * 400)

    def in_use(name: str) -> tuple[int, int]:
        [found] = [each for each in memory(server)["models"] if each["model"] == name]
        return found["leases"], found["waiting"]

    with running(path) as server:
        url = f"{server.base_url}/chat/completions"
        body = {"model": "a", "stream": True, "messages": [{"role": "user", "content": text}]}
        with wire.open_reply("POST", url, body) as reply:
            wire.next_text(wire.events(reply))
            assert in_use("a") == (1, 0)
            waits = socket.create_connection(("127.0.0.1", server.port))
            asked = json.dumps({**body, "model": "b"}).encode()
            head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(asked)}"
            waits.sendall(head.encode() + b"\r\n\r\n" + asked)
            wire.eventually(lambda: in_use("b") == (0, 1))
            waits.close()
            wire.eventually(lambda: in_use("b") == (0, 0))
        # The rest of its reply would have taken twenty seconds.
        wire.eventually(lambda: in_use("a") == (0, 0), seconds=10)
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
        assert ask(server, "a", [image]).status == 400
        assert in_use("a") == (0, 0)


# Who stays ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    path = template(
        tmp_path_factory.mktemp("residency"),
        "kept",
        "short",
        "other",
        simulate={"load_seconds": 0.05, "memory": "3GB"},
        residency={"stay_seconds": 0},
        kept={"keep": "always"},
        short={"keep": "idle 200ms"},
        other={"preload": True},
    )
    with running(path) as server:
        yield server


def test_what_is_kept_or_preloaded_is_there_from_the_start(server: ServerProcess) -> None:
    at_first = states(server)
    assert (at_first["kept"], at_first["other"], at_first["short"]) == ("ready", "ready", "out")


def test_what_is_idle_goes(server: ServerProcess) -> None:
    assert ask(server, "short").status == 200
    wire.eventually(lambda: states(server)["short"] == "out")


@pytest.mark.parametrize("wrong", [{"top_p": 7}, {"messages": "Hi"}, {"audio": {"voice": "x"}}])
def test_what_is_refused_loads_no_model(server: ServerProcess, wrong: dict[str, Any]) -> None:
    let_go = {"model": "other", "stream": False, "keep_alive": 0}
    assert wire.request("POST", f"{server.url}/api/generate", let_go).status == 200
    wire.eventually(lambda: states(server)["other"] == "out")
    assert ask(server, "other", **wrong).status == 400
    assert states(server)["other"] == "out"
    assert ask(server, "other").status == 200
    assert ask(server, "other", **wrong).status == 400


def test_an_operator_unloads_what_is_always_kept_and_it_is_back_when_asked(
    server: ServerProcess,
) -> None:
    url = f"{server.url}/admin/models/kept"
    assert wire.request("POST", f"{url}/unload", headers=ADMIN).status == 200
    wire.eventually(lambda: states(server)["kept"] == "out")
    audit = wire.request("GET", f"{server.url}/admin/audit", headers=ADMIN).json()["data"]
    assert [(each["action"], each["subject"]) for each in audit] == [("model.unload", "kept")]
    assert ask(server, "kept").status == 200
    assert states(server)["kept"] == "ready"
    assert wire.request("POST", f"{url}/load").status == 401
    unknown = wire.request("POST", f"{server.url}/admin/models/none/load", headers=ADMIN)
    assert unknown.status == 404


def test_ollamas_clients_say_how_long_a_model_stays(server: ServerProcess) -> None:
    def generate(**asked: Any) -> wire.Reply:
        body = {"model": "other", "stream": False, **asked}
        return wire.request("POST", f"{server.url}/api/generate", body)

    assert generate().json()["done_reason"] == "load"
    shown = running_models(server)["other"]
    assert (shown["size"], shown["size_vram"]) == (3 * GB, 0)
    assert shown["expires_at"].startswith("2318")
    there = generate(prompt="hello", keep_alive="10m").json()
    assert (there["response"], there["load_duration"]) == ("hello", 0)
    assert not running_models(server)["other"]["expires_at"].startswith("2318")
    assert generate(prompt="hello", keep_alive=-1).status == 200
    assert running_models(server)["other"]["expires_at"].startswith("2318")
    assert generate(keep_alive=0).json()["done_reason"] == "unload"
    wire.eventually(lambda: states(server)["other"] == "out")
    assert "other" not in running_models(server)
    loaded = generate(prompt="hello", keep_alive=0).json()
    assert (loaded["response"], loaded["load_duration"] > 0) == ("hello", True)
    assert loaded["total_duration"] > loaded["load_duration"]
    wire.eventually(lambda: states(server)["other"] == "out")
    wrong = generate(prompt="hello", keep_alive="soon")
    assert wrong.status == 400
    assert "keep_alive" in wrong.body.decode()


# Starting and reloading ---------------------------------------------------------------------------


def test_a_model_that_never_fits_is_refused_at_the_start(tmp_path: Path) -> None:
    path = template(tmp_path, "a", simulate={"memory": "10GB"})
    never = r"10\.00 GB of 'cpu'.*gives all models there 9\.00 GB"
    with pytest.raises(ServerFailed, match=never), running(path):
        pass


def test_a_reload_changes_what_there_is_and_who_stays(tmp_path: Path) -> None:
    sizes = {"memory": "4GB"}
    path = template(tmp_path, "a", "b", simulate=sizes, residency={"stay_seconds": 0})
    with running(path) as server:
        assert ask(server, "a").status == 200
        assert ask(server, "b").status == 200
        assert states(server) == {"a": "ready", "b": "ready"}
        template(tmp_path, "a", "b", simulate=sizes, memory={"cpu": "5GB"})
        server.send_signal(signal.SIGHUP)
        wire.eventually(lambda: memory(server)["devices"]["cpu"]["bound"] == 5 * GB)
        # Who was idle for longest goes.
        wire.eventually(lambda: states(server) == {"a": "out", "b": "ready"})
        template(tmp_path, "a", "b", simulate=sizes, memory={"cpu": "5GB"}, a={"keep": "always"})
        server.send_signal(signal.SIGHUP)
        wire.eventually(lambda: states(server) == {"a": "ready", "b": "out"})
        path.write_text(path.read_text().replace("5GB", "3GB"))
        server.send_signal(signal.SIGHUP)
        # What is there stays, and what is amiss is said.
        server.wait_for_log("'a' takes 4.00 GB of 'cpu', and has no room in 3.00 GB")
        assert ask(server, "a").status == 200


def test_who_waits_for_room_has_it_where_a_reload_takes_the_bounds_away(tmp_path: Path) -> None:
    sizes = {"memory": "4GB", "step_seconds": 0.5}
    path = template(tmp_path, "a", "b", simulate=sizes, memory={"cpu": "5GB"})
    with running(path) as server, ThreadPoolExecutor(1) as threads:
        asked = {"messages": [{"role": "user", "content": "word " * 200}], "stream": True}
        url = f"{server.base_url}/chat/completions"
        with wire.open_reply("POST", url, {"model": "a", **asked}) as reply:
            events = wire.events(reply)
            wire.next_text(events)
            waits = threads.submit(ask, server, "b")
            wire.eventually(
                lambda: {each["waiting"] for each in memory(server)["models"]} == {0, 1}
            )
            path.write_text(path.read_text().replace("memory:\n  cpu: 5GB\n", ""))
            server.send_signal(signal.SIGHUP)
            assert waits.result(60).status == 200
            wire.next_text(events)


# Models that are real -----------------------------------------------------------------------------


@needs_torch
@pytest.mark.engine
def test_two_models_of_torch_in_the_room_of_one(tmp_path: Path) -> None:
    folders = {
        name: str(make_model(tmp_path / name, seed=seed)) for seed, name in enumerate(("a", "b"))
    }
    path = write_template(
        tmp_path / "torch.yaml",
        providers=[
            {
                "id": "torch",
                "type": "local::torch",
                "config": {"device": "cpu", "quantization": "none", "max_sequences": 8},
            }
        ],
        models=[
            {"id": name, "provider": "torch", "provider_model": folder}
            for name, folder in folders.items()
        ],
        # One has 411,000 bytes of weights, and half as much for its cache.
        memory={"cpu": "1MB"},
        residency={"stay_seconds": 0.2},
    )
    sampling = {"max_tokens": 8, "temperature": 0, "ignore_eos": True}
    with running(path) as server:

        def said(name: str) -> str:
            reply = ask(server, name, **sampling)
            assert reply.status == 200, reply.body
            return str(reply.json()["choices"][0]["message"]["content"])

        alone = {name: said(name) for name in folders}
        with ThreadPoolExecutor(12) as threads:
            answers = list(threads.map(lambda at: (at, said("ab"[at % 2])), range(24)))
        assert all(text == alone["ab"[at % 2]] for at, text in answers)
        told = memory(server)
        assert told["devices"]["cpu"]["used"] <= 10**6
        assert all(each["loads"] > 1 for each in told["models"])
        assert sorted(states(server).values()) == ["out", "ready"]
