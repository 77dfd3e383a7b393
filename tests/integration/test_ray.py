"""Engines as replicas on a Ray cluster: one cluster and one gateway for the module, two replicas of
the echo engine and one of the starter."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import needs_torch
from tests.integration import wire
from tests.integration.server_process import COMMAND, ServerProcess, running, write_template
from tests.ray_cluster import RayCluster, needs_ray, ray_cluster

pytestmark = [needs_ray, pytest.mark.server, pytest.mark.engine, pytest.mark.early]

SLOW_WORDS = " ".join(f"w{number}" for number in range(400))
"""What takes the echo engine seconds to say."""

PREFIX = "/llama-compat-echo-inner"

PATIENCE = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with ray_cluster() as cluster:
        yield cluster


def echo(delay: float = 10, **replicas: Any) -> dict[str, Any]:
    """A provider of two replicas of the echo engine."""
    return {
        "id": "echo",
        "type": "local::echo",
        "config": {"delay_ms": delay},
        "replicas": {"min": 2, "drain_seconds": 30, **replicas},
    }


MODEL = {"id": "m", "provider": "echo", "provider_model": "inner"}


@pytest.fixture(scope="module")
def gateway(cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    path = tmp_path_factory.mktemp("ray") / "replicas.yaml"
    template = write_template(path, providers=[echo()], models=[MODEL])
    with running(template, env=cluster.env) as server:
        yield server


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The same without replicas."""
    provider = {name: value for name, value in echo().items() if name != "replicas"}
    path = tmp_path_factory.mktemp("here") / "here.yaml"
    with running(write_template(path, providers=[provider], models=[MODEL])) as server:
        yield server


def chat(text: str = "a b c", **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], **fields}


def targets(server: ServerProcess) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.health()["targets"]
    return found


def eventually(is_so: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


# What is the same as in one process ---------------------------------------------------------------

GEMINI = {"contents": [{"role": "user", "parts": [{"text": "a b c"}]}]}
TOOL = {
    "type": "function",
    "function": {
        "name": "say",
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}},
    },
}

ASKED: Mapping[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", chat()),
    "chat, several": ("/v1/chat/completions", chat(n=2)),
    "chat, streamed": ("/v1/chat/completions", chat(stream=True)),
    "chat, streamed with usage": (
        "/v1/chat/completions",
        chat(stream=True, stream_options={"include_usage": True}),
    ),
    "chat, a tool": ("/v1/chat/completions", chat(tools=[TOOL], tool_choice="required")),
    "chat, what is not honoured": ("/v1/chat/completions", chat(logit_bias={"1": 3})),
    "chat, a wish": ("/v1/chat/completions", chat(verbosity="low", reasoning_effort="low")),
    "chat, malformed": ("/v1/chat/completions", chat(temperature="hot")),
    "chat, an image": (
        "/v1/chat/completions",
        {
            "model": "m",
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}
                    ],
                }
            ],
        },
    ),
    "completions": ("/v1/completions", {"model": "m", "prompt": ["a b", "c"], "echo": True}),
    "completions, streamed": ("/v1/completions", {"model": "m", "prompt": "a b", "stream": True}),
    "embeddings": ("/v1/embeddings", {"model": "m", "input": "a"}),
    "moderations": ("/v1/moderations", {"model": "m", "input": "a"}),
    "rerank": ("/v1/rerank", {"model": "m", "query": "a b", "documents": ["b", "a b"]}),
    "rerank v2": ("/v2/rerank", {"model": "m", "query": "a b", "documents": ["b", "a b"]}),
    "responses": ("/v1/responses", {"model": "m", "input": "a b"}),
    "responses, streamed": ("/v1/responses", {"model": "m", "input": "a b", "stream": True}),
    "responses, what is not kept": (
        "/v1/responses",
        {"model": "m", "input": "a", "previous_response_id": "resp_1"},
    ),
    "input tokens": ("/v1/responses/input_tokens", {"model": "m", "input": "a b"}),
    "messages": ("/v1/messages", chat(max_tokens=9)),
    "messages, streamed": ("/v1/messages", chat(max_tokens=9, stream=True)),
    "messages, malformed": ("/v1/messages", chat(max_tokens="many")),
    "count tokens": ("/v1/messages/count_tokens", chat()),
    "ollama": ("/api/chat", chat()),
    "ollama, whole": ("/api/chat", chat(stream=False)),
    "ollama, malformed": ("/api/chat", chat(options={"temperature": "hot"})),
    "ollama, generate": ("/api/generate", {"model": "m", "prompt": "a b"}),
    "gemini": ("/v1beta/models/m:generateContent", GEMINI),
    "gemini, streamed": ("/v1beta/models/m:streamGenerateContent?alt=sse", GEMINI),
    "gemini, an array": ("/v1beta/models/m:streamGenerateContent", GEMINI),
    "gemini, count tokens": ("/v1beta/models/m:countTokens", GEMINI),
    "gemini, malformed": ("/v1beta/models/m:generateContent", {"contents": 3}),
    "interactions": ("/v1beta/interactions", {"model": "m", "input": "a b"}),
    "interactions, streamed": (
        "/v1beta/interactions",
        {"model": "m", "input": "a b", "stream": True},
    ),
}

