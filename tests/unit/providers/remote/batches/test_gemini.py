"""What Gemini's batch API says."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from providers.remote.batches.base import VendorStatus
from providers.remote.batches.gemini import GeminiBatches, _Operation, _shown
from providers.remote.config import RemoteConfig
from providers.remote.upstream.deferred import Unsent
from providers.remote.upstream.exchanges import Upstream


def batches() -> GeminiBatches:
    url = "https://g.example/v1beta"
    return GeminiBatches("v", Upstream("v", RemoteConfig(base_url=url), {}), url)


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ({"response": {"candidates": []}}, 200),
        ({"error": {"code": 3, "message": "no"}}, 400),
        ({"error": {"code": 8, "message": "no"}}, 429),
        ({"error": {"code": 503, "message": "no"}}, 503),
        ({"error": {"code": 99, "message": "no"}}, 500),
        ({"error": "a text"}, 500),
    ],
)
def test_results(line: dict[str, Any], status: int) -> None:
    answer = batches().answer(json.dumps({"key": "a-1", **line}).encode())
    assert (answer.custom_id, answer.status) == ("a-1", status)


@pytest.mark.parametrize("line", [b"", b"{}", b'{"key": "a"}'])
def test_nonsense_is_none(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        batches().answer(line)


def test_what_a_line_may_ask() -> None:
    def asks(path: str) -> str | None:
        return batches().endpoint(Unsent(path, {}, b"{}"))

    assert asks("/models/gemini-3.8-flash:generateContent") == "models/gemini-3.8-flash"
    assert asks("/models/gemini-3.8-flash:countTokens") is None
    assert asks("/interactions") is None


@pytest.mark.parametrize(
    ("operation", "status", "outputs"),
    [
        ({"metadata": {"state": "BATCH_STATE_PENDING"}}, VendorStatus.running, []),
        (
            {
                "metadata": {"state": "BATCH_STATE_SUCCEEDED"},
                "response": {"responsesFile": "files/a"},
            },
            VendorStatus.ended,
            ["files/a"],
        ),
        (
            {"metadata": {"state": "JOB_STATE_EXPIRED", "output": {"responsesFile": "files/a"}}},
            VendorStatus.expired,
            ["files/a"],
        ),
        ({"error": {"code": 3, "message": "bad"}}, VendorStatus.failed, []),
    ],
)
def test_statuses(operation: dict[str, Any], status: VendorStatus, outputs: list[str]) -> None:
    shown = _shown(msgspec.convert({"name": "batches/1", **operation}, _Operation))
    assert (shown.status, list(shown.outputs)) == (status, outputs)


def test_counts_are_texts_there() -> None:
    said = b'{"name": "batches/1", "metadata": {"batchStats": {"successfulRequestCount": "7"}}}'
    assert _shown(batches().decoded(said, _Operation)).done == 7
