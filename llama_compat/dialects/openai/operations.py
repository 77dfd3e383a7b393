"""OpenAI's API as a way in: its calls, and what is looked at before one of them goes anywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llama_compat.dialects.base import HOSTED_SETTING, Asked, Dialect, Operation
from llama_compat.dialects.openai import chat, completions, embeddings
from llama_compat.dialects.openai.chat.files import FILES
from llama_compat.dialects.openai.chat.hosted import unread_hosted
from llama_compat.dialects.openai.chat.tools.asked import NEWER_NAMES, told_grammars
from llama_compat.dialects.openai.chat.turns import REPLIES, TURNS
from llama_compat.dialects.openai.chunks import withheld
from llama_compat.dialects.openai.errors import render_error, render_stream_error
from llama_compat.dialects.openai.parameters import (
    CHAT_CHECKS,
    COMPLETION_CHECKS,
    EMBEDDING_CHECKS,
    TOLD_HINTS,
    Check,
    check_parameters,
    parameters_set,
)
from llama_compat.errors import invalid_parameter, missing_parameter
from llama_compat.extent import Extent, Prompt, largest
from llama_compat.wire import sse
from llama_compat.wire.json_fields import JSONFields, from_raw

OPENAI = Dialect(
    name="openai",
    render_error=render_error,
    render_stream_error=render_stream_error,
    stream_end=sse.DONE,
    keep_alive=sse.encode_comment(b" keepalive"),
)


@dataclass(frozen=True, slots=True)
class _Look:
    """The look at a request of one call.

    Attributes:
        required: the member without which there is nothing to do.
        begins: what its JSON may begin with.
        expected: the same, for messages.
        checks: of other members.
        read: the members that a model reads, in its order.
        choices: how many replies are made where the request does not say; 0 where none ever is.
    """

    required: str
    begins: str
    expected: str
    checks: Mapping[str, Check]
    read: Sequence[str]
    choices: int = 1

    def __call__(self, fields: JSONFields, path: Mapping[str, str]) -> Asked:
        parameters = check_parameters(fields, self.checks)
        model = required_model(fields)
        self._check_required(fields)
        return Asked(model, parameters.get("stream", False), self._extent(fields, parameters))

    def _extent(self, fields: JSONFields, parameters: Mapping[str, Any]) -> Extent:
        is_completion, has_best_of = self.required == "prompt", "best_of" in fields
        # Which of several limits counts is the vendor's to say.
        most = parameters.get("max_tokens"), parameters.get("max_completion_tokens")
        return Extent(
            Prompt(fields, *self.read),
            completions.count_prompts(fields["prompt"]) if is_completion else 1,
            self.choices and parameters.get("n", self.choices),
            largest(from_raw(fields["best_of"])) or 1 if has_best_of else 1,
            None if most == _NO_LIMITS else largest(*most),
        )

    def _check_required(self, fields: JSONFields) -> None:
        # Not decoded, as it may be all of a large request: a look at how it begins is enough here,
        # and the provider sees to what is inside.
        name = self.required
        begin = bytes(memoryview(fields[name])[:8]).decode("latin-1") if name in fields else "null"
        if begin == "null":
            raise missing_parameter(name)
        if begin[0] not in self.begins:
            raise invalid_parameter(
                name, f"Invalid type for '{name}': expected {self.expected}.", "invalid_type"
            )
        if begin[0] == "[" and begin[1:].lstrip().startswith("]"):
            raise invalid_parameter(name, f"Invalid '{name}': the array is empty.", "empty_array")


_NO_LIMITS = (None, None)


def required_model(fields: JSONFields) -> str:
    """The model that a request asks for.

    Raises:
        APIError: 400, it asks for none.
    """
    if "model" not in fields:
        raise missing_parameter("model")
    model = from_raw(fields["model"])
    if not isinstance(model, str) or not model:
        raise invalid_parameter("model", "'model' must be a string.", "invalid_type")
    return model


def _parameters(body: Mapping[str, Any]) -> Mapping[str, str]:
    asked = {name: NEWER_NAMES.get(name, name) for name in parameters_set(body)}
    asked |= dict.fromkeys(unread_hosted(body), HOSTED_SETTING)
    return asked | dict(told_grammars(body))


_EMBEDDINGS_ALWAYS_HONOURED = frozenset({"model", "input", "encoding_format", "user"})


def _embedding_parameters(body: Mapping[str, Any]) -> Mapping[str, str]:
    return {
        name: name
        for name, value in body.items()
        if value is not None
        and name not in _EMBEDDINGS_ALWAYS_HONOURED
        and not embeddings.cuts_nothing(name, value)
    }


CHAT = Operation(
    dialect=OPENAI,
    name="chat",
    shows_images=True,
    kind="chat",
    look=_Look(
        "messages", "[", "an array of messages", CHAT_CHECKS, ("tools", "functions", "messages")
    ),
    parameters=_parameters,
    hints=lambda body: TOLD_HINTS,
    stop_members=frozenset({"stop"}),
    parse=chat.parse_request,
    turns=TURNS,
    withheld=withheld({"delta": {}}),
    replies=REPLIES,
    files=FILES,
)
COMPLETIONS = Operation(
    dialect=OPENAI,
    name="completions",
    kind="completion",
    look=_Look("prompt", '["', "a string or an array", COMPLETION_CHECKS, ("prompt", "suffix")),
    parameters=_parameters,
    hints=lambda body: TOLD_HINTS,
    stop_members=frozenset({"stop"}),
    parse=completions.parse_request,
    withheld=withheld({"text": ""}),
    replies=completions.REPLIES,
)
EMBEDDINGS = Operation(
    dialect=OPENAI,
    name="embeddings",
    kind="embedding",
    look=_Look("input", '["', "a string or an array", EMBEDDING_CHECKS, ("input",), choices=0),
    parameters=_embedding_parameters,
    hints=lambda body: TOLD_HINTS,
    parse=embeddings.parse_request,
)
