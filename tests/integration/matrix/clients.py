"""The client APIs, each driven by its own vendor's SDK, whose accumulators refuse wrong streams."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import Any, ClassVar

import anthropic
import ollama
import openai
from google import genai
from google.genai import _interactions as interactions_errors
from google.genai import errors as genai_errors
from google.genai import types as genai_types
from pydantic import BaseModel

from tests.integration.matrix.said import CLIP, PIXEL, Ask, Refused, Said
from tests.sdk_interactions import check_event, check_interaction


class Client(ABC):
    """One client API.

    Attributes:
        name: as in `server.apis`, or the operation of OpenAI's.
        can: what the API has words for: `tools`, `forced`, `image`, `audio`, `schema`, `stop`,
            `effort`.
    """

    name: ClassVar[str]
    can: ClassVar[frozenset[str]] = frozenset(
        {"tools", "forced", "image", "schema", "stop", "effort", "filter"}
    )

    @abstractmethod
    def ask(self, ask: Ask, *, stream: bool) -> Said:
        """Ask, and put the reply together.

        Raises:
            Refused: an error came instead.
        """

    @abstractmethod
    def begin(self, ask: Ask) -> AbstractContextManager[Iterator[Any]]:
        """A stream, of which the context's value gives the events; leaving it goes away."""


def _raises(*kinds: type[Exception]) -> Callable[..., Any]:
    """Turn an SDK's own exceptions into `Refused`."""

    def decorate(ask: Callable[..., Said]) -> Callable[..., Said]:
        @wraps(ask)
        def asks(*args: Any, **kwargs: Any) -> Said:
            try:
                return ask(*args, **kwargs)
            except kinds as error:
                status = getattr(error, "status_code", None) or getattr(error, "code", 0)
                raise Refused(int(status or 0), str(error)) from error

        return asks

    return decorate


def _validated(value: BaseModel) -> None:
    """Assert that `value` is what its type says: the SDKs themselves take nearly anything."""
    type(value).model_validate(value.model_dump(by_alias=True), strict=False)


def _arguments(text: str) -> dict[str, Any]:
    """A call's arguments; a model that ran out of tokens may have torn them."""
    try:
        arguments = json.loads(text)
    except ValueError:
        return {"torn": text}
    assert isinstance(arguments, dict)
    return arguments


# OpenAI -------------------------------------------------------------------------------------------

STOPS = {"stop": "end", "tool_calls": "calls", "length": "length", "content_filter": "filter"}


INPUT_AUDIO: Any = {"type": "input_audio", "input_audio": {"data": CLIP, "format": "wav"}}
"""As OpenAI has it in chats and in responses."""


class ChatClient(Client):
    name = "chat"
    can = Client.can | {"audio"}

    def __init__(self, url: str) -> None:
        self.sdk = openai.OpenAI(
            base_url=f"{url}/v1/openai/v1", api_key="x", max_retries=0, timeout=60
        )

    @_raises(openai.APIError)
    def ask(self, ask: Ask, *, stream: bool) -> Said:
        if not stream:
            reply = self.sdk.chat.completions.create(**self._body(ask))
            _validated(reply)
            return self._said(reply)
        with self.sdk.chat.completions.stream(
            **self._body(ask), stream_options={"include_usage": True}
        ) as events:
            for event in events:
                if event.type == "chunk":
                    _validated(event.chunk)
            # The final completion is refused to who ran out of tokens; the snapshot is not.
            return self._said(events.current_completion_snapshot)

    @contextmanager
    def begin(self, ask: Ask) -> Iterator[Iterator[Any]]:
        with self.sdk.chat.completions.create(**self._body(ask), stream=True) as events:
            yield iter(events)

    def _body(self, ask: Ask) -> dict[str, Any]:
        content: Any = ask.text
        if ask.image:
            url = {"url": f"data:image/png;base64,{PIXEL}"}
            content = [{"type": "text", "text": ask.text}, {"type": "image_url", "image_url": url}]
        if ask.audio:
            content = [{"type": "text", "text": ask.text}, INPUT_AUDIO]
        body: dict[str, Any] = {
            "model": ask.model,
            "messages": [{"role": "user", "content": content}],
        }
        if ask.max_tokens is not None:
            body["max_completion_tokens"] = ask.max_tokens
        if ask.tools:
            body["tools"] = [{"type": "function", "function": tool} for tool in ask.tools]
        if ask.forced:
            body["tool_choice"] = {"type": "function", "function": {"name": ask.forced}}
        if ask.schema:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "reply", "schema": ask.schema, "strict": True},
            }
        if ask.stop:
            body["stop"] = list(ask.stop)
        if ask.effort:
            body["reasoning_effort"] = ask.effort
        return body

    def _said(self, reply: Any) -> Said:
        (choice,) = reply.choices
        message = choice.message
        return Said(
            text=message.content or "",
            thoughts=getattr(message, "reasoning_content", None) or "",
            calls=[
                (call.function.name, _arguments(call.function.arguments))
                for call in message.tool_calls or ()
            ],
            stop=STOPS[choice.finish_reason],
            tokens=(reply.usage.prompt_tokens, reply.usage.completion_tokens),
        )


