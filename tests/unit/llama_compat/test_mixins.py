"""OpenAI's calls made from a provider's answers in the vocabulary."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, ClassVar, get_args

import pytest

from llama_compat.dialects.anthropic_messages.operations import COUNT_TOKENS
from llama_compat.dialects.base import Kind, Operation
from llama_compat.dialects.openai.media.operations import (
    IMAGE_EDITS,
    IMAGES,
    MODERATIONS,
    SPEECH,
    TRANSCRIPTIONS,
    TRANSLATIONS,
)
from llama_compat.dialects.openai.operations import CHAT, COMPLETIONS, EMBEDDINGS
from llama_compat.dialects.rerank.operations import RERANK
from llama_compat.errors import APIError
from llama_compat.exchange import Call, Reply, Target
from llama_compat.mixins import (
    ChatOnlyMixin,
    OpenAIChatCompletionUnsupportedMixin,
    OpenAICompletionUnsupportedMixin,
    OpenAIEmbeddingsUnsupportedMixin,
)
from llama_compat.tools.names import OPENAI_NAMES
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionRequest,
    EmbeddingRequest,
    EmbeddingResponse,
    RankedDocument,
    RerankRequest,
    RerankResponse,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    StreamStart,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallParseStatus,
    Usage,
    UserMessage,
    temperature_of,
)
from llama_compat.wire import sse
from providers.answer import METHODS, answer
from providers.base import Provider, ProviderConfig
from tests.unit.calls import OWN, call_of

Request = CompletionRequest | ChatCompletionRequest
Events = AsyncGenerator[StreamEvent, None]


class Scripted(OpenAICompletionUnsupportedMixin, OpenAIChatCompletionUnsupportedMixin, Provider):
    """Answers every request with what `script` yields for it.

    Attributes:
        asked: the requests, in the order in which they began.
        running: how many of them run.
    """

    parameters: ClassVar[frozenset[str]] = frozenset(
        {"max_tokens", "seed", "logprobs", "temperature", "tools", "tool_choice"}
    )

    def __init__(self, script: Callable[[Request], Events], **config: Any) -> None:
        super().__init__("scripted", ProviderConfig(**config), [])
        self.script = script
        self.asked: list[Request] = []
        self.running = 0

    def completion(self, request: CompletionRequest) -> Events:
        return self._run(request)

    def chat_completion(self, request: ChatCompletionRequest) -> Events:
        return self._run(request)

    async def _run(self, request: Request) -> Events:
        self.asked.append(request)
        self.running += 1
        try:
            async with aclosing(self.script(request)) as events:
                async for event in events:
                    yield event
        finally:
            self.running -= 1


class ChatOnly(ChatOnlyMixin, Scripted):
    """Has no `completion` of its own."""


def last_text(request: Request) -> str:
    if isinstance(request, CompletionRequest):
        return str(request.prompt)
    message = request.messages[-1]
    assert isinstance(message, UserMessage)
    return str(message.content)


async def say_again(request: Request) -> Events:
    """The prompt's words, and the seed if there is one."""
    words = last_text(request).split()
    if request.sampling.seed is not None:
        words.append(str(request.sampling.seed))
    yield StreamStart(7)
    for word in words:
        await asyncio.sleep(0)
        yield StreamProgress(TextDelta(word))
    yield StreamComplete(StopReason.end_of_turn, Usage(7, len(words), cached_tokens=3))


async def call_a_tool(request: Request) -> Events:
    call = ToolCall("c1", "f", {}, "{}")
    yield StreamStart()
    yield StreamProgress(ToolCallDelta(0, ToolCallParseStatus.succeeded, tool_call=call))
    yield StreamComplete(StopReason.end_of_message)


def request_of(**body: Any) -> Call:
    return call_of(body, COMPLETIONS)


def chat(text: str = "a b", **body: Any) -> Call:
    return call_of({"messages": [{"role": "user", "content": text}], **body}, CHAT)


def whole(reply: Reply) -> dict[str, Any]:
    assert isinstance(reply.body, bytes)
    assert reply.headers["content-type"] == "application/json"
    value: dict[str, Any] = json.loads(reply.body)
    return value


