"""OpenAI's embeddings (https://platform.openai.com/docs/api-reference/embeddings).

Servers of open models and other vendors have members beside OpenAI's, which are read here too:
which of a model's prompts goes before the texts (`prompt_name` of Text Embeddings Inference,
`input_type` of Cohere, Voyage and NIM, `task` of Jina), and whether a text that is too long is cut
(`truncate_prompt_tokens` of vLLM, `truncate` of Cohere, NIM and Text Embeddings Inference).
"""

from __future__ import annotations

import base64
import sys
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from llama_compat.dialects.base import Labels
from llama_compat.dialects.counts import MAX_COUNT
from llama_compat.dialects.openai.usage import parse_usage
from llama_compat.errors import APIError, invalid_parameter, missing_parameter
from llama_compat.types import EmbeddingRequest, EmbeddingResponse


class EmbeddingCall(Struct, frozen=True):
    """One request as it came: what to embed, and whether as base64 rather than as numbers."""

    request: EmbeddingRequest
    as_base64: bool = False

    def render_reply(self, response: EmbeddingResponse, labels: Labels) -> bytes:
        """The `list` object."""
        reply = render_reply(response, model=labels.model, as_base64=self.as_base64)
        return msgspec.json.encode(reply)


def parse_request(body: Mapping[str, Any], model: str) -> EmbeddingCall:
    """The request `body`, its parameters already checked, for the provider's `model`.

    Raises:
        APIError: 400 for an `input` that is not text, or an unknown `encoding_format`.
    """
    encoding = body.get("encoding_format") or "float"
    if encoding not in ("float", "base64"):
        raise invalid_parameter(
            "encoding_format",
            f"Invalid value: {encoding!r}. Supported values are: 'float' and 'base64'.",
        )
    end, max_tokens = _parse_truncation(body)
    request = EmbeddingRequest(
        model=model,
        inputs=_parse_input(body.get("input")),
        dimensions=body.get("dimensions"),
        prompt_name=_text_in(body, "prompt_name"),
        input_type=_text_in(body, "input_type") or _text_in(body, "task"),
        truncate=end,
        max_tokens=max_tokens,
    )
    return EmbeddingCall(request, as_base64=encoding == "base64")


_ENDS: Mapping[str, Literal["start", "end"] | None] = {"NONE": None, "START": "start", "END": "end"}
"""Which end is cut off, as Cohere and NIM say it."""


def cuts_nothing(name: str, value: Any) -> bool:
    """Whether a member asks for what happens anyway: that no text is cut."""
    return name == "truncate" and (value is False or str(value).upper() == "NONE")


def _parse_truncation(
    body: Mapping[str, Any],
) -> tuple[Literal["start", "end"] | None, int | None]:
    """Which end of a long text is cut off, and how many tokens are left; None for all."""
    end: Literal["start", "end"] | None = None
    asked = body.get("truncate")
    if asked is True:
        end = "end"
    elif isinstance(asked, str) and asked.upper() in _ENDS:
        end = _ENDS[asked.upper()]
    elif asked is not None and asked is not False:
        raise invalid_parameter(
            "truncate", "'truncate' must be true or false, or 'NONE', 'START' or 'END'."
        )
    count = body.get("truncate_prompt_tokens")
    if count is None:
        return end, None
    if type(count) is not int or (count != -1 and not 1 <= count <= MAX_COUNT):
        raise invalid_parameter(
            "truncate_prompt_tokens",
            "'truncate_prompt_tokens' must be an integer, 1 or more, or -1 for as many tokens as"
            " the model takes.",
        )
    return end or "end", None if count == -1 else count


def _text_in(body: Mapping[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise invalid_parameter(name, f"'{name}' must be a string.", "invalid_type")
    return value


def _parse_input(value: Any) -> tuple[str, ...]:
    if value is None:
        raise missing_parameter("input")
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts:
        raise _wrong_input("must be a string or an array of strings, and not empty")
    if not all(isinstance(text, str) for text in texts):
        raise _wrong_input("must be text here: the model's provider takes no token ids")
    if "" in texts:
        raise _wrong_input("can't be or hold an empty string")
    return tuple(texts)


def _wrong_input(why: str) -> APIError:
    return invalid_parameter("input", f"'input' {why}.")


def render_reply(response: EmbeddingResponse, *, model: str, as_base64: bool) -> dict[str, Any]:
    """A `list` object with one `embedding` a text."""
    return {
        "object": "list",
        "data": [
            {
                "object": "embedding",
                "index": index,
                "embedding": base64_of(vector) if as_base64 else vector,
            }
            for index, vector in enumerate(response.vectors)
        ],
        "model": model,
        "usage": {
            "prompt_tokens": response.prompt_tokens,
            "total_tokens": response.prompt_tokens,
        },
    }


def render_request(request: EmbeddingRequest) -> dict[str, Any]:
    """The body of a request; `request.model` is the vendor's name."""
    body: dict[str, Any] = {"model": request.model, "input": list(request.inputs)}
    if request.dimensions is not None:
        body["dimensions"] = request.dimensions
    return body


def parse_reply(body: Mapping[str, Any]) -> EmbeddingResponse:
    """The vectors of a vendor's reply, in the order of the texts.

    Raises:
        ValueError: it is no such reply.
    """
    try:
        reply = msgspec.convert(body, _Reply)
    except msgspec.ValidationError as error:
        raise ValueError(f"not a reply with embeddings: {error}") from None
    ordered = sorted(reply.data, key=lambda each: each.index)
    vectors = tuple(each.embedding for each in ordered)
    return EmbeddingResponse(vectors, parse_usage(reply.usage).prompt_tokens)


class _Embedding(Struct):
    embedding: tuple[float, ...]
    index: int = 0


class _Reply(Struct):
    data: list[_Embedding]
    usage: Any = None


def base64_of(vector: Sequence[float]) -> str:
    """The numbers as 32-bit floats, least significant byte first."""
    numbers = array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return base64.b64encode(numbers.tobytes()).decode()
