"""What tools gave that the server runs: texts, and pictures that a model judges."""

from __future__ import annotations

from typing import Any

import pytest

from llama_compat.guardrails.asked.said import Said
from llama_compat.guardrails.checks import Checks
from llama_compat.guardrails.given import screened
from llama_compat.guardrails.guard import Guard
from llama_compat.guardrails.settings import CheckSettings
from llama_compat.hosted.vocabulary import HostedCall, WebSource

PICTURES = ("data:image/png;base64,AAAA", "data:image/png;base64,BBBB")


class Judge:
    """Finds one picture."""

    def __init__(self) -> None:
        self.shown: list[str | None] = []

    async def __call__(self, check: CheckSettings, said: Said) -> bool:
        assert said.place == "tool_results"
        self.shown.append(said.picture)
        return said.picture == PICTURES[1]


def guard_of(judge: Judge, **check: Any) -> Guard:
    images = {"model": "j", "format": "policy", "policy": "None."}
    settings = {"name": "pictures", "images": images, **check}
    return Guard(Checks([CheckSettings.model_validate(settings)]), judge)


@pytest.mark.parametrize("mode", ["block", "redact", "monitor"])
async def test_pictures_of_tools_are_judged_once(mode: str) -> None:
    judge = Judge()
    guard = guard_of(judge, mode=mode)
    call = HostedCall("1", "mcp", "look", output="See:", images=PICTURES)
    for _ in range(1 if mode == "block" else 2):
        seen = await screened(call, guard)
        if mode == "block":
            assert seen is None
            continue
        assert seen is not None
        hides = mode == "redact"
        assert seen.images == (PICTURES[:1] if hides else PICTURES)
        assert seen.output == ("See:\n<IMAGE_1>" if hides else "See:")
    assert sorted(filter(None, judge.shown)) == list(PICTURES)


async def test_texts_of_tools_are_looked_through_wherever_they_are() -> None:
    check = {"name": "pii", "scan": "tool_results", "patterns": ["emails"], "mode": "redact"}
    guard = Guard(Checks([CheckSettings.model_validate(check)]))
    mail = "alice@example.com"
    source = WebSource("https://a.example", title=mail, text=mail)
    tool = {"name": "f", "description": mail}
    seen = await screened(
        HostedCall("1", "web_search", "s", output=mail, sources=(source,), tools=(tool,)), guard
    )
    assert seen is not None
    assert mail not in repr(seen)
    assert repr(seen).count("<EMAIL_1>") == 4
