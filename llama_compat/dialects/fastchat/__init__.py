"""FastChat's controller and workers.

A worker continues a prompt (`/worker_generate_stream`); a conversation becomes one by the worker's
template (`fastchat_templates`). Its answer is a stream of objects, each with the whole text so far.
The worker's template says at which strings a turn ends; a text completion, which has no turns, does
not end there.

Source: https://github.com/lm-sys/FastChat, `fastchat/serve/base_model_worker.py`, `inference.py`,
`openai_api_server.py` and `fastchat/constants.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from llama_compat.dialects.counts import count, members
from llama_compat.dialects.fastchat.templates import (
    STYLES,
    ChatTurn,
    ConversationTemplate,
    render_prompt,
)
from llama_compat.dialects.model_names import model_names
from llama_compat.dialects.openai.finish_reasons import STOP_REASONS
from llama_compat.dialects.openai.logprobs import parse_logprobs
from llama_compat.dialects.openai.parameters import render_sampling
from llama_compat.errors import (
    APIError,
    context_length_exceeded,
    invalid_parameter,
    unsupported_parameter,
    upstream_error,
)
from llama_compat.media.documents import seen_alone
from llama_compat.media.images import images_in, parse_data_url
from llama_compat.text.markers import held_back
from llama_compat.text.surrogates import SurrogateJoiner
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionMessage,
    CompletionRequest,
    Content,
    EmbeddingRequest,
    EmbeddingResponse,
    Message,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    StreamStart,
    SystemMessage,
    TextDelta,
    TokenLogProbs,
    Usage,
    UserMessage,
    content_text,
)
from llama_compat.wire.malformed import malformed_as

# --------------------------------------------------------------------------------------------------
# Errors
# --------------------------------------------------------------------------------------------------

REQUEST_ERRORS: dict[int, tuple[int, str]] = {
    40001: (400, "invalid_type"),
    40301: (404, "model_not_found"),
    40302: (400, "invalid_value"),
    40303: (400, "context_length_exceeded"),
    42901: (429, "rate_limit_exceeded"),
    42902: (429, "insufficient_quota"),
    42903: (503, "engine_overloaded"),
}
"""`error_code` of what the client can do something about, as HTTP status and OpenAI's code."""

UPSTREAM_ERRORS: dict[int, tuple[int, str]] = {
    40101: (502, "upstream_authentication"),
    40102: (502, "upstream_authentication"),
    40103: (502, "upstream_authentication"),
    50001: (502, "upstream_error"),
    50002: (503, "upstream_out_of_memory"),
    50003: (502, "upstream_error"),
    50004: (502, "upstream_error"),
    50005: (503, "no_worker"),
    50006: (504, "upstream_timeout"),
}
"""`error_code` of what went wrong in the worker; any other is 502."""

_BANNER = "**NETWORK ERROR DUE TO HIGH TRAFFIC. PLEASE REGENERATE OR REFRESH THIS PAGE.**"
"""What workers put before the true reason, or say in place of one."""


def worker_error(provider: str, error_code: int, text: str) -> APIError:
    """The error that a worker tells with an `error_code` other than 0."""
    why = text.replace(_BANNER, "").strip().removeprefix("(").removesuffix(")")
    why = why or f"the worker failed with FastChat's error code {error_code}"
    if error_code in REQUEST_ERRORS:
        status, code = REQUEST_ERRORS[error_code]
        return APIError(status, why, code=code)
    status, code = UPSTREAM_ERRORS.get(error_code, (502, "upstream_error"))
    return upstream_error(provider, why, status=status, code=code)


# --------------------------------------------------------------------------------------------------
# Requests: vocabulary -> wire
# --------------------------------------------------------------------------------------------------


def render_request(
    request: ChatCompletionRequest | CompletionRequest, template: ConversationTemplate | None = None
) -> dict[str, Any]:
    """The body for `/worker_generate_stream`.

    Workers know neither tools nor a response format, a seed or a logit bias; requests that have
    them must have been refused.

    Args:
        request: what is asked; images have to be `data:` URLs.
        template: the worker's, for a `ChatCompletionRequest`.

    Raises:
        APIError: 400 for a prompt of token ids, and naming the message that a template has no words
            for: one of a tool or with tool calls, or images where the model sees none.
    """
    body: dict[str, Any] = {"model": request.model}
    stop = request.sampling.stop
    if isinstance(request, CompletionRequest):
        body |= {"prompt": _text_prompt(request.prompt), "echo": request.echo}
    else:
        if template is None:
            raise TypeError("a conversation needs its worker's template")
        turns, system_message, images = _parse_conversation(request.messages, template)
        body |= {"prompt": render_prompt(template, turns, system_message), "echo": False}
        if images:
            body["images"] = images
        stop = (*stop, *(each for each in template.stop if each not in stop))
        if template.stop_token_ids:
            body["stop_token_ids"] = list(template.stop_token_ids)
    body |= render_sampling(request.sampling, max_tokens_name="max_new_tokens")
    if stop:
        body["stop"] = list(stop)
    if request.logprobs is not None:
        body["logprobs"] = request.logprobs
    return body


