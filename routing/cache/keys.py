"""By what a reply is found: the request as it is written, and what it means.

Within one client API two requests are the same if their JSON is, but for white space, the order of
members, and whether a stream is wanted. Requests of two APIs are the same if they come to the same
in the vocabulary, and the vocabulary has words for all that is in them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, cast

import msgspec
from msgspec import Struct, structs

from llama_compat.dialects.base import Translation
from llama_compat.distribution import ExactCacheSettings
from llama_compat.errors import APIError
from llama_compat.exchange import Call, Principal
from llama_compat.translation import decoded
from llama_compat.types import ChatCompletionRequest, CompletionRequest, temperature_of
from routing.cache.noticed import NoticedMembers, has_unread

_encoder = msgspec.json.Encoder(order="deterministic")

_FORM = ("stream", "stream_options")
"""The members that make another form of the same reply."""

_ELSEWHERE = frozenset(
    {*_FORM, "model", "metadata", "prompt_cache_key", "safety_identifier", "store", "user"}
)
"""Those that change nothing of what is said, or whose part in it is known without the parser: a
route stands for the model."""

_MARKS = frozenset({"cache_control"})
"""The same anywhere inside of a request: where a vendor's cache of prompts may begin."""

_VERSIONS = frozenset({"anthropic-version", "api-revision"})
"""Headers that say in which edition of its API a client speaks, and nothing of what it asks."""


class Written(Struct, frozen=True):
    """A request as it is written.

    Attributes:
        key: of all that asks for something.
        form: of what makes other bytes of the same reply: streamed or not, the model's name.
    """

    key: bytes
    form: bytes


class Meaning(Struct, frozen=True):
    """What a request means.

    Attributes:
        key: of that; None where the vocabulary has no words for all of it.
        translation: the way back to the client's API.
        sampled, tools, choices: whether it asks for what is kept only where that is wanted.
    """

    key: bytes | None
    translation: Translation
    sampled: bool
    tools: bool
    choices: bool

    def may_be_kept(self, settings: ExactCacheSettings) -> bool:
        """Whether its reply may be, by these settings."""
        return (
            (settings.sampled or not self.sampled)
            and (settings.tools or not self.tools)
            and (settings.choices or not self.choices)
        )


def belongs_to(principal: Principal, share: str) -> str:
    """Whose replies a request of `principal` may be given, as one text."""
    if share == "all":
        return "all"
    if share == "team" and principal.team is not None:
        return f"team {principal.team}"
    return f"key {principal.id}"


def written(call: Call, where: Sequence[str]) -> Written | None:
    """The request as it is written; None for what no provider would take.

    Args:
        call: the request.
        where: whose it is, and where it goes.
    """
    try:
        fields = decoded(call)
    except (APIError, ValueError):
        return None
    form = [call.stream, call.model, *(fields.pop(name, None) for name in _FORM)]
    fields.pop("model", None)
    asked = [call.operation.name, *where, sorted(call.headers.items()), fields]
    return Written(_hashed("written", asked), _hashed("form", form))


def meaning(call: Call, model: str, where: Sequence[str]) -> Meaning | None:
    """What the request means; None where the vocabulary has no words for it.

    Args:
        call: the request.
        model: what the first target calls the model.
        where: whose it is, and where it goes.
    """
    try:
        members = NoticedMembers(decoded(call))
        translation = cast(Translation, call.operation.parse(members, model))
    except (APIError, ValueError):
        return None
    requests = [_plain(each) for each in translation.requests]
    first = requests[0]
    is_chat = isinstance(first, ChatCompletionRequest)
    key: bytes | None = None
    if _VERSIONS.issuperset(call.headers):
        kind, per_prompt = call.operation.kind, translation.choices_per_prompt
        try:
            if not has_unread(members, requests, _ELSEWHERE, _MARKS):
                key = _digest("meaning", _encoder.encode([kind, per_prompt, *where, requests]))
        except (UnicodeEncodeError, TypeError):
            key = None  # half a character, or what JSON has no words for
    return Meaning(
        key,
        translation,
        temperature_of(first.sampling) > 0 and first.sampling.seed is None,
        is_chat and bool(cast(ChatCompletionRequest, first).tools),
        translation.choices_per_prompt > 1 or call.extent.made > call.extent.given,
    )


def _plain(
    request: ChatCompletionRequest | CompletionRequest,
) -> ChatCompletionRequest | CompletionRequest:
    """`request` without what makes no other reply: names, the form of the answer, and hints."""
    changes: dict[str, Any] = {"model": "", "request_id": "", "stream": False, "prepared": None}
    if isinstance(request, ChatCompletionRequest):
        changes |= {"prompt_cache_key": None, "prompt_cache_retention": None}
    return structs.replace(request, **changes)


def _hashed(what: str, value: Any) -> bytes:
    try:
        data = _encoder.encode(value)
    except (UnicodeEncodeError, OverflowError):
        # Half characters and numbers beyond 64 bits, as Python writes them.
        data = json.dumps(value, sort_keys=True).encode()
    return _digest(what, data)


def _digest(what: str, data: bytes) -> bytes:
    return blake2b(data, digest_size=32, person=what.encode()).digest()
