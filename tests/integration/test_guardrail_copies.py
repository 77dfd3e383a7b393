"""What a request has to pass, so has whatever is asked on account of it: a mirror's copy, and what
the cache asks a model that makes vectors."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration import wire
from tests.integration.native_vendor import Answer, NativeVendor
from tests.integration.server_process import running, write_template
from tests.integration.test_guardrail_judges import chat, vectors

MAIL = "alice@example.com"
HIDE = {"name": "pii", "scan": "input", "patterns": ["emails"], "mode": "redact"}


@pytest.mark.parametrize("whose", ["model", "key"])
def test_nothing_is_told_to_others_that_is_hidden(tmp_path: Path, whose: str) -> None:
    with NativeVendor() as asked, NativeVendor() as copied, NativeVendor() as embeds:
        asked.will_answer(Answer([json.dumps(chat("Fine.")).encode()]))
        copied.will_answer(Answer([json.dumps(chat("Fine.")).encode()]))
        embeds.will_answer(Answer([json.dumps(vectors([1.0, 0.0])).encode()]))
        vendors = {"asked": asked, "copied": copied, "embeds": embeds}
        own = {"guardrails": [HIDE]}
        model: dict[str, Any] = {
            "id": "asked",
            "provider": "asked",
            "routing": {"mirror": {"model": "copied", "sample": 1}},
            "cache": {
                "exact": {"sampled": True},
                "semantic": {"model": "embeds", "threshold": 0.99},
            },
        }
        template = write_template(
            tmp_path / "copies.yaml",
            providers=[
                {
                    "id": name,
                    "type": "remote::passthrough",
                    "config": {"base_url": f"{vendor.url}/v1"},
                }
                for name, vendor in vendors.items()
            ],
            models=[
                {**model, **(own if whose == "model" else {})},
                {"id": "copied", "provider": "copied"},
                {"id": "embeds", "provider": "embeds"},
            ],
            keys=[
                {
                    "name": "mine",
                    "key": "sk-mine-0123456789-0123456789",
                    **(own if whose == "key" else {}),
                }
            ],
        )
        with running(template) as server:
            body = {
                "model": "asked",
                "temperature": 0,
                "messages": [{"role": "user", "content": f"Write to {MAIL}."}],
            }
            headers = {"authorization": "Bearer sk-mine-0123456789-0123456789"}
            url = f"{server.base_url}/chat/completions"
            assert wire.request("POST", url, body, headers).status == 200
            deadline = time.monotonic() + 20
            while not all(each.received for each in vendors.values()):
                assert time.monotonic() < deadline, [
                    len(each.received) for each in vendors.values()
                ]
                time.sleep(0.02)
        for vendor in vendors.values():
            for each in vendor.received:
                assert MAIL.encode() not in each.content
                assert b"<EMAIL_1>" in each.content


def test_earlier_turns_that_are_relayed_are_asked_about(tmp_path: Path) -> None:
    """What is kept here of a conversation is no part of what its client sends."""
    with NativeVendor() as vendor, NativeVendor() as service:
        service.will_answer(Answer([b'{"action": "BLOCKED"}']))
        hook = {"name": "ours", "scan": "input", "http": {"url": f"{service.url}/check"}}
        template = write_template(
            tmp_path / "earlier.yaml",
            server={"responses_store": {"path": str(tmp_path / "kept.sqlite")}},
            providers=[
                {"id": "echo", "type": "local::echo"},
                {
                    "id": "vendor",
                    "type": "remote::passthrough",
                    "config": {"base_url": f"{vendor.url}/v1", "wires": ["chat", "responses"]},
                },
            ],
            models=[
                {"id": "echo", "provider": "echo"},
                {"id": "watched", "provider": "vendor", "guardrails": [hook]},
            ],
        )
        with running(template) as server:
            url = f"{server.base_url}/responses"
            first = wire.request("POST", url, {"model": "echo", "input": "I like cheese."})
            body = {
                "model": "watched",
                "input": "And you?",
                "previous_response_id": first.json()["id"],
            }
            assert wire.request("POST", url, body).status == 400
            asked = json.loads(service.last.content)["texts"][0]
        assert "cheese" in asked
        assert asked.count("And you?") == 1
        assert not vendor.received
