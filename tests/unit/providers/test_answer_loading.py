"""How long a call waited for its model to come into memory, as its client is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llama_compat.dialects.base import Operation
from llama_compat.dialects.ollama.operations import CHAT, EMBED, GENERATE
from llama_compat.errors import APIError
from llama_compat.exchange import Reply, Target
from providers.answer import answer
from providers.base import ProviderModel
from providers.local.echo import EchoConfig, EchoProvider
from providers.local.residency.resident import Resident
from tests.unit.calls import call_of
from tests.unit.providers.local.residency.test_residency import House
from tests.virtual_time import in_virtual_time

ASKED: dict[str, tuple[Operation, dict[str, Any]]] = {
    "chat": (CHAT, {"messages": [{"role": "user", "content": "Hi"}]}),
    "generate": (GENERATE, {"prompt": "Hi"}),
    "embed": (EMBED, {"input": "Hi"}),
}


class Sharing(EchoProvider):
    """An echo whose model shares its memory, and takes 1.5 seconds to come into it."""

    loads_models = True

    def __init__(self, name: str = "echo", **settings: float) -> None:
        super().__init__("echo", EchoConfig(), [ProviderModel(name)])
        self.house = House({"cpu": 8}, **settings)
        self.shared = self.house.add(name, {"cpu": 8}, seconds=1.5)

    def resident(self, model: str) -> Resident | None:
        return self.shared


async def last_line(reply: Reply) -> dict[str, Any]:
    said = reply.body if isinstance(reply.body, bytes) else reply.first
    if not isinstance(reply.body, bytes):
        said += b"".join([piece async for piece in reply.body])
    await reply.aclose()
    value: dict[str, Any] = json.loads(said.splitlines()[-1])
    return value


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("what", list(ASKED))
@in_virtual_time
async def test_who_waits_for_a_model_is_told_for_how_long(what: str, stream: bool) -> None:
    provider, (operation, body) = Sharing(), ASKED[what]
    call = call_of({**body, "stream": stream}, operation)
    for loading in (1.5, 0.0):
        reply = await answer(provider, call, Target("echo"))
        assert reply.loading == loading
        told = await last_line(reply)
        assert told["load_duration"] == loading * 1e9
        assert told["total_duration"] > told["load_duration"]


@pytest.mark.parametrize("name", ["/models/mine", "/models/mine:adapted"])
@in_virtual_time
async def test_what_goes_wrong_is_said_of_the_model_that_was_asked_for(name: str) -> None:
    provider = Sharing("/models/mine", wait_seconds=1)
    call = call_of(ASKED["chat"][1], ASKED["chat"][0])
    with pytest.raises(APIError, match="The model 'public' had no room in memory within 1 s"):
        await answer(provider, call, Target(name))