async def chunks(reply: Reply) -> list[dict[str, Any]]:
    assert not isinstance(reply.body, bytes)
    content = reply.first + b"".join([piece async for piece in reply.body])
    return [json.loads(event.data) for event in sse.EventDecoder().feed(content) if event.data]


# Every kind of call ------------------------------------------------------------------------------


class Complete(OpenAIEmbeddingsUnsupportedMixin, Scripted):
    """A provider written by a user: it has the vocabulary, and inherits the rest."""

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResponse:
        return EmbeddingResponse(tuple((float(len(text)),) for text in request.inputs), 2)

    async def count_tokens(self, request: ChatCompletionRequest) -> int:
        return len(last_text(request).split())

    async def rerank(self, request: RerankRequest) -> RerankResponse:
        return RerankResponse((RankedDocument(1, 1.0), RankedDocument(0, 0.5)))


SAID = {"messages": [{"role": "user", "content": "a b"}]}
ASKED: dict[str, tuple[Operation, dict[str, Any], Callable[[Any], Any], Any]] = {
    "chat": (CHAT, SAID, lambda body: body["choices"][0]["message"]["content"], "ab"),
    "completion": (COMPLETIONS, {"prompt": "a b"}, lambda body: body["choices"][0]["text"], "ab"),
    "embedding": (EMBEDDINGS, {"input": ["abc"]}, lambda body: body["data"][0]["embedding"], [3.0]),
    "token_count": (COUNT_TOKENS, SAID, lambda body: body["input_tokens"], 2),
    "rerank": (
        RERANK,
        {"query": "b", "documents": ["a", "b"]},
        lambda body: [each["index"] for each in body["results"]],
        [1, 0],
    ),
}

RELAYED_ALONE = (MODERATIONS, IMAGES, IMAGE_EDITS, SPEECH, TRANSCRIPTIONS, TRANSLATIONS)


def test_every_kind_of_call_has_a_method_or_is_relayed_alone():
    assert ASKED.keys() == METHODS.keys()
    without = {operation.kind for operation in RELAYED_ALONE}
    assert METHODS.keys() | without == set(get_args(Kind))
    assert all(operation.capability for operation in RELAYED_ALONE)
    assert all(callable(getattr(Provider, method)) for method in METHODS.values())


@pytest.mark.parametrize("kind", ASKED)
async def test_a_provider_with_the_vocabulary_answers_every_kind_of_call(kind):
    operation, body, said, expected = ASKED[kind]
    assert operation.kind == kind
    assert said(whole(await answer(Complete(say_again), call_of(body, operation), OWN))) == expected


@pytest.mark.parametrize("kind", ASKED)
async def test_a_provider_without_any_of_it_says_what_it_lacks(kind):
    operation, body, _, _ = ASKED[kind]
    with pytest.raises(APIError, match="Provider 'bare'") as raised:
        await answer(Provider("bare", ProviderConfig(), []), call_of(body, operation), OWN)
    assert raised.value.status == (404 if kind == "token_count" else 400)


async def test_a_method_of_the_provider_s_own_answers_in_the_place_of_the_mixin_s():
    class Counting(Complete):
        async def openai_token_count(self, call: Call, target: Target) -> Reply:
            return Reply(b"{}")

    reply = await answer(Counting(say_again), call_of(SAID, COUNT_TOKENS), OWN)
    assert reply.body == b"{}"