_CHANGES = re.compile(
    rb'"(?:id|item_id|response_id|responseId|call_id|created|created_at|completed_at|updated'
    rb'|total_duration|load_duration|prompt_eval_duration|eval_duration|request_id|obfuscation)":'
    rb'\s*(?:"[^"]*"|[\d.]+)|req_\w+|(?:resp|msg|int|call|chatcmpl|rerank)[-_]\w+'
)
"""What is another with each request."""

ROUTED = (
    *("date", "content-length", "x-request-id", "request-id", "x-llama-compat-target"),
    # What is refused is refused by the replica.
    *("x-llama-compat-attempts", "x-llama-compat-skipped"),
)
"""Headers that say of a request which it is, and where it went."""


STREAMED_COMPLETION = "completions, streamed"


@pytest.mark.parametrize(
    "asked",
    [
        # Which has chunks that end for no reason, as OpenAI's own document has not.
        pytest.param(each, marks=[pytest.mark.undocumented] if each == STREAMED_COMPLETION else [])
        for each in ASKED
    ],
)
def test_a_replica_says_what_the_model_would_have_said_in_this_process(
    gateway: ServerProcess, here: ServerProcess, asked: str
) -> None:
    path, body = ASKED[asked]
    there, same = (wire.request("POST", f"{each.url}{path}", body) for each in (gateway, here))
    assert _CHANGES.sub(b"", there.body) == _CHANGES.sub(b"", same.body)
    assert there.status == same.status
    for reply in (there, same):
        for name in ROUTED:
            del reply.headers[name]
    assert dict(there.headers) == dict(same.headers)


def test_two_replicas_share_the_work_and_are_shown(gateway: ServerProcess) -> None:
    for _ in range(16):
        assert wire.request("POST", f"{gateway.url}/v1/chat/completions", chat()).status == 200
    found = targets(gateway)
    assert len(found) == 2
    assert all(each["attempts"] and each["id"] == f"echo/inner@{each['place']}" for each in found)
    shown = subprocess.run(
        [COMMAND, "status", "--url", gateway.url], capture_output=True, text=True, check=True
    )
    assert all(each["place"] in shown.stdout.replace("\n", "") for each in found)


