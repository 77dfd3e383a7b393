"""`GET /kv_blocks`: what an engine's cache holds, and whom it is told to."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import httpx

from llama_compat.prefixes.chain import BLOCK_BYTES, chain_of
from llama_compat.prefixes.held import blocks_in
from routing.app import Application
from tests.unit.calls import call_of
from tests.unit.routing.applications import CHAT, serving

SIMULATED = {"id": "sim", "type": "local::echo", "config": {"simulate": {"step_seconds": 0}}}
PLAIN = {"id": "plain", "type": "local::echo"}
TEXT = "You are told at length what to do, and what not. " * 60

TEMPLATE: dict[str, Any] = {
    "providers": [SIMULATED, PLAIN],
    "models": [
        {"id": "m", "provider": "sim", "provider_model": "inner"},
        {"id": "p", "provider": "plain"},
    ],
}


def client(app: Application, key: str = "") -> httpx.AsyncClient:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app), base_url="http://here", headers=headers
    )


def chat(text: str) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 4, "messages": [{"role": "user", "content": text}]}


async def told(http: httpx.AsyncClient, **query: Any) -> dict[str, Any]:
    answer = await http.get("/kv_blocks", params={"model": "inner", **query})
    assert answer.status_code == 200, answer.text
    news: dict[str, Any] = answer.json()
    for name in ("stored", "removed"):
        news[name] = set(blocks_in(base64.b64decode(news[name])))
    return news


async def test_what_was_asked_for_is_told_by_the_blocks_that_gateways_know_it_by(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, **TEMPLATE) as app, client(app) as http:
        first = await told(http)
        assert first["is_all"]
        assert first["stored"] == set()
        assert (await http.post(CHAT, json=chat(TEXT))).status_code == 200
        news = await told(http, log=first["log"], after=first["number"])
        assert not news["is_all"]
        chain = chain_of(call_of(chat(TEXT)))
        assert len(chain) == (len(TEXT) + 50) // BLOCK_BYTES
        assert news["stored"] == set(chain)
        again = await told(http, log=news["log"], after=news["number"])
        assert (again["stored"], again["number"]) == (set(), news["number"])
        assert (await told(http, log="another"))["stored"] == set(chain)


async def test_what_makes_room_for_others_is_told_of_too(tmp_path: Path) -> None:
    config = {"simulate": {"step_seconds": 0, "kv_blocks": 80}}
    template = {**TEMPLATE, "providers": [{**SIMULATED, "config": config}, PLAIN]}
    async with serving(tmp_path, **template) as app, client(app) as http:
        first = await told(http)
        for number in range(4):
            asked = chat(f"{number} {TEXT}")
            assert (await http.post(CHAT, json=asked)).status_code == 200
        last = set(chain_of(call_of(chat(f"3 {TEXT}"))))
        news = await told(http, log=first["log"], after=first["number"])
        assert last <= news["stored"]
        assert not news["stored"] & news["removed"]
        assert set(chain_of(call_of(chat(f"0 {TEXT}")))[-1:]) <= news["removed"]


async def test_a_model_without_a_cache_is_none(tmp_path: Path) -> None:
    async with serving(tmp_path, **TEMPLATE) as app, client(app) as http:
        for model in ("p", "unknown"):
            answer = await http.get("/kv_blocks", params={"model": model})
            assert answer.status_code == 404
            assert answer.json()["error"]["code"] == "no_prompt_cache"
        assert (await http.get("/kv_blocks")).status_code == 400


async def test_it_is_told_to_who_may_see_how_all_do(tmp_path: Path) -> None:
    template = {
        **TEMPLATE,
        "server": {"metrics_key": "the-key-of-prometheus"},
        "keys": [{"name": "a", "key": "sk-the-key-of-a-client"}],
    }
    async with serving(tmp_path, **template) as app:
        statuses = {}
        for key in ("", "sk-the-key-of-a-client", "the-key-of-prometheus"):
            async with client(app, key) as http:
                answer = await http.get("/kv_blocks", params={"model": "inner"})
                statuses[key] = answer.status_code
        assert list(statuses.values()) == [401, 403, 200]
