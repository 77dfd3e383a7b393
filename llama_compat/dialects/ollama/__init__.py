"""Ollama's own API: `/api/chat`, `/api/generate` and `/api/embed`.

Source: https://github.com/ollama/ollama/blob/main/docs/api.md and `api/types.go` beside it.

A text completion goes to `/api/generate` in raw mode: the prompt reaches the model as it is,
without a chat template, which is what continuing a prompt means. Thinking is off there, because
Ollama would take part of the text away as reasoning.

Ollama shortens a conversation that does not fit, and forgets its beginning while it generates. Both
are switched off (`truncate`, `shift`): too long a prompt is an error, and a reply that fills the
context ends with `length`, as with OpenAI.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from llama_compat.dialects.model_names import model_names
from llama_compat.dialects.openai.parameters import render_sampling
from llama_compat.errors import invalid_parameter
from llama_compat.images import images_in, parse_data_url
from llama_compat.parts import ReplyParts
from llama_compat.text.surrogates import SurrogateJoiner
from llama_compat.tools.calls import ToolCallAssembler, arguments_object, arguments_text
from llama_compat.types import (
    AnyToolCall,
    ChatCompletionRequest,
    CompletionMessage,
    CompletionRequest,
    Content,
    Delta,
    EmbeddingRequest,
    EmbeddingResponse,
    Message,
    ReasoningDelta,
    ResponseFormat,
    SamplingParams,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamStart,
    SystemMessage,
    TextDelta,
    TokenLogProb,
    TokenLogProbs,
    ToolDefinition,
    ToolResponseMessage,
    Usage,
    UserMessage,
    content_text,
)

DONE_REASONS: dict[str, StopReason] = {
    "stop": StopReason.end_of_turn,
    "length": StopReason.out_of_tokens,
}
"""`done_reason` of a generation. `load` and `unload` say that there was none."""

THINK: dict[str, bool | str] = {
    "none": False,
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "max",
    "max": "max",
}
"""OpenAI's `reasoning_effort` as `think`."""

_OPTION_NAMES = {"repetition_penalty": "repeat_penalty"}
"""Options that Ollama calls something else than everybody."""

_NO_PARAMETERS = {"type": "object", "properties": {}}

# --------------------------------------------------------------------------------------------------
# Requests: vocabulary -> wire
# --------------------------------------------------------------------------------------------------


def render_request(
    request: ChatCompletionRequest | CompletionRequest, *, context_length: int | None = None
) -> dict[str, Any]:
    """The body for `/api/chat` or, for a `CompletionRequest`, for `/api/generate`.

    Ollama has no words for `logit_bias`, `echo` and a `tool_choice` that forces a call; requests
    that have them must have been refused.

    Args:
        request: what is asked, as NDJSON if it is a stream; its images have to be `data:` URLs.
        context_length: tokens of context to load the model with (`num_ctx`), if not its default.

    Raises:
        APIError: 400 for what Ollama can't be sent: a prompt that is empty or token ids, an image
            that is no `data:` URL, an unknown `reasoning_effort`.
    """
    body: dict[str, Any] = {"model": request.model, "stream": request.stream}
    if isinstance(request, CompletionRequest):
        body |= {"prompt": _text_prompt(request.prompt), "raw": True, "think": False}
    else:
        body |= _render_chat(request)
    body |= {"truncate": False, "shift": False}
    if options := _render_options(request.sampling, context_length):
        body["options"] = options
    if request.logprobs is not None:
        body["logprobs"] = True
        if request.logprobs:
            body["top_logprobs"] = request.logprobs
    return body


def _text_prompt(prompt: str | tuple[int, ...]) -> str:
    if not isinstance(prompt, str):
        raise invalid_parameter(
            "prompt", "Ollama takes no token ids: send the prompt as text.", "invalid_type"
        )
    if not prompt:
        raise invalid_parameter(
            "prompt", "The prompt is empty, which to Ollama means to load the model and no more."
        )
    return prompt


def _render_chat(request: ChatCompletionRequest) -> dict[str, Any]:
    body: dict[str, Any] = {"messages": render_messages(request.messages)}
    forbidden = request.tool_choice is not None and request.tool_choice.mode == "none"
    if request.tools and not forbidden:
        body["tools"] = [_render_tool(tool) for tool in request.tools]
    if (wanted := _render_format(request.response_format)) is not None:
        body["format"] = wanted
    if request.reasoning_effort is not None:
        body["think"] = _think(request.reasoning_effort)
    return body