class CompletionsClient(Client):
    name = "completions"
    can = frozenset({"stop", "filter"})

    def __init__(self, url: str) -> None:
        self.sdk = openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0, timeout=60)

    @_raises(openai.APIError)
    def ask(self, ask: Ask, *, stream: bool) -> Said:
        if not stream:
            reply = self.sdk.completions.create(**self._body(ask))
            _validated(reply)
            assert reply.usage is not None
            (choice,) = reply.choices
            tokens = (reply.usage.prompt_tokens, reply.usage.completion_tokens)
            return Said(choice.text, stop=STOPS[choice.finish_reason], tokens=tokens)
        chunks = list(
            self.sdk.completions.create(
                **self._body(ask), stream=True, stream_options={"include_usage": True}
            )
        )
        choices = [choice for chunk in chunks for choice in chunk.choices]
        (reason,) = [choice.finish_reason for choice in choices if choice.finish_reason]
        usage = chunks[-1].usage
        assert usage is not None
        return Said(
            "".join(choice.text for choice in choices),
            stop=STOPS[reason],
            tokens=(usage.prompt_tokens, usage.completion_tokens),
        )

    @contextmanager
    def begin(self, ask: Ask) -> Iterator[Iterator[Any]]:
        with self.sdk.completions.create(**self._body(ask), stream=True) as events:
            yield iter(events)

    def _body(self, ask: Ask) -> dict[str, Any]:
        body: dict[str, Any] = {"model": ask.model, "prompt": ask.text}
        if ask.max_tokens is not None:
            body["max_tokens"] = ask.max_tokens
        if ask.stop:
            body["stop"] = list(ask.stop)
        return body


class ResponsesClient(Client):
    name = "responses"
    can = frozenset({"tools", "forced", "image", "audio", "schema", "effort", "filter"})

    def __init__(self, url: str) -> None:
        self.sdk = openai.OpenAI(
            base_url=f"{url}/v1/openai/v1", api_key="x", max_retries=0, timeout=60
        )

    @_raises(openai.APIError)
    def ask(self, ask: Ask, *, stream: bool) -> Said:
        if not stream:
            reply = self.sdk.responses.create(**self._body(ask))
            _validated(reply)
            return self._said(reply)
        last: Any = None
        with self.sdk.responses.stream(**self._body(ask)) as events:
            for number, event in enumerate(events):
                assert event.sequence_number == number
                if event.type == "error":
                    raise Refused(0, str(event))
                last = event
        return self._said(last.response)

    @contextmanager
    def begin(self, ask: Ask) -> Iterator[Iterator[Any]]:
        with self.sdk.responses.create(**self._body(ask), stream=True) as events:
            yield iter(events)

    def _body(self, ask: Ask) -> dict[str, Any]:
        content: list[Any] = [{"type": "input_text", "text": ask.text}]
        if ask.image:
            image = f"data:image/png;base64,{PIXEL}"
            content.append({"type": "input_image", "image_url": image, "detail": "auto"})
        if ask.audio:
            content.append(INPUT_AUDIO)
        body: dict[str, Any] = {
            "model": ask.model,
            "input": [{"role": "user", "content": content}],
            "store": False,
        }
        if ask.max_tokens is not None:
            body["max_output_tokens"] = ask.max_tokens
        if ask.tools:
            body["tools"] = [{"type": "function", "strict": None, **tool} for tool in ask.tools]
        if ask.forced:
            body["tool_choice"] = {"type": "function", "name": ask.forced}
        if ask.schema:
            body["text"] = {
                "format": {
                    "type": "json_schema",
                    "name": "reply",
                    "schema": ask.schema,
                    "strict": True,
                }
            }
        if ask.effort:
            body["reasoning"] = {"effort": ask.effort}
        return body

    def _said(self, reply: Any) -> Said:
        if reply.status == "failed":
            raise Refused(0, str(reply.error))
        calls = [item for item in reply.output if item.type == "function_call"]
        thoughts = [item for item in reply.output if item.type == "reasoning"]
        stop = "calls" if calls else "end"
        if reply.status == "incomplete":
            reason = reply.incomplete_details.reason
            stop = {"max_output_tokens": "length", "content_filter": "filter"}[reason]
        return Said(
            text=reply.output_text,
            thoughts="".join(
                part.text for item in thoughts for part in (item.content or item.summary)
            ),
            calls=[(call.name, _arguments(call.arguments)) for call in calls],
            stop=stop,
            tokens=(reply.usage.input_tokens, reply.usage.output_tokens),
        )