def test_responses_that_the_gateway_keeps_are_gone_on_from(
    gateway: ServerProcess, cluster: RayCluster, tmp_path: Path
) -> None:
    """Another gateway, with a store, finds the same replicas there."""
    template = write_template(
        tmp_path / "kept.yaml",
        server={"responses_store": {}, "storage": f"sqlite:{tmp_path / 'kept.sqlite'}"},
        providers=[echo()],
        models=[MODEL],
    )
    with running(template, env=cluster.env) as server:
        url = f"{server.url}/v1/responses"
        first = wire.request("POST", url, {"model": "m", "input": "a b"}).json()
        asked = {"model": "m", "input": "c", "previous_response_id": first["id"]}
        second = wire.request("POST", url, asked).json()
        assert second["output"][0]["content"][0]["text"] == "c"
        assert second["usage"]["input_tokens"] == 5
        assert wire.request("GET", f"{url}/{first['id']}").json()["id"] == first["id"]
        assert "deploying" not in server.log
    assert len(cluster.replicas("llama-compat-echo-inner")) == 2


def test_a_gateway_imports_nothing_of_ray(gateway: ServerProcess, here: ServerProcess) -> None:
    for server in (gateway, here):
        maps = Path(f"/proc/{server.process.pid}/maps")
        if not maps.exists():
            pytest.skip("what a process has mapped is only told on Linux")
        assert "/ray/" not in maps.read_text()


# Ends ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_the_slot_of_the_replica(
    gateway: ServerProcess, stream: bool
) -> None:
    def busy() -> int:
        places = [each["place"] for each in targets(gateway)]
        told = [wire.request("GET", f"http://{each}{PREFIX}/health").json() for each in places]
        return sum(each["running"] for each in told)

    parts = gateway.url.removeprefix("http://").split(":")
    import http.client

    client = http.client.HTTPConnection(parts[0], int(parts[1]))
    client.request("POST", "/v1/chat/completions", json.dumps(chat(SLOW_WORDS, stream=stream)))
    eventually(lambda: busy() == 1, "no replica works on it")
    client.close()
    eventually(lambda: busy() == 0, "the replica works on for nobody")


def said_until_killed(
    gateway: ServerProcess, cluster: RayCluster, path: str, body: dict[str, Any]
) -> bytes:
    """What a client gets whose replica is killed when it has said something."""
    with wire.open_reply("POST", f"{gateway.url}{path}", body) as reply:
        first = reply.read1(65536)
        (place,) = [each["place"] for each in targets(gateway) if each["in_flight"]]
        kill_replica(cluster, place)
        return first + reply.read()


def kill_replica(cluster: RayCluster, place: str) -> None:
    """Kill the process that listens at `place`."""
    port = int(place.rpartition(":")[2])
    for replica in cluster.replicas("llama-compat-echo-inner"):
        if port in _listening(replica["pid"]):
            os.kill(replica["pid"], signal.SIGKILL)
            return
    raise AssertionError(f"no replica listens at {place}")


def _listening(pid: int) -> set[int]:
    sockets = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        try:
            sockets.add(os.readlink(each))
        except OSError:
            continue
    ports = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
            ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


def both_there(gateway: ServerProcess, cluster: RayCluster) -> bool:
    """Whether the gateway knows two replicas, and both are alive."""
    known = {int(each["place"].rpartition(":")[2]) for each in targets(gateway) if each["place"]}
    pids = [each["pid"] for each in cluster.replicas("llama-compat-echo-inner")]
    alive = [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    return len(known) == 2 and known <= {port for pid in alive for port in _listening(pid)}


@pytest.mark.skipif(sys.platform != "linux", reason="finds who listens in /proc")
@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        ("/v1/chat/completions", chat(SLOW_WORDS, stream=True), b'data: {"error":'),
        ("/v1/messages", chat(SLOW_WORDS, stream=True, max_tokens=999), b"event: error\n"),
    ],
    ids=["openai", "anthropic"],
)
def test_a_killed_replica_breaks_its_streams_off_with_an_error_and_the_others_answer(
    gateway: ServerProcess, cluster: RayCluster, path: str, body: dict[str, Any], told: bytes
) -> None:
    eventually(lambda: both_there(gateway, cluster), "there are not two replicas")
    said = said_until_killed(gateway, cluster, path, body)
    assert told in said
    assert b"w399" not in said
    # Before Serve has noticed, and while it starts another.
    for _ in range(8):
        reply = wire.request("POST", f"{gateway.url}/v1/chat/completions", chat())
        assert reply.status == 200
    eventually(lambda: both_there(gateway, cluster), "no other replica has started")


