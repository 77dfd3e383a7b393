"""The items of a request's `input`: wire -> vocabulary.

What the model says comes as one item a message, a thought, a call; here all of one turn is one
message again, and the answers to its calls stand behind it, wherever the client put them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import structs

from llama_compat.dialects.members import (
    as_list,
    as_object,
    optional_text_in,
    text_in,
)
from llama_compat.dialects.openai.chat.content import parse_input_audio, unknown_file
from llama_compat.dialects.openai_responses.input.hosted import (
    call_result,
    is_beside,
    parse_server_call,
)
from llama_compat.dialects.openai_responses.input.tools import model_name
from llama_compat.dialects.openai_responses.keeping import HOW_TO_KEEP
from llama_compat.dialects.openai_responses.sealed import CallSeal, Summary, unseal
from llama_compat.errors import APIError, invalid_parameter, missing_parameter
from llama_compat.media.documents import document_at, document_in
from llama_compat.tools.calls import parse_tool_call
from llama_compat.tools.custom_tools import wrap
from llama_compat.types import (
    CompletionMessage,
    Content,
    ContentPart,
    DocumentContent,
    ImageContent,
    Message,
    MessagePart,
    ReasoningContent,
    RefusalContent,
    SystemMessage,
    TextContent,
    ToolCall,
    ToolResponseMessage,
    UserMessage,
)

SUMMARY_INTRODUCTION = "Summary of the conversation up to here:\n\n"


def parse_input(
    value: Any,
    *,
    earlier: Sequence[Mapping[str, Any]] = (),
    references: Mapping[str, Mapping[str, Any]] | None = None,
) -> tuple[Message, ...]:
    """The messages of `input`; items of `unsupported_items` are left out.

    Args:
        value: text, or items.
        earlier: items that go before them.
        references: the items that `item_reference` may name, by id.

    Raises:
        APIError: 400 with the path of what is malformed, such as `input[2].content[0]`.
    """
    conversation = _Conversation(references)
    for item in earlier:
        conversation.add(item, "previous_response_id")
    if isinstance(value, str):
        conversation.add({"role": "user", "content": value}, "input")
    else:
        for index, item in enumerate(as_list(value, "input")):
            path = f"input[{index}]"
            conversation.add(as_object(item, path), path)
    messages = conversation.messages()
    if not messages:
        raise missing_parameter("input")
    return messages


def item_type(item: Mapping[str, Any]) -> str:
    """The type of an item, which a message and a reference may leave out."""
    kind = item.get("type")
    if isinstance(kind, str):
        return kind
    return "message" if "role" in item else "item_reference"


def unsupported_items(value: Any) -> Iterator[str]:
    """The paths of items that say nothing to another model, their type after their place: the work
    of tools that OpenAI hosts, and what another server compacted."""
    for index, item in enumerate(value if isinstance(value, list) else ()):
        if isinstance(item, dict):
            kind = item_type(item)
            if (
                kind not in _KINDS
                or kind in _HOSTED
                or (kind == "compaction" and _summary(item) is None)
            ):
                yield f"input[{index}].{kind}"


class _Turn:
    """What the model said in one go, and the answers to its calls."""

    def __init__(self) -> None:
        self.parts: list[MessagePart] = []
        self.answers: list[ToolResponseMessage] = []


class _Conversation:
    """Items in, messages out."""

    def __init__(self, references: Mapping[str, Mapping[str, Any]] | None) -> None:
        self._references = references
        self._entries: list[_Turn | Message] = []
        self._open: _Turn | None = None
        self._calls: dict[str, tuple[_Turn, int]] = {}
        self._waiting: dict[str, _Turn] = {}
        self._approved: set[str] = set()
        self._called: _Turn | None = None

    def add(self, item: Mapping[str, Any], path: str) -> None:
        add = _KINDS.get(item_type(item))
        if add is not None:
            called, self._called = self._called, None
            if is_beside(item):
                self._open = self._open or called
            add(self, item, path)

    def messages(self) -> tuple[Message, ...]:
        for call_id, turn in self._waiting.items():
            if call_id not in self._approved:
                told = "The user has not let this call be made."
                turn.answers.append(ToolResponseMessage(call_id, told, is_error=True))
        messages: list[Message] = []
        for entry in self._entries:
            if isinstance(entry, _Turn):
                messages.append(CompletionMessage(tuple(entry.parts)))
                messages.extend(entry.answers)
            else:
                messages.append(entry)
        return tuple(messages)

    def add_message(self, item: Mapping[str, Any], path: str) -> None:
        content, at = item.get("content"), f"{path}.content"
        match item.get("role"):
            case "user":
                self._say(UserMessage(parse_content(content, at)))
            case "system" | "developer":
                # Only OpenAI's own models know the two apart, and not every vendor takes the newer.
                self._say(SystemMessage(parse_content(content, at)))
            case "assistant":
                self._turn().parts.extend(_said(content, at))
            case None:
                raise missing_parameter(f"{path}.role")
            case role:
                raise invalid_parameter(
                    f"{path}.role",
                    f"Invalid value: {role!r}. Supported values are: 'user', 'system', 'developer'"
                    " and 'assistant'.",
                )

    def add_reasoning(self, item: Mapping[str, Any], path: str) -> None:
        sealed = optional_text_in(item, "encrypted_content", path)
        own = None if sealed is None else unseal(sealed)
        if isinstance(own, CallSeal):
            self._seal_call(own)
        elif isinstance(own, ReasoningContent):
            self._turn().parts.append(own)
        else:
            texts = [
                text_in(as_object(part, f"{path}.content"), "text", f"{path}.content")
                for part in as_list(item.get("content"), f"{path}.content")
            ]
            if text := "".join(texts):
                self._turn().parts.append(ReasoningContent(text))

    def add_call(self, item: Mapping[str, Any], path: str) -> None:
        self._call(item, path, text_in(item, "arguments", path))

    def add_custom_call(self, item: Mapping[str, Any], path: str) -> None:
        self._call(item, path, wrap(text_in(item, "input", path)))

    def add_answer(self, item: Mapping[str, Any], path: str) -> None:
        call_id = text_in(item, "call_id", path)
        called = self._calls.get(call_id)
        if called is None:
            raise invalid_parameter(
                f"{path}.call_id", f"No call with the id '{call_id}' comes before its output."
            )
        if item.get("output") is None:
            raise missing_parameter(f"{path}.output")
        output = parse_content(item.get("output"), f"{path}.output")
        turn = called[0]
        turn.answers.append(ToolResponseMessage(call_id, output))
        if turn is self._open:
            self._open = None

    def add_reference(self, item: Mapping[str, Any], path: str) -> None:
        item_id = text_in(item, "id", path)
        if self._references is None:
            raise invalid_parameter(f"{path}.id", f"Item '{item_id}' is not known. {HOW_TO_KEEP}")
        found = self._references.get(item_id)
        if found is None:
            raise invalid_parameter(
                f"{path}.id", f"Item '{item_id}' is not among the stored ones.", "item_not_found"
            )
        self.add(found, path)

    def add_compaction(self, item: Mapping[str, Any], path: str) -> None:
        summary = _summary(item)
        if summary is not None:
            self._say(UserMessage(SUMMARY_INTRODUCTION + summary.text))

    def add_hosted_call(self, item: Mapping[str, Any], path: str) -> None:
        """A call of a server's tool, with what it gave."""
        call_id, (told, failed) = text_in(item, "id", path), call_result(item)
        asked = optional_text_in(item, "approval_request_id", path)
        if asked is not None and asked in self._waiting:
            self._waiting.pop(asked).answers.append(ToolResponseMessage(asked, told, failed))
            self._open = None
            return
        turn = self._turn()
        turn.parts.append(parse_server_call(item, path))
        turn.answers.append(ToolResponseMessage(call_id, told, failed))
        self._open, self._called = None, turn

    def add_approval_request(self, item: Mapping[str, Any], path: str) -> None:
        """A call that waits for the user's word; what it gave comes when it has been run."""
        call_id = text_in(item, "id", path)
        turn = self._turn()
        self._waiting[call_id] = turn
        turn.parts.append(parse_server_call(item, path))

    def add_approval(self, item: Mapping[str, Any], path: str) -> None:
        """The user's word: a call that is let run has its result from there."""
        call_id = text_in(item, "approval_request_id", path)
        turn = self._waiting.get(call_id)
        if turn is None:
            raise invalid_parameter(
                f"{path}.approval_request_id",
                f"No request for approval with the id '{call_id}' comes before the answer to it.",
            )
        if item.get("approve") is not True:
            why = optional_text_in(item, "reason", path)
            told = "The user did not let this call be made." + (f" Why: {why}" if why else "")
            self._waiting.pop(call_id).answers.append(
                ToolResponseMessage(call_id, told, is_error=True)
            )
        else:
            self._approved.add(call_id)
        self._open = None

    def add_nothing(self, item: Mapping[str, Any], path: str) -> None:
        """For an item that is read elsewhere."""

    def _call(self, item: Mapping[str, Any], path: str, arguments: str) -> None:
        call_id = text_in(item, "call_id", path)
        name = model_name(text_in(item, "name", path), optional_text_in(item, "namespace", path))
        turn = self._turn()
        self._calls[call_id] = (turn, len(turn.parts))
        turn.parts.append(parse_tool_call(call_id, name, arguments))

    def _seal_call(self, sealed: CallSeal) -> None:
        turn, place = self._calls.get(sealed.call_id, (None, 0))
        call = None if turn is None else turn.parts[place]
        if turn is not None and isinstance(call, ToolCall):
            turn.parts[place] = structs.replace(call, thought_signature=sealed.thought_signature)

    def _turn(self) -> _Turn:
        if self._open is None:
            self._open = _Turn()
            self._entries.append(self._open)
        return self._open

    def _say(self, message: Message) -> None:
        self._open = None
        self._entries.append(message)


