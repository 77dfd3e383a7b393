"""A server as a small company might run one: its template, its vendors, and a month of requests.

The vendors are stand-ins in this process, and the month is drawn with a fixed seed, so that two
pictures differ only where the page does.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from llama_compat.distribution import RecordsSettings, load_distribution
from providers.registry import config_model
from routing.access.keys.ring import KeyRing
from routing.access.keys.store import KEYS, KeyStore
from routing.access.limits.requests import rules_of_key
from routing.access.limits.rules import Demand, Rules, period_began, rules_of
from routing.observability.records.record import MIGRATIONS, Record
from routing.observability.records.recorder import Recorder
from routing.storage.storage import open_storage
from tests.integration.server_process import ServerProcess, running, write_template
from tests.server_thread import ServerThread

ADMIN_KEY, API_KEY = "the-admin-key", "sk-of-the-assistant"

ENTERED = f"""
sessionStorage.setItem("llama-compat-admin-key", "{ADMIN_KEY}");
sessionStorage.setItem("llama-compat-api-key", "{API_KEY}");
"""
"""Before a page's own scripts, as somebody who has typed both keys in this tab."""

DAYS, DAY = 60, 86400.0

KEYS_GIVEN: list[dict[str, Any]] = [
    {
        "name": "assistant",
        "key": API_KEY,
        "team": "product",
        "models": ["claude*", "fast"],
        "limits": {"requests_per_minute": 600, "tokens_per_minute": 400_000, "concurrent": 40},
        "budget": {"amount": 900, "period": "month"},
    },
    {
        "name": "nightly-tests",
        "key": "sk-of-the-tests",
        "team": "platform",
        "models": ["fast", "small"],
        "limits": {"requests_per_minute": 60, "concurrent": 4},
        "budget": {"amount": 8, "period": "month"},
    },
]
GRANTS: list[dict[str, Any]] = [
    {
        "name": "alice",
        "team": "research",
        "budget": {"amount": 60, "period": "month"},
        "limits": {"tokens_per_minute": 100_000},
    },
    {
        "name": "search-backend",
        "team": "product",
        "models": ["fast", "embed"],
        "limits": {"requests_per_minute": 1200, "concurrent": 64},
        "budget": {"amount": 300, "period": "month"},
    },
    {"name": "bob", "team": "research", "budget": {"amount": 20, "period": "week"}},
    {"name": "a notebook of last year", "models": ["small"]},
]
SHARES = {
    "assistant": 0.42,
    "search-backend": 0.3,
    "alice": 0.14,
    "nightly-tests": 0.09,
    "bob": 0.05,
}
MODELS = {
    "claude": ("anthropic", "claude-sonnet-4-5", 3000, 15000),
    "fast": ("openai", "gpt-5-mini", 250, 2000),
    "small": ("local", "tiny", 0, 0),
}
ERRORS = (
    ("rate_limit", 429, "Rate limit reached for requests."),
    ("timeout", 504, "No content within 20 s."),
    ("overloaded", 529, "Overloaded"),
    ("upstream", 502, "The vendor's reply broke off."),
)


class Vendors(ServerThread):
    """OpenAI, Anthropic and Groq as far as the page needs them: they answer, one of them seldom."""

    @property
    def url(self) -> str:
        """Where they are."""
        return f"http://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def _listening(self) -> AsyncIterator[int]:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", _openai)
        app.router.add_post("/down/chat/completions", _down)
        app.router.add_post("/v1/messages", _anthropic)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            yield runner.addresses[0][1]
        finally:
            await runner.cleanup()


SAID = "The capital of France is **Paris**, on the Seine: `48.86° N, 2.35° E`."
PIECES = [SAID[at : at + 4] for at in range(0, len(SAID), 4)]


async def _openai(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    await asyncio.sleep(0.08)
    if body.get("stream"):
        shared = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1}
        shared |= {"model": body["model"]}
        deltas = [{"content": piece} for piece in PIECES]
        usage = {"prompt_tokens": 14, "completion_tokens": len(PIECES), "total_tokens": 40}
        events: list[Any] = [
            {**shared, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
            for delta in deltas
        ]
        events += [
            {**shared, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            {**shared, "choices": [], "usage": usage},
        ]
        lines = [f"data: {json.dumps(each)}\n\n" for each in events]
        return await _streamed(request, [*lines, "data: [DONE]\n\n"], 0.012)
    message = {"role": "assistant", "content": "Good day! What can I do for you?"}
    return web.json_response(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 12, "completion_tokens": 9, "total_tokens": 21},
        }
    )


