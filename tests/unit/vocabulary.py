"""Hypothesis strategies for the vocabulary, in the forms that come back from a wire unchanged.

A text that is one part, say, comes back as the text itself, so only such are made here.
"""

from __future__ import annotations

import base64
from typing import Any

import msgspec
from hypothesis import strategies as st

from llama_compat.types import (
    AnyToolCall,
    ChatCompletionResponse,
    CompletionMessage,
    GreedySamplingStrategy,
    ImageContent,
    Message,
    MessagePart,
    ReasoningContent,
    SamplingParams,
    StopReason,
    SystemMessage,
    TextContent,
    ToolCall,
    ToolResponseMessage,
    TopKSamplingStrategy,
    TopPSamplingStrategy,
    UnparseableToolCall,
    Usage,
    UserMessage,
)

texts = st.text(min_size=1, max_size=20)
worded = texts.filter(str.strip)
"""Not blank, as a message has to be where Claude reads it."""

names = st.text(st.sampled_from("abcdefgh_"), min_size=1, max_size=8)
identifiers = st.text(st.sampled_from("abcXYZ012_-"), min_size=1, max_size=12)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
json_objects = st.dictionaries(st.text(max_size=8), json_values, max_size=3)


@st.composite
def images(draw: st.DrawFn) -> ImageContent:
    kind = draw(st.sampled_from(["jpeg", "png", "gif", "webp"]))
    # The first byte is one with which no image of another kind begins.
    content = base64.b64encode(b"\0" + draw(st.binary(max_size=7))).decode()
    return ImageContent(f"data:image/{kind};base64,{content}")


@st.composite
def calls(draw: st.DrawFn, *, unparseable: bool = True, signed: bool = False) -> AnyToolCall:
    name = draw(names)
    if unparseable and draw(st.booleans()):
        return UnparseableToolCall("", name, draw(st.sampled_from(["{", '{"a": "', "[1]", "x"])))
    arguments = draw(json_objects)
    text = msgspec.json.encode(arguments).decode()
    sealed = base64.urlsafe_b64encode(draw(st.binary(min_size=1, max_size=4))).decode()
    return ToolCall("", name, arguments, text, sealed if signed and draw(st.booleans()) else None)


@st.composite
def call_lists(draw: st.DrawFn, min_size: int = 0, **options: bool) -> tuple[AnyToolCall, ...]:
    drawn = draw(st.lists(calls(**options), min_size=min_size, max_size=3))
    ids = draw(st.lists(identifiers, min_size=len(drawn), max_size=len(drawn), unique=True))
    return tuple(
        msgspec.structs.replace(call, call_id=call_id)
        for call, call_id in zip(drawn, ids, strict=True)
    )


@st.composite
def user_messages(draw: st.DrawFn) -> UserMessage:
    if draw(st.booleans()):
        return UserMessage(draw(worded))
    parts = st.builds(TextContent, worded) | images()
    return UserMessage((draw(images()), *draw(st.lists(parts, max_size=3))))


@st.composite
def tool_responses(
    draw: st.DrawFn, call_id: str, *, with_images: bool = True
) -> ToolResponseMessage:
    text = draw(st.just("") | worded)
    if text and with_images and draw(st.booleans()):
        return ToolResponseMessage(call_id, (TextContent(text), draw(images())))
    return ToolResponseMessage(call_id, text)


@st.composite
def conversations(
    draw: st.DrawFn, *, signed: bool = False, tools_give_images: bool = True
) -> tuple[Message, ...]:
    """System messages, and then turns: the user's, the model's, and the answers to its calls."""
    messages: list[Message] = [SystemMessage(text) for text in draw(st.lists(worded, max_size=2))]
    used: set[str] = set()
    for _ in range(draw(st.integers(1, 3))):
        messages.append(draw(user_messages()))
        made = tuple(call for call in draw(call_lists(signed=signed)) if call.call_id not in used)
        used.update(call.call_id for call in made)
        messages.append(CompletionMessage.of(draw(worded), made))
        messages.extend(
            draw(tool_responses(call.call_id, with_images=tools_give_images)) for call in made
        )
        if made and draw(st.booleans()):
            messages.append(CompletionMessage.of(draw(worded)))
    if draw(st.booleans()):
        messages.append(draw(user_messages()))
    return tuple(messages)