def _text_prompt(prompt: str | tuple[int, ...]) -> str:
    if not isinstance(prompt, str):
        raise invalid_parameter(
            "prompt", "FastChat takes no token ids: send the prompt as text.", "invalid_type"
        )
    return prompt


def _parse_conversation(
    messages: Sequence[Message], template: ConversationTemplate
) -> tuple[list[ChatTurn], str | None, list[str]]:
    """The turns, the system message if there is one, and the images in base64."""
    turns: list[ChatTurn] = []
    system: list[str] = []
    images: list[str] = []
    for index, message in enumerate(messages):
        path = f"messages[{index}]"
        if isinstance(message, SystemMessage):
            _refuse_images(message.content, f"{path}.content")
            system.append(content_text(message.content))
        elif isinstance(message, UserMessage):
            param = f"{path}.content"
            content = seen_alone(message.content, param, "this model's worker")
            shown = [parse_data_url(image.url, param).base64 for image in images_in(content)]
            if shown and not STYLES[template.style].takes_images:
                raise _no_images(param)
            images.extend(shown)
            turns.append(ChatTurn("user", content_text(message.content), len(shown)))
        elif isinstance(message, CompletionMessage) and not message.tool_calls:
            _refuse_images(message.content, f"{path}.content")
            turns.append(
                ChatTurn("assistant", content_text(message.content) or message.refusal or "")
            )
        else:
            raise invalid_parameter(
                path,
                f"'{path}' is about a tool call, and the conversation template '{template.name}' of"
                " this model's worker has no words for tools.",
            )
    return turns, "\n\n".join(system) if system else None, images


def _refuse_images(content: Content, param: str) -> None:
    if images_in(seen_alone(content, param, "this model's worker")):
        raise _no_images(param)


def _no_images(param: str) -> APIError:
    return invalid_parameter(param, f"'{param}' has an image where this model's worker takes none.")


def fit_context(body: Mapping[str, Any], prompt_tokens: int, context_length: int) -> dict[str, Any]:
    """The body of a request with its `max_new_tokens` set to what the context leaves room for.

    Without it a worker would stop after 256 tokens, and with too large a one it would cut the
    prompt's beginning off. A worker also keeps one token of its context free.

    Raises:
        APIError: 400 `context_length_exceeded`.
    """
    wanted = body.get("max_new_tokens")
    if prompt_tokens + (wanted or 1) > context_length:
        raise context_length_exceeded(context_length, prompt_tokens, wanted or 1)
    room = max(context_length - prompt_tokens - 1, 1)
    return {**body, "max_new_tokens": room if wanted is None else min(wanted, room)}


# --------------------------------------------------------------------------------------------------
# Streams: wire -> vocabulary
# --------------------------------------------------------------------------------------------------


class _Event(Struct):
    """One object of a worker's stream."""

    text: str
    error_code: int = 0
    usage: Any = None
    logprobs: dict[str, Any] | None = None
    finish_reason: str | None = None


_COUNTS = ("prompt_tokens", "completion_tokens")

_UNFINISHED = "\ufffd" + "".join(map(chr, range(0xD800, 0xDC00)))
"""What a text ends with whose last character is not all there yet."""

