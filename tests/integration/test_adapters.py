"""A server whose model is offered with adapters, each as a model of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import needs_torch
from tests.integration import wire
from tests.integration.server_process import ServerProcess, running, write_template
from tests.tiny_models import make_model

pytestmark = [pytest.mark.server, needs_torch]

ADMIN = {"authorization": "Bearer an-admin-key"}
EVERYTHING = {"authorization": "Bearer a-key-for-all"}
POEMS = {"authorization": "Bearer a-key-for-poems"}
NAMES = ["base", "base:sql", "base:poems"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    from tests.tiny_adapters import make_adapter

    folder = tmp_path_factory.mktemp("adapters")
    model = make_model(folder / "model")
    adapters = {
        name: str(make_adapter(folder / name, model, seed=seed))
        for seed, name in enumerate(("sql", "poems"))
    }
    path = write_template(
        folder / "adapters.yaml",
        providers=[{"id": "local", "type": "local::torch", "config": {"device": "cpu"}}],
        models=[
            {
                "id": "base",
                "provider": "local",
                "provider_model": str(model),
                "adapters": adapters,
            }
        ],
        keys=[
            {"name": "all", "key": "a-key-for-all"},
            {"name": "poet", "key": "a-key-for-poems", "models": ["base:poems"]},
        ],
        server={"admin_key": "an-admin-key", "storage": f"sqlite:{folder / 'kept.sqlite'}"},
    )
    with running(path) as server:
        yield server


def ask(server: ServerProcess, model: str, headers: dict[str, str]) -> wire.Reply:
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": "Hello"}],
        "temperature": 0,
        "max_tokens": 12,
    }
    url = f"{server.base_url}/chat/completions"
    return wire.request("POST", url, body, headers=headers)


def text(reply: wire.Reply) -> str:
    assert reply.status == 200, reply.body
    said = reply.json()["choices"][0]["message"]["content"]
    assert isinstance(said, str)
    return said


def test_they_are_listed_with_what_they_are_made_of(server: ServerProcess) -> None:
    listed = wire.request("GET", f"{server.base_url}/models", headers=EVERYTHING).json()["data"]
    shown = {each["id"]: (each.get("parent"), each.get("root")) for each in listed}
    assert shown == {
        "base": (None, None),
        "base:sql": ("base", "sql"),
        "base:poems": ("base", "poems"),
    }
    one = wire.request("GET", f"{server.base_url}/models/base:sql", headers=EVERYTHING).json()
    assert one["parent"] == "base"
    tags = wire.request("GET", f"{server.url}/api/tags", headers=EVERYTHING).json()["models"]
    assert [each["name"] for each in tags] == NAMES
    assert [each["details"]["parent_model"] for each in tags] == ["", "base", "base"]


def test_each_says_something_else(server: ServerProcess) -> None:
    replies = [ask(server, name, EVERYTHING) for name in NAMES]
    assert len({text(each) for each in replies}) == 3
    assert [each.json()["model"] for each in replies] == NAMES


def test_a_key_opens_some_of_them(server: ServerProcess) -> None:
    assert text(ask(server, "base:poems", POEMS))
    for name in ("base", "base:sql"):
        refused = ask(server, name, POEMS)
        assert (refused.status, refused.json()["error"]["code"]) == (403, "model_not_allowed")
    listed = wire.request("GET", f"{server.base_url}/models", headers=POEMS).json()["data"]
    assert [each["id"] for each in listed] == ["base:poems"]


def test_one_that_the_template_does_not_name_is_not_there(server: ServerProcess) -> None:
    unknown = ask(server, "base:prose", EVERYTHING)
    assert (unknown.status, unknown.json()["error"]["code"]) == (404, "model_not_found")
    url = f"{server.url}/admin/models/base:prose/load"
    assert wire.request("POST", url, headers=ADMIN).status == 404


def running_models(server: ServerProcess) -> list[str]:
    listed = wire.request("GET", f"{server.url}/api/ps", headers=EVERYTHING).json()["models"]
    return [each["name"] for each in listed]


def test_an_admin_unloads_and_loads_them(server: ServerProcess) -> None:
    before = text(ask(server, "base:sql", EVERYTHING))
    assert running_models(server) == NAMES
    url = f"{server.url}/admin/models/base:sql"
    unloaded = wire.request("POST", f"{url}/unload", headers=ADMIN)
    assert unloaded.status == 200
    assert [each["state"] for each in unloaded.json()["data"]] == ["out"]
    assert running_models(server) == ["base", "base:poems"]
    assert text(ask(server, "base:sql", EVERYTHING)) == before
    loaded = wire.request("POST", f"{url}/load", headers=ADMIN)
    assert [each["state"] for each in loaded.json()["data"]] == ["ready"]
    assert wire.request("POST", f"{url}/load", headers=POEMS).status == 401
    # The model itself does not share memory here.
    own = wire.request("POST", f"{server.url}/admin/models/base/unload", headers=ADMIN)
    assert (own.status, own.json()["error"]["code"]) == (409, "not_resident")