async def test_a_vendor_gets_names_of_tools_that_it_takes_and_the_client_its_own():
    long = "a.tool." + "x" * 60
    fitted = OPENAI_NAMES.fitted(long)
    counted = []

    class Named(Complete):
        tool_names = OPENAI_NAMES

        async def count_tokens(self, request: ChatCompletionRequest) -> int:
            counted.append(request)
            return 1

    async def call_it(request: Request) -> Events:
        call = ToolCall("c1", request.tools[0].tool_name, {}, "{}")
        yield StreamStart()
        yield StreamProgress(ToolCallDelta(0, ToolCallParseStatus.succeeded, tool_call=call))
        yield StreamComplete(StopReason.end_of_message)

    provider = Named(call_it)
    tools = [{"type": "function", "function": {"name": long}}]
    reply = await answer(provider, chat(tools=tools, n=2), OWN)
    choices = whole(reply)["choices"]
    names = [choice["message"]["tool_calls"][0]["function"]["name"] for choice in choices]
    assert names == [long, long]
    assert [each.tools[0].tool_name for each in provider.asked] == [fitted, fitted]
    assert reply.adapted == ("tools.name",)
    body = {**SAID, "tools": [{"name": long, "input_schema": {"type": "object"}}]}
    await answer(provider, call_of(body, COUNT_TOKENS), OWN)
    assert [each.tools[0].tool_name for each in counted] == [fitted]


# Chat ---------------------------------------------------------------------------------------------


async def test_a_chat_is_answered_whole():
    provider = Scripted(say_again)
    body = whole(await provider.openai_chat_completion(chat(), OWN))
    assert body["object"] == "chat.completion"
    assert body["id"].startswith("chatcmpl-")
    assert body["model"] == "public"
    assert body["choices"][0]["message"]["content"] == "ab"
    assert body["usage"] == {
        "prompt_tokens": 7,
        "completion_tokens": 2,
        "total_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 3},
    }
    [asked] = provider.asked
    assert (asked.model, asked.request_id, asked.stream) == ("own", "req_1", False)


async def test_a_chat_is_streamed():
    provider = Scripted(say_again)
    reply = await provider.openai_chat_completion(
        chat(stream=True, stream_options={"include_usage": True}), OWN
    )
    sent = await chunks(reply)
    assert [choice["delta"] for chunk in sent for choice in chunk["choices"]] == [
        {"role": "assistant", "content": ""},
        {"content": "a"},
        {"content": "b"},
        {},
    ]
    assert len({chunk["id"] for chunk in sent}) == 1
    assert sent[-1]["usage"]["total_tokens"] == 9
    assert provider.asked[0].stream
    assert provider.running == 0


async def test_choices_run_at_once_and_count_the_prompt_once():
    begun = asyncio.Barrier(3)

    async def together(request: Request) -> Events:
        await begun.wait()
        async for event in say_again(request):
            yield event

    provider = Scripted(together)
    body = whole(await provider.openai_chat_completion(chat(n=3, seed=5), OWN))
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
    assert [choice["message"]["content"] for choice in body["choices"]] == ["ab5", "ab6", "ab7"]
    assert body["usage"]["prompt_tokens"] == 7
    assert body["usage"]["completion_tokens"] == 9
    assert body["usage"]["prompt_tokens_details"] == {"cached_tokens": 3}


async def test_streamed_choices_are_told_apart_by_index():
    provider = Scripted(say_again)
    sent = await chunks(await provider.openai_chat_completion(chat(n=2, seed=1, stream=True), OWN))
    texts = {0: "", 1: ""}
    reasons = []
    for chunk in sent:
        [choice] = chunk["choices"]
        texts[choice["index"]] += choice["delta"].get("content", "")
        reasons.append(choice["finish_reason"])
    assert texts == {0: "ab1", 1: "ab2"}
    assert reasons.count("stop") == 2


async def test_a_tool_call_is_the_reason_to_finish():
    tools = [{"type": "function", "function": {"name": "f"}}]
    provider = Scripted(call_a_tool)
    body = whole(await provider.openai_chat_completion(chat(tools=tools), OWN))
    assert body["choices"][0]["finish_reason"] == "tool_calls"
    assert body["choices"][0]["message"]["tool_calls"][0]["id"] == "c1"
    sent = await chunks(await provider.openai_chat_completion(chat(tools=tools, stream=True), OWN))
    assert sent[-1]["choices"][0]["finish_reason"] == "tool_calls"


# Text ---------------------------------------------------------------------------------------------