@st.composite
def samplings(draw: st.DrawFn, max_temperature: float = 1.0) -> SamplingParams:
    temperature = st.floats(0.01, max_temperature)
    top_p = st.floats(0.01, 1.0)
    strategies = st.one_of(
        st.just(GreedySamplingStrategy()),
        st.builds(TopPSamplingStrategy, temperature, top_p),
        st.builds(TopKSamplingStrategy, st.integers(1, 99), temperature, top_p),
    )
    return SamplingParams(
        strategy=draw(strategies),
        max_tokens=draw(st.integers(1, 9999)),
        stop=tuple(draw(st.lists(texts, max_size=3))),
    )


@st.composite
def responses(draw: st.DrawFn, *, signed: bool = False) -> ChatCompletionResponse:
    """A reply with thoughts, text, parseable calls, and counts of everything."""
    made = draw(call_lists(unparseable=False, signed=signed))
    ended = StopReason.end_of_message if made else StopReason.end_of_turn
    thoughts = draw(st.integers(1, 99))
    cached = draw(st.integers(1, 99))
    return ChatCompletionResponse(
        CompletionMessage.of(
            content=draw(st.text(max_size=20)),
            tool_calls=made,
            reasoning=draw(st.none() | texts),
            stop_reason=draw(st.sampled_from([ended, StopReason.content_filter])),
        ),
        usage=Usage(
            prompt_tokens=cached + draw(st.integers(1, 99)),
            completion_tokens=thoughts + draw(st.integers(1, 99)),
            cached_tokens=cached,
            reasoning_tokens=thoughts,
        ),
    )


@st.composite
def ordered_responses(
    draw: st.DrawFn, family: str = "anthropic", *, signed: bool = False
) -> ChatCompletionResponse:
    """A reply whose parts come in any order, with thoughts that `family` or nobody sealed."""
    seals = identifiers.map(lambda seal: ("", seal, family))
    thoughts = st.builds(ReasoningContent, texts) | seals.map(
        lambda each: ReasoningContent(each[0], each[1], each[2], redacted=True)
    )
    sealed = st.builds(ReasoningContent, st.text(max_size=20), identifiers, st.just(family))
    made = list(draw(call_lists(unparseable=False, signed=signed)))
    parts: list[MessagePart] = []
    for kind in draw(st.lists(st.sampled_from(["text", "thought", "sealed", "call"]), max_size=6)):
        if kind == "call" and made:
            parts.append(made.pop(0))
        elif kind == "text":
            parts.append(draw(st.builds(TextContent, texts)))
        elif kind != "call":
            parts.append(draw(thoughts if kind == "thought" else sealed))
    calls_made = any(isinstance(part, ToolCall) for part in parts)
    stop_string = None if calls_made else draw(st.none() | texts)
    ended = StopReason.end_of_message if calls_made else StopReason.end_of_turn
    cached, written, thinking = [draw(st.integers(0, 99)) for _ in range(3)]
    return ChatCompletionResponse(
        CompletionMessage(tuple(parts), ended, stop_string),
        usage=Usage(
            prompt_tokens=cached + written + draw(st.integers(0, 99)),
            completion_tokens=thinking + draw(st.integers(1, 99)),
            cached_tokens=cached,
            reasoning_tokens=thinking,
            cache_write_tokens=written,
        ),
    )


def cuts(content: bytes) -> st.SearchStrategy[list[bytes]]:
    """`content` in pieces, cut anywhere."""
    places = st.lists(st.integers(0, len(content)), max_size=8).map(sorted)
    return places.map(
        lambda at: [
            content[begin:end] for begin, end in zip([0, *at], [*at, len(content)], strict=True)
        ]
    )
