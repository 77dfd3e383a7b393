"""OpenAI's text completions (https://platform.openai.com/docs/api-reference/completions)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Raw, Struct, structs

from llama_compat.dialects.base import Labels, WireReplies, with_reasons
from llama_compat.dialects.openai.chunks import (
    ChunkParser,
    ChunkRenderer,
    EncodedChunks,
    collected_chunks,
    token_ids,
)
from llama_compat.dialects.openai.finish_reasons import (
    FINISH_REASON,
    finish_reason,
    matched_stop_string,
    stop_reason,
)
from llama_compat.dialects.openai.logprobs import parse_logprobs, render_text_logprobs
from llama_compat.dialects.openai.parameters import (
    SAMPLING_PARAMETERS,
    is_token_id,
    parse_sampling,
    render_sampling,
)
from llama_compat.dialects.openai.shapes import check_reply
from llama_compat.dialects.openai.usage import parse_usage, render_usage
from llama_compat.errors import APIError, invalid_parameter, missing_parameter
from llama_compat.text.end_of_turn import EndOfTurnCutter
from llama_compat.text.surrogates import joined
from llama_compat.types import (
    ChatCompletionResponse,
    CompletionMessage,
    CompletionRequest,
    CompletionResponse,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    TextContent,
    TextDelta,
    TokenLogProbs,
    Usage,
)
from llama_compat.wire.json_fields import encode_json, from_raw
from llama_compat.wire.malformed import malformed_as

DEFAULT_MAX_TOKENS = 16
"""OpenAI's own default for text completions."""

Prompt = str | tuple[int, ...]

# --------------------------------------------------------------------------------------------------
# Requests: wire -> vocabulary, and back
# --------------------------------------------------------------------------------------------------


class CompletionCall(Struct, frozen=True):
    """One request as it came: its prompts, how often each is continued, and how to answer.

    Choices are numbered as OpenAI does: all of the first prompt's, then all of the second's. With
    `best_of` more are made than the `n` that are given.
    """

    prompts: tuple[Prompt, ...]
    request: CompletionRequest
    n: int = 1
    best_of: int = 1
    stream: bool = False
    include_usage: bool = False

    @property
    def choices_per_prompt(self) -> int:
        return max(self.n, self.best_of)

    def render_reply(
        self, responses: Sequence[CompletionResponse], usage: Usage, labels: Labels
    ) -> bytes:
        """The `text_completion` object, of each prompt's best."""
        if self.best_of > self.n:
            made = self.best_of
            batches = [responses[at : at + made] for at in range(0, len(responses), made)]
            responses = [each for batch in batches for each in self._best(batch)]
        return encode_json(render_reply(responses, usage, **_said_of(labels)))

    def stream_renderer(self, labels: Labels) -> EncodedChunks:
        """A renderer of chunks, which are `text_completion` objects too."""
        return EncodedChunks(StreamRenderer(**_said_of(labels), include_usage=self.include_usage))

    def _best(self, made: Sequence[CompletionResponse]) -> list[CompletionResponse]:
        """The `n` whose tokens are the likeliest, the best first."""
        best = sorted(made, key=self._mean_logprob, reverse=True)[: self.n]
        if self.request.logprobs is None:
            best = [structs.replace(response, logprobs=None) for response in best]
        return best

    def _mean_logprob(self, response: CompletionResponse) -> float:
        tokens = response.logprobs or ()
        if self.request.echo:
            tokens = tokens[response.usage.prompt_tokens :]
        return sum(each.chosen.logprob or 0.0 for each in tokens) / max(len(tokens), 1)

    @property
    def requests(self) -> list[CompletionRequest]:
        """One request a choice; a seed counts up within a prompt so that its choices differ."""
        request = self.request
        if self.best_of > self.n and request.logprobs is None:
            # By them the best are chosen.
            request = structs.replace(request, logprobs=0)
        return [
            structs.replace(request, prompt=prompt, sampling=request.sampling.for_choice(index))
            for prompt in self.prompts
            for index in range(self.choices_per_prompt)
        ]