async def _streamed(request: web.Request, events: list[str], seconds: float) -> web.StreamResponse:
    """Events, with so much time between two."""
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    for event in events:
        await response.write(event.encode())
        await asyncio.sleep(seconds)
    return response


async def _anthropic(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    await asyncio.sleep(0.21)
    if body.get("stream"):
        begun = {"input_tokens": 14, "output_tokens": 1}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "content": []}
        message |= {"model": body["model"], "stop_reason": None, "usage": begun}
        told: list[dict[str, Any]] = [
            {"type": "message_start", "message": message},
            {
                "type": "content_block_start",
                "index": 0,
                "content_block": {"type": "text", "text": ""},
            },
            *(
                {
                    "type": "content_block_delta",
                    "index": 0,
                    "delta": {"type": "text_delta", "text": piece},
                }
                for piece in PIECES
            ),
            {"type": "content_block_stop", "index": 0},
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn", "stop_sequence": None},
                "usage": {"output_tokens": len(PIECES)},
            },
            {"type": "message_stop"},
        ]
        lines = [f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in told]
        return await _streamed(request, lines, 0.02)
    return web.json_response(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": [{"type": "text", "text": "Good day! How may I help?"}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 12, "output_tokens": 9},
        }
    )


async def _down(request: web.Request) -> web.Response:
    error = {"error": {"message": "The service is being updated.", "code": "unavailable"}}
    return web.Response(status=503, text=json.dumps(error), content_type="application/json")


def template(folder: Path, vendors: str) -> Path:
    """The company's template."""
    models: list[dict[str, Any]] = [
        {
            "id": "claude",
            "aliases": ["claude-latest"],
            "targets": [
                {"provider": "anthropic", "model": "claude-sonnet-4-5", "weight": 4},
                {"provider": "anthropic-eu", "model": "claude-sonnet-4-5", "weight": 1},
                {"provider": "openai", "model": "gpt-5", "priority": 1},
            ],
        },
        {
            "id": "fast",
            "targets": [
                {"provider": "openai", "model": "gpt-5-mini", "weight": 3},
                {"provider": "groq", "model": "llama-3.3-70b-versatile", "weight": 1},
            ],
        },
    ]
    key = {"api_key": "sk-of-the-vendor"}
    providers: list[dict[str, Any]] = [
        {
            "id": "anthropic",
            "type": "remote::anthropic",
            "config": {"base_url": f"{vendors}/v1", **key},
        },
        {
            "id": "anthropic-eu",
            "type": "remote::anthropic",
            "config": {"base_url": f"{vendors}/v1", **key},
        },
        {"id": "openai", "type": "remote::openai", "config": {"base_url": f"{vendors}/v1", **key}},
        {"id": "groq", "type": "remote::groq", "config": {"base_url": f"{vendors}/down", **key}},
    ]
    if (tiny := _tiny_model(folder)) is not None:
        providers.append({"id": "local", "type": "local::torch"})
        models.append({"id": "small", "provider": "local", "provider_model": tiny})
    return write_template(
        folder / "company.yaml",
        server={
            "admin_key": ADMIN_KEY,
            "admin": {"can_edit": True},
            "records": {"record_bodies": "all"},
            "stored_keys": True,
            "batches": {},
            "storage": f"sqlite:{folder / 'company.sqlite'}",
        },
        providers=providers,
        models=models,
        routing={"cooldown": {"failures": 2, "seconds": 600}, "retries": {"same_target": 0}},
        keys=KEYS_GIVEN,
        teams=[
            {"id": "product", "budget": {"amount": 220, "period": "month"}},
            {"id": "platform", "limits": {"tokens_per_minute": 200_000}},
            {"id": "research", "budget": {"amount": 200, "period": "month"}},
        ],
    )