_CLEANED_UP = (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're")
"""Where workers take the space away again as soon as they see all of it (transformers'
`clean_up_tokenization_spaces`)."""


class StreamParser:
    """Parses the objects of a worker's stream as events.

    What a worker may take back is held back until it is certain: the end of a text that may become
    a stop string or another character, or lose a space.

    Args:
        provider: the provider's id, for errors.
        body: the request as it was sent.
    """

    def __init__(self, provider: str, body: Mapping[str, Any]) -> None:
        self._provider = provider
        self._markers = (*body.get("stop", ()), *_CLEANED_UP)
        self._wants_logprobs = "logprobs" in body
        self._max_tokens: int | None = body.get("max_new_tokens")
        self._joiner = SurrogateJoiner()
        self._text = ""
        self._sent = ""
        self._tokens = 0
        self._usage = Usage()
        self._started = False
        self._done = False
        self._tells_reasons = False

    def push(self, event: Mapping[str, Any]) -> list[StreamEvent]:
        """The events of one object; what comes after the last one is passed over.

        Raises:
            APIError: the worker's own error, or 400 if it gives no log probabilities and they were
                asked for.
            ValueError: it is no such object, or takes back text that was sent already.
        """
        if self._done:
            return []
        line = _convert(event, _Event, "an event of a worker")
        if line.error_code != 0:
            raise worker_error(self._provider, line.error_code, line.text)
        if line.finish_reason == "abort":
            raise ValueError("the worker aborted the generation")
        if self._wants_logprobs and line.logprobs is None:
            raise unsupported_parameter("logprobs", self._provider, "the model's worker has none")
        self._tells_reasons = self._tells_reasons or "finish_reason" in event
        if line.usage is not None:
            told = members(line.usage)
            prompt, said = (count(told.get(name)) or 0 for name in _COUNTS)
            self._usage = Usage(prompt, said)
        self._text = line.text
        events: list[StreamEvent] = [] if self._started else [StreamStart()]
        self._started = True
        final = line.finish_reason is not None
        events.extend(self._progress(final, self._new_logprobs(line.logprobs)))
        if line.finish_reason is not None:
            reason = STOP_REASONS.get(line.finish_reason, StopReason.end_of_turn)
            events.append(self._complete(reason))
        return events

    def finish(self) -> list[StreamEvent]:
        """The events that are due at the end of the stream.

        Some kinds of workers never tell a finish reason; then the end is the end.

        Raises:
            ValueError: the stream broke off.
        """
        if self._done:
            return []
        if not self._started or self._tells_reasons:
            raise ValueError("the stream broke off before its finish reason")
        full = self._max_tokens is not None and self._usage.completion_tokens >= self._max_tokens
        reason = StopReason.out_of_tokens if full else StopReason.end_of_turn
        return [*self._progress(True, None), self._complete(reason)]

    def _complete(self, reason: StopReason) -> StreamComplete:
        self._done = True
        return StreamComplete(reason, self._usage)

    def _progress(
        self, final: bool, logprobs: tuple[TokenLogProbs, ...] | None
    ) -> list[StreamProgress]:
        text = self._joiner.push(self._new_text(final))
        if final:
            text += self._joiner.flush()
        return [StreamProgress(TextDelta(text), logprobs)] if text or logprobs else []

    def _new_text(self, final: bool) -> str:
        certain = self._text
        if not final:
            certain = certain.rstrip(_UNFINISHED)
            certain = certain[: len(certain) - held_back(certain, self._markers)]
        if certain.startswith(self._sent):
            new = certain[len(self._sent) :]
            self._sent = certain
            return new
        if final and not self._sent.startswith(certain):
            raise ValueError("the worker changed text that it had sent already")
        return ""

    def _new_logprobs(self, logprobs: Mapping[str, Any] | None) -> tuple[TokenLogProbs, ...] | None:
        # As with the text, each object has those of all tokens so far.
        if not self._wants_logprobs or logprobs is None:
            return None
        with malformed_as("not a worker's log probabilities"):
            new = {name: (values or [])[self._tokens :] for name, values in logprobs.items()}
            parsed = parse_logprobs(new)
        self._tokens += len(parsed or ())
        return parsed or None


# --------------------------------------------------------------------------------------------------
# What else the controller and the workers are asked
# --------------------------------------------------------------------------------------------------


class _Models(Struct):
    models: list[str]


class _Address(Struct):
    address: str


class _Count(Struct):
    count: int = 0
    error_code: int = 0
    text: str = ""


class _Details(Struct):
    context_length: int | None = None


class _Embeddings(Struct):
    embedding: list[list[float]] = []
    token_num: Any = 0
    error_code: int = 0
    text: str = ""


def parse_models(reply: Mapping[str, Any]) -> list[str]:
    """The models of `/list_models`, in order of their names.

    Raises:
        ValueError: it is no such reply. So do the functions below.
    """
    return model_names(sorted(_convert(reply, _Models, "a list of models").models))


def parse_address(reply: Mapping[str, Any]) -> str:
    """The worker's address of `/get_worker_address`, without a slash at its end; empty for none."""
    return _convert(reply, _Address, "a worker's address").address.rstrip("/")


def parse_context_length(reply: Mapping[str, Any]) -> int | None:
    """The tokens that a worker's model holds (`/model_details`), if the worker knows."""
    return _convert(reply, _Details, "a model's details").context_length


def parse_count(provider: str, reply: Mapping[str, Any]) -> int:
    """The tokens that `/count_token` counted; it raises APIError if it could not."""
    counted = _convert(reply, _Count, "a count of tokens")
    if counted.error_code != 0:
        raise worker_error(provider, counted.error_code, counted.text)
    return counted.count


def render_embedding_request(request: EmbeddingRequest) -> dict[str, Any]:
    """The body for `/worker_get_embeddings`."""
    return {"model": request.model, "input": list(request.inputs)}


def parse_embeddings(provider: str, reply: Mapping[str, Any]) -> EmbeddingResponse:
    """The reply of `/worker_get_embeddings`; it raises APIError for the worker's own error."""
    embedded = _convert(reply, _Embeddings, "a reply with embeddings")
    if embedded.error_code != 0:
        raise worker_error(provider, embedded.error_code, embedded.text)
    return EmbeddingResponse(
        tuple(tuple(vector) for vector in embedded.embedding), count(embedded.token_num) or 0
    )


Parsed = TypeVar("Parsed", bound=Struct)


def _convert(value: Mapping[str, Any], kind: type[Parsed], what: str) -> Parsed:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"not {what}: {error}") from None