def _said_of(labels: Labels) -> dict[str, Any]:
    return {"reply_id": f"cmpl-{labels.unique}", "model": labels.model, "created": labels.created}


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
            return_token_ids=bool(body.get("return_token_ids")),
        ),
        n=body.get("n") or 1,
        best_of=body.get("best_of") or 1,
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


_PROMPTS = re.compile(rb"\[\s*([\"\[])(?!\s*\[)")
"""How several prompts begin: as texts, or as lists of token ids, in which there are no lists."""


def count_prompts(raw: Raw) -> int:
    """How many prompts the member `prompt` of a request holds, at the least 1.

    It is counted in the bytes, without a look at what `parse_prompts` would refuse: nothing is made
    of a million prompts only to say that they are too many.
    """
    data = bytes(raw)
    several = _PROMPTS.match(data)
    if several is None:
        return 1
    if several[1] == b"[":
        return data.count(b"[") - 1
    return data.replace(b"\\\\", b"").replace(b'\\"', b"").count(b'"') // 2


def _token_ids(value: list[Any]) -> tuple[int, ...]:
    if not all(map(is_token_id, value)):
        raise _wrong_prompt()
    return tuple(value)


def _wrong_prompt() -> APIError:
    return invalid_parameter(
        "prompt",
        "'prompt' must be a string, an array of strings, an array of token ids, or an array of"
        " arrays of token ids, and none of the arrays empty.",
        "invalid_type",
    )


RENDERED_PARAMETERS = frozenset({*SAMPLING_PARAMETERS, "echo", "logprobs"})
"""What `render_request` has words for."""


def render_request(request: CompletionRequest) -> dict[str, Any]:
    """The body of a request for one choice of one prompt; what is at its default is left out.

    A stream is asked for with the usage in its last chunk. `request.model` is the vendor's name.
    """
    prompt = request.prompt
    body: dict[str, Any] = {
        "model": request.model,
        "prompt": prompt if isinstance(prompt, str) else list(prompt),
        **render_sampling(request.sampling, max_tokens_name="max_tokens"),
    }
    if request.logprobs is not None:
        body["logprobs"] = request.logprobs
    if request.echo:
        body["echo"] = True
    if request.stream:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    return body


# --------------------------------------------------------------------------------------------------
# Replies and streams: vocabulary -> wire
# --------------------------------------------------------------------------------------------------


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
                "logprobs": render_text_logprobs(response.logprobs, 0),
                "finish_reason": finish_reason(response.stop_reason),
                **token_ids(response.token_ids, prompt=response.prompt_token_ids),
            }
            for index, response in enumerate(responses)
        ],
        "usage": render_usage(usage),
    }


class StreamRenderer(ChunkRenderer):
    """Renders the events of one reply's choices as chunks, which are `text_completion` objects.

    Args:
        reply_id, model, created: what every chunk says.
        include_usage: whether the client asked for a last chunk with the usage.
    """

    object = "text_completion"

    def __init__(self, *, reply_id: str, model: str, created: int, include_usage: bool) -> None:
        super().__init__(
            reply_id=reply_id, model=model, created=created, include_usage=include_usage
        )
        self._token_offsets: dict[int, int] = {}

    def render(self, choice: int, event: StreamEvent) -> Iterator[dict[str, Any]]:
        """The chunks that `event` of the choice `choice` makes, none or one."""
        if isinstance(event, StreamProgress):
            if isinstance(event.delta, TextDelta):
                yield self._render_chunk(
                    choice, event.delta.text, logprobs=event.logprobs, ids=event.token_ids
                )
        elif isinstance(event, StreamComplete):
            yield self._render_chunk(choice, "", finish_reason(event.stop_reason))
        elif event.token_ids is not None:
            yield self._render_chunk(choice, "", prompt_ids=event.token_ids)

    def _render_chunk(
        self,
        choice: int,
        text: str,
        reason: str | None = None,
        logprobs: Sequence[TokenLogProbs] | None = None,
        ids: Sequence[int] | None = None,
        prompt_ids: Sequence[int] | None = None,
    ) -> dict[str, Any]:
        offset = self._token_offsets.get(choice, 0)
        if logprobs:
            self._token_offsets[choice] = offset + sum(len(t.chosen.token) for t in logprobs)
        return self._chunk(
            {
                "index": choice,
                "text": text,
                "logprobs": render_text_logprobs(logprobs, offset),
                "finish_reason": reason,
                **token_ids(ids, prompt=prompt_ids),
            }
        )


