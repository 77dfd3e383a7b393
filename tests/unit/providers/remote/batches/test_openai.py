"""What those that follow OpenAI's batch API say, in whatever shape."""

from __future__ import annotations

import json
from typing import Any

import pytest

from providers.remote.batches.base import SKEW_SECONDS, Order, VendorProblem, VendorStatus
from providers.remote.batches.openai import OpenAIBatches, _Job, _older, _shown
from providers.remote.batches.rows import AZURES, MISTRALS, OPENAIS, TOGETHERS, BatchRow
from providers.remote.config import RemoteConfig
from providers.remote.upstream.deferred import Unsent
from providers.remote.upstream.exchanges import Upstream

ORDER = Order("order_1", "/v1/chat/completions", "m", {})


def batches(row: BatchRow = OPENAIS) -> OpenAIBatches:
    url = "https://vendor.example/v1"
    return OpenAIBatches("v", Upstream("v", RemoteConfig(base_url=url), {}), url, row)


@pytest.mark.parametrize(
    ("row", "path", "endpoint"),
    [
        (OPENAIS, "/chat/completions", "/v1/chat/completions"),
        (OPENAIS, "/responses", "/v1/responses"),
        (OPENAIS, "/responses/compact", None),
        (TOGETHERS, "/embeddings", None),
        (AZURES, "/openai/deployments/gpt/chat/completions?api-version=1", "/v1/chat/completions"),
        (AZURES, "/openai/v1/responses", "/v1/responses"),
    ],
)
def test_what_a_line_may_ask(row: BatchRow, path: str, endpoint: str | None) -> None:
    assert batches(row).endpoint(Unsent(path, {}, b"{}")) == endpoint


def test_a_line_is_one() -> None:
    body = b'{"model":"m",\n\r\n "messages":[]}'
    line = batches().line("order_1-7", "/v1/chat/completions", body)
    assert b"\n" not in line
    assert json.loads(line) == {
        "custom_id": "order_1-7",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"model": "m", "messages": []},
    }
    assert set(json.loads(batches(MISTRALS).line("a", "/v1", body))) == {"custom_id", "body"}


def test_what_it_is_sent_in() -> None:
    envelope = batches(TOGETHERS).envelope(ORDER)
    assert b'name="purpose"\r\n\r\nbatch-api\r\n' in envelope.before
    boundary = envelope.content_type.partition("boundary=")[2].encode()
    assert envelope.before.startswith(b"--" + boundary)
    assert envelope.after.endswith(b"--" + boundary + b"--\r\n")


@pytest.mark.parametrize(
    ("line", "status", "was_cancelled"),
    [
        ({"response": {"status_code": 200, "body": {"a": 1}}, "error": None}, 200, False),
        ({"response": {"status_code": 400, "body": {"error": {}}}, "error": None}, 400, False),
        ({"response": None, "error": {"code": "batch_expired", "message": "late"}}, 0, False),
        ({"response": None, "error": {"code": "batch_cancelled", "message": "c"}}, 0, True),
        ({"response": None, "error": {"code": "odd", "message": "what"}}, 500, False),
        ({"error": "a text"}, 500, False),
        ({"error": {"code": 422, "message": "no"}}, 422, False),
        ({"response": {"status_code": 429, "body": None}, "error": {"message": "n"}}, 429, False),
    ],
)
def test_results(line: dict[str, Any], status: int, was_cancelled: bool) -> None:
    answer = batches().answer(json.dumps({"custom_id": "a-1", **line}).encode())
    assert (answer.custom_id, answer.status) == ("a-1", status)
    assert answer.was_cancelled is was_cancelled
    if status:
        json.loads(answer.body)


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b'{"response": {}}'])
def test_nonsense_is_none(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        batches().answer(line)


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("validating", VendorStatus.running),
        ("Finalizing", VendorStatus.running),
        ("cancelling", VendorStatus.running),
        ("CANCELING", VendorStatus.running),
        ("COMPLETED", VendorStatus.ended),
        ("SUCCESS", VendorStatus.ended),
        ("TIMEOUT_EXCEEDED", VendorStatus.expired),
        ("EXPIRED", VendorStatus.expired),
        ("cancelled", VendorStatus.cancelled),
        ("FAILED", VendorStatus.failed),
        ("something new", VendorStatus.running),
    ],
)
def test_statuses(said: str, status: VendorStatus) -> None:
    assert _shown(_Job("b", said)).status is status


@pytest.mark.parametrize(
    ("told", "problems"),
    [
        (
            {"errors": {"data": [{"code": "c", "message": "m", "line": 3}]}},
            [VendorProblem("c", "m", 3)],
        ),
        ({"errors": [{"message": "m", "count": 2}]}, [VendorProblem("", "m")]),
        ({"error": "it failed"}, [VendorProblem("", "it failed")]),
        ({}, []),
    ],
)
def test_why_it_was_refused(told: dict[str, Any], problems: list[VendorProblem]) -> None:
    assert _shown(_Job("b", "failed", **told)).problems == problems


@pytest.mark.parametrize(
    ("created", "is_older"),
    [
        (9000 - SKEW_SECONDS, False),
        (8999 - SKEW_SECONDS, True),
        (9001, False),
        ("2026-11-23T00:00:00Z", False),
        (None, False),
    ],
)
def test_how_old_a_batch_has_to_be_that_is_not_looked_behind(created: Any, is_older: bool) -> None:
    """The vendor's clock may be late."""
    order = Order("order_1", "/v1/chat/completions", "m", {}, asked=9000.0)
    assert _older(_Job("b", "running", created_at=created), order) is is_older