def _think(reasoning_effort: str) -> bool | str:
    if reasoning_effort not in THINK:
        raise invalid_parameter(
            "reasoning_effort",
            f"Invalid value: {reasoning_effort!r}. Supported values are: {', '.join(THINK)}.",
        )
    return THINK[reasoning_effort]


def _render_format(wanted: ResponseFormat | None) -> str | dict[str, Any] | None:
    if wanted is None or wanted.type == "text":
        return None
    return "json" if wanted.schema is None else wanted.schema


def _render_options(sampling: SamplingParams, context_length: int | None) -> dict[str, Any]:
    options = {
        _OPTION_NAMES.get(name, name): value
        for name, value in render_sampling(sampling, max_tokens_name="num_predict").items()
    }
    if context_length is not None:
        options["num_ctx"] = context_length
    return options


def _render_tool(tool: ToolDefinition) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.tool_name}
    if tool.description is not None:
        function["description"] = tool.description
    function["parameters"] = _NO_PARAMETERS if tool.parameters is None else tool.parameters
    return {"type": "function", "function": function}


def render_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The `messages` of a request; a tool's answer names the tool, which the call before it tells.

    Raises:
        APIError: 400 naming the message whose image is no `data:` URL.
    """
    tool_names: dict[str, str] = {}
    rendered = []
    for index, message in enumerate(messages):
        if isinstance(message, CompletionMessage):
            tool_names |= {call.call_id: call.tool_name for call in message.tool_calls}
        rendered.append(_render_message(message, tool_names, f"messages[{index}].content"))
    return rendered


def _render_message(message: Message, tool_names: Mapping[str, str], param: str) -> dict[str, Any]:
    match message:
        case SystemMessage():
            return {"role": "system", **_render_content(message.content, param)}
        case UserMessage():
            return {"role": "user", **_render_content(message.content, param)}
        case ToolResponseMessage():
            rendered = {"role": "tool", **_render_content(message.content, param)}
            if message.call_id in tool_names:
                rendered["tool_name"] = tool_names[message.call_id]
            return {**rendered, "tool_call_id": message.call_id}
    rendered = {"role": "assistant", **_render_content(message.content, param)}
    if message.refusal is not None and not rendered["content"]:
        rendered["content"] = message.refusal
    if message.reasoning is not None:
        rendered["thinking"] = message.reasoning
    if message.tool_calls:
        rendered["tool_calls"] = [_render_call(call) for call in message.tool_calls]
    return rendered


def _render_content(content: Content, param: str) -> dict[str, Any]:
    rendered: dict[str, Any] = {"content": content_text(content)}
    images = [parse_data_url(image.url, param).base64 for image in images_in(content)]
    return {**rendered, "images": images} if images else rendered


def _render_call(call: AnyToolCall) -> dict[str, Any]:
    function = {"name": call.tool_name, "arguments": arguments_object(call)}
    return {"id": call.call_id, "function": function}


# --------------------------------------------------------------------------------------------------
# Replies: wire -> vocabulary
# --------------------------------------------------------------------------------------------------


class _Function(Struct):
    name: str = ""
    arguments: Any = None


class _Call(Struct):
    function: _Function
    id: str | None = None


class _Message(Struct):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[_Call] | None = None


class _Token(Struct):
    token: str
    logprob: float
    bytes: list[int] | None = None


class _ChosenToken(_Token):
    top_logprobs: list[_Token] | None = None


class _Event(Struct):
    """A line of a stream, or a whole reply: they have one shape.

    `/api/chat` fills `message`, `/api/generate` has `response` and `thinking` in its place.
    """

    error: str | None = None
    message: _Message | None = None
    response: str | None = None
    thinking: str | None = None
    logprobs: list[_ChosenToken] | None = None
    done: bool = False
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None

    def said(self) -> _Message:
        """What the model said, whichever call it answers."""
        return self.message or _Message(content=self.response, thinking=self.thinking)


class StreamParser:
    """Parses the objects of a stream, or the one object of a whole reply, as events."""

    def __init__(self) -> None:
        self._text = SurrogateJoiner()
        self._reasoning = SurrogateJoiner()
        self._assembler = ToolCallAssembler()
        self._parts = ReplyParts()
        self._calls = 0
        self._started = False
        self._done = False

    def push(self, event: Mapping[str, Any]) -> list[StreamEvent]:
        """The events of one object; what comes after the last one is passed over.

        Raises:
            ValueError: the object has another shape, says what went wrong (`error`), or that
                nothing was generated.
        """
        if self._done:
            return []
        try:
            line = msgspec.convert(event, _Event)
        except msgspec.ValidationError as error:
            raise ValueError(f"not an event of Ollama's: {error}") from None
        if line.error is not None:
            raise ValueError(line.error or "an error without a message")
        events: list[StreamEvent] = [] if self._started else [StreamStart()]
        self._started = True
        events.extend(self._progress(self._deltas(line), _parse_logprobs(line.logprobs)))
        if line.done:
            self._done = True
            events.append(StreamComplete(self._stop_reason(line.done_reason), _usage(line)))
        return events

    def finish(self) -> list[StreamEvent]:
        """The events that are due at the end of the stream: none, they came with `done`.

        Raises:
            ValueError: it broke off before that.
        """
        if not self._done:
            raise ValueError("the stream broke off before its end")
        return []

    def _progress(
        self, deltas: Sequence[Delta], logprobs: tuple[TokenLogProbs, ...] | None
    ) -> list[StreamEvent]:
        if logprobs and not deltas:
            deltas = [TextDelta("")]
        return [
            self._parts.progress(delta, None if place else logprobs)
            for place, delta in enumerate(deltas)
        ]

    def _deltas(self, line: _Event) -> list[Delta]:
        said = line.said()
        reasoning = self._reasoning.push(said.thinking or "")
        text = self._text.push(said.content or "")
        if line.done:
            reasoning += self._reasoning.flush()
            text += self._text.flush()
        deltas: list[Delta] = []
        if reasoning:
            deltas.append(ReasoningDelta(reasoning))
        if text:
            deltas.append(TextDelta(text))
        for call in said.tool_calls or ():
            deltas.extend(self._call_deltas(call))
        return deltas

    def _call_deltas(self, call: _Call) -> list[Delta]:
        # Ollama gives whole calls; they are numbered here, since their own index may repeat.
        index = self._calls
        self._calls += 1
        begun = self._assembler.push(
            index=index,
            call_id=call.id,
            tool_name=call.function.name,
            arguments=arguments_text(call.function.arguments),
        )
        return [*begun, *self._assembler.end(index)]

    def _stop_reason(self, done_reason: str | None) -> StopReason:
        if done_reason in ("load", "unload"):
            raise ValueError(f"the model was only {done_reason}ed: nothing was generated")
        reason = DONE_REASONS.get(done_reason or "stop", StopReason.end_of_turn)
        if reason is StopReason.end_of_turn and self._calls:
            return StopReason.end_of_message
        return reason


def _usage(line: _Event) -> Usage:
    return Usage(line.prompt_eval_count or 0, line.eval_count or 0)


def _parse_logprobs(tokens: list[_ChosenToken] | None) -> tuple[TokenLogProbs, ...] | None:
    if not tokens:
        return None
    return tuple(
        TokenLogProbs(_parse_token(token), tuple(map(_parse_token, token.top_logprobs or ())))
        for token in tokens
    )


def _parse_token(token: _Token) -> TokenLogProb:
    encoded = token.token.encode(errors="replace") if token.bytes is None else bytes(token.bytes)
    return TokenLogProb(token.token, encoded, token.logprob)


# --------------------------------------------------------------------------------------------------
# Embeddings and the list of models
# --------------------------------------------------------------------------------------------------


class _Embeddings(Struct):
    embeddings: list[list[float]]
    prompt_eval_count: int | None = None


class _Tag(Struct):
    name: str


class _Tags(Struct):
    models: list[_Tag]


def render_embedding_request(request: EmbeddingRequest) -> dict[str, Any]:
    """The body for `/api/embed`; too long a text is an error instead of being cut."""
    body: dict[str, Any] = {
        "model": request.model,
        "input": list(request.inputs),
        "truncate": False,
    }
    if request.dimensions is not None:
        body["dimensions"] = request.dimensions
    return body


def parse_embeddings(reply: Mapping[str, Any]) -> EmbeddingResponse:
    """The reply of `/api/embed`.

    Raises:
        ValueError: it is no such reply.
    """
    try:
        parsed = msgspec.convert(reply, _Embeddings)
    except msgspec.ValidationError as error:
        raise ValueError(f"not a reply with embeddings: {error}") from None
    return EmbeddingResponse(
        tuple(tuple(vector) for vector in parsed.embeddings), parsed.prompt_eval_count or 0
    )


def parse_models(reply: Mapping[str, Any]) -> list[str]:
    """The names of the models that `/api/tags` lists.

    Raises:
        ValueError: it is no such reply.
    """
    try:
        return model_names(tag.name for tag in msgspec.convert(reply, _Tags).models)
    except msgspec.ValidationError as error:
        raise ValueError(f"not a list of models: {error}") from None
