"""Text completions of any model: the protocol, whatever the model says."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from openai.types import Completion

from tests.integration.expectations import check_usage, honoured_or_refused, tokens_of

PROMPT = "The quick brown fox"
OTHER_PROMPT = "Once upon a time"
MAX_TOKENS = 8

pytestmark = [pytest.mark.capability("completions"), pytest.mark.usefixtures("greedy")]


@pytest.fixture(scope="module")
def greedy(client: openai.OpenAI, model: str) -> Completion:
    """How the model continues `PROMPT` at temperature 0, where the server has completions."""
    with honoured_or_refused("completions", "/completions"):
        return client.completions.create(
            model=model, prompt=PROMPT, max_tokens=MAX_TOKENS, temperature=0
        )
    raise AssertionError


def complete(client: openai.OpenAI, model: str, prompt: Any, **options: Any) -> Completion:
    reply = client.completions.create(
        model=model, prompt=prompt, **{"max_tokens": MAX_TOKENS, "temperature": 0, **options}
    )
    assert isinstance(reply, Completion)
    return reply


def texts(reply: Completion) -> list[str]:
    return [choice.text for choice in reply.choices]


def test_a_reply_has_openais_shape(greedy: Completion) -> None:
    assert greedy.object == "text_completion"
    assert greedy.model
    (choice,) = greedy.choices
    assert choice.text
    assert choice.finish_reason in ("stop", "length")
    usage = check_usage(greedy.usage)
    assert usage.completion_tokens <= MAX_TOKENS


def test_a_stream_equals_the_whole_reply(
    client: openai.OpenAI, model: str, greedy: Completion
) -> None:
    *parts, last = client.completions.create(
        model=model,
        prompt=PROMPT,
        max_tokens=MAX_TOKENS,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    assert "".join(part.choices[0].text for part in parts) == greedy.choices[0].text
    reasons = [part.choices[0].finish_reason for part in parts]
    assert [reason for reason in reasons if reason] == [greedy.choices[0].finish_reason]
    assert last.choices == []
    assert tokens_of(last.usage) == tokens_of(greedy.usage)


def test_without_max_tokens_there_are_sixteen_at_most(client: openai.OpenAI, model: str) -> None:
    reply = client.completions.create(model=model, prompt=PROMPT, temperature=0)
    assert check_usage(reply.usage).completion_tokens <= 16


def test_several_prompts_are_answered_in_order(
    client: openai.OpenAI, model: str, greedy: Completion
) -> None:
    alone = complete(client, model, OTHER_PROMPT)
    both = complete(client, model, [PROMPT, OTHER_PROMPT])
    assert [choice.index for choice in both.choices] == [0, 1]
    # Their beginnings: beside another prompt a sum may come out otherwise in its last digit, and of
    # two tokens that are as likely the other one may follow.
    assert [text[:8] for text in texts(both)] == [text[:8] for text in texts(greedy) + texts(alone)]
    usages = [check_usage(greedy.usage), check_usage(alone.usage)]
    assert check_usage(both.usage).total_tokens == sum(usage.total_tokens for usage in usages)


@pytest.mark.capability("n")
def test_choices_of_several_prompts_are_numbered_prompt_by_prompt(
    client: openai.OpenAI, model: str
) -> None:
    with honoured_or_refused("n"):
        reply = complete(client, model, [PROMPT, OTHER_PROMPT], n=2, max_tokens=2)
    assert [choice.index for choice in reply.choices] == [0, 1, 2, 3]
    first, second, third, fourth = texts(reply)
    assert (first, third) == (second, fourth)


def test_prompts_of_token_ids(client: openai.OpenAI, model: str) -> None:
    ids = [504, 2365, 6354, 16438]
    with honoured_or_refused("prompt"):
        one = complete(client, model, ids, max_tokens=3)
    assert check_usage(one.usage).prompt_tokens == len(ids)
    several = complete(client, model, [ids, ids[:2]], max_tokens=3)
    assert check_usage(several.usage).prompt_tokens == len(ids) + 2
    assert texts(several)[0] == texts(one)[0]


@pytest.mark.capability("seed")
def test_a_seed_repeats_the_text(client: openai.OpenAI, model: str) -> None:
    with honoured_or_refused("seed"):
        first, second = (
            complete(client, model, PROMPT, temperature=1.5, seed=3, top_p=0.95) for _ in range(2)
        )
    assert texts(first) == texts(second)


@pytest.mark.capability("stop")
def test_a_stop_string_ends_the_text_and_never_shows(
    client: openai.OpenAI, model: str, greedy: Completion
) -> None:
    (text,) = texts(greedy)
    stop = text[len(text) // 2 :][:4]
    reply = complete(client, model, PROMPT, stop=stop)
    assert texts(reply) == [text[: text.index(stop)]]
    assert reply.choices[0].finish_reason == "stop"


def test_echo_begins_with_the_prompt(client: openai.OpenAI, model: str, greedy: Completion) -> None:
    with honoured_or_refused("echo"):
        reply = complete(client, model, PROMPT, echo=True)
    assert texts(reply) == [PROMPT + greedy.choices[0].text]
    assert tokens_of(reply.usage) == tokens_of(greedy.usage)


@pytest.mark.capability("logprobs")
def test_log_probabilities(client: openai.OpenAI, model: str, greedy: Completion) -> None:
    with honoured_or_refused("logprobs"):
        reply = complete(client, model, PROMPT, logprobs=2)
    logprobs = reply.choices[0].logprobs
    assert logprobs is not None
    tokens, values = logprobs.tokens or [], logprobs.token_logprobs or []
    tops, offsets = logprobs.top_logprobs or [], logprobs.text_offset or []
    count = check_usage(reply.usage).completion_tokens
    assert len(tokens) == len(values) == len(tops) == len(offsets) == count
    assert "".join(tokens) == reply.choices[0].text
    assert offsets == [len("".join(tokens[:place])) for place in range(count)]
    for token, value, top in zip(tokens, values, tops, strict=True):
        assert value <= 0
        assert top[token] == max(top.values())


@pytest.mark.capability("errors: unknown parameter")
def test_unknown_fields_of_openai_clients_are_not_silently_ignored(
    client: openai.OpenAI, model: str
) -> None:
    """A parameter that no local model knows is refused by its name."""
    listed = client.models.retrieve(model)
    with pytest.raises(openai.BadRequestError) as refused:
        complete(client, listed.id, PROMPT, extra_body={"no_such_parameter": 1})
    assert "no_such_parameter" in (refused.value.param or refused.value.message)
