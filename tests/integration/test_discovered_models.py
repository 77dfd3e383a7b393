"""`models: discover`: what vendors list is offered, for as long as they are up and longer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.integration import wire
from tests.integration.relay import Gateway, chat
from tests.integration.scripted_upstream import ScriptedUpstream
from tests.integration.server_process import free_port, running, write_template

LISTED = {"catalog/plain", "catalog/org/plain", "catalog/prefixed"}


def test_a_vendors_models_are_offered_without_doubled_prefixes(
    gateway: Gateway, request_id: str
) -> None:
    ids = [one.id for one in gateway.openai.models.list()]
    assert len(ids) == len(set(ids))
    assert {one for one in ids if one.startswith("catalog/")} == LISTED
    reply = gateway.post(chat("catalog/org/plain"), headers={"x-request-id": request_id})
    assert reply.json()["model"] == "catalog/org/plain"
    assert gateway.upstream.request(request_id).json()["model"] == "org/plain"


def catalog(name: str, base_url: str) -> dict[str, Any]:
    config = {"base_url": base_url, "models": "discover", "models_refresh_seconds": 0.05}
    return {"id": name, "type": "remote::passthrough", "config": config}


def test_the_list_outlives_its_vendor_and_one_that_is_down_is_in_nobodys_way(
    tmp_path: Path,
) -> None:
    with ScriptedUpstream() as upstream:
        template = write_template(
            tmp_path / "catalog.yaml",
            providers=[
                catalog("catalog", upstream.url),
                catalog("down", f"http://127.0.0.1:{free_port()}/v1"),
            ],
        )
        with running(template) as server:
            url = f"{server.base_url}/models"
            assert {one["id"] for one in wire.request("GET", url).json()["data"]} == LISTED
            upstream.stop()
            server.wait_for_log("not renewed: Provider 'catalog'")
            assert {one["id"] for one in wire.request("GET", url).json()["data"]} == LISTED
            question = chat("catalog/plain")
            assert (
                wire.request("POST", f"{server.base_url}/chat/completions", question).status == 502
            )
