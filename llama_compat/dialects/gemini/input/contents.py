"""The contents of a client's request: wire -> vocabulary (https://ai.google.dev/api/caching#Content).

A text with a `thoughtSignature` is two parts here: the text, and a redacted thought that is nothing
but the seal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import structs

from llama_compat.dialects.gemini.members import list_in, member, object_in, text_in
from llama_compat.dialects.gemini.seals import ANY_SIGNATURE, FAMILY, parse_seal
from llama_compat.dialects.members import optional_text_in
from llama_compat.errors import APIError, invalid_parameter, missing_parameter
from llama_compat.media.audio import audio_of
from llama_compat.media.documents import PDF, document_at, document_of, is_text, seen_parts
from llama_compat.media.encoded import EncodedFile
from llama_compat.media.images import is_remote
from llama_compat.tools.answers import UnansweredCalls
from llama_compat.tools.calls import arguments_text, call_id_at, parse_tool_call
from llama_compat.types import (
    AnyToolCall,
    CompletionMessage,
    Content,
    ContentPart,
    DocumentContent,
    ImageContent,
    Message,
    MessagePart,
    ReasoningContent,
    SystemMessage,
    TextContent,
    ToolCall,
    ToolResponseMessage,
    UserMessage,
)
from llama_compat.wire.json_fields import to_raw

_USER_ROLES = frozenset({"user", "function", "tool"})

_GOOGLES_FILES = ("https://generativelanguage.googleapis.com/", "https://www.youtube.com/")
"""Addresses that are no file's, but mean something to Google alone."""

_VENDORS = ("toolCall", "toolResponse")
"""Parts of tools that Google has run, of which another model is told nothing: what was found is in
what the model said of it."""

_STANDARD_ALPHABET = str.maketrans("-_", "+/")


def parse_contents(value: Any, path: str = "contents") -> tuple[Message, ...]:
    """The `contents` of a request.

    Raises:
        APIError: 400 with the path of what is malformed, such as `contents[0].parts[1]`.
    """
    contents = list_in(value, path)
    if not contents:
        raise missing_parameter(path)
    unanswered = UnansweredCalls()
    messages: list[Message] = []
    said = _Said()
    for index, each in enumerate(contents):
        where = f"{path}[{index}]"
        content = object_in(each, where)
        parts = _parts(content, where)
        role = optional_text_in(content, "role", where) or "user"
        if role == "model":
            said.add(_parse_model(parts, unanswered))
            continue
        if role not in _USER_ROLES:
            raise invalid_parameter(
                f"{where}.role", f"Invalid value: {role!r}. The roles are 'user' and 'model'."
            )
        messages.extend(said.take())
        messages.extend(_parse_user(parts, unanswered))
    return (*messages, *said.take())


def parse_system(value: Any, path: str = "systemInstruction") -> tuple[Message, ...]:
    """The `systemInstruction` of a request, if it has one.

    Raises:
        APIError: 400, it is more than text, or malformed.
    """
    if value is None:
        return ()
    parts = _parts(object_in(value, path), path)
    texts = tuple(_parse_shown(part, where) for where, part in parts)
    if not all(isinstance(text, TextContent) for text in texts):
        raise invalid_parameter(path, f"'{path}' can hold text only.")
    return (SystemMessage(_content(texts)),)


def parse_text(value: Any, path: str) -> str:
    """The text of a content to embed.

    Raises:
        APIError: 400, it is more than text, or malformed, or empty.
    """
    parts = _parts(object_in(value, path), path)
    shown = [_parse_shown(part, where) for where, part in parts]
    texts = [part.text for part in shown if isinstance(part, TextContent)]
    if len(texts) < len(shown):
        raise invalid_parameter(path, f"'{path}' must be text here.")
    if not any(texts):
        raise invalid_parameter(path, f"'{path}' is empty.")
    return "".join(texts)


_Parts = Sequence[tuple[str, Mapping[str, Any]]]


def _parts(content: Mapping[str, Any], path: str) -> _Parts:
    parts = list_in(content.get("parts"), f"{path}.parts")
    paths = [f"{path}.parts[{index}]" for index in range(len(parts))]
    return [
        (where, {"text": part} if isinstance(part, str) else object_in(part, where))
        for where, part in zip(paths, parts, strict=True)
    ]


def _content(parts: Sequence[ContentPart]) -> Content:
    match parts:
        case [TextContent(text)]:
            return text
    return tuple(parts) if parts else ""


# What the user says, and tools --------------------------------------------------------------------