_KINDS = {
    "message": _Conversation.add_message,
    "reasoning": _Conversation.add_reasoning,
    "function_call": _Conversation.add_call,
    "custom_tool_call": _Conversation.add_custom_call,
    "function_call_output": _Conversation.add_answer,
    "custom_tool_call_output": _Conversation.add_answer,
    "item_reference": _Conversation.add_reference,
    "compaction": _Conversation.add_compaction,
    "additional_tools": _Conversation.add_nothing,
    # What a search has found is in what the model said of it.
    "web_search_call": _Conversation.add_nothing,
    "file_search_call": _Conversation.add_nothing,
    "mcp_list_tools": _Conversation.add_nothing,
    "mcp_call": _Conversation.add_hosted_call,
    "mcp_approval_request": _Conversation.add_approval_request,
    "mcp_approval_response": _Conversation.add_approval,
}

_HOSTED = frozenset(
    kind for kind in _KINDS if kind.startswith(("web_search_", "file_search_", "mcp_"))
)
"""Items of tools that a server runs, which is asked for with them."""


def _summary(item: Mapping[str, Any]) -> Summary | None:
    sealed = item.get("encrypted_content")
    own = unseal(sealed) if isinstance(sealed, str) else None
    return own if isinstance(own, Summary) else None


def parse_content(value: Any, path: str) -> Content:
    """Text, or parts; a single text part is its text.

    Raises:
        APIError: 400 with the path of what is malformed or of another kind.
    """
    if value is None:
        raise missing_parameter(path)
    if isinstance(value, str):
        return value
    parts = tuple(
        _parse_part(as_object(part, f"{path}[{index}]"), f"{path}[{index}]")
        for index, part in enumerate(as_list(value, path))
    )
    if not parts:
        return ""
    first = parts[0]
    return first.text if len(parts) == 1 and isinstance(first, TextContent) else parts


