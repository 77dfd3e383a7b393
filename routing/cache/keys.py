"""By what a reply is found: the request as it is written, and what it means.

Within one client API two requests are the same if their JSON is, but for white space, the order of
members, and whether a stream is wanted. Requests of two APIs are the same if they come to the same
in the vocabulary, and the vocabulary has words for all that is in them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, cast

import msgspec
from msgspec import Raw, Struct, structs

from llama_compat.dialects.base import HOSTED_TOOLS, Translation
from llama_compat.distribution import ExactCacheSettings
from llama_compat.errors import APIError
from llama_compat.exchange import Call, Principal
from llama_compat.fitting.honoured import decoded
from llama_compat.types import ChatCompletionRequest, CompletionRequest, temperature_of
from routing.cache.noticed import NoticedMembers, has_unread

_encoder = msgspec.json.Encoder(order="deterministic")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

_FORM = ("stream", "stream_options")
"""The members that make another form of the same reply."""

_NOT_ASKED = ("model", *_FORM)
"""Those, and the one that a route stands for."""

_ELSEWHERE = frozenset(
    {*_FORM, "model", "metadata", "prompt_cache_key", "safety_identifier", "store", "user"}
)
"""Those that change nothing of what is said, or whose part in it is known without the parser: a
route stands for the model."""

_MARKS = frozenset({"cache_control"})
"""The same anywhere inside of a request: where a vendor's cache of prompts may begin."""

_VERSIONS = frozenset({"anthropic-version", "api-revision"})
"""Headers that say in which edition of its API a client speaks, and nothing of what it asks."""


_MAY_SAMPLE = re.compile(rb'"(?:[tT]emperature|[tT]op_?[pP]|[sS]eed)":')
"""Without any of these a reply is another one each time."""

_MAY_CALL = re.compile(rb'"(?=\w*":)\w*?(?:[tT]ool|[fF]unction|[mM]cp|[pP]lugin|[sS]earch)')
"""Without any of these there are no tools, be they the client's or a vendor's. No text has them in
it, as its quotation marks have a backslash before them. That a name ends is seen before what is in
it: a text of such words alone would be gone through once for each of them."""

_CALLS_NOTHING = frozenset(
    {
        *("max_completion_tokens", "max_tokens", "messages", "metadata", "n", "prompt", "seed"),
        *("stop", "stop_sequences", "stream", "stream_options", "system", "temperature", "top_p"),
        *("model", "user"),
    }
)
"""Members in which there are no tools, in whatever API: most requests have no others."""

_SAMPLED_AT_TOP = frozenset({"chat", "completions", "messages"})
"""The calls that have `temperature` among their own members."""

SHORT_BYTES = 2048
"""What a request asks for is its own key up to so many bytes: to look it up by its hash in the
memory of this process, which is as sure, takes several times as long."""

_VENDORS_TOOLS = frozenset({"functions", "mcp_servers", "plugins", "web_search_options"})
"""Members that have tools in them of which the vocabulary knows nothing."""


class Written(Struct, frozen=True, gc=False):
    """A request as it is written.

    Attributes:
        exact: of all of it: the reply is the same bytes.
        key: of what asks for something, and not for another form of the same reply: streamed or
            not, the model's name.
        may_be_kept: whether its reply may be; None where only its meaning can tell.
    """

    exact: bytes
    key: bytes
    may_be_kept: bool | None = None

    @property
    def keys(self) -> tuple[bytes, bytes]:
        """By which its reply is found, the closest first."""
        return self.exact, self.key


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


def written(
    call: Call,
    where: Sequence[str],
    settings: ExactCacheSettings,
    *,
    leaves_memory: bool = False,
    body: bytes | None = None,
) -> Written:
    """The request as it is written.

    Args:
        call: the request.
        where: whose it is, and where it goes.
        settings: which replies are kept.
        leaves_memory: whether its keys go anywhere else than to the memory of this process: then
            nobody can read from them what was asked.
        body: the bytes that it was read from; None where there are none, or it has become another.
    """
    members = _members(call.fields) if body is None else _members_of(body, call.fields)
    headers = call.headers
    may_be = _may_be_kept_at_once(members, call, settings)
    canonical = _canonical(members, call.fields)
    begun, so_far = _begun(
        call.operation.name, tuple(where), tuple(sorted(headers.items())) if headers else ()
    )
    if leaves_memory or len(canonical) > SHORT_BYTES:
        hasher = begun.copy()
        hasher.update(canonical)
        key = hasher.digest()
    else:
        # Neither is the beginning of another: the first has a length of its own, and JSON an end.
        key = b"%b%b" % (so_far, canonical)
    form = _form(call)
    if leaves_memory:
        hasher.update(form)
        exact = hasher.digest()
    else:
        exact = b"%b %b" % (key, form)
    return Written(exact, key, may_be or _may_be_kept(canonical, call, settings))


