"""Guardrails that are asked about whole texts: models of the template, vendors and services."""

from __future__ import annotations

import json
import math
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration import wire
from tests.integration.native_vendor import Answer, NativeVendor
from tests.integration.server_process import ServerProcess, running, write_template

BOTH = ["input", "output"]
POLICY = {"policy": "Nobody talks about cheese."}

CHECKS: dict[str, dict[str, Any]] = {
    "llama-guard": {"judge": {"model": "judge", "format": "llama_guard"}},
    "shield-gemma": {"judge": {"model": "judge", "format": "shield_gemma", **POLICY}},
    "safeguard": {"judge": {"model": "judge", "format": "gpt_oss_safeguard", **POLICY}},
    "moderations": {"moderations": {"model": "judge"}},
    "violence": {"moderations": {"model": "judge", "categories": ["violence"]}},
    "topics": {"topics": {"model": "judge", "deny": ["cheese"]}},
    "hook": {"http": {"url": "HOOK", "headers": {"x-key": "hush"}}},
}


@dataclass
class Judged:
    """A server whose guardrails ask `judge`."""

    server: ServerProcess
    judge: NativeVendor
    storage: Path

    def ask(self, model: str, text: str, *, stream: bool = False) -> wire.Reply:
        body = {
            "model": model,
            "stream": stream,
            "messages": [{"role": "user", "content": text}],
        }
        return wire.request("POST", f"{self.server.base_url}/chat/completions", body)

    def will_say(self, answer: Any, status: int = 200) -> None:
        self.judge.will_answer(Answer([json.dumps(answer).encode()], status=status))

    def recorded(self, reply: wire.Reply) -> str:
        """What guardrails found, by the record of a request."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with closing(sqlite3.connect(self.storage)) as database:
                statement = "SELECT guardrails FROM records WHERE request_id = ?"
                for row in database.execute(statement, (reply.headers["x-request-id"],)):
                    return str(row[0])
        raise AssertionError("it is not recorded")


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judged]:
    folder = tmp_path_factory.mktemp("judges")
    with ExitStack() as stack:
        judge = stack.enter_context(NativeVendor())
        checks = {
            name: {**check, "http": {**check["http"], "url": f"{judge.url}/v1/check?x=1"}}
            if "http" in check
            else check
            for name, check in CHECKS.items()
        }
        more: dict[str, dict[str, Any]] = {
            "monitor": {**CHECKS["llama-guard"], "mode": "monitor", "scan": BOTH},
            "lenient": {**CHECKS["llama-guard"], "on_error": "allow", "scan": BOTH},
            "short": {"max_characters": 10, "scan": "input"},
            "json": {"valid_json": True, "scan": "output"},
            "hasty": {**CHECKS["llama-guard"], "seconds": 0.3},
            "hasty-lenient": {**CHECKS["llama-guard"], "seconds": 0.3, "on_error": "allow"},
            "german": {"language": {"allow": ["de"]}, "scan": BOTH},
            "german-replies": {"language": {"allow": ["de"]}, "scan": "output", "window": 100},
            "windows": {**CHECKS["llama-guard"], "scan": "output", "window": 100},
        }
        template = write_template(
            folder / "judges.yaml",
            server={"storage": f"sqlite:{folder / 'storage.sqlite'}", "records": {}},
            providers=[
                {"id": "echo", "type": "local::echo"},
                {
                    "id": "judge",
                    "type": "remote::passthrough",
                    "config": {"base_url": f"{judge.url}/v1"},
                },
            ],
            models=[
                {"id": "judge", "provider": "judge"},
                {
                    "id": "ordered",
                    "provider": "echo",
                    "guardrails": [
                        {"name": "first", "scan": "input", "order": 2, **checks["hook"]},
                        {"name": "second", "scan": "input", "order": 1, "max_characters": 10},
                    ],
                },
                *(
                    {
                        "id": name,
                        "provider": "echo",
                        "guardrails": [{"name": name, "scan": "input", **check}],
                    }
                    for name, check in {**checks, **more}.items()
                ),
            ],
        )
        server = stack.enter_context(running(template))
        yield Judged(server, judge, folder / "storage.sqlite")


def chat(text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "judge",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }


def moderation(flagged: bool, **categories: bool) -> dict[str, Any]:
    return {"id": "1", "results": [{"flagged": flagged, "categories": categories}]}


def vectors(*of: list[float]) -> dict[str, Any]:
    data = [{"index": place, "embedding": each} for place, each in enumerate(of)]
    return {"object": "list", "data": data, "usage": {"prompt_tokens": 1, "total_tokens": 1}}


@pytest.mark.parametrize(
    ("model", "against", "fine"),
    [
        ("llama-guard", chat("\n\nunsafe\nS1"), chat("safe")),
        ("shield-gemma", chat("Yes, since"), chat("No. It")),
        ("safeguard", chat("1"), chat("0")),
        ("safeguard", chat('{"violation": 1}'), chat('{"violation": 0}')),
        ("moderations", moderation(True), moderation(False)),
        ("violence", moderation(True, violence=True), moderation(True, hate=True)),
        ("hook", {"action": "BLOCKED", "blocked_reason": "x"}, {"action": "NONE"}),
        ("hook", {"action": "GUARDRAIL_INTERVENED"}, {"action": "NONE"}),
    ],
)
def test_what_is_against_the_rules_is_blocked(
    judged: Judged, model: str, against: Any, fine: Any
) -> None:
    judged.will_say(against)
    reply = judged.ask(model, "I like cheese.")
    assert (reply.status, reply.error()["code"]) == (400, "content_filter")
    assert judged.recorded(reply) == f"{model}:block"
    assert b"I like cheese." in judged.judge.last.content
    judged.will_say(fine)
    reply = judged.ask(model, "I like cheese.")
    assert reply.status == 200
    assert judged.recorded(reply) == ""


def test_a_hook_is_asked_in_the_words_of_peers(judged: Judged) -> None:
    judged.will_say({"action": "NONE"})
    judged.ask("hook", "Hello")
    asked = judged.judge.last
    assert asked.path == "/v1/check?x=1"
    assert asked.headers["x-key"] == "hush"
    assert asked.body == {"texts": ["Hello"], "input_type": "request"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("v1/messages/count_tokens", {"messages": [{"role": "user", "content": "TEXT"}]}),
        ("v1/responses/input_tokens", {"input": "TEXT"}),
        (
            "v1beta/models/hook:countTokens",
            {"contents": [{"role": "user", "parts": [{"text": "TEXT"}]}]},
        ),
        (
            "v1/chat/completions",
            {
                "messages": [{"role": "user", "content": "Hi"}],
                "prediction": {"type": "content", "content": "TEXT"},
            },
        ),
    ],
)
def test_what_a_vendor_is_only_told_is_judged_too(
    judged: Judged, path: str, body: dict[str, Any]
) -> None:
    judged.will_say({"action": "BLOCKED"})
    reply = wire.request("POST", f"{judged.server.url}/{path}", {"model": "hook", **body})
    assert reply.status == 400, reply.body
    assert b"TEXT" in judged.judge.last.content


@pytest.mark.parametrize(("model", "status"), [("hasty", 400), ("hasty-lenient", 200)])
def test_a_judge_that_takes_too_long_has_failed(judged: Judged, model: str, status: int) -> None:
    never = threading.Event()
    judged.judge.will_answer(Answer([json.dumps(chat("safe")).encode()], after=never))
    try:
        reply = judged.ask(model, "Hi")
    finally:
        never.set()
    assert reply.status == status
    assert judged.recorded(reply) == f"{model}:error"


def test_checks_are_asked_in_their_order(judged: Judged) -> None:
    judged.will_say({"action": "BLOCKED"})
    reply = judged.ask("ordered", "A text of more than ten")
    assert judged.recorded(reply) == "second:block"
    assert not judged.judge.received


def test_topics_are_told_by_how_near_they_are(judged: Judged) -> None:
    judged.will_say(vectors([1.0, 0.0]))
    assert judged.ask("topics", "Cheddar").status == 400
    judged.will_say(vectors([math.sqrt(0.5), math.sqrt(0.5)]))
    assert judged.ask("topics", "Butter").status == 200
    assert len(judged.judge.received) == 1  # what is denied is asked about once


@pytest.mark.parametrize(
    ("answer", "status"),
    [(chat("I would rather not say."), 200), ({"error": {"message": "Gone"}}, 500), ({}, 200)],
)
def test_a_judge_that_fails_lets_nothing_by_unless_the_template_wants_it(
    judged: Judged, answer: Any, status: int
) -> None:
    judged.will_say(answer, status)
    reply = judged.ask("llama-guard", "Hi")
    assert reply.status == 400
    assert judged.recorded(reply) == "llama-guard:error"
    reply = judged.ask("lenient", "Hi")
    assert reply.status == 200
    assert judged.recorded(reply) == "lenient:error"


@pytest.mark.parametrize(
    ("model", "answer"),
    [
        ("llama-guard", chat("Safety comes first: this is against the rules.")),
        ("shield-gemma", chat("Not sure.")),
        ("shield-gemma", chat("None of it is fine.")),
        ("safeguard", chat("10")),
        ("safeguard", chat('{"violation": "maybe"}')),
        ("moderations", {"id": "1", "results": []}),
        ("moderations", {"id": "1", "results": "fine"}),
        ("violence", {"id": "1", "results": [{"flagged": False}]}),
        ("topics", vectors([0.0, 0.0])),
        ("topics", vectors([])),
        ("topics", {"object": "list", "data": [{"index": 0, "embedding": ["nan", 1]}]}),
        ("hook", {"action": "none"}),
        ("hook", {"action": ["NONE"]}),
        ("hook", ["NONE"]),
        ("hook", "NONE"),
    ],
)
def test_an_answer_that_says_nothing_is_no_verdict(judged: Judged, model: str, answer: Any) -> None:
    judged.will_say(answer)
    reply = judged.ask(model, "I like cheese.")
    assert (reply.status, reply.error()["code"]) == (400, "content_filter")
    assert judged.recorded(reply) == f"{model}:error"


def test_what_is_only_counted_goes_by(judged: Judged) -> None:
    judged.will_say(chat("unsafe\nS1"))
    for stream in (False, True):
        reply = judged.ask("monitor", "Hi there", stream=stream)
        assert reply.status == 200
        assert judged.recorded(reply) == "monitor:monitor"


def test_prompts_may_be_too_long(judged: Judged) -> None:
    assert judged.ask("short", "0123456789").status == 200
    assert judged.ask("short", "0123456789a").status == 400


def test_texts_may_have_to_be_in_a_language(judged: Judged) -> None:
    pytest.importorskip("py3langid", reason="needs the extra 'language'")
    german = "Das ist ein Satz, den in dieser Sprache jedermann versteht, und noch einer dazu. "
    english = "This is a sentence that everybody understands in this language, and another one. "
    for stream in (False, True):
        reply = judged.ask("german", german * 3, stream=stream)
        assert reply.status == 200
        assert b"content_filter" not in reply.body
        reply = judged.ask("german", english, stream=stream)
        assert (reply.status, reply.error()["code"]) == (400, "content_filter")
        assert judged.recorded(reply) == "german:block"
        reply = judged.ask("german-replies", german * 2 + english * 8, stream=stream)
        assert b'"finish_reason":"content_filter"' in reply.body
        assert (b"Sprache" in reply.body) is stream
        assert b"another" not in reply.body
        assert b"content_filter" not in judged.ask("german-replies", "OK.", stream=stream).body


@pytest.mark.parametrize("stream", [False, True])
def test_replies_may_have_to_be_json(judged: Judged, stream: bool) -> None:
    assert b"content_filter" not in judged.ask("json", '{"a": [1, 2]}', stream=stream).body
    reply = judged.ask("json", '{"a": [1, 2', stream=stream)
    assert b'"content_filter"' in reply.body
    assert b"[1" not in reply.body


def test_a_streamed_reply_is_judged_by_windows(judged: Judged) -> None:
    words = " ".join(f"word{number:04}" for number in range(60))
    judged.will_say(chat("safe"))
    assert judged.ask("windows", words, stream=True).body.count(b'"content":"') >= 60
    asked = [each.body["messages"][-1] for each in judged.judge.received]
    assert {each["role"] for each in asked} == {"assistant"}
    texts = [each["content"] for each in asked]
    assert "".join(texts) == words
    assert all(100 <= len(text) < 120 for text in texts[:-1])
    judged.will_say(chat("unsafe"))
    reply = judged.ask("windows", words, stream=True)
    assert b'"finish_reason":"content_filter"' in reply.body
    assert b"word" not in reply.body