def _parse_user(parts: _Parts, unanswered: UnansweredCalls) -> Iterator[Message]:
    shown: list[ContentPart] = []
    for path, part in parts:
        response = member(part, "functionResponse")
        if response is None:
            shown.append(_parse_shown(part, path))
            continue
        if shown:
            yield UserMessage(_content(shown))
            shown = []
        where = f"{path}.functionResponse"
        yield _parse_response(object_in(response, where), where, unanswered)
    if shown or not parts:
        yield UserMessage(_content(shown))


def _parse_shown(part: Mapping[str, Any], path: str) -> ContentPart:
    if (data := member(part, "inlineData")) is not None:
        return _parse_inline_data(object_in(data, f"{path}.inlineData"), f"{path}.inlineData")
    if (file := member(part, "fileData")) is not None:
        return _parse_file_data(object_in(file, f"{path}.fileData"), f"{path}.fileData")
    text = text_in(part, "text", path)
    if text is None:
        raise _unknown_part(part, path)
    return TextContent(text)


def _unknown_part(part: Mapping[str, Any], path: str) -> APIError:
    named = ", ".join(repr(name) for name in list(part)[:5]) or "nothing"
    return invalid_parameter(
        path,
        f"'{path}' holds {named}. This model's provider takes the parts 'text', 'inlineData',"
        " 'fileData', 'functionCall' and 'functionResponse'.",
    )


def _parse_inline_data(data: Mapping[str, Any], path: str) -> ContentPart:
    media_type, encoded = text_in(data, "mimeType", path), text_in(data, "data", path)
    name = text_in(data, "displayName", path)
    return parse_inline(media_type or "", encoded, f"{path}.mimeType", f"{path}.data", name)


def _parse_file_data(file: Mapping[str, Any], path: str) -> ImageContent | DocumentContent:
    uri, media_type = text_in(file, "fileUri", path), text_in(file, "mimeType", path)
    where, name = f"{path}.fileUri", text_in(file, "displayName", path)
    return parse_file(uri or "", media_type or "image/*", where, inline="inlineData", name=name)


def parse_inline(
    media_type: str,
    encoded: str | None,
    type_path: str,
    data_path: str,
    name: str | None = None,
) -> ContentPart:
    """The image, the audio or the document that is `encoded`; `name` is that of its file.

    Raises:
        APIError: 400 naming `type_path` or `data_path`, it is none.
    """
    if not encoded:
        raise missing_parameter(data_path)
    # Google takes both of the alphabets of base64, and its own clients write the other one.
    if media_type.startswith("image/"):
        return ImageContent(EncodedFile(media_type, _standard(encoded)).data_url)
    if media_type.lower().startswith("audio/"):
        return audio_of(media_type, _standard(encoded))
    if media_type.lower() == PDF or is_text(media_type.lower()):
        return document_of(media_type, _standard(encoded), name, data_path)
    raise invalid_parameter(
        type_path,
        f"Invalid value: {media_type!r}. This model's provider takes images, audio, PDFs and text"
        " only.",
    )


def _standard(encoded: str) -> str:
    standard = encoded.translate(_STANDARD_ALPHABET)
    return standard + "=" * (-len(standard) % 4)


def parse_file(
    uri: str, media_type: str, path: str, *, inline: str, name: str | None = None
) -> ImageContent | DocumentContent:
    """The image or the document at `uri`.

    Args:
        uri: its address.
        media_type: what it is, or may be.
        path: where the address stands.
        inline: where the file may stand itself.
        name: what it is called.

    Raises:
        APIError: 400 naming `path`, it is none that can be fetched.
    """
    is_open = is_remote(uri) and not uri.startswith(_GOOGLES_FILES)
    if media_type.startswith("image/") and (is_open or uri.startswith("data:image/")):
        return ImageContent(uri)
    if media_type.lower() == PDF and is_open:
        return document_at(uri, name, path)
    raise invalid_parameter(
        path,
        f"Invalid value: '{uri[:60]}'. This server keeps no files, and of others it takes images"
        f" and PDFs with an http(s) address; send the file as '{inline}'.",
    )


def _parse_response(
    response: Mapping[str, Any], path: str, unanswered: UnansweredCalls
) -> ToolResponseMessage:
    call_id = text_in(response, "id", path)
    name = text_in(response, "name", path)
    said = object_in(member(response, "response") or {}, f"{path}.response")
    text, is_error = _response_text(said)
    parts = list_in(response.get("parts"), f"{path}.parts")
    images = [
        _parse_shown(object_in(part, f"{path}.parts[{index}]"), f"{path}.parts[{index}]")
        for index, part in enumerate(parts)
    ]
    content = (*([TextContent(text)] if text else []), *images) if images else text
    return ToolResponseMessage(unanswered.answer(call_id, name), content, is_error)


