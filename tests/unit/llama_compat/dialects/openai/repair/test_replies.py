"""Whole replies: what is looked at in one go is what the mending would have left as it is."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

from msgspec import Raw

from llama_compat.dialects.openai.repair import CHAT
from llama_compat.dialects.openai.repair.replies import _are_usual, _mend_whole_choice
from llama_compat.wire.json_fields import parse_objects, to_raw

LEFT_OUT = object()

INDICES = (0, 7, None, "", LEFT_OUT)
MESSAGES: dict[str, tuple[Any, ...]] = {
    "role": ("assistant", "user", None, LEFT_OUT),
    "content": ("text", "", None, ["a"], 7, LEFT_OUT),
    "reasoning": (None, "", "thought", LEFT_OUT),
    "reasoning_content": (None, "thought", LEFT_OUT),
    "tool_calls": (None, [], [{"function": {"name": "a"}}], LEFT_OUT),
}
REASONS = ("stop", "length", "content_filter", "tool_calls", "eos", "", None, LEFT_OUT)


def there(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not LEFT_OUT}


def test_what_looks_usual_has_nothing_to_mend() -> None:
    usual = 0
    for index, reason, *values in product(INDICES, REASONS, *MESSAGES.values()):
        message = there(**dict(zip(MESSAGES, values, strict=True)), refusal=None)
        choice = to_raw([there(index=index, message=message, finish_reason=reason)])
        if _are_usual(choice):
            usual += 1
            assert not _mend_whole_choice(parse_objects(choice)[0], 0, CHAT), bytes(choice)
    assert usual


def test_what_is_no_list_of_choices_is_not_usual() -> None:
    deep = b"[" * 10_000 + b"]" * 10_000
    usual = b'{"index":0,"message":{"role":"assistant"%b},"finish_reason":"stop"}'
    assert _are_usual(Raw(b"[%b]" % (usual % b"")))
    for choices in (
        b"null",
        b"{}",
        json.dumps([1]).encode(),
        b"[%b]" % (usual % b',"content":"\\ud83d"'),
        b"[%b]" % (usual % b',"else":%b' % deep),
    ):
        assert not _are_usual(Raw(choices))
