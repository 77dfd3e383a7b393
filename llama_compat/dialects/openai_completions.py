"""OpenAI's text completions (https://platform.openai.com/docs/api-reference/completions)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from llama_compat.dialects.finish_reasons import finish_reason
from llama_compat.dialects.openai_chat import render_usage
from llama_compat.dialects.openai_parameters import parse_sampling
from llama_compat.errors import APIError, invalid_parameter, missing_parameter
from llama_compat.types import (
    CompletionRequest,
    CompletionResponse,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    TextDelta,
    TokenLogProbs,
    Usage,
)

DEFAULT_MAX_TOKENS = 16
"""OpenAI's own default for text completions."""

Prompt = str | tuple[int, ...]


class CompletionCall(Struct, frozen=True):
    """One request as it came: its prompts, how often each is continued, and how to answer.

    Choices are numbered as OpenAI does: all of the first prompt's, then all of the second's.
    """

    prompts: tuple[Prompt, ...]
    request: CompletionRequest
    n: int = 1
    stream: bool = False
    include_usage: bool = False

    def requests(self) -> list[CompletionRequest]:
        """One request a choice; a seed counts up within a prompt so that its choices differ."""
        sampling = self.request.sampling
        return [
            structs.replace(self.request, prompt=prompt, sampling=sampling.for_choice(index))
            for prompt in self.prompts
            for index in range(self.n)
        ]


def parse_request(body: Mapping[str, Any], model: str) -> CompletionCall:
    """The request `body`, its parameters already checked, for the provider's `model`.

    Raises:
        APIError: 400 naming what is malformed.
    """
    prompts = parse_prompts(body.get("prompt"))
    sampling = parse_sampling(body)
    if sampling.max_tokens is None:
        sampling = structs.replace(sampling, max_tokens=DEFAULT_MAX_TOKENS)
    return CompletionCall(
        prompts=prompts,
        request=CompletionRequest(
            model=model,
            prompt=prompts[0],
            sampling=sampling,
            logprobs=body.get("logprobs"),
            echo=bool(body.get("echo")),
            stream=bool(body.get("stream")),
        ),
        n=body.get("n") or 1,
        stream=bool(body.get("stream")),
        include_usage=bool((body.get("stream_options") or {}).get("include_usage")),
    )


def parse_prompts(value: Any) -> tuple[Prompt, ...]:
    """The prompts of a string, a list of strings, a list of token ids, or a list of such lists.

    Raises:
        APIError: 400 for anything else.
    """
    if value is None:
        raise missing_parameter("prompt")
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list) or not value:
        raise _wrong_prompt()
    if all(isinstance(item, str) for item in value):
        return tuple(value)
    if all(isinstance(item, list) and item for item in value):
        return tuple(_token_ids(item) for item in value)
    return (_token_ids(value),)


def _token_ids(value: list[Any]) -> tuple[int, ...]:
    if not all(type(item) is int and item >= 0 for item in value):
        raise _wrong_prompt()
    return tuple(value)


def _wrong_prompt() -> APIError:
    return invalid_parameter(
        "prompt",
        "'prompt' must be a string, an array of strings, an array of token ids, or an array of"
        " arrays of token ids, and none of the arrays empty.",
        "invalid_type",
    )


def render_reply(
    responses: Sequence[CompletionResponse],
    usage: Usage,
    *,
    reply_id: str,
    model: str,
    created: int,
) -> dict[str, Any]:
    """A `text_completion` object with one choice a response."""
    return {
        "id": reply_id,
        "object": "text_completion",
        "created": created,
        "model": model,
        "choices": [
            {
                "index": index,
                "text": response.content,
                "logprobs": _render_logprobs(response.logprobs, 0),
                "finish_reason": finish_reason(response.stop_reason),
            }
            for index, response in enumerate(responses)
        ],
        "usage": render_usage(usage),
    }


def _render_logprobs(
    logprobs: Sequence[TokenLogProbs] | None, text_offset: int
) -> dict[str, Any] | None:
    """The four parallel lists of the legacy shape; `text_offset` is where the first token begins.

    `top_logprobs` is null where no alternatives were asked for, and for a prompt's first token.
    """
    if logprobs is None:
        return None
    offsets = []
    for token in logprobs:
        offsets.append(text_offset)
        text_offset += len(token.chosen.token)
    return {
        "tokens": [token.chosen.token for token in logprobs],
        "token_logprobs": [token.chosen.logprob for token in logprobs],
        "top_logprobs": [
            {alternative.token: alternative.logprob for alternative in token.top} or None
            for token in logprobs
        ],
        "text_offset": offsets,
    }


class StreamRenderer:
    """Renders the events of one reply's choices as chunks, which are `text_completion` objects.

    Args:
        reply_id, model, created: what every chunk says.
        include_usage: whether the client asked for a last chunk with the usage.
    """

    def __init__(self, *, reply_id: str, model: str, created: int, include_usage: bool) -> None:
        self._chunk = {
            "id": reply_id,
            "object": "text_completion",
            "created": created,
            "model": model,
        }
        self._include_usage = include_usage
        self._token_offsets: dict[int, int] = {}

    def render(self, choice: int, event: StreamEvent) -> Iterator[dict[str, Any]]:
        """The chunks that `event` of the choice `choice` makes, none or one."""
        if isinstance(event, StreamProgress):
            if isinstance(event.delta, TextDelta):
                yield self._render_chunk(choice, event.delta.text, logprobs=event.logprobs)
        elif isinstance(event, StreamComplete):
            yield self._render_chunk(choice, "", finish_reason(event.stop_reason))

    def finish(self, usage: Usage) -> Iterator[dict[str, Any]]:
        """The chunk with the usage, if it was asked for."""
        if self._include_usage:
            yield {**self._chunk, "choices": [], "usage": render_usage(usage)}

    def _render_chunk(
        self,
        choice: int,
        text: str,
        reason: str | None = None,
        logprobs: Sequence[TokenLogProbs] | None = None,
    ) -> dict[str, Any]:
        offset = self._token_offsets.get(choice, 0)
        if logprobs:
            self._token_offsets[choice] = offset + sum(len(t.chosen.token) for t in logprobs)
        chunk: dict[str, Any] = {
            **self._chunk,
            "choices": [
                {
                    "index": choice,
                    "text": text,
                    "logprobs": _render_logprobs(logprobs, offset),
                    "finish_reason": reason,
                }
            ],
        }
        if self._include_usage:
            chunk["usage"] = None
        return chunk
