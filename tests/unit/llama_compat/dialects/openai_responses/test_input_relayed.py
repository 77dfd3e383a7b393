"""Items that are relayed: what another server can't unseal, or does not take."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from llama_compat.dialects.openai_responses.input.items import SUMMARY_INTRODUCTION
from llama_compat.dialects.openai_responses.input.relayed import (
    for_other_servers,
    without_thoughts,
)
from llama_compat.dialects.openai_responses.sealed import Summary, seal
from llama_compat.types import ReasoningContent
from llama_compat.wire.json_fields import from_raw, to_raw

ASKED = {"role": "user", "content": "Hi"}
OWN = {"type": "reasoning", "summary": [], "encrypted_content": seal(ReasoningContent("Hm."))}
FOREIGN = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"}
TEXT = [{"type": "reasoning_text", "text": "Hm."}]
CLEAR = {"type": "reasoning", "id": "rs_2", "summary": [], "content": TEXT}
SAID = {"type": "message", "id": "msg_1", "role": "assistant", "content": "Yes."}
CALLED = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}"}
SEARCHED = {"type": "web_search_call", "id": "ws_1", "status": "completed"}


def test_what_only_this_server_can_unseal_stays_here() -> None:
    own = [ASKED, OWN, {"type": "compaction", "encrypted_content": seal(Summary("S"))}]
    sent = from_raw(for_other_servers(to_raw([*own, FOREIGN])))
    summary = {"type": "message", "role": "user", "content": SUMMARY_INTRODUCTION + "S"}
    assert sent == [ASKED, summary, FOREIGN]


@pytest.mark.parametrize("reads", [False, True])
def test_an_input_in_which_nothing_is_to_be_done_is_the_very_same(reads: bool) -> None:
    for raw in (b'[ {"role":"user", "content" : 1.0} ]', b'"reasoning_text"', b'[{"type": 1.0}]'):
        untouched = Raw(raw)
        assert for_other_servers(untouched, reads_thoughts=reads) is untouched
        assert without_thoughts(untouched) is untouched


@pytest.mark.parametrize(
    ("reads", "item", "told"),
    [
        (True, CLEAR, CLEAR),
        (False, CLEAR, None),
        (False, {**CLEAR, "encrypted_content": None}, None),
        (False, {**FOREIGN, "content": TEXT}, FOREIGN),
        (True, {**FOREIGN, "content": TEXT}, {**FOREIGN, "content": TEXT}),
        (False, {**FOREIGN, "content": []}, {**FOREIGN, "content": []}),
        (False, {**OWN, "content": TEXT}, None),
    ],
)
def test_thoughts_in_clear_go_to_who_takes_them(
    reads: bool, item: dict[str, Any], told: dict[str, Any] | None
) -> None:
    sent = from_raw(for_other_servers(to_raw([ASKED, CLEAR, item]), reads_thoughts=reads))
    before = [ASKED, CLEAR] if reads else [ASKED]
    assert sent == (before if told is None else [*before, told])


def test_without_thoughts_what_was_said_has_no_id_by_which_they_are_looked_for() -> None:
    sent = from_raw(without_thoughts(to_raw([ASKED, FOREIGN, SAID, FOREIGN, CALLED, SEARCHED])))
    plain = [
        {name: value for name, value in each.items() if name != "id"} for each in (SAID, CALLED)
    ]
    assert sent == [ASKED, *plain, SEARCHED]


def test_what_has_no_thoughts_keeps_its_ids() -> None:
    kept = to_raw([{"role": "user", "content": 'Say "reasoning"'}, SAID])
    assert without_thoughts(kept) is kept
    named = to_raw([SAID, {"type": "message", "role": "user", "content": "reasoning"}])
    assert without_thoughts(named) is named
