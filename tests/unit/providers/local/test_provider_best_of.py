"""What OpenAI's and vLLM's clients may ask besides text: the best of several, and token ids."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("transformers", reason="needs the extra 'torch'")

from llama_compat.dialects.openai.operations import CHAT, COMPLETIONS
from llama_compat.exchange import Target
from providers.answer import answer
from providers.base import ProviderModel
from providers.local.engine import LocalModel
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.provider import TorchProvider
from tests.tiny_models import make_model
from tests.unit.calls import call_of

PROMPT = "The quick brown fox"
MESSAGES = [{"role": "user", "content": PROMPT}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_model(tmp_path_factory.mktemp("models") / "tiny"))


@pytest.fixture
async def provider(folder: str) -> AsyncIterator[TorchProvider]:
    provider = TorchProvider("local", TorchConfig(device="cpu"), [ProviderModel(folder)])
    await provider.start()
    yield provider
    await provider.stop()


@pytest.fixture
def model(provider: TorchProvider) -> LocalModel:
    [engine] = provider.engines.values()
    return engine.model


async def asked(provider: TorchProvider, **body: Any) -> dict[str, Any]:
    operation = CHAT if "messages" in body else COMPLETIONS
    [name] = provider.engines
    reply = await answer(provider, call_of({"model": "m", **body}, operation), Target(name))
    assert isinstance(reply.body, bytes)
    decoded: dict[str, Any] = json.loads(reply.body)
    return decoded


async def streamed(provider: TorchProvider, **body: Any) -> list[dict[str, Any]]:
    operation = CHAT if "messages" in body else COMPLETIONS
    [name] = provider.engines
    call = call_of({"model": "m", **body, "stream": True}, operation)
    reply = await answer(provider, call, Target(name))
    assert not isinstance(reply.body, bytes)
    data = (reply.first or b"") + b"".join([part async for part in reply.body])
    return [json.loads(line[6:]) for line in data.split(b"\n\n") if line.startswith(b"data: {")]


def mean_logprob(choice: dict[str, Any], prompt_tokens: int = 0) -> float:
    scores = choice["logprobs"]["token_logprobs"][prompt_tokens:]
    return sum(scores) / len(scores)


# best_of ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("echo", [False, True])
async def test_the_best_are_given_the_best_first(provider: TorchProvider, echo: bool) -> None:
    body = {"prompt": [PROMPT, "one two"], "max_tokens": 8, "seed": 3, "echo": echo, "logprobs": 0}
    every = await asked(provider, **body, n=5)
    best = await asked(provider, **body, n=2, best_of=5)
    assert [choice["index"] for choice in best["choices"]] == [0, 1, 2, 3]
    counted = [await asked(provider, prompt=text, max_tokens=1) for text in body["prompt"]]
    for number, one in enumerate(counted):
        tokens = one["usage"]["prompt_tokens"] if echo else 0
        made = every["choices"][5 * number : 5 * number + 5]
        made.sort(key=lambda choice: mean_logprob(choice, tokens), reverse=True)
        given = best["choices"][2 * number : 2 * number + 2]
        assert [choice["text"] for choice in given] == [choice["text"] for choice in made[:2]]
    # All that was generated is counted, as it was paid for.
    assert best["usage"] == every["usage"]


async def test_log_probabilities_show_only_where_they_were_asked_for(
    provider: TorchProvider,
) -> None:
    reply = await asked(provider, prompt=PROMPT, max_tokens=4, best_of=3)
    [choice] = reply["choices"]
    assert choice["logprobs"] is None
    assert reply["usage"]["completion_tokens"] > 4


async def test_as_many_as_are_given_is_no_choice(provider: TorchProvider) -> None:
    body = {"prompt": PROMPT, "max_tokens": 4, "seed": 1, "n": 2}
    plain, best = await asked(provider, **body), await asked(provider, **body, best_of=2)
    assert plain["choices"] == best["choices"]
    assert await streamed(provider, **body, best_of=2)


# return_token_ids ---------------------------------------------------------------------------------


async def test_token_ids_of_a_completion(provider: TorchProvider, model: LocalModel) -> None:
    body = {"prompt": PROMPT, "max_tokens": 6, "n": 2, "seed": 5, "return_token_ids": True}
    reply = await asked(provider, **body)
    prompt_ids = list(model.tokenizer.encode(PROMPT, add_special_tokens=True))
    for choice in reply["choices"]:
        assert choice["prompt_token_ids"] == prompt_ids
        assert model.vocabulary.decode(choice["token_ids"]) == choice["text"]
    tokens = sum(len(choice["token_ids"]) for choice in reply["choices"])
    assert tokens == reply["usage"]["completion_tokens"]


async def test_token_ids_of_a_chat(provider: TorchProvider, model: LocalModel) -> None:
    reply = await asked(provider, messages=MESSAGES, max_tokens=6, seed=5, return_token_ids=True)
    assert PROMPT in model.vocabulary.decode(reply["prompt_token_ids"])
    assert len(reply["prompt_token_ids"]) == reply["usage"]["prompt_tokens"]
    [choice] = reply["choices"]
    assert model.vocabulary.decode(choice["token_ids"]) == choice["message"]["content"]


@pytest.mark.parametrize("logprobs", [False, True])
@pytest.mark.parametrize(
    "prompt", [{"prompt": PROMPT}, {"messages": MESSAGES}], ids=["text", "chat"]
)
async def test_a_stream_has_the_same_ids(
    provider: TorchProvider, prompt: dict[str, Any], logprobs: bool
) -> None:
    body = {**prompt, "max_tokens": 12, "seed": 5, "return_token_ids": True}
    if logprobs:
        body["logprobs"] = 0 if "prompt" in prompt else True
    whole = await asked(provider, **body)
    chunks = await streamed(provider, **body)
    choices = [chunk["choices"][0] for chunk in chunks]
    ids = [token_id for choice in choices for token_id in choice.get("token_ids", ())]
    assert ids == whole["choices"][0]["token_ids"]
    first = [each["prompt_token_ids"] for each in (*chunks, *choices) if "prompt_token_ids" in each]
    assert first == [whole.get("prompt_token_ids") or whole["choices"][0]["prompt_token_ids"]]


async def test_the_end_token_and_what_a_stop_string_cut_off_are_among_them(
    provider: TorchProvider, model: LocalModel
) -> None:
    end = next(iter(model.stop_tokens))
    ended = await asked(
        provider,
        prompt=PROMPT,
        max_tokens=6,
        logit_bias={str(end): 100},
        return_token_ids=True,
    )
    assert ended["choices"][0]["token_ids"] == [end]
    for seed in range(100):
        body = {"prompt": PROMPT, "max_tokens": 12, "seed": seed, "return_token_ids": True}
        text = (await asked(provider, **body))["choices"][0]["text"]
        # Half a character would be another one in a text that goes on.
        if text[:5].isascii() and len(text) > 5:
            break
    cut = await asked(provider, **body, stop=[text[3:5]])
    [choice] = cut["choices"]
    assert choice["text"] == text[:3]
    assert len(choice["token_ids"]) == cut["usage"]["completion_tokens"]
    assert text[:5] in model.vocabulary.decode(choice["token_ids"])


@pytest.mark.parametrize("body", [{}, {"return_token_ids": False}], ids=str)
async def test_nobody_else_sees_them(provider: TorchProvider, body: dict[str, Any]) -> None:
    for prompt in ({"prompt": PROMPT}, {"messages": MESSAGES}):
        reply = await asked(provider, **prompt, max_tokens=2, **body)
        for chunk in (reply, *(await streamed(provider, **prompt, max_tokens=2, **body))):
            assert "token_ids" not in json.dumps(chunk)
