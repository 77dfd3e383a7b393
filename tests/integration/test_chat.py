"""Chat completions of any model: the protocol, whatever the model says."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.integration.expectations import check_usage, honoured_or_refused

MESSAGES: list[Any] = [{"role": "user", "content": "Name three colours of the rainbow."}]
MAX_TOKENS = 12

pytestmark = pytest.mark.capability("chat")


@pytest.fixture(scope="module")
def greedy(client: openai.OpenAI, model: str) -> ChatCompletion:
    """What the model says at temperature 0."""
    return client.chat.completions.create(
        model=model, messages=MESSAGES, max_tokens=MAX_TOKENS, temperature=0
    )


def text_of(completion: ChatCompletion, choice: int = 0) -> str:
    return completion.choices[choice].message.content or ""


def text_of_chunks(chunks: list[ChatCompletionChunk], index: int = 0) -> str:
    return "".join(
        choice.delta.content or ""
        for chunk in chunks
        for choice in chunk.choices
        if choice.index == index
    )


def finish_reasons(chunks: list[ChatCompletionChunk]) -> list[str]:
    return [
        choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason
    ]


def test_a_reply_has_openais_shape(greedy: ChatCompletion) -> None:
    assert greedy.object == "chat.completion"
    assert greedy.id
    assert greedy.created > 1_600_000_000
    assert greedy.model
    (choice,) = greedy.choices
    assert choice.index == 0
    assert choice.message.role == "assistant"
    assert choice.message.content
    assert choice.finish_reason in ("stop", "length")
    check_usage(greedy.usage)


@pytest.mark.capability("streaming")
def test_a_stream_equals_the_whole_reply(
    client: openai.OpenAI, model: str, greedy: ChatCompletion, repeats: bool
) -> None:
    chunks = list(
        client.chat.completions.create(
            model=model,
            messages=MESSAGES,
            max_tokens=MAX_TOKENS,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert text_of_chunks(chunks) == text_of(greedy) or not repeats
    assert len(finish_reasons(chunks)) == 1
    assert finish_reasons(chunks) == [greedy.choices[0].finish_reason] or not repeats
    assert {chunk.id for chunk in chunks} == {chunks[0].id}
    assert {chunk.model for chunk in chunks} == {greedy.model}
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert chunks[0].choices[0].delta.role == "assistant"


@pytest.mark.capability("usage")
def test_a_stream_ends_with_its_usage_where_asked(
    client: openai.OpenAI, model: str, greedy: ChatCompletion, repeats: bool
) -> None:
    *others, last = client.chat.completions.create(
        model=model,
        messages=MESSAGES,
        max_tokens=MAX_TOKENS,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    assert last.choices == []
    assert check_usage(last.usage).prompt_tokens == check_usage(greedy.usage).prompt_tokens
    assert check_usage(last.usage).total_tokens == check_usage(greedy.usage).total_tokens or (
        not repeats
    )
    assert all(chunk.usage is None for chunk in others)


@pytest.mark.capability("usage")
def test_a_stream_has_no_usage_unless_asked(client: openai.OpenAI, model: str) -> None:
    chunks = list(
        client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=2, stream=True)
    )
    assert all(chunk.usage is None for chunk in chunks)
    assert all(chunk.choices for chunk in chunks)


@pytest.mark.capability("streaming")
async def test_the_asynchronous_client_gets_the_same(
    async_client: openai.AsyncOpenAI, model: str, greedy: ChatCompletion, repeats: bool
) -> None:
    stream = await async_client.chat.completions.create(
        model=model, messages=MESSAGES, max_tokens=MAX_TOKENS, temperature=0, stream=True
    )
    chunks = [chunk async for chunk in stream]
    assert text_of_chunks(chunks) == text_of(greedy) or not repeats


@pytest.mark.capability("streaming")
def test_the_sdks_stream_helper_accumulates_the_reply(
    client: openai.OpenAI, model: str, greedy: ChatCompletion, repeats: bool
) -> None:
    with client.chat.completions.stream(
        model=model, messages=MESSAGES, max_completion_tokens=MAX_TOKENS, temperature=0
    ) as stream:
        stream.until_done()
        # Not the final completion: the helper raises for a text that ends with `length`.
        snapshot = stream.current_completion_snapshot
    assert snapshot.choices[0].finish_reason in ("stop", "length")
    assert snapshot.choices[0].message.content == text_of(greedy) or not repeats


def test_max_tokens_ends_with_length(client: openai.OpenAI, model: str) -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        limit: dict[str, Any] = {name: 3}
        reply = client.chat.completions.create(model=model, messages=MESSAGES, **limit)
        assert reply.choices[0].finish_reason == "length"
        assert check_usage(reply.usage).completion_tokens == 3


@pytest.mark.capability("seed")
def test_a_seed_repeats_the_text(client: openai.OpenAI, model: str) -> None:
    with honoured_or_refused("seed"):
        texts = [
            text_of(
                client.chat.completions.create(
                    model=model, messages=MESSAGES, max_tokens=8, temperature=1.5, seed=seed
                )
            )
            for seed in (11, 11, 12)
        ]
    assert texts[0] == texts[1]
    assert texts[0]


@pytest.mark.capability("n")
def test_choices_of_one_request(client: openai.OpenAI, model: str) -> None:
    with honoured_or_refused("n"):
        reply = client.chat.completions.create(
            model=model, messages=MESSAGES, max_tokens=4, temperature=1.0, n=2, seed=5
        )
    assert [choice.index for choice in reply.choices] == [0, 1]
    assert all(choice.finish_reason for choice in reply.choices)
    alone = client.chat.completions.create(
        model=model, messages=MESSAGES, max_tokens=4, temperature=1.0, seed=5
    )
    assert text_of(reply) == text_of(alone)
    assert check_usage(reply.usage).prompt_tokens == check_usage(alone.usage).prompt_tokens


@pytest.mark.capability("n")
def test_streamed_choices_are_told_apart_by_index(client: openai.OpenAI, model: str) -> None:
    question: dict[str, Any] = {
        "model": model,
        "messages": MESSAGES,
        "max_tokens": 4,
        "temperature": 1.0,
        "seed": 6,
        "n": 2,
    }
    with honoured_or_refused("n"):
        whole = client.chat.completions.create(**question)
    chunks = list(client.chat.completions.create(**question, stream=True))
    for index in (0, 1):
        assert text_of_chunks(chunks, index) == text_of(whole, index)
    assert len(finish_reasons(chunks)) == 2


@pytest.mark.capability("stop")
@pytest.mark.parametrize("length", [1, 5])
def test_a_stop_string_ends_the_text_and_never_shows(
    client: openai.OpenAI, model: str, greedy: ChatCompletion, repeats: bool, length: int
) -> None:
    if not repeats:
        pytest.skip("the model does not say the same again, so what would stop it is not known")
    text = text_of(greedy)
    # From the middle of what it says: five characters span tokens as a rule, one does not.
    stop = text[len(text) // 2 :][:length]
    expected = text[: text.index(stop)]
    question: dict[str, Any] = {
        "model": model,
        "messages": MESSAGES,
        "max_tokens": MAX_TOKENS,
        "temperature": 0,
        "stop": ["\u2603 never said", stop],
    }
    reply = client.chat.completions.create(**question)
    assert text_of(reply) == expected
    assert reply.choices[0].finish_reason == "stop"
    chunks = list(client.chat.completions.create(**question, stream=True))
    assert text_of_chunks(chunks) == expected
    assert finish_reasons(chunks) == ["stop"]


@pytest.mark.capability("stop")
def test_what_only_begins_like_a_stop_string_is_not_held_back(
    client: openai.OpenAI, model: str, greedy: ChatCompletion, repeats: bool
) -> None:
    text = text_of(greedy)
    reply = client.chat.completions.create(
        model=model,
        messages=MESSAGES,
        max_tokens=MAX_TOKENS,
        temperature=0,
        stop=text[-3:] + "\u2603",
    )
    assert text_of(reply) == text or not repeats


def test_content_in_parts_is_the_same_as_a_string(
    client: openai.OpenAI, model: str, greedy: ChatCompletion, repeats: bool
) -> None:
    parts: list[Any] = [
        {"role": "user", "content": [{"type": "text", "text": MESSAGES[0]["content"]}]}
    ]
    reply = client.chat.completions.create(
        model=model, messages=parts, max_tokens=MAX_TOKENS, temperature=0
    )
    assert check_usage(reply.usage).prompt_tokens == check_usage(greedy.usage).prompt_tokens
    assert text_of(reply) == text_of(greedy) or not repeats


def test_every_role_is_taken(client: openai.OpenAI, model: str) -> None:
    messages: list[Any] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is 2 + 2?"},
        {"role": "assistant", "content": "4"},
        {"role": "user", "content": "And 3 + 3?"},
    ]
    reply = client.chat.completions.create(model=model, messages=messages, max_tokens=2)
    longer = check_usage(reply.usage).prompt_tokens
    shorter = client.chat.completions.create(model=model, messages=messages[1:2], max_tokens=2)
    assert longer > check_usage(shorter.usage).prompt_tokens


@pytest.mark.capability("logprobs")
def test_log_probabilities(client: openai.OpenAI, model: str, greedy: ChatCompletion) -> None:
    question: dict[str, Any] = {
        "model": model,
        "messages": MESSAGES,
        "max_tokens": 4,
        "temperature": 0,
        "logprobs": True,
        "top_logprobs": 3,
    }
    with honoured_or_refused("logprobs"):
        reply = client.chat.completions.create(**question)
    logprobs = reply.choices[0].logprobs
    assert logprobs is not None
    tokens = logprobs.content or []
    assert len(tokens) == check_usage(reply.usage).completion_tokens
    said = b"".join(bytes(token.bytes or []) for token in tokens).decode(errors="replace")
    assert said == text_of(reply)
    for token in tokens:
        assert token.logprob <= 0
        assert len(token.top_logprobs) == 3
        best = [one.logprob for one in token.top_logprobs]
        assert best == sorted(best, reverse=True)
        assert token.token == token.top_logprobs[0].token
    chunks = list(client.chat.completions.create(**question, stream=True))
    streamed = [
        token
        for chunk in chunks
        for choice in chunk.choices
        if choice.logprobs
        for token in choice.logprobs.content or []
    ]
    assert streamed == tokens


@pytest.mark.ours
def test_the_raw_response_has_headers_and_the_reply(client: openai.OpenAI, model: str) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model=model,
        messages=MESSAGES,
        max_tokens=1,
        extra_headers={"x-request-id": "from-the-client-1"},
    )
    assert raw.status_code == 200
    assert raw.headers["x-request-id"] == "from-the-client-1"
    assert raw.headers["content-type"].startswith("application/json")
    completion = raw.parse()
    assert completion.model == model
    assert completion._request_id == "from-the-client-1"


@pytest.mark.ours
def test_a_request_without_an_id_gets_one(client: openai.OpenAI, model: str) -> None:
    ids = {
        client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=1)._request_id
        for _ in range(2)
    }
    assert None not in ids
    assert len(ids) == 2


async def test_requests_at_the_same_time_are_all_answered(
    async_client: openai.AsyncOpenAI, model: str, greedy: ChatCompletion, repeats: bool
) -> None:
    replies = await asyncio.gather(
        *(
            async_client.chat.completions.create(
                model=model, messages=MESSAGES, max_tokens=MAX_TOKENS, temperature=0
            )
            for _ in range(3)
        )
    )
    assert all(map(text_of, replies))
    assert [text_of(reply) for reply in replies] == [text_of(greedy)] * 3 or not repeats


@pytest.mark.capability("errors: context length")
def test_a_prompt_over_the_context_is_refused_with_the_numbers(
    client: openai.OpenAI, model: str
) -> None:
    listed: Any = client.models.retrieve(model)
    context_length = (listed.model_extra or {}).get("context_length")
    if context_length is None:
        pytest.skip(f"the server does not tell how long the context of {model} is")
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(
            model=model, messages=MESSAGES, max_tokens=context_length, temperature=0
        )
    assert refused.value.code == "context_length_exceeded"
    assert refused.value.param == "max_tokens"
    assert str(context_length) in refused.value.message
    long: list[Any] = [{"role": "user", "content": "word " * (context_length + 50)}]
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model=model, messages=long, max_tokens=1)
    assert refused.value.code == "context_length_exceeded"
    assert refused.value.param == "messages"
    assert str(context_length) in refused.value.message