def _parse_part(part: Mapping[str, Any], path: str) -> ContentPart:
    match part.get("type"):
        case "input_text" | "output_text" | "text":
            return TextContent(text_in(part, "text", path))
        case "input_image":
            url = optional_text_in(part, "image_url", path)
            if url is None:
                raise invalid_parameter(
                    f"{path}.image_url",
                    f"'{path}' needs 'image_url', an http(s) or data URL, or a 'file_id' of a file"
                    " that is here.",
                )
            detail = optional_text_in(part, "detail", path)
            # The vocabulary has no word for all of an image's own pixels.
            return ImageContent(url, "high" if detail == "original" else detail)
        case "input_audio":
            return parse_input_audio(part, path)
        case "input_file":
            return _parse_file(part, path)
        case kind:
            known = "'input_text', 'input_image', 'input_audio' and 'input_file'"
            raise _unknown_part(kind, path, known)


def _parse_file(part: Mapping[str, Any], path: str) -> DocumentContent | TextContent:
    name = optional_text_in(part, "filename", path)
    if (data := optional_text_in(part, "file_data", path)) is not None:
        return document_in(data, name, f"{path}.file_data")
    if (url := optional_text_in(part, "file_url", path)) is not None:
        return document_at(url, name, f"{path}.file_url")
    raise unknown_file(text_in(part, "file_id", path), f"{path}.file_id")