# Anthropic ----------------------------------------------------------------------------------------


class MessagesClient(Client):
    name = "messages"

    def __init__(self, url: str) -> None:
        self.sdk = anthropic.Anthropic(base_url=url, api_key="x", max_retries=0, timeout=60)

    @_raises(anthropic.APIError)
    def ask(self, ask: Ask, *, stream: bool) -> Said:
        if not stream:
            reply = self.sdk.messages.create(**self._body(ask))
            _validated(reply)
            return self._said(reply)
        with self.sdk.messages.stream(**self._body(ask)) as events:
            for event in events:
                _validated(event)
            return self._said(events.get_final_message())

    @contextmanager
    def begin(self, ask: Ask) -> Iterator[Iterator[Any]]:
        with self.sdk.messages.create(**self._body(ask), stream=True) as events:
            yield iter(events)

    def _body(self, ask: Ask) -> dict[str, Any]:
        content: list[Any] = [{"type": "text", "text": ask.text}]
        if ask.image:
            source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
            content.append({"type": "image", "source": source})
        body: dict[str, Any] = {
            "model": ask.model,
            "messages": [{"role": "user", "content": content}],
            "max_tokens": ask.max_tokens or 4096,
        }
        if ask.tools:
            body["tools"] = [
                {
                    "name": tool["name"],
                    "description": tool["description"],
                    "input_schema": tool["parameters"],
                }
                for tool in ask.tools
            ]
        if ask.forced:
            body["tool_choice"] = {"type": "tool", "name": ask.forced}
        config: dict[str, Any] = {}
        if ask.schema:
            config["format"] = {"type": "json_schema", "schema": ask.schema}
        if ask.effort:
            body["thinking"] = {"type": "adaptive"}
            config["effort"] = ask.effort
        if config:
            body["output_config"] = config
        if ask.stop:
            body["stop_sequences"] = list(ask.stop)
        return body

    def _said(self, reply: Any) -> Said:
        usage = reply.usage
        read = (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
        stops = {
            "end_turn": "end",
            "stop_sequence": "end",
            "tool_use": "calls",
            "max_tokens": "length",
            "refusal": "filter",
        }
        said = Said(stop=stops[reply.stop_reason])
        said.tokens = (usage.input_tokens + read, usage.output_tokens)
        for block in reply.content:
            if block.type == "text":
                said.text += block.text
            elif block.type == "thinking":
                said.thoughts += block.thinking
            elif block.type == "tool_use":
                said.calls.append((block.name, dict(block.input)))
        return said


# Ollama -------------------------------------------------------------------------------------------


class OllamaClient(Client):
    name = "ollama"
    can = frozenset({"tools", "image", "schema", "stop", "effort"})

    def __init__(self, url: str) -> None:
        self.sdk = ollama.Client(url, timeout=60)

    @_raises(ollama.ResponseError)
    def ask(self, ask: Ask, *, stream: bool) -> Said:
        said = Said()
        replies = (
            self.sdk.chat(**self._body(ask), stream=True)
            if stream
            else [self.sdk.chat(**self._body(ask))]
        )
        for reply in replies:
            message = reply.message
            said.text += message.content or ""
            said.thoughts += message.thinking or ""
            for call in message.tool_calls or ():
                said.calls.append((call.function.name, dict(call.function.arguments)))
            if reply.done:
                reasons = {"stop": "end", "length": "length", "content_filter": "filter"}
                said.stop = reasons[str(reply.done_reason)]
                said.tokens = (reply.prompt_eval_count or 0, reply.eval_count or 0)
        if said.calls and said.stop == "end":
            said.stop = "calls"  # Ollama has no other word for it
        return said

    @contextmanager
    def begin(self, ask: Ask) -> Iterator[Iterator[Any]]:
        events = self.sdk.chat(**self._body(ask), stream=True)
        try:
            yield iter(events)
        finally:
            events.close()  # type: ignore[attr-defined]

    def _body(self, ask: Ask) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "user", "content": ask.text}
        if ask.image:
            message["images"] = [PIXEL]
        options: dict[str, Any] = {}
        if ask.max_tokens is not None:
            options["num_predict"] = ask.max_tokens
        if ask.stop:
            options["stop"] = list(ask.stop)
        body: dict[str, Any] = {"model": ask.model, "messages": [message], "options": options}
        if ask.tools:
            body["tools"] = [{"type": "function", "function": tool} for tool in ask.tools]
        if ask.schema:
            body["format"] = ask.schema
        if ask.effort:
            body["think"] = ask.effort
        return body