def test_a_new_template_replaces_the_replicas_and_loses_no_request(
    cluster: RayCluster, tmp_path: Path
) -> None:
    path = tmp_path / "rolling.yaml"
    provider = {**echo(5), "id": "rolling"}
    model = {**MODEL, "provider": "rolling"}
    write_template(path, providers=[provider], models=[model])
    with running(path, env=cluster.env) as server:
        before = {each["place"] for each in targets(server)}
        statuses: list[tuple[int, int]] = []
        done = threading.Event()

        def ask() -> None:
            text = " ".join(["word"] * 40)
            while not done.is_set():
                reply = wire.request(
                    "POST", f"{server.url}/v1/chat/completions", chat(text, stream=True)
                )
                statuses.append((reply.status, reply.body.count(b"word")))

        clients = [threading.Thread(target=ask) for _ in range(3)]
        for client in clients:
            client.start()
        provider["config"] = {"delay_ms": 6}
        write_template(path, providers=[provider], models=[model])
        server.send_signal(signal.SIGHUP)
        try:
            eventually(lambda: "is reloaded" in server.log, "it is not reloaded")
            eventually(
                lambda: (
                    len(now := {each["place"] for each in targets(server)}) == 2
                    and not now & before
                ),
                "the replicas are not replaced",
            )
        finally:
            done.set()
            for client in clients:
                client.join()
        assert len(statuses) > 3
        assert set(statuses) == {(200, 40)}
    eventually(
        lambda: "llama-compat-rolling-inner" not in cluster.applications(),
        "the application is not taken down",
    )


def test_replicas_end_where_there_need_be_none_and_a_request_waits_for_one(
    cluster: RayCluster, tmp_path: Path
) -> None:
    """There is no room for it at first, so that the request has to wait for long."""
    large = {**echo(1, min=1, cpus=9), "id": "large"}
    asleep = {**echo(1, min=0, max=1, cpus=8, idle_seconds=1), "id": "asleep"}
    paths = [
        write_template(
            tmp_path / f"{each['id']}.yaml",
            providers=[each],
            models=[{**MODEL, "provider": each["id"]}],
        )
        for each in (large, asleep)
    ]

    def places() -> list[str]:
        return [each["place"] for each in targets(server)]

    with ExitStack() as stack:
        in_the_way = stack.enter_context(ExitStack())
        in_the_way.enter_context(running(paths[0], env=cluster.env))
        server = stack.enter_context(running(paths[1], env=cluster.env))
        url = f"{server.url}/v1/chat/completions"
        assert places() == [""]
        with wire.open_reply("POST", url, chat(stream=True)) as reply:
            assert reply.status == 200
            assert reply.readline().startswith(b": ")
            in_the_way.close()
            assert reply.read().endswith(b"data: [DONE]\n\n")
        eventually(lambda: "" not in places(), "the replica is not known")
        # Serve looks back for more than ten seconds.
        eventually(lambda: places() == [""], "it does not end", 4 * PATIENCE)
        assert wire.request("POST", url, chat(stream=True)).body.endswith(b"data: [DONE]\n\n")


