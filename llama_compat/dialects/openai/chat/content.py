"""The contents of messages, both ways: texts, images, sounds and files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_compat.dialects.members import as_object, optional_text_in, text_in
from llama_compat.errors import APIError, invalid_parameter, missing_parameter, unsupported_content
from llama_compat.media.audio import audio_of, format_of, media_type_of
from llama_compat.media.documents import (
    PDF,
    document_at,
    document_in,
    file_name,
    parse_document_url,
)
from llama_compat.media.images import is_remote
from llama_compat.types import (
    AudioContent,
    Content,
    ContentPart,
    DocumentContent,
    ImageContent,
    TextContent,
)


def parse_content(value: Any, path: str) -> Content:
    """The `content` of a message, which stands at `path`.

    Raises:
        APIError: 400 with the path of what is malformed.
    """
    if isinstance(value, str):
        return value
    if value is None:
        raise missing_parameter(path)
    if not isinstance(value, list):
        raise invalid_parameter(path, f"'{path}' must be a string or an array of content parts.")
    return tuple(_parse_part(part, f"{path}[{index}]") for index, part in enumerate(value))


def _parse_part(value: Any, path: str) -> ContentPart:
    part = as_object(value, path)
    match part.get("type"):
        case "text":
            return TextContent(text_in(part, "text", path))
        case "refusal":
            return TextContent(text_in(part, "refusal", path))
        case "image_url":
            image = part.get("image_url")
            if isinstance(image, str):
                return ImageContent(image)
            image = as_object(image, f"{path}.image_url")
            return ImageContent(
                text_in(image, "url", f"{path}.image_url"),
                optional_text_in(image, "detail", f"{path}.image_url"),
            )
        case "input_audio":
            return parse_input_audio(part, path)
        case "file":
            return _parse_file(as_object(part.get("file"), f"{path}.file"), f"{path}.file")
        case kind:
            raise invalid_parameter(
                f"{path}.type",
                f"Invalid value: {kind!r}. This model's provider takes content parts of the types"
                " 'text', 'image_url', 'input_audio' and 'file'.",
            )


def _parse_file(file: Mapping[str, Any], path: str) -> DocumentContent | TextContent:
    name, data = optional_text_in(file, "filename", path), optional_text_in(file, "file_data", path)
    if data is not None:
        return document_in(data, name, f"{path}.file_data")
    file_id = text_in(file, "file_id", path)
    # Where OpenAI has no place for an address, people write it as an id.
    if is_remote(file_id):
        return document_at(file_id, name, f"{path}.file_id")
    raise unknown_file(file_id, f"{path}.file_id")


def unknown_file(file_id: str, path: str) -> APIError:
    """The error for a file that nobody has put into its place: 400, or another target is asked."""
    return unsupported_content(
        path,
        f"'{path}': there is no file '{file_id[:60]}' here. Upload it to this server's /v1/files,"
        " or send what is in it as 'file_data'.",
    )


def parse_input_audio(part: Mapping[str, Any], path: str) -> AudioContent:
    """A part `input_audio`, which is the same in chats and in responses.

    Raises:
        APIError: 400 with the path of what is malformed.
    """
    path = f"{path}.input_audio"
    audio = as_object(part.get("input_audio"), path)
    return audio_of(media_type_of(text_in(audio, "format", path)), text_in(audio, "data", path))


def render_content(content: Content, path: str) -> str | list[dict[str, Any]]:
    """The `content` of a message.

    Raises:
        APIError: 400 naming `path`, there is a document in it that is none.
    """
    return content if isinstance(content, str) else [_render_part(part, path) for part in content]


def _render_part(part: ContentPart, path: str) -> dict[str, Any]:
    if isinstance(part, TextContent):
        return {"type": "text", "text": part.text}
    if isinstance(part, AudioContent):
        audio = {"data": part.base64, "format": format_of(part)}
        return {"type": "input_audio", "input_audio": audio}
    if isinstance(part, DocumentContent):
        media_type = PDF if is_remote(part.url) else parse_document_url(part.url, path).media_type
        name = file_name(part.name, media_type)
        return {"type": "file", "file": {"filename": name, "file_data": part.url}}
    return render_image(part)


def render_image(part: ImageContent) -> dict[str, Any]:
    """The part of a content that is an image; one of the `images` of a reply looks the same."""
    image = {"url": part.url}
    if part.detail is not None:
        image["detail"] = part.detail
    return {"type": "image_url", "image_url": image}