# Gemini -------------------------------------------------------------------------------------------


class GeminiClient(Client):
    name = "gemini"
    can = Client.can | {"audio"}

    def __init__(self, url: str) -> None:
        self.sdk = genai.Client(
            api_key="x", http_options=genai_types.HttpOptions(base_url=url, timeout=60_000)
        )

    @_raises(genai_errors.APIError)
    def ask(self, ask: Ask, *, stream: bool) -> Said:
        said = Said()
        options = self._options(ask)
        replies = (
            self.sdk.models.generate_content_stream(**options)
            if stream
            else [self.sdk.models.generate_content(**options)]
        )
        for reply in replies:
            for candidate in (reply.candidates or ())[:1]:
                parts = (candidate.content.parts or ()) if candidate.content else ()
                for part in parts:
                    if part.function_call is not None:
                        call = part.function_call
                        said.calls.append((str(call.name), dict(call.args or {})))
                    elif part.thought:
                        said.thoughts += part.text or ""
                    else:
                        said.text += part.text or ""
                if candidate.finish_reason is not None:
                    stops = {
                        "STOP": "end",
                        "MAX_TOKENS": "length",
                        "SAFETY": "filter",
                        "MALFORMED_FUNCTION_CALL": "length",
                    }
                    said.stop = stops[candidate.finish_reason.name]
            usage = reply.usage_metadata
            if usage is not None:
                thoughts = usage.thoughts_token_count or 0
                said.tokens = (
                    usage.prompt_token_count or 0,
                    (usage.candidates_token_count or 0) + thoughts,
                )
        if said.calls and said.stop == "end":
            said.stop = "calls"  # Gemini has no other word for it
        return said

    @contextmanager
    def begin(self, ask: Ask) -> Iterator[Iterator[Any]]:
        events = self.sdk.models.generate_content_stream(**self._options(ask))
        try:
            yield iter(events)
        finally:
            events.close()  # type: ignore[attr-defined]

    def _options(self, ask: Ask) -> dict[str, Any]:
        parts = [genai_types.Part(text=ask.text)]
        if ask.image:
            parts.append(genai_types.Part.from_bytes(data=b64decode(PIXEL), mime_type="image/png"))
        if ask.audio:
            parts.append(genai_types.Part.from_bytes(data=b64decode(CLIP), mime_type="audio/wav"))
        config: dict[str, Any] = {
            "automatic_function_calling": {"disable": True},
            "max_output_tokens": ask.max_tokens,
        }
        if ask.tools:
            declarations = [
                {
                    "name": tool["name"],
                    "description": tool["description"],
                    "parameters_json_schema": tool["parameters"],
                }
                for tool in ask.tools
            ]
            config["tools"] = [{"function_declarations": declarations}]
        if ask.forced:
            calling = {"mode": "ANY", "allowed_function_names": [ask.forced]}
            config["tool_config"] = {"function_calling_config": calling}
        if ask.schema:
            config["response_mime_type"] = "application/json"
            config["response_json_schema"] = ask.schema
        if ask.stop:
            config["stop_sequences"] = list(ask.stop)
        thinking: dict[str, Any] = {"include_thoughts": True}
        if ask.effort:
            thinking["thinking_level"] = ask.effort.upper()
        config["thinking_config"] = thinking
        return {
            "model": ask.model,
            "contents": [genai_types.Content(role="user", parts=parts)],
            "config": genai_types.GenerateContentConfig.model_validate(config),
        }