async def test_prompts_and_choices_fan_out_in_openais_order():
    provider = Scripted(say_again)
    body = whole(
        await provider.openai_completion(
            request_of(prompt=["a", "b c"], n=2, seed=1, max_tokens=5), OWN
        )
    )
    assert body["object"] == "text_completion"
    assert [choice["text"] for choice in body["choices"]] == ["a1", "a2", "bc1", "bc2"]
    assert body["usage"]["prompt_tokens"] == 14
    assert body["usage"]["completion_tokens"] == 2 + 2 + 3 + 3
    assert {request.sampling.max_tokens for request in provider.asked} == {5}


async def test_a_text_is_streamed():
    provider = Scripted(say_again)
    sent = await chunks(
        await provider.openai_completion(request_of(prompt="a b", stream=True), OWN)
    )
    assert [chunk["choices"][0]["text"] for chunk in sent] == ["a", "b", ""]
    assert sent[-1]["choices"][0]["finish_reason"] == "stop"
    assert all(chunk["id"].startswith("cmpl-") for chunk in sent)


async def test_a_provider_that_only_chats_answers_a_prompt_as_if_a_user_said_it():
    provider = ChatOnly(say_again)
    body = whole(
        await provider.openai_completion(
            request_of(prompt="a b", seed=4, stream=False, logprobs=2), OWN
        )
    )
    assert body["object"] == "text_completion"
    assert body["choices"][0]["text"] == "ab4"
    [asked] = provider.asked
    assert asked == ChatCompletionRequest(
        "own",
        (UserMessage("a b"),),
        sampling=asked.sampling,
        logprobs=2,
        stream=False,
        request_id="req_1",
        prepared=asked.prepared,
        mark=asked.mark,
    )


async def test_each_prompt_shares_what_is_made_of_it_among_its_choices_alone():
    provider = Scripted(say_again)
    body = {"prompt": ["a", "b"], "n": 2, "stream": False}
    await asyncio.gather(*(provider.openai_completion(request_of(**body), OWN) for _ in range(2)))
    by_prompt = {}
    for asked in provider.asked:
        assert asked.prepared is not None
        by_prompt.setdefault(asked.prepared, []).append(last_text(asked))
    assert sorted(by_prompt.values()) == [["a", "a"], ["a", "a"], ["b", "b"], ["b", "b"]]


async def test_a_provider_that_only_chats_takes_no_token_ids():
    with pytest.raises(APIError) as raised:
        await ChatOnly(say_again).openai_completion(request_of(prompt=[1, 2]), OWN)
    assert (raised.value.status, raised.value.param) == (400, "prompt")


# What can't be honoured ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"), [("suffix", "!"), ("best_of", 2), ("echo", True), ("made_up", 1)]
)
async def test_a_parameter_that_is_not_honoured_is_refused_by_name(name, value):
    provider = Scripted(say_again)
    with pytest.raises(APIError) as raised:
        await provider.openai_completion(request_of(prompt="a", **{name: value}), OWN)
    assert (raised.value.status, raised.value.param) == (400, name)
    assert raised.value.code == "unsupported_parameter"
    assert "'scripted'" in raised.value.message
    assert provider.asked == []


async def test_it_is_dropped_and_named_where_the_template_says_so():
    provider = Scripted(say_again, unsupported="drop")
    request = chat(top_p=0.5, logit_bias={"1": 5}, seed=3, user="me", store=False)
    reply = await provider.openai_chat_completion(request, OWN)
    assert whole(reply)["choices"][0]["message"]["content"] == "ab3"
    assert reply.dropped == ("top_p", "logit_bias", "user")


async def test_a_value_that_is_not_honoured_is_refused_with_the_reason():
    class Picky(Scripted):
        def unsupported_values(self, request):
            return {"temperature": "too hot"} if temperature_of(request.sampling) > 1 else {}

    picky = Picky(say_again, unsupported="refuse")
    assert whole(await picky.openai_chat_completion(chat(temperature=1), OWN))
    with pytest.raises(APIError, match="too hot") as raised:
        await picky.openai_chat_completion(chat(temperature=2), OWN)
    assert raised.value.param == "temperature"


