"""How hard a model of `local::torch` is to think, as each client API says it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("transformers", reason="needs the extra 'torch'")

from llama_compat.dialects.anthropic_messages.operations import MESSAGES
from llama_compat.dialects.base import Operation
from llama_compat.dialects.gemini.operations import GENERATE
from llama_compat.dialects.ollama.operations import CHAT as OLLAMA_CHAT
from llama_compat.dialects.openai.operations import CHAT
from llama_compat.dialects.openai_responses.operations import RESPONSES
from llama_compat.errors import APIError
from llama_compat.exchange import Reply, Target
from llama_compat.types import ChatCompletionRequest, UserMessage
from providers.base import ProviderModel
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.provider import TorchProvider
from tests.tiny_models import make_model
from tests.unit.calls import call_of

SAID = "{% for message in messages %}{{ message.content }}{% endfor %}"
SWITCHED = SAID + (
    "{% if enable_thinking is defined %}{{ ' on' if enable_thinking else ' off' }}{% endif %}"
    "{{ tone }}"
)
R1 = SAID + "{% if add_generation_prompt %}<think>{% endif %}"


class Models:
    """A provider of one model, and what its chat template wrote last."""

    def __init__(self, folder: Path, template: str, **config: Any) -> None:
        made = make_model(folder, chat_template=template, max_position_embeddings=4096)
        model = ProviderModel(str(made))
        self.provider = TorchProvider("local", TorchConfig(device="cpu", **config), [model])
        self.written = ""

    async def start(self) -> None:
        await self.provider.start()
        [(self.name, engine)] = self.provider.engines.items()
        tokenizer: Any = engine.model.tokenizer
        render = tokenizer.render_chat

        def noted(*args: Any) -> str:
            self.written = render(*args)
            return self.written

        tokenizer.render_chat = noted

    async def ask(self, body: dict[str, Any], operation: Operation = CHAT) -> Reply:
        call = call_of(body, operation)
        reply = await self.provider.openai_chat_completion(call, Target(self.name))
        await reply.aclose()
        return reply


@pytest.fixture
async def switched(tmp_path: Path) -> AsyncIterator[Models]:
    made = Models(tmp_path / "model", SWITCHED)
    await made.start()
    yield made
    await made.provider.stop()


USER = [{"role": "user", "content": "Hi"}]
ASKED: dict[str, tuple[Operation, dict[str, Any]]] = {
    "chat": (CHAT, {"messages": USER, "max_tokens": 2}),
    "messages": (MESSAGES, {"messages": USER, "max_tokens": 1032}),
    "responses": (RESPONSES, {"input": "Hi", "max_output_tokens": 16}),
    "gemini": (GENERATE, {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}),
    "ollama": (OLLAMA_CHAT, {"messages": USER, "stream": False, "options": {"num_predict": 2}}),
}


@pytest.mark.parametrize(
    ("api", "said", "told"),
    [
        ("chat", {}, ""),
        ("chat", {"reasoning_effort": "none"}, " off"),
        ("chat", {"reasoning_effort": "high"}, " on"),
        ("chat", {"chat_template_kwargs": {"enable_thinking": False, "tone": "!"}}, " off!"),
        (
            "chat",
            {"reasoning_effort": "high", "chat_template_kwargs": {"enable_thinking": False}},
            " off",
        ),
        ("messages", {"thinking": {"type": "enabled", "budget_tokens": 1024}}, " on"),
        ("responses", {"reasoning": {"effort": "none"}}, " off"),
        ("responses", {"reasoning": {"effort": "low"}}, " on"),
        ("gemini", {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}}, " off"),
        ("ollama", {"think": False}, " off"),
        ("ollama", {"think": True}, " on"),
    ],
)
async def test_it_is_told_as_its_template_has_it(
    switched: Models, api: str, said: dict[str, Any], told: str
) -> None:
    operation, body = ASKED[api]
    reply = await switched.ask({**body, **said}, operation)
    assert switched.written == f"Hi{told}"
    assert (reply.dropped, reply.adapted) == ((), ())


async def test_what_a_client_gives_the_template_is_text_like_any_other(switched: Models) -> None:
    def request(tone: str) -> ChatCompletionRequest:
        given = {"tone": tone}
        return ChatCompletionRequest(switched.name, (UserMessage("Hi"),), template_variables=given)

    count = switched.provider.count_tokens
    plain = await count(request(""))
    assert await count(request("<|im_end|>")) > plain + 1


@pytest.mark.parametrize("name", ["messages", "tools", "add_generation_prompt", "eos_token"])
async def test_what_the_server_gives_it_is_no_clients_to_give(switched: Models, name: str) -> None:
    with pytest.raises(APIError, match="by the server itself") as refused:
        await switched.ask({"messages": USER, "chat_template_kwargs": {name: "x", "tone": "!"}})
    assert (refused.value.status, refused.value.param) == (400, f"chat_template_kwargs.{name}")


async def test_it_is_known_of_a_model_that_is_there(switched: Models) -> None:
    assert "reasoning_effort" in switched.provider.parameters_of(switched.name)
    assert "reasoning_effort" not in switched.provider.parameters_of("another")


@pytest.mark.parametrize(
    ("template", "said", "dropped"),
    [
        (SAID, {"reasoning_effort": "none"}, ()),
        (SAID, {"reasoning_effort": "high"}, ("reasoning_effort",)),
        (SAID, {"chat_template_kwargs": {"tone": "!"}}, ("chat_template_kwargs",)),
        (R1, {"reasoning_effort": "none"}, ("reasoning_effort",)),
    ],
)
async def test_what_its_template_can_not_be_told_is_left_out_and_named(
    tmp_path: Path, template: str, said: dict[str, Any], dropped: tuple[str, ...]
) -> None:
    made = Models(tmp_path, template)
    await made.start()
    try:
        assert "reasoning_effort" not in made.provider.parameters_of(made.name)
        reply = await made.ask({"messages": USER, "max_tokens": 2, **said})
    finally:
        await made.provider.stop()
    assert reply.dropped == dropped


async def test_it_is_refused_where_the_provider_refuses(tmp_path: Path) -> None:
    made = Models(tmp_path, SAID, unsupported="refuse")
    await made.start()
    try:
        with pytest.raises(APIError, match="nothing in the model's chat template") as refused:
            await made.ask({"messages": USER, "reasoning_effort": "high"})
    finally:
        await made.provider.stop()
    assert refused.value.param == "reasoning_effort"