def _tiny_model(folder: Path) -> str | None:
    try:
        from tests.tiny_models import make_model

        return str(make_model(folder / "tiny"))
    except ImportError:
        return None


async def remember(path: Path) -> None:
    """Write a company's keys, and what they asked in the last two months."""
    distribution = load_distribution(str(path), config_model)
    address = distribution.server.storage.get_secret_value()
    storage = open_storage(address, [MIGRATIONS, KEYS])
    await storage.start()
    store = KeyStore(storage, teams=[each.id for each in distribution.teams])
    from llama_compat.distribution import KeyGrant

    ids = {}
    for given in KeyRing.of(distribution, None).given.values():
        ids[given.principal.name] = given.principal
    for grant in GRANTS:
        stored, _ = await store.create(KeyGrant.model_validate(grant))
        ids[grant["name"]] = stored.key().principal
    await store.revoke("a notebook of last year")
    records = list(_history({name: each.id for name, each in ids.items()}))
    recorder = Recorder(open_storage(address, [MIGRATIONS]), RecordsSettings(queue=len(records)))
    await recorder.start()
    recorder.put(*records)
    await recorder.stop()
    now = time.time()
    teams = {
        each.id: Rules(rules_of(f"team:{each.id}", each.id, each.limits, each.budget))
        for each in distribution.teams
    }
    amounts: dict[str, tuple[float, float]] = {}
    for principal in ids.values():
        rules = Rules((*rules_of_key(principal), *teams.get(principal.team or "", ())))
        for charge in rules.charges(Demand(), now):
            if charge.rule.resource != "budget":
                continue
            began = period_began(charge.rule.period, now)
            cost = sum(
                (each.cost or 0) / 1e9
                for each in records
                if each.key == principal.id and each.time >= began
            )
            before, _ = amounts.get(charge.counter, (0.0, 0.0))
            amounts[charge.counter] = before + cost, charge.ends
    await store.spend(store.next_batch(), amounts)
    await storage.stop()


def _history(ids: dict[str, str]) -> Iterator[Record]:
    chance = random.Random(7)
    now = time.time()
    for place in range(12_000):
        # More by day than by night, on working days than on others, and lately than before.
        age = DAYS * DAY * (chance.random() ** 1.4)
        at = now - age
        hour, weekday = time.gmtime(at).tm_hour, time.gmtime(at).tm_wday
        busy = 0.25 + 0.75 * math.exp(-((hour - 13) ** 2) / 30)
        if chance.random() > busy * (0.35 if weekday > 4 else 1.0):
            continue
        name = chance.choices(list(SHARES), list(SHARES.values()))[0]
        model = chance.choices(["claude", "fast", "small"], [0.4, 0.5, 0.1])[0]
        if name in ("search-backend", "nightly-tests"):
            model = "fast"
        provider, served, price_in, price_out = MODELS[model]
        prompt, reply = chance.randint(400, 9000), chance.randint(30, 1500)
        seconds = reply / chance.uniform(60, 140) + chance.uniform(0.2, 1.2)
        error = ("", 200, "")
        if chance.random() < (0.09 if age < 0.2 * DAY else 0.02):
            error = chance.choices(ERRORS, [5, 3, 2, 1])[0]
            if error[0] == "timeout":
                provider, served = "anthropic-eu", "claude-sonnet-4-5"
        good = not error[0]
        yield Record(
            at,
            f"req_{place:024x}",
            ids[name],
            "openai",
            "chat",
            model,
            model,
            served,
            provider,
            f"{provider}/{served}",
            1,
            error[1],
            error[0],
            error[2],
            1,
            0,
            "stop" if good else "",
            prompt if good else None,
            prompt // 3 if good else None,
            0 if good else None,
            reply if good else None,
            0 if good else None,
            0,
            chance.uniform(0.15, 0.9) if good else None,
            seconds if good else 1.5,
            0.0006,
            (prompt * price_in + reply * price_out) * 12 if good else None,
        )


@contextmanager
def company(folder: Path) -> Iterator[ServerProcess]:
    """The company's server, with its month behind it."""
    with Vendors() as vendors:
        path = template(folder, vendors.url)
        asyncio.run(remember(path))
        with running(path) as server:
            yield server