def _form(call: Call) -> bytes:
    """Which form of its reply it asks for."""
    model = call.model.encode("utf-8", "backslashreplace")
    options = call.fields.get("stream_options")
    if options is None and not call.stream:
        return model
    said = b"" if options is None else bytes(options)
    # There may be several kinds of stream.
    kind = call.operation.dialect.stream_headers.get("content-type", "") if call.stream else ""
    return b"%d %d %b %b %b" % (call.stream, len(said), said, kind.encode(), model)


def _may_be_kept_at_once(
    members: Mapping[str, Any] | None, call: Call, settings: ExactCacheSettings
) -> bool:
    """Whether its reply may be, for all that it says; False where that takes another look."""
    if members is None or not (members.keys() <= _CALLS_NOTHING):
        return False
    if not settings.choices and call.extent.choices > 1:
        return False
    if settings.sampled:
        return True
    temperature = members.get("temperature")
    return (
        (type(temperature) is int or type(temperature) is float)
        and temperature == 0
        and call.operation.name in _SAMPLED_AT_TOP
    )


def _may_be_kept(canonical: bytes, call: Call, settings: ExactCacheSettings) -> bool | None:
    """Whether its reply may be, by these settings; None where only its meaning can tell."""
    if not settings.choices:
        extent = call.extent
        if extent.choices > 1 or (extent.best_of > 1 and extent.made > extent.given):
            return False
    # Without any of the words they need not be looked for, which takes longer. In text, as it takes
    # several times as long to look for bytes.
    if not settings.sampled:
        text = canonical.decode()
        may_sample = "emperature" in text or "eed" in text or "op" in text
        return None if may_sample and _MAY_SAMPLE.search(canonical) is not None else False
    if settings.tools:
        return True
    text = canonical.decode()
    may_call = (
        "ool" in text or "unction" in text or "cp" in text or "lugin" in text or "earch" in text
    )
    return None if may_call and _MAY_CALL.search(canonical) is not None else True


def _members_of(body: bytes, fields: Mapping[str, Raw]) -> dict[str, Any] | None:
    """The same as `_members`, of the bytes that `fields` were read from, which takes less."""
    try:
        return _decode(body)  # type: ignore[no-any-return]
    except (msgspec.MsgspecError, RecursionError):
        return _members(fields)


def _members(fields: Mapping[str, Raw]) -> dict[str, Any] | None:
    """What is asked, read; None where it has half characters, say."""
    try:
        return _decode(_encode(fields))  # type: ignore[no-any-return]
    except (msgspec.MsgspecError, RecursionError):
        return None


def _canonical(members: dict[str, Any] | None, fields: Mapping[str, Raw]) -> bytes:
    """The members that ask for something, the same for the same, as JSON."""
    if members is not None:
        for name in _NOT_ASKED:
            members.pop(name, None)
        try:
            return _encoder.encode(members)
        except (msgspec.MsgspecError, UnicodeEncodeError, OverflowError, RecursionError):
            pass
    # Half characters, and numbers that are none of a machine's: each as it was sent.
    return _encode({name: fields[name] for name in sorted(fields) if name not in _NOT_ASKED})


@lru_cache(maxsize=1024)
def _begun(
    name: str, where: tuple[str, ...], headers: tuple[tuple[str, str], ...]
) -> tuple[blake2b, bytes]:
    """A hash of all that the key of a request has in it besides what it says, and its digest."""
    begun = blake2b(digest_size=32, person=b"written")
    begun.update(json.dumps([name, where, headers]).encode())
    return begun, begun.digest()


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
    requests = [plain(each) for each in translation.requests]
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
        (is_chat and bool(cast(ChatCompletionRequest, first).tools))
        or _has_vendors_tools(call, members),
        translation.choices_per_prompt > 1 or call.extent.made > call.extent.given,
    )


def plain(
    request: ChatCompletionRequest | CompletionRequest,
) -> ChatCompletionRequest | CompletionRequest:
    """`request` without what makes no other reply: names, the form of the answer, and hints."""
    changes: dict[str, Any] = {"model": "", "request_id": "", "stream": False}
    changes |= {"prepared": None, "mark": None}  # which are there for the provider alone
    if isinstance(request, ChatCompletionRequest):
        changes |= {"prompt_cache_key": None, "prompt_cache_retention": None}
    return structs.replace(request, **changes)


def _has_vendors_tools(call: Call, members: Mapping[str, Any]) -> bool:
    """Whether it asks for tools that the vendor runs."""
    # A search of which nothing is said is one, too: `web_search_options: {}`.
    if any(members.get(name) not in (None, []) for name in _VENDORS_TOOLS):
        return True
    return HOSTED_TOOLS in call.operation.parameters(members).values()


def digest_of(what: str, value: Any) -> bytes:
    """The key of `value`, which is told apart from others of another kind."""
    return _digest(what, json.dumps(value, sort_keys=True).encode())


def _digest(what: str, data: bytes) -> bytes:
    return blake2b(data, digest_size=32, person=what.encode()).digest()
