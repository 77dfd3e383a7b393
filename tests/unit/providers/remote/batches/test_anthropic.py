"""What Anthropic's Message Batches say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from providers.remote.batches.anthropic import AnthropicBatches
from providers.remote.batches.base import FoundBatch, Order
from providers.remote.config import RemoteConfig
from providers.remote.upstream.deferred import Unsent
from providers.remote.upstream.exchanges import Upstream


class Listed(AnthropicBatches):
    """Has one page of batches, each of so many lines that run."""

    lines: tuple[int, ...] = ()

    async def said(self, path: str, kind: Any, *, base_url: str | None = None) -> Any:
        made = "2026-11-23T10:00:00Z"
        listed = [
            {
                "id": f"msgbatch_{count}",
                "processing_status": "in_progress",
                "created_at": made,
                "request_counts": {"processing": count},
            }
            for count in self.lines
        ]
        return self.decoded(json.dumps({"data": listed}).encode(), kind)


def batches() -> AnthropicBatches:
    return AnthropicBatches("v", Upstream("v", RemoteConfig(base_url="https://v.example"), {}))


@pytest.mark.parametrize(
    ("result", "status", "was_cancelled"),
    [
        ({"type": "succeeded", "message": {"content": []}}, 200, False),
        ({"type": "canceled"}, 0, True),
        ({"type": "expired"}, 0, False),
        (
            {
                "type": "errored",
                "error": {"type": "error", "error": {"type": "invalid_request_error"}},
            },
            400,
            False,
        ),
        (
            {"type": "errored", "error": {"type": "error", "error": {"type": "overloaded_error"}}},
            529,
            False,
        ),
        ({"type": "errored", "error": {"error": {"type": "new"}}}, 500, False),
    ],
)
def test_results(result: dict[str, Any], status: int, was_cancelled: bool) -> None:
    line = json.dumps({"custom_id": "order_1-2", "result": result}).encode()
    answer = batches().answer(line)
    assert (answer.custom_id, answer.status) == ("order_1-2", status)
    assert answer.was_cancelled is was_cancelled


@pytest.mark.parametrize("line", [b"", b"{}", b'{"custom_id": "a", "result": {"type": "odd"}}'])
def test_nonsense_is_none(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        batches().answer(line)


def test_betas_are_of_the_order() -> None:
    """They are headers, of which a batch has one set for all of its lines."""
    headers = {"anthropic-beta": "one", "anthropic-version": "2023-06-01", "x-request-id": "a"}
    unsent = Unsent("/v1/messages", headers, b"{}")
    assert batches().headers(unsent) == {
        "anthropic-beta": "one",
        "anthropic-version": "2023-06-01",
    }
    assert batches().endpoint(Unsent("/v1/messages/count_tokens", {}, b"{}")) is None


def test_lines_are_a_part_of_the_order() -> None:
    envelope = batches().envelope(Order("order_1", "/v1/messages", "m", {}))
    lines = [batches().line(f"order_1-{n}", "/v1/messages", b'{"n":\n1}') for n in range(2)]
    body = envelope.before + envelope.between.join(lines) + envelope.after
    assert json.loads(body) == {
        "requests": [{"custom_id": f"order_1-{n}", "params": {"n": 1}} for n in range(2)]
    }


@pytest.mark.parametrize(("lines", "may_be"), [((2, 4), False), ((4, 3, 2), True), ((), False)])
async def test_one_that_runs_may_be_the_order_if_it_has_as_many_lines(
    lines: tuple[int, ...], may_be: bool
) -> None:
    found = Listed("v", Upstream("v", RemoteConfig(base_url="https://v.example"), {}))
    found.lines = lines
    order = Order("order_1", "/v1/messages", "m", {}, lines=3)
    assert await found.find(order) == FoundBatch(None, may_be)