# --------------------------------------------------------------------------------------------------
# Replies and streams: wire -> vocabulary
# --------------------------------------------------------------------------------------------------


def parse_reply(body: Mapping[str, Any], *, echo: bool = False) -> list[CompletionResponse]:
    """The choices of a vendor's `text_completion` object, each with the reply's usage.

    Args:
        body: the vendor's reply.
        echo: the text begins with the prompt, whose own end-of-turn markers stay.

    Raises:
        ValueError: it is not such an object; the message says where.
    """
    with malformed_as("the reply is not a text completion"):
        check_reply(body)
        usage = parse_usage(body.get("usage"))
        choices = body.get("choices")
        if not choices:
            raise ValueError("the reply has no choices")
        return [_parse_choice(choice, usage, echo) for choice in choices]


def _parse_choice(choice: Mapping[str, Any], usage: Usage, echo: bool) -> CompletionResponse:
    cutter = EndOfTurnCutter(only_at_end=echo)
    text = cutter.push(joined(choice["text"])) + cutter.flush()
    return CompletionResponse(
        content=text,
        stop_reason=cutter.stop_reason or stop_reason(choice.get("finish_reason")),
        logprobs=cutter.push_logprobs(parse_logprobs(choice.get("logprobs"))),
        usage=usage,
        stop_string=matched_stop_string(choice),
    )


class StreamParser(ChunkParser):
    """Parses a vendor's chunks, which are `text_completion` objects, as the events of its
    first choice.

    An object that reports an error is none; it is for whoever reads the stream to raise it.

    Args:
        echo: as in `parse_reply`.
    """

    kind = "text completion"

    def __init__(self, *, echo: bool = False) -> None:
        super().__init__()
        self._cutter = EndOfTurnCutter(only_at_end=echo)

    def finish(self, *, done: bool = False) -> Iterator[StreamEvent]:
        """The events that are due at the end of the stream.

        Args:
            done: the vendor ended it with `[DONE]`, so that a finish reason may be missing.

        Raises:
            ValueError: it broke off.
        """
        text = self._cutter.push(self._text.flush()) + self._cutter.flush()
        if text:
            yield StreamProgress(TextDelta(text))
        reason = self._cutter.stop_reason
        if reason is None:
            if self._finish_reason is None and not done:
                raise ValueError("the stream broke off before its finish reason")
            reason = stop_reason(self._finish_reason)
        yield StreamComplete(reason, self._usage, self._stop_string)

    def _parse_choice(self, choice: Mapping[str, Any]) -> Iterator[StreamEvent]:
        text = self._cutter.push(self._text.push(choice.get("text") or ""))
        logprobs = self._cutter.push_logprobs(parse_logprobs(choice.get("logprobs")))
        if text or logprobs is not None:
            yield StreamProgress(TextDelta(text), logprobs)


def _said(body: bytes, streamed: bool) -> ChatCompletionResponse:
    # That the text begins with the prompt is not to be seen in it: nothing is cut but at its end.
    if streamed:
        parser = StreamParser(echo=True)
        said = collected_chunks(parser, body).completion()
    else:
        said = parse_reply(from_raw(Raw(body)), echo=True)[0]
    message = CompletionMessage((TextContent(said.content),), said.stop_reason, said.stop_string)
    return ChatCompletionResponse(message, said.logprobs, said.usage)


REPLIES = WireReplies(finished=with_reasons(FINISH_REASON, frozenset({b"stop"})), said=_said)
