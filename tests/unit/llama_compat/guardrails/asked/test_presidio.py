"""Presidio's own recognisers at work, without a model of spaCy."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
from pydantic import ValidationError

pytest.importorskip("presidio_analyzer", reason="needs the extra 'presidio'")

from llama_compat.guardrails.asked.loading import UnusableCheck, load
from llama_compat.guardrails.asked.presidio import entities_in
from llama_compat.guardrails.checks import Checks
from llama_compat.guardrails.guard import Blocked, Guard
from llama_compat.guardrails.settings import CheckSettings, PresidioSettings
from tests.unit.llama_compat.guardrails.test_replies import read, reply
from tests.unit.llama_compat.guardrails.test_scanner import cut

TEXT = "Write to alice@example.com or call 212-555-0187; the card is 4111 1111 1111 1111."
HIDDEN = "Write to <EMAIL_ADDRESS_1> or call <PHONE_NUMBER_1>; the card is <CREDIT_CARD_1>."


def check(**settings: Any) -> CheckSettings:
    more = {key: settings.pop(key) for key in ("entities", "threshold") if key in settings}
    return CheckSettings.model_validate({"name": "pii", "presidio": more, **settings})


def guard_of(**settings: Any) -> Guard:
    return Guard(Checks([check(**settings)]))


def test_entities_are_found_by_patterns_and_the_words_around() -> None:
    text = "My passport number is 912803456."
    found = entities_in(text, PresidioSettings(entities=("US_PASSPORT",)))
    assert [(each.kind, text[each.start : each.end]) for each in found] == [
        ("US_PASSPORT", "912803456")
    ]
    assert entities_in("It is 912803456.", PresidioSettings(entities=("US_PASSPORT",))) == []


def test_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("it asks a network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert entities_in("alice@some.co.uk", PresidioSettings(entities=("EMAIL_ADDRESS",)))


def test_what_is_found_is_blocked_hidden_or_counted() -> None:
    with pytest.raises(Blocked):
        guard_of().text("input", TEXT)
    assert guard_of(mode="monitor").text("input", TEXT) == TEXT
    guard = guard_of(mode="redact")
    assert guard.text("input", TEXT) == HIDDEN
    assert guard.verdicts == {("pii", "redact"): 3}
    assert guard.text("input", HIDDEN) == HIDDEN
    assert guard.verdicts == {("pii", "redact"): 3}
    assert guard_of(mode="redact", entities=["CREDIT_CARD"], scan="output").text("input", TEXT)


@pytest.mark.parametrize("streams", [True, False])
async def test_replies_are_looked_through_in_windows(streams: bool) -> None:
    padding = " and so on," * 40 + " "
    for cuts in ([], list(range(0, 2000, 3))):
        guard = guard_of(mode="redact", window=100)
        arguments = json.dumps({"to": "alice@example.com", "n": 1})
        events = reply([], cut(TEXT + padding + TEXT, cuts), cut(arguments, cuts))
        message = await read(events, guard, streams=streams)
        assert message.content == HIDDEN + padding + HIDDEN
        assert json.loads(message.tool_calls[0].arguments_json)["to"] == "<EMAIL_ADDRESS_1>"


async def test_what_was_hidden_comes_back() -> None:
    guard = guard_of(scan="input", mode="redact", restore=True)
    word = guard.text("input", "alice@example.com")
    assert word == "<EMAIL_ADDRESS_1>"
    message = await read(reply([], cut(f"To {word}.", [5, 9, 14, 20]), []), guard)
    assert message.content == "To alice@example.com."


def test_what_takes_too_long_has_failed() -> None:
    guard = guard_of(seconds=1e-9)
    with pytest.raises(Blocked):
        guard.text("input", "Nothing is in it.")
    assert guard.verdicts == {("pii", "error"): 1}
    guard = guard_of(seconds=1e-9, on_error="allow", mode="redact")
    assert guard.text("input", TEXT) == TEXT
    assert guard.verdicts == {("pii", "error"): 1}


def test_words_of_an_api_are_nobody() -> None:
    guard = guard_of(mode="redact")
    assert guard.text("input", "alice@example.com", is_said=False) == "alice@example.com"


def test_a_check_that_can_find_nothing_is_refused_at_the_start() -> None:
    with pytest.raises(UnusableCheck, match="'pii': Presidio finds no PERSON in 'en' without"):
        load([check(entities=["PERSON"])])
    with pytest.raises(ValidationError, match="python -m spacy download no_such_model"):
        CheckSettings.model_validate({"name": "a", "presidio": {"model": "no_such_model"}})
    load([check()])
