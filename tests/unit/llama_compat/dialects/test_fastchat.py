"""FastChat's dialect: its prompts are FastChat's own, and its streams lose nothing."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from typing import Any

import pytest
from fastchat.conversation import Conversation, conv_templates
from hypothesis import given
from hypothesis import strategies as st

from llama_compat.dialects import fastchat
from llama_compat.dialects.fastchat.templates import (
    IMAGE_PLACEHOLDER,
    RELEASED_STYLES,
    SOURCE_STYLES,
    STYLES,
    ChatTurn,
    ConversationTemplate,
    parse_template,
    render_prompt,
)
from llama_compat.errors import APIError
from llama_compat.events import Collector
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionMessage,
    CompletionRequest,
    CompletionResponse,
    EmbeddingRequest,
    EmbeddingResponse,
    GreedySamplingStrategy,
    ImageContent,
    Message,
    SamplingParams,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    StreamStart,
    SystemMessage,
    TextContent,
    TextDelta,
    TokenLogProb,
    TokenLogProbs,
    ToolCall,
    ToolResponseMessage,
    TopKSamplingStrategy,
    TopPSamplingStrategy,
    Usage,
    UserMessage,
)
from llama_compat.wire.json_lines import NUL, JSONLines

# --------------------------------------------------------------------------------------------------
# Prompts
# --------------------------------------------------------------------------------------------------


def on_the_wire(conversation: Conversation) -> dict[str, Any]:
    """What a worker with this template answers."""
    fields = dataclasses.asdict(conversation)
    if conversation.sep_style is not None:
        fields["sep_style"] = int(conversation.sep_style)
    reply = json.loads(json.dumps({"conv": fields}))
    assert isinstance(reply, dict)
    return reply


WORKERS_TEMPLATES = sorted(name for name, one in conv_templates.items() if one.sep_style)


def test_most_of_fastchat_s_templates_are_for_workers() -> None:
    assert len(WORKERS_TEMPLATES) > 70
    assert {conv_templates[name].sep_style.name for name in WORKERS_TEMPLATES} <= set(STYLES)


@pytest.mark.parametrize("name", WORKERS_TEMPLATES)
@pytest.mark.parametrize("system", [None, "", "Be  brief.\n"])
@pytest.mark.parametrize("said", [["Hello"], ["Hi", "Yes?", "How\n\nare\r\nyou?"], list("abcde")])
def test_prompts_are_fastchat_s_own(name: str, system: str | None, said: list[str]) -> None:
    conversation = conv_templates[name].copy()
    template = parse_template(on_the_wire(conversation))
    if system is not None:
        conversation.set_system_message(system)
    turns = []
    for number, text in enumerate(said):
        conversation.append_message(conversation.roles[number % 2], text)
        turns.append(ChatTurn("assistant" if number % 2 else "user", text))
    conversation.append_message(conversation.roles[1], None)
    assert render_prompt(template, turns, system) == conversation.get_prompt()


def wire_template(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "conv": {"name": "t", "roles": ["user", "assistant"], "sep_style": number, "sep": "|"}
        | fields
    }


NEWER: dict[str, Any] = {"max_image_size_mb": None}
"""By this field FastChat's source since 2024 is known, which counts its styles otherwise."""