class InteractionsClient(Client):
    name = "interactions"
    can = Client.can | {"audio"}

    def __init__(self, url: str) -> None:
        options = genai_types.HttpOptions(
            base_url=url,
            timeout=60_000,
            retry_options=genai_types.HttpRetryOptions(attempts=1),
        )
        self.sdk = genai.Client(api_key="x", http_options=options)

    @_raises(interactions_errors.APIError)
    def ask(self, ask: Ask, *, stream: bool) -> Said:
        if not stream:
            whole = self.sdk.interactions.create(**self._body(ask))
            check_interaction(whole.model_dump(by_alias=True, exclude_unset=True))
            return self._said(whole.steps, whole)
        said, ended = Said(), None
        arguments: dict[int, str] = {}
        for event in self.sdk.interactions.create(**self._body(ask), stream=True):
            check_event(event.model_dump_json(by_alias=True, exclude_unset=True).encode())
            match event.event_type:
                case "error":
                    raise Refused(0, str(event.error))
                case "step.start" if event.step.type == "function_call":
                    arguments[event.index] = ""
                    said.calls.append((event.step.name, {"at": event.index}))
                case "step.delta" if event.delta.type == "text":
                    said.text += event.delta.text
                case "step.delta" if event.delta.type == "thought_summary":
                    said.thoughts += event.delta.content.text
                case "step.delta" if event.delta.type == "arguments_delta":
                    arguments[event.index] += event.delta.arguments
                case "interaction.completed":
                    ended = event.interaction
        assert ended is not None
        said.calls = [(name, _arguments(arguments[at["at"]] or "{}")) for name, at in said.calls]
        return self._ended(said, ended)

    @contextmanager
    def begin(self, ask: Ask) -> Iterator[Iterator[Any]]:
        with self.sdk.interactions.create(**self._body(ask), stream=True) as events:
            yield iter(events)

    def _said(self, steps: Any, ended: Any) -> Said:
        said = Said()
        for step in steps or ():
            if step.type == "model_output":
                said.text += "".join(each.text for each in step.content or ())
            elif step.type == "thought":
                said.thoughts += "".join(each.text for each in step.summary or ())
            elif step.type == "function_call":
                said.calls.append((step.name, dict(step.arguments)))
        return self._ended(said, ended)

    def _ended(self, said: Said, ended: Any) -> Said:
        blocked = any(error["code"] == "content_blocked" for error in _errors(ended))
        stops = {"completed": "end", "requires_action": "calls", "incomplete": "length"}
        said.stop = "filter" if blocked else stops[ended.status]
        usage = ended.usage
        said.tokens = (
            usage.total_input_tokens,
            usage.total_output_tokens + (usage.total_thought_tokens or 0),
        )
        return said

    def _body(self, ask: Ask) -> dict[str, Any]:
        content: list[Any] = [{"type": "text", "text": ask.text}]
        if ask.image:
            content.append({"type": "image", "data": PIXEL, "mime_type": "image/png"})
        if ask.audio:
            content.append({"type": "audio", "data": CLIP, "mime_type": "audio/wav"})
        config: dict[str, Any] = {"thinking_summaries": "auto"}
        if ask.max_tokens is not None:
            config["max_output_tokens"] = ask.max_tokens
        if ask.forced:
            config["tool_choice"] = {"allowed_tools": {"mode": "any", "tools": [ask.forced]}}
        if ask.stop:
            config["stop_sequences"] = list(ask.stop)
        if ask.effort:
            config["thinking_level"] = ask.effort
        body: dict[str, Any] = {
            "model": ask.model,
            "input": [{"type": "user_input", "content": content}],
            "generation_config": config,
            "store": False,
        }
        if ask.tools:
            body["tools"] = [{"type": "function", **tool} for tool in ask.tools]
        if ask.schema:
            body["response_format"] = {
                "type": "text",
                "mime_type": "application/json",
                "schema": ask.schema,
            }
        return body


def _errors(interaction: Any) -> list[dict[str, Any]]:
    """What an interaction says went wrong; the SDK's event has no member for it."""
    told = interaction.model_dump(exclude_none=True).get("errors")
    return list(told or ())


CLIENTS: dict[str, type[Client]] = {
    client.name: client
    for client in (
        ChatClient,
        CompletionsClient,
        ResponsesClient,
        MessagesClient,
        OllamaClient,
        GeminiClient,
        InteractionsClient,
    )
}
