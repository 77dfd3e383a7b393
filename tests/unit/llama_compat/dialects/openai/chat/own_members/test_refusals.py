"""What models refused to say, as text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from llama_compat.dialects.openai.chat.own_members.refusals import with_refusals_said
from llama_compat.wire.json_fields import to_raw

PART = {"type": "text", "text": "Look:"}
NO = {"type": "text", "text": "No."}


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ({"content": None, "refusal": "No."}, {"content": "No."}),
        ({"refusal": "No."}, {"content": "No."}),
        ({"content": "", "refusal": "No."}, {"content": "No."}),
        ({"content": "Look:", "refusal": "No."}, {"content": "Look:\n\nNo."}),
        ({"content": [PART], "refusal": "No."}, {"content": [PART, NO]}),
        ({"content": [PART, {"type": "refusal", "refusal": "No."}]}, {"content": [PART, NO]}),
        ({"content": "Yes.", "refusal": None}, {"content": "Yes."}),
        ({"content": "Yes.", "refusal": ""}, {"content": "Yes."}),
        ({"content": None, "refusal": None, "tool_calls": []}, {"content": None, "tool_calls": []}),
    ],
)
def test_what_was_refused_is_text(message: dict[str, Any], told: dict[str, Any]) -> None:
    user = {"role": "user", "content": "Hi"}
    said = with_refusals_said(to_raw([user, {"role": "assistant", **message}]))
    assert json.loads(bytes(said)) == [user, {"role": "assistant", **told}]


@pytest.mark.parametrize(
    "messages",
    [
        b'[{"role": "user",  "content": "x"}]',
        b'[{"role": "user", "content": "\\"refusal\\""}]',
        b'[{"role": "user", "content": [{"type": "text", "text": "refusal"}]}]',
        b'[{"role": "assistant", "tool_calls": [{"function": {"name": "refusal"}}]}]',
        b'{"refusal": "No."}',
        b'["refusal"]',
    ],
)
def test_where_nothing_was_refused_all_keeps_its_bytes(messages: bytes) -> None:
    raw = Raw(messages)
    assert with_refusals_said(raw) is raw