def _response_text(response: Mapping[str, Any]) -> tuple[str, bool]:
    """What the tool says, and whether it says that it failed.

    The members `output` and `error` are what it says; where it has others, all of it is.
    """
    if len(response) == 1:
        ((name, value),) = response.items()
        if name in ("output", "error", "result"):
            text = value if isinstance(value, str) else bytes(to_raw(value)).decode()
            return text, name == "error"
    return bytes(to_raw(response)).decode(), "error" in response


# What the model said ------------------------------------------------------------------------------


class _Said:
    """What the model said in one turn, put together from the contents of it.

    Google's own client keeps of a stream what each of its responses brought, and sends them back as
    contents of their own: a text or a thought may go on where the one before it broke off. Others
    put them into one content; a seal that comes there alone, after a thought, is that thought's.
    """

    def __init__(self) -> None:
        self._spoke = False
        self._parts: list[list[MessagePart]] = []

    def add(self, parts: Sequence[MessagePart]) -> None:
        """Take the parts of the next content; a text that is empty says nothing."""
        self._spoke = True
        following = [part for part in parts if part != TextContent("")]
        for place, part in enumerate(following):
            if place == 0 and self._parts and _goes_on(self._parts[-1][-1], part):
                self._parts[-1].append(part)
            elif _is_lone_seal(part):
                self._parts.append([*self._unsealed(), part])
            else:
                self._parts.append([part])

    def _unsealed(self) -> list[MessagePart]:
        """The thoughts said last, if they have no seal yet; they are taken off."""
        thoughts: list[MessagePart] = []
        while self._parts and all(map(_is_unsealed, self._parts[-1])):
            thoughts[:0] = self._parts.pop()
        return thoughts

    def take(self) -> list[CompletionMessage]:
        """The message, if anything has been added since the last."""
        if not self._spoke:
            return []
        message = CompletionMessage(tuple(map(_joined, self._parts)))
        self._spoke, self._parts = False, []
        return [message]


def _goes_on(part: MessagePart, following: MessagePart) -> bool:
    if isinstance(part, TextContent):
        return isinstance(following, TextContent)
    if not isinstance(part, ReasoningContent) or part.signature is not None:
        return False
    return isinstance(following, ReasoningContent) and not following.redacted


def _is_unsealed(part: MessagePart) -> bool:
    return isinstance(part, ReasoningContent) and part.signature is None


def _is_lone_seal(part: MessagePart) -> bool:
    if not isinstance(part, ReasoningContent) or part.redacted:
        return False
    return not part.text and part.signature is not None


def _joined(parts: Sequence[MessagePart]) -> MessagePart:
    last = parts[-1]
    if len(parts) == 1 or not isinstance(last, TextContent | ReasoningContent):
        return last
    texts = [part.text for part in parts if isinstance(part, TextContent | ReasoningContent)]
    return structs.replace(last, text="".join(texts))


def _parse_model(parts: _Parts, unanswered: UnansweredCalls) -> list[MessagePart]:
    said: list[MessagePart] = []
    for path, part in parts:
        function = member(part, "functionCall")
        signature = text_in(part, "thoughtSignature", path)
        if any(member(part, name) is not None for name in _VENDORS):
            continue
        if function is not None:
            where = f"{path}.functionCall"
            call = _parse_call(object_in(function, where), where, signature)
            unanswered.add(call.call_id, call.tool_name)
            said.append(call)
        elif part.get("thought"):
            said.append(parse_seal(text_in(part, "text", path) or "", signature))
        else:
            shown = seen_parts((_parse_shown(part, path),), path, "what the model says")
            said += [each for each in shown if each != TextContent("") or signature is None]
            if signature is not None:
                said.append(ReasoningContent("", signature, FAMILY, redacted=True))
    return said


def _parse_call(function: Mapping[str, Any], path: str, signature: str | None) -> AnyToolCall:
    name = text_in(function, "name", path)
    if not name:
        raise missing_parameter(f"{path}.name")
    arguments = object_in(function.get("args") or {}, f"{path}.args")
    call_id = text_in(function, "id", path) or call_id_at(path)
    call = parse_tool_call(call_id, name, arguments_text(arguments))
    if signature not in (None, ANY_SIGNATURE) and isinstance(call, ToolCall):
        return structs.replace(call, thought_signature=signature)
    return call