def test_what_a_replica_holds_all_gateways_know(cluster: RayCluster, tmp_path: Path) -> None:
    """Two that share nothing, and balance by prefix."""
    template = write_template(
        tmp_path / "prefix.yaml",
        providers=[
            {**echo(0), "id": "sim", "config": {"simulate": {"step_seconds": 0.0005}}},
        ],
        models=[{**MODEL, "provider": "sim", "routing": {"balance": "prefix"}}],
        scale={"keep": True},
    )
    text = "You are told at length what to do, and what not. " * 200

    def asked(server: ServerProcess, number: int) -> tuple[str, int]:
        body = chat(f"{number} {text}", max_tokens=5)
        reply = wire.request("POST", f"{server.url}/v1/chat/completions", body)
        assert reply.status == 200
        cached = reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        return reply.headers["x-llama-compat-target"], cached

    def told(server: ServerProcess) -> list[int | None]:
        return [each["held_blocks"] for each in targets(server)]

    with running(template, env=cluster.env) as one, running(template, env=cluster.env) as other:
        # Once they are asked, what comes is noted.
        eventually(lambda: told(one) == [0, 0], "no replica tells what it holds")
        homes = [asked(one, number)[0] for number in range(12)]
        assert len(set(homes)) == 2
        for each in (one, other):
            eventually(
                lambda each=each: sum(filter(None, told(each))) >= 12 * 18,  # type: ignore[misc]
                "what the replicas hold is not known",
            )
        assert sorted(map(str, told(one))) == sorted(map(str, told(other)))
        found = [asked(other, number) for number in range(12)]
        assert [home for home, _ in found] == homes
        assert all(cached > 1500 for _, cached in found)


# Deployed by others -------------------------------------------------------------------------------


def test_what_deploy_writes_is_served_by_serve_and_adopted(
    cluster: RayCluster, tmp_path: Path
) -> None:
    provider = {**echo(1), "id": "written", "replicas": {"min": 1, "cpus": 0.5}}
    template = write_template(
        tmp_path / "written.yaml", providers=[provider], models=[{**MODEL, "provider": "written"}]
    )
    written = tmp_path / "serve.yaml"
    subprocess.run([COMMAND, "deploy", str(template), "-o", str(written)], check=True)
    serve = Path(sys.executable).with_name("serve")
    command = [str(serve)] if serve.exists() else [sys.executable, "-m", "ray.serve.scripts"]
    subprocess.run(
        [*command, "deploy", str(written), "--address", f"http://{cluster.dashboard}"],
        check=True,
        env={**os.environ, **cluster.env},
        capture_output=True,
    )
    name = yaml.safe_load(written.read_text())["applications"][0]["name"]
    eventually(
        lambda: cluster.applications().get(name, {}).get("status") == "RUNNING", "it does not run"
    )
    (replica,) = cluster.replicas(name)
    with running(template, env=cluster.env) as server:
        reply = wire.request("POST", f"{server.url}/v1/chat/completions", chat())
        assert reply.status == 200
        assert "deploying" not in server.log
    # It was there before the gateway, and stays.
    assert cluster.replicas(name) == [replica]


# The starter --------------------------------------------------------------------------------------


@needs_torch
def test_the_starter_answers_as_a_replica(cluster: RayCluster, tmp_path: Path) -> None:
    provider = {
        "id": "local",
        "type": "local::torch",
        "replicas": {"min": 1, "cpus": 2},
        "config": {"dtype": "float32"},
    }
    model = {"id": "starter", "provider": "local"}
    template = write_template(tmp_path / "starter.yaml", providers=[provider], models=[model])
    with running(template, env=cluster.env) as server:
        asked = {**chat("Say hi.", max_tokens=4, logprobs=True), "model": "starter"}
        reply = wire.request("POST", f"{server.url}/v1/chat/completions", asked).json()
        (choice,) = reply["choices"]
        assert reply["model"] == "starter"
        assert choice["message"]["content"]
        assert len(choice["logprobs"]["content"]) == reply["usage"]["completion_tokens"]
        eventually(lambda: "engines" in server.health(), "nothing is heard of the engine")
        (engine,) = server.health()["engines"]
        assert engine["place"] == targets(server)[0]["place"]
        assert engine["total_blocks"] > 0