def _said(value: Any, path: str) -> Iterator[MessagePart]:
    if isinstance(value, str):
        yield TextContent(value)
        return
    if value is None:
        raise missing_parameter(path)
    for index, each in enumerate(as_list(value, path)):
        at = f"{path}[{index}]"
        part = as_object(each, at)
        match part.get("type"):
            case "output_text" | "input_text" | "text":
                yield TextContent(text_in(part, "text", at))
            case "refusal":
                yield RefusalContent(text_in(part, "refusal", at))
            case kind:
                raise _unknown_part(kind, at, "'output_text' and 'refusal'")


def _unknown_part(kind: Any, path: str, known: str) -> APIError:
    return invalid_parameter(
        f"{path}.type",
        f"Invalid value: {kind!r}. This model's provider takes content parts of the types {known}.",
    )


def described_items(value: Any, unique: str) -> list[dict[str, Any]]:
    """The items of `input` as a list of them shows them: each with an id and in its full form."""
    items = [{"role": "user", "content": value}] if isinstance(value, str) else value or []
    return [_described(item, f"{unique}{index:04x}") for index, item in enumerate(items)]


_ID_PREFIXES = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "reasoning": "rs",
    "compaction": "cmp",
}


def _described(item: Mapping[str, Any], unique: str) -> dict[str, Any]:
    kind = item_type(item)
    if kind == "item_reference":
        return {**item, "type": kind}
    described = {
        "id": f"{_ID_PREFIXES.get(kind, 'item')}_{unique}",
        "type": kind,
        **{name: value for name, value in item.items() if value is not None and name != "id"},
    }
    if isinstance(item.get("id"), str):
        described["id"] = item["id"]
    if kind != "message":
        return described
    text_type = "output_text" if item.get("role") == "assistant" else "input_text"
    if isinstance(item.get("content"), str):
        described["content"] = [{"type": text_type, "text": item["content"]}]
    parts = described.get("content")
    if isinstance(parts, list):
        described["content"] = [_described_part(part) for part in parts]
    return {"status": "completed", **described}


def _described_part(part: Any) -> Any:
    match part:
        case {"type": "output_text"}:
            return {"annotations": [], "logprobs": [], **part}
        case {"type": "input_image"}:
            return {"detail": "auto", **part}
    return part