@pytest.mark.parametrize("depth", [129, 500])
async def test_what_is_nested_too_deeply_is_refused_by_name(depth: int):
    deep = b'{"model":"m","messages":[],"tools":%b%b}' % (b"[" * depth, b"]" * depth)
    with pytest.raises(APIError, match="nested deeper") as raised:
        await Scripted(say_again).openai_chat_completion(call_of(deep), OWN)
    assert (raised.value.status, raised.value.param) == (400, "tools")


# What goes wrong ----------------------------------------------------------------------------------


async def fail_early(request: Request) -> Events:
    raise APIError(429, "slow down")
    yield StreamStart()


async def fail_late(request: Request) -> Events:
    yield StreamStart()
    yield StreamProgress(TextDelta("Well"))
    raise APIError(502, "gone")


async def fail_before_content(request: Request) -> Events:
    yield StreamStart()
    yield StreamProgress(TextDelta(""))
    raise APIError(429, "slow down")


@pytest.mark.parametrize("fail", [fail_early, fail_before_content])
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("stream", [False, True])
async def test_an_early_error_keeps_its_status(fail, n, stream):
    provider = Scripted(fail)
    with pytest.raises(APIError) as raised:
        await provider.openai_chat_completion(chat(n=n, stream=stream), OWN)
    assert raised.value.status == 429
    assert provider.running == 0


async def test_a_late_error_comes_out_of_the_stream():
    provider = Scripted(fail_late)
    reply = await provider.openai_chat_completion(chat(stream=True), OWN)
    assert b'"role":"assistant"' in reply.first
    assert b'"content":"Well"' in reply.first
    assert not isinstance(reply.body, bytes)
    with pytest.raises(APIError, match="gone"):
        await anext(reply.body)
    assert provider.running == 0


async def test_one_choice_that_fails_ends_the_others():
    async def one_fails(request: Request) -> Events:
        if request.sampling.seed == 2:
            raise APIError(502, "gone")
        yield StreamStart()
        await asyncio.Event().wait()

    provider = Scripted(one_fails)
    with pytest.raises(APIError, match="gone"):
        await provider.openai_chat_completion(chat(n=2, seed=1), OWN)
    assert provider.running == 0


@pytest.mark.parametrize("n", [1, 3])
async def test_closing_a_stream_ends_every_choice(n):
    async def endless(request: Request) -> Events:
        yield StreamStart()
        while True:
            await asyncio.sleep(0)
            yield StreamProgress(TextDelta("a"))

    provider = Scripted(endless)
    reply = await provider.openai_chat_completion(chat(n=n, stream=True), OWN)
    assert not isinstance(reply.body, bytes)
    for _ in range(3 * n):
        await anext(reply.body)
    assert provider.running == n
    await reply.aclose()
    assert provider.running == 0


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("n", [1, 2])
async def test_cancelling_the_call_ends_every_choice(n, stream):
    begun = asyncio.Semaphore(0)

    async def stuck(request: Request) -> Events:
        begun.release()
        await asyncio.Event().wait()
        yield StreamStart()

    provider = Scripted(stuck)
    call = asyncio.create_task(provider.openai_chat_completion(chat(n=n, stream=stream), OWN))
    for _ in range(n):
        await begun.acquire()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert provider.running == 0


async def test_a_slow_reader_holds_the_choices_back():
    given = 0

    async def eager(request: Request) -> Events:
        nonlocal given
        yield StreamStart()
        while True:
            given += 1
            yield StreamProgress(TextDelta("a"))
            await asyncio.sleep(0)

    reply = await Scripted(eager).openai_chat_completion(chat(n=2, stream=True), OWN)
    for _ in range(100):
        await asyncio.sleep(0)
    assert given <= 5
    await reply.aclose()


async def test_what_breaks_off_a_stream_is_said_of_the_model_that_was_asked_for() -> None:
    async def break_off(request: Request) -> Events:
        yield StreamProgress(TextDelta("One"))
        raise APIError(500, f"The model '{request.model}' failed.").about(request.model)

    provider, call = Scripted(break_off), call_of({**SAID, "stream": True})
    reply = await answer(provider, call, OWN)
    assert isinstance(reply.body, AsyncGenerator)
    with pytest.raises(APIError, match=r"^The model 'public' failed\.$"):
        await anext(reply.body)