@pytest.mark.parametrize(
    ("number", "prompt"),
    [
        (
            8,
            "<|begin_of_text|>Sys<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
        (9, "Sys|[Round 0]|user：Hi|assistant："),
        (10, "Sys|\nuser\nHi|\nassistant\n"),
        (21, "<bos><start_of_turn>user\nHi|<start_of_turn>assistant\n"),
        (23, "Sys\nuser: Hi\nassistant:"),
    ],
)
def test_the_styles_of_the_newer_source(number: int, prompt: str) -> None:
    template = parse_template(wire_template(number, **NEWER))
    assert render_prompt(template, [ChatTurn("user", "Hi")], "Sys") == prompt


def test_one_number_is_two_styles_in_the_release_and_in_the_newer_source() -> None:
    assert parse_template(wire_template(9)).style == "CHATML"
    assert parse_template(wire_template(9, **NEWER)).style == "CHATGLM"
    assert set(RELEASED_STYLES) < set(SOURCE_STYLES)


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (wire_template(22, **NEWER), r"'t'.*22 \(CLLM\)"),
        (wire_template(99), "'t'.*99"),
        (wire_template(0), "'t'.*0"),
        (wire_template(-1), "'t'.*-1"),
        ({"conv": {"name": "claude", "roles": ["a", "b"], "sep_style": None}}, "'claude'.*None"),
        (wire_template(1, roles=["user"]), "fewer than two roles"),
        ({"conv": None}, "not a conversation template"),
        ({}, "not a conversation template"),
    ],
)
def test_a_template_that_can_t_be_rendered_is_named(reply: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_template(reply)


def test_a_text_that_looks_like_a_pattern_stays_as_it_is() -> None:
    template = parse_template(wire_template(1, system_message="{role} {0}"))
    prompt = render_prompt(template, [ChatTurn("user", "{text} {sep} {} {system_message}")])
    assert prompt == "{role} {0}|user: {text} {sep} {} {system_message}|assistant:"


# --------------------------------------------------------------------------------------------------
# The other direction: what a worker reads and writes
# --------------------------------------------------------------------------------------------------

INVERTIBLE = ConversationTemplate(
    name="invertible",
    style="NO_COLON_TWO",
    roles=("\x01", "\x02"),
    system_template="\x00{system_message}",
    sep="\x03",
    sep2="\x03",
    stop=("\x01",),
    stop_token_ids=(7,),
)
"""A template whose prompts can be taken apart again: texts have no control characters."""


def read_prompt(prompt: str) -> tuple[Message, ...]:
    turns = prompt.removesuffix("\x02").removeprefix("\x00")
    system = turns[: min(i for i in (turns.find("\x01"), turns.find("\x02")) if i >= 0)]
    messages: list[Message] = [SystemMessage(system)] if system else []
    for turn in turns[len(system) :].split("\x03")[:-1]:
        messages.append(
            UserMessage(turn[1:]) if turn[0] == "\x01" else CompletionMessage.of(turn[1:])
        )
    return tuple(messages)


def read_sampling(body: dict[str, Any], own_stops: tuple[str, ...] = ()) -> SamplingParams:
    temperature, top_p = body.get("temperature", 1.0), body.get("top_p", 1.0)
    strategy: Any = TopPSamplingStrategy(temperature, top_p)
    if temperature == 0:
        strategy = GreedySamplingStrategy()
    elif "top_k" in body:
        strategy = TopKSamplingStrategy(body["top_k"], temperature, top_p)
    return SamplingParams(
        strategy=strategy,
        max_tokens=body.get("max_new_tokens"),
        stop=tuple(stop for stop in body.get("stop", ()) if stop not in own_stops),
        frequency_penalty=body.get("frequency_penalty", 0.0),
        presence_penalty=body.get("presence_penalty", 0.0),
        repetition_penalty=body.get("repetition_penalty", 1.0),
    )


def write_stream(
    response: CompletionResponse, cuts: list[int], *, with_logprobs: bool = True
) -> list[dict[str, Any]]:
    """A reply as a worker streams it: the text so far, and so far again, and the end."""
    ends = sorted({cut % (len(response.content) + 1) for cut in cuts})
    cumulative = [response.content[:end] for end in [*ends, len(response.content)]]
    reason = "length" if response.stop_reason is StopReason.out_of_tokens else "stop"
    lines: list[dict[str, Any]] = [
        {"text": text, "error_code": 0, "finish_reason": None} for text in cumulative
    ]
    lines.append({**lines[-1], "finish_reason": reason})
    tokens = response.logprobs
    if tokens is not None and with_logprobs:
        for number, line in enumerate(lines, 1):
            line["logprobs"] = write_logprobs(tokens[: len(tokens) * number // len(lines)])
    lines[-1]["usage"] = {
        "prompt_tokens": response.usage.prompt_tokens,
        "completion_tokens": response.usage.completion_tokens,
        "total_tokens": 0,
    }
    return lines


def write_logprobs(tokens: Iterable[TokenLogProbs]) -> dict[str, Any]:
    tokens = list(tokens)
    return {
        "text_offset": [0] * len(tokens),
        "tokens": [token.chosen.token for token in tokens],
        "token_logprobs": [token.chosen.logprob for token in tokens],
        "top_logprobs": [{}] * len(tokens),
    }


text = st.text(max_size=20)
plain_text = st.text(st.characters(categories=["L", "N", "P", "Zs"]), max_size=12)
temperatures = st.floats(0.01, 2)
samplings = st.builds(
    SamplingParams,
    strategy=st.one_of(
        st.builds(GreedySamplingStrategy),
        st.builds(TopPSamplingStrategy, temperatures, st.floats(0.01, 1)),
        st.builds(TopKSamplingStrategy, st.integers(1, 100), temperatures, st.floats(0.01, 1)),
    ),
    max_tokens=st.none() | st.integers(1, 9999),
    stop=st.lists(st.text("ab ", min_size=1, max_size=3), max_size=4, unique=True).map(tuple),
    frequency_penalty=st.floats(-2, 2),
    presence_penalty=st.floats(-2, 2),
    repetition_penalty=st.floats(0.1, 2),
)
conversations = st.builds(
    lambda system, turns: (*system, *turns),
    st.lists(st.builds(SystemMessage, plain_text.filter(bool)), max_size=1),
    st.lists(
        st.builds(UserMessage, plain_text) | st.builds(CompletionMessage.of, plain_text),
        min_size=1,
        max_size=5,
    ),
)
tokens = st.builds(
    lambda token, logprob: TokenLogProbs(TokenLogProb(token, token.encode(), logprob)),
    text,
    st.floats(-50, 0),
)
responses = st.builds(
    CompletionResponse,
    text | st.text("ab .,'nt\ufffd", max_size=30),
    st.sampled_from([StopReason.end_of_turn, StopReason.out_of_tokens]),
    logprobs=st.none() | st.lists(tokens, min_size=1, max_size=5).map(tuple),
    usage=st.builds(Usage, st.integers(0, 9999), st.integers(0, 9999)),
)


# --------------------------------------------------------------------------------------------------
# Round trips
# --------------------------------------------------------------------------------------------------


@given(conversations, samplings)
def test_a_conversation_survives_the_round_trip(
    messages: tuple[Message, ...], sampling: SamplingParams
) -> None:
    request = ChatCompletionRequest("m", messages, sampling)
    body = json.loads(json.dumps(fastchat.render_request(request, INVERTIBLE)))
    assert read_prompt(body["prompt"]) == messages
    assert read_sampling(body, INVERTIBLE.stop) == sampling
    assert (body["model"], body["echo"], body["stop_token_ids"]) == ("m", False, [7])


@given(text, samplings, st.booleans(), st.sampled_from([None, 0, 1]))
def test_a_text_completion_s_request_survives_the_round_trip(
    prompt: str, sampling: SamplingParams, echo: bool, logprobs: int | None
) -> None:
    request = CompletionRequest("m", prompt, sampling, logprobs, echo)
    body = json.loads(json.dumps(fastchat.render_request(request)))
    assert request == CompletionRequest(
        body["model"], body["prompt"], read_sampling(body), body.get("logprobs"), body["echo"]
    )


@given(
    responses,
    st.lists(st.integers(0, 99), max_size=6),
    st.lists(st.integers(0, 9999), max_size=6),
    st.lists(st.text("ab ", min_size=1, max_size=3), max_size=3),
)
def test_a_stream_in_any_pieces_gives_the_reply(
    response: CompletionResponse, cuts: list[int], byte_cuts: list[int], stop: list[str]
) -> None:
    data = b"".join(json.dumps(line).encode() + NUL for line in write_stream(response, cuts))
    ends = sorted({cut % (len(data) + 1) for cut in byte_cuts})
    decoder, collector = JSONLines(NUL), Collector()
    body: dict[str, Any] = {"stop": stop}
    if response.logprobs is not None:
        body["logprobs"] = 1
    parser = fastchat.StreamParser("p", body)
    for a, b in zip([0, *ends], [*ends, len(data)], strict=True):
        for line in decoder.feed(data[a:b]):
            for event in parser.push(line):
                collector.add(event)
    assert parser.finish() == []
    assert collector.completion() == response


# --------------------------------------------------------------------------------------------------
# Requests
# --------------------------------------------------------------------------------------------------


def chat(*messages: Message, **members: Any) -> ChatCompletionRequest:
    return ChatCompletionRequest("vicuna", messages or (UserMessage("Hi"),), **members)


VICUNA = parse_template(on_the_wire(conv_templates["vicuna_v1.1"]))
QWEN = parse_template(on_the_wire(conv_templates["qwen-7b-chat"]))


def test_nothing_is_sent_that_was_not_asked_for() -> None:
    system = conv_templates["vicuna_v1.1"].system_message
    assert fastchat.render_request(chat(), VICUNA) == {
        "model": "vicuna",
        "prompt": f"{system} USER: Hi ASSISTANT:",
        "echo": False,
    }


def test_turns_end_where_the_template_says_and_where_the_caller_says() -> None:
    request = chat(sampling=SamplingParams(stop=("END", "<|endoftext|>")))
    body = fastchat.render_request(request, QWEN)
    assert body["stop"] == ["END", "<|endoftext|>"]
    assert body["stop_token_ids"] == conv_templates["qwen-7b-chat"].stop_token_ids


def test_system_messages_replace_the_template_s_own_and_are_all_there() -> None:
    request = chat(
        SystemMessage("One."), UserMessage("Hi"), SystemMessage("Two.", role="developer")
    )
    body = fastchat.render_request(request, VICUNA)
    assert body["prompt"] == "One.\n\nTwo. USER: Hi ASSISTANT:"


CALL = CompletionMessage.of(tool_calls=(ToolCall("c", "f", {}, "{}"),))
PICTURE = UserMessage((ImageContent("data:image/png;base64,AAAA"), TextContent("What is it?")))


def test_images_go_beside_the_prompt_where_the_model_sees_any() -> None:
    body = fastchat.render_request(chat(PICTURE), VICUNA)
    assert body["images"] == ["AAAA"]
    assert body["prompt"].endswith(f"USER: {IMAGE_PLACEHOLDER}What is it? ASSISTANT:")


@pytest.mark.parametrize(
    ("message", "param"),
    [
        (CALL, "messages[1]"),
        (ToolResponseMessage("c", "22 degrees"), "messages[1]"),
        (PICTURE, "messages[1].content"),
        (SystemMessage(PICTURE.content), "messages[1].content"),
    ],
)
def test_what_a_template_has_no_words_for_is_refused(message: Message, param: str) -> None:
    with pytest.raises(APIError) as refused:
        fastchat.render_request(chat(UserMessage("Hi"), message), QWEN)
    assert (refused.value.status, refused.value.param) == (400, param)


def test_token_ids_are_refused() -> None:
    with pytest.raises(APIError) as refused:
        fastchat.render_request(CompletionRequest("m", (1, 2)))
    assert (refused.value.status, refused.value.param) == (400, "prompt")


@pytest.mark.parametrize(
    ("wanted", "sent"), [(None, 89), (50, 50), (89, 89), (90, 89)], ids=lambda one: f"{one}"
)
def test_a_request_is_fitted_into_the_context(wanted: int | None, sent: int) -> None:
    body = {"prompt": "p"} if wanted is None else {"prompt": "p", "max_new_tokens": wanted}
    assert fastchat.fit_context(body, 10, 100) == {"prompt": "p", "max_new_tokens": sent}


@pytest.mark.parametrize(("wanted", "prompt_tokens"), [(91, 10), (None, 100), (None, 5000)])
def test_what_does_not_fit_is_refused(wanted: int | None, prompt_tokens: int) -> None:
    body = {} if wanted is None else {"max_new_tokens": wanted}
    with pytest.raises(APIError) as refused:
        fastchat.fit_context(body, prompt_tokens, 100)
    assert (refused.value.status, refused.value.code) == (400, "context_length_exceeded")


# --------------------------------------------------------------------------------------------------
# Streams
# --------------------------------------------------------------------------------------------------


def events_of(*texts: str, stop: tuple[str, ...] = (), end: str = "stop") -> list[StreamEvent]:
    parser = fastchat.StreamParser("p", {"stop": stop})
    lines: list[dict[str, Any]] = [
        {"text": each, "error_code": 0, "finish_reason": None} for each in texts
    ]
    lines[-1]["finish_reason"] = end
    return [event for line in lines for event in parser.push(line)]


def deltas_of(*texts: str, **options: Any) -> list[str]:
    return [
        event.delta.text
        for event in events_of(*texts, **options)
        if isinstance(event, StreamProgress) and isinstance(event.delta, TextDelta)
    ]


def test_text_so_far_becomes_text_that_is_new() -> None:
    assert events_of("Hel", "Hello", "Hello, you", end="length") == [
        StreamStart(),
        StreamProgress(TextDelta("Hel")),
        StreamProgress(TextDelta("lo")),
        StreamProgress(TextDelta(", you")),
        StreamComplete(StopReason.out_of_tokens),
    ]


@pytest.mark.parametrize(
    ("texts", "stop", "deltas"),
    [
        (["caf\ufffd", "café"], (), ["caf", "é"]),
        (["\ufffd\ufffd", "\ufffd\ufffd\ufffd", "🙂"], (), ["🙂"]),
        (["a\ufffd", "a\ufffdb", "a\ufffdb"], (), ["a", "\ufffdb"]),
        (["a\ufffd", "a\ufffd"], (), ["a", "\ufffd"]),
        (["Hi ##", "Hi ", "Hi "], ("###",), ["Hi "]),
        (["Hi ##", "Hi ## there"], ("###",), ["Hi ", "## there"]),
        (["I '", "I'm", "I'm here"], (), ["I", "'m", " here"]),
        (["one two", "one", "one two three"], (), ["one two", " three"]),
        (["one two", "one two thr", "one two"], (), ["one two", " thr"]),
        (["\ud83d", "\ud83d\ude42"], (), ["🙂"]),
    ],
    ids=[
        "half a character",
        "many parts of a character",
        "a true replacement character",
        "one at the end",
        "a stop string",
        "no stop string after all",
        "a space that is cleaned up",
        "text that was away for a while",
        "text that is gone at the end",
        "half of a surrogate pair",
    ],
)
def test_what_may_be_taken_back_is_held_back(
    texts: list[str], stop: tuple[str, ...], deltas: list[str]
) -> None:
    assert deltas_of(*texts, stop=stop) == deltas


def test_text_that_turns_out_otherwise_is_an_error() -> None:
    with pytest.raises(ValueError, match="changed text"):
        events_of("one two", "one three", "one three")


def test_a_worker_that_never_tells_finish_reasons_has_finished_at_the_end() -> None:
    parser = fastchat.StreamParser("p", {"max_new_tokens": 5})
    usage = {"prompt_tokens": 1, "completion_tokens": 4}
    parser.push({"text": "Hello ", "error_code": 0, "usage": usage})
    assert parser.finish() == [
        StreamProgress(TextDelta(" ")),
        StreamComplete(StopReason.end_of_turn, Usage(1, 4)),
    ]
    parser = fastchat.StreamParser("p", {"max_new_tokens": 4})
    parser.push({"text": "Hello", "error_code": 0, "usage": usage})
    assert parser.finish() == [StreamComplete(StopReason.out_of_tokens, Usage(1, 4))]


@pytest.mark.parametrize(
    ("told", "usage"),
    [
        ({"prompt_tokens": "7", "completion_tokens": None}, Usage(7, 0)),
        ({"prompt_tokens": -7, "completion_tokens": 2.0}, Usage(0, 2)),
        ("much", Usage()),
    ],
)
def test_a_reply_is_not_lost_to_its_counts(told: Any, usage: Usage) -> None:
    parser = fastchat.StreamParser("p", {})
    events = parser.push({"text": "Hi", "usage": told, "finish_reason": "stop"})
    assert events[-1] == StreamComplete(StopReason.end_of_turn, usage)


@pytest.mark.parametrize("lines", [[], [{"text": "Hi", "error_code": 0, "finish_reason": None}]])
def test_a_stream_that_ends_too_early_broke_off(lines: list[dict[str, Any]]) -> None:
    parser = fastchat.StreamParser("p", {})
    for line in lines:
        parser.push(line)
    with pytest.raises(ValueError, match="broke off"):
        parser.finish()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"text": 5}, "not an event"),
        ({"finish_reason": "stop"}, "not an event"),
        ({"text": "Hi", "finish_reason": "abort"}, "aborted"),
    ],
)
def test_nonsense_in_the_stream_is_an_error(line: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fastchat.StreamParser("p", {}).push(line)


def test_log_probabilities_that_a_worker_lacks_are_refused_by_name() -> None:
    with pytest.raises(APIError) as refused:
        fastchat.StreamParser("p", {"logprobs": 1}).push({"text": "Hi", "error_code": 0})
    assert (refused.value.status, refused.value.param) == (400, "logprobs")


BANNER = "**NETWORK ERROR DUE TO HIGH TRAFFIC. PLEASE REGENERATE OR REFRESH THIS PAGE.**"


@pytest.mark.parametrize(
    ("error_code", "status", "code"),
    [
        (40001, 400, "invalid_type"),
        (40101, 502, "upstream_authentication"),
        (40301, 404, "model_not_found"),
        (40303, 400, "context_length_exceeded"),
        (42901, 429, "rate_limit_exceeded"),
        (42902, 429, "insufficient_quota"),
        (42903, 503, "engine_overloaded"),
        (50001, 502, "upstream_error"),
        (50002, 503, "upstream_out_of_memory"),
        (50005, 503, "no_worker"),
        (50006, 504, "upstream_timeout"),
        (99999, 502, "upstream_error"),
    ],
)
def test_a_worker_s_errors_keep_their_meaning(error_code: int, status: int, code: str) -> None:
    line = {"text": f"{BANNER}\n\n(what happened)", "error_code": error_code}
    with pytest.raises(APIError) as raised:
        fastchat.StreamParser("p", {}).push(line)
    assert (raised.value.status, raised.value.code) == (status, code)
    assert raised.value.message.endswith("what happened")
    assert "NETWORK" not in raised.value.message


def test_an_error_without_a_reason_says_its_number() -> None:
    assert "50001" in fastchat.worker_error("p", 50001, BANNER).message


# --------------------------------------------------------------------------------------------------
# What else is asked
# --------------------------------------------------------------------------------------------------


def test_what_the_controller_says() -> None:
    assert fastchat.parse_models({"models": ["b", "a"]}) == ["a", "b"]
    assert fastchat.parse_address({"address": "http://w:21002/"}) == "http://w:21002"
    assert fastchat.parse_address({"address": ""}) == ""
    with pytest.raises(ValueError, match="address"):
        fastchat.parse_address({"detail": "Not Found"})


def test_what_a_worker_says_of_lengths() -> None:
    assert fastchat.parse_context_length({"context_length": 2048}) == 2048
    assert fastchat.parse_context_length({"context_length": None}) is None
    assert fastchat.parse_count("p", {"count": 7, "error_code": 0}) == 7
    with pytest.raises(APIError):
        fastchat.parse_count("p", {"error_code": 50001, "text": "no"})


def test_embeddings() -> None:
    request = EmbeddingRequest("m", ("a", "b"))
    assert fastchat.render_embedding_request(request) == {"model": "m", "input": ["a", "b"]}
    reply = {"embedding": [[1, 2], [3, 4.5]], "token_num": 6}
    assert fastchat.parse_embeddings("p", reply) == EmbeddingResponse(((1, 2), (3, 4.5)), 6)
    for odd in (None, "many", -6):
        reply["token_num"] = odd
        assert fastchat.parse_embeddings("p", reply).prompt_tokens == 0
    with pytest.raises(APIError, match="no memory"):
        fastchat.parse_embeddings("p", {"error_code": 50002, "text": "no memory"})
