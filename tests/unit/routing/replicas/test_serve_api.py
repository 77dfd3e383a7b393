"""What Serve's REST API says, read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llama_compat.errors import APIError
from routing.replicas.serve_api import APPLICATIONS, ApplicationState, ServeAPI, cluster_token
from tests.local_server import Handler, send, serving

REPLICA = {"replica_id": "x", "state": "RUNNING", "actor_name": "SERVE_REPLICA::a#engine#x"}


def told(targets: dict[str, Any], *replicas: dict[str, Any], **application: Any) -> dict[str, Any]:
    """An answer about the application `a`, as Ray 2.60 gives it."""
    group = {"route_prefix": "/a", "protocol": "HTTP", "app_name": "a", "new": 1, **targets}
    options = {"runtime_env": {"env_vars": {"LLAMA_COMPAT_REPLICA": "v1"}}}
    deployment = {
        "replicas": list(replicas),
        "deployment_config": {"ray_actor_options": options},
        "message": "no room",
    }
    described = {
        "status": "RUNNING",
        "message": "",
        "route_prefix": "/a",
        "deployments": {"engine": deployment},
        **application,
    }
    grpc = {**group, "protocol": "gRPC", "targets": [{"ip": "10.0.0.9", "port": 9000}]}
    return {"applications": {"a": described}, "target_groups": [group, grpc]}


async def heard(answer: dict[str, Any] | bytes, **options: Any) -> ApplicationState:
    asked: list[str] = []

    def tell(handler: Handler) -> None:
        asked.append(f"{handler.path} {handler.headers.get('authorization')}")
        send(handler, 200, answer if isinstance(answer, bytes) else json.dumps(answer).encode())

    with serving(tell) as url:
        api = ServeAPI(url, "secret", **options)
        await api.start()
        try:
            return (await api.applications())["a"]
        finally:
            await api.stop()
            assert asked == [f"{APPLICATIONS} Bearer secret"]


async def test_replicas_that_listen_themselves_are_places() -> None:
    targets = [
        {"ip": "10.0.0.1", "port": 30000, "name": REPLICA["actor_name"], "instance_id": ""},
        {"ip": "fd00::1", "port": 30001, "name": "SERVE_REPLICA::a#engine#y"},
    ]
    state = await heard(told({"targets": targets}, REPLICA))
    assert state.places == ["http://10.0.0.1:30000/a", "http://[fd00::1]:30001/a"]
    assert state.doors == ()
    assert (state.status, state.version, state.message) == ("RUNNING", "v1", "no room")


async def test_on_this_machine_they_are_asked_by_its_own_address() -> None:
    targets = [{"ip": "10.0.0.1", "port": 30000, "name": REPLICA["actor_name"]}]
    state = await heard(told({"targets": targets}, REPLICA), is_here=True)
    assert state.places == ["http://127.0.0.1:30000/a"]


async def test_proxies_have_the_way_where_replicas_do_not_listen() -> None:
    """So it is with HAProxy, and with Serve's own: their group is of no application."""
    proxies = {"targets": [{"ip": "10.0.0.1", "port": 8000, "name": "p"}], "app_name": ""}
    state = await heard(told({**proxies, "route_prefix": "/"}, REPLICA))
    assert state.places == ["http://10.0.0.1:8000/a"]


async def test_proxies_are_doors_where_no_replica_runs() -> None:
    proxies = {"targets": [{"ip": "10.0.0.1", "port": 8000, "name": "SERVE_PROXY"}]}
    state = await heard(told(proxies))
    assert state.places == ()
    assert state.doors == ["http://10.0.0.1:8000/a"]


@pytest.mark.parametrize("answer", [b"<html>", b'{"applications": 3}'])
async def test_what_is_no_answer_is_an_error(answer: bytes) -> None:
    with pytest.raises(APIError, match="ray"):
        await heard(answer)


def test_the_token_is_where_ray_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cluster_token({}) == ""
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("home\n")
    (tmp_path / "other").write_text("file\n")
    assert cluster_token({}) == "home"
    assert cluster_token({"RAY_AUTH_TOKEN_PATH": str(tmp_path / "other")}) == "file"
    assert cluster_token({"RAY_AUTH_TOKEN": "variable"}) == "variable"
