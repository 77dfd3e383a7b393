"""What the edge has worked out while it is off the event loop anyway."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import pytest
from msgspec import Raw

from llama_compat import extent
from llama_compat.dialects.openai.operations import CHAT
from llama_compat.wire.json_fields import encode_json
from routing.ingress.edge import _look, _look_and_estimate

BODY = encode_json({"model": "m", "messages": [{"role": "user", "content": "word " * 400}]})


@pytest.fixture
def estimates(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """An entry for each time that a prompt is estimated: the thread in which that was done."""
    threads: list[str] = []
    estimate = extent._tokens

    def noted(fields: Mapping[str, Raw], names: Sequence[str]) -> int:
        threads.append(threading.current_thread().name)
        return estimate(fields, names)

    monkeypatch.setattr(extent, "_tokens", noted)
    return threads


def test_a_large_prompt_is_estimated_where_it_is_parsed(estimates: list[str]) -> None:
    fields, asked = _look_and_estimate(CHAT, BODY, {})
    assert fields["model"] == Raw(b'"m"')
    assert len(estimates) == 1
    assert asked.extent.prompt.tokens > 400
    assert len(estimates) == 1


def test_otherwise_when_somebody_asks(estimates: list[str]) -> None:
    _, asked = _look(CHAT, BODY, {})
    assert estimates == []
    assert asked.extent.prompt.tokens > 400
    assert len(estimates) == 1
