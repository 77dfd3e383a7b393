"""`POST /responses/compact`: a conversation as its user messages and the model's summary of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from llama_compat.dialects.base import UNKNOWN, Labels, StreamRenderer
from llama_compat.dialects.choices import SingleChoice
from llama_compat.dialects.openai_responses.input.items import described_items, unsupported_items
from llama_compat.dialects.openai_responses.input.requests import (
    parse_messages,
    refuse_absent,
)
from llama_compat.dialects.openai_responses.keeping import Keeping
from llama_compat.dialects.openai_responses.output.response_object import render_usage
from llama_compat.dialects.openai_responses.sealed import Summary, seal
from llama_compat.errors import APIError, upstream_error
from llama_compat.types import (
    AudioContent,
    ChatCompletionRequest,
    ChatCompletionResponse,
    CompletionMessage,
    Content,
    ContentPart,
    DocumentContent,
    ImageContent,
    Message,
    SystemMessage,
    ToolResponseMessage,
    Usage,
    UserMessage,
    content_text,
)
from llama_compat.wire.json_fields import encode_json

TASK = (
    "You are given the record of a conversation between a user and an assistant. Write a summary"
    " from which the assistant can go on with the work as if it had the record: what the user"
    " wants, every decision, fact, name, number and file that matters, what has been done with what"
    " result, and what is still to do. Answer with the summary alone."
)

_KNOWN = frozenset(
    {
        "model",
        "input",
        "instructions",
        "previous_response_id",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "service_tier",
        "stream",
    }
)


class CompactCall(SingleChoice, frozen=True):
    """One request as it came: what to summarise, and the user messages that are kept."""

    items: Sequence[Mapping[str, Any]] = ()

    def render_reply(
        self, responses: Sequence[ChatCompletionResponse], usage: Usage, labels: Labels
    ) -> bytes:
        """The `response.compaction` object.

        Raises:
            APIError: 502, the model said nothing.
        """
        summary = content_text(responses[0].completion_message.content).strip()
        if not summary:
            raise upstream_error(self.request.model, "the model gave no summary.")
        compaction = {
            "id": f"cmp_{labels.unique}",
            "type": "compaction",
            "encrypted_content": seal(Summary(summary)),
        }
        return encode_json(
            {
                "id": f"resp_{labels.unique}",
                "object": "response.compaction",
                "created_at": labels.created,
                "output": [*_user_messages(self.items, labels.unique), compaction],
                "usage": render_usage(usage),
            }
        )

    def stream_renderer(self, labels: Labels) -> StreamRenderer:
        """There is none: `look` refuses a stream."""
        raise NotImplementedError


def parse_compact(
    body: Mapping[str, Any], model: str, *, keeping: Keeping | None = None
) -> CompactCall:
    """The request `body` for the provider's `model`.

    Raises:
        APIError: 400 naming what is malformed.
    """
    refuse_absent(body, is_kept=keeping is not None)
    messages = parse_messages(body, keeping)
    value = body.get("input")
    items = [{"role": "user", "content": value}] if isinstance(value, str) else value or []
    request = ChatCompletionRequest(
        model=model,
        messages=(SystemMessage(TASK), UserMessage("\n\n".join(_record(messages)))),
        stream=False,
    )
    return CompactCall(request, [*(keeping.earlier if keeping is not None else ()), *items])


def parameters(body: Mapping[str, Any]) -> Mapping[str, str]:
    """The members that ask something nobody here can honour."""
    unknown = [name for name, value in body.items() if name not in _KNOWN and value is not None]
    return dict.fromkeys((*unknown, *unsupported_items(body.get("input"))), UNKNOWN)


def _user_messages(items: Iterable[Mapping[str, Any]], unique: str) -> list[dict[str, Any]]:
    kept = [item for item in items if item.get("role") == "user"]
    return [{"status": "completed", **item} for item in described_items(kept, unique)]


def _record(messages: Iterable[Message]) -> Iterator[str]:
    """The conversation as text: a model that is offered no tools may be shown no calls."""
    for message in messages:
        match message:
            case SystemMessage(content):
                yield f"[instructions]\n{_text(content)}"
            case UserMessage(content):
                yield f"[user]\n{_text(content)}"
            case ToolResponseMessage(call_id, content):
                yield f"[result of {call_id}]\n{_text(content)}"
            case CompletionMessage():
                if message.content:
                    yield f"[assistant]\n{_text(message.content)}"
                for call in message.tool_calls:
                    called = f"{call.tool_name}, {call.call_id}"
                    yield f"[assistant calls {called}]\n{call.arguments_json}"


def _text(content: Content) -> str:
    if isinstance(content, str):
        return content
    return "".join(_word(part) for part in content)


def _word(part: ContentPart) -> str:
    match part:
        case ImageContent():
            return "[image]"
        case AudioContent():
            return "[audio]"
        case DocumentContent(name=name):
            return f"[document: {name}]" if name else "[document]"
    return part.text


def no_stream(stream: bool) -> None:
    """Refuse a stream of what comes whole.

    Raises:
        APIError: 400.
    """
    if stream:
        raise APIError(
            400,
            "'stream' is not there for this call: its reply comes whole.",
            param="stream",
            code="unsupported_parameter",
        )
