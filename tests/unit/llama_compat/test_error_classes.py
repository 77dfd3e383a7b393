"""The table of error classes, against what vendors say."""

from __future__ import annotations

import email.utils
import time

import pytest

from llama_compat.distribution.routing import RoutingSettings
from llama_compat.error_classes import FALLS_BACK, ErrorClass, classify
from llama_compat.errors import (
    APIError,
    not_offered,
    unsupported_capability,
    unsupported_parameter,
)
from providers.remote.upstream.vendor_errors import vendor_error

C = ErrorClass


@pytest.mark.parametrize(
    ("status", "type", "code", "message", "expected"),
    [
        # OpenAI
        (
            400,
            "invalid_request_error",
            "context_length_exceeded",
            "This model's maximum context length is 128000 tokens.",
            C.context_length,
        ),
        (429, "insufficient_quota", "insufficient_quota", "You exceeded ...", C.quota),
        (429, "requests", "rate_limit_exceeded", "Rate limit reached", C.rate_limit),
        (400, "invalid_request_error", "content_filter", "", C.content_filter),
        # Google's words for interactions, which in a stream come without a status.
        (502, None, "content_blocked", "", C.content_filter),
        (502, None, "quota_exceeded", "", C.quota),
        (502, None, "rate_limit_exceeded", "", C.rate_limit),
        (502, None, "authentication", "", C.authentication),
        (502, None, "service_unavailable", "", C.overloaded),
        (400, "invalid_request_error", None, "Unknown parameter: 'x'.", C.bad_request),
        (404, "invalid_request_error", "model_not_found", "No such model", C.not_found),
        (503, None, None, "The engine is currently overloaded", C.overloaded),
        (500, "server_error", None, "The server had an error", C.server_error),
        # llama.cpp
        (
            400,
            "exceed_context_size_error",
            "400",
            "the request exceeds the available context size",
            C.context_length,
        ),
        # vLLM, without a code
        (
            400,
            "BadRequestError",
            "400",
            "This model's maximum context length is 2048 tokens. However, you requested 3000",
            C.context_length,
        ),
        # Anthropic
        (
            400,
            "invalid_request_error",
            None,
            "prompt is too long: 210000 tokens > 200000 maximum",
            C.context_length,
        ),
        (529, "overloaded_error", None, "Overloaded", C.overloaded),
        (
            400,
            "invalid_request_error",
            None,
            "Your credit balance is too low to access the Anthropic API.",
            C.quota,
        ),
        (402, "billing_error", None, "", C.quota),
        # Gemini
        (429, None, "RESOURCE_EXHAUSTED", "Resource has been exhausted", C.rate_limit),
        (
            429,
            None,
            "RESOURCE_EXHAUSTED",
            "You exceeded your current quota, please check your plan",
            C.quota,
        ),
        (503, None, "UNAVAILABLE", "The model is overloaded.", C.overloaded),
        (504, None, "DEADLINE_EXCEEDED", "", C.timeout),
        (
            400,
            None,
            "INVALID_ARGUMENT",
            "The input token count (1200000) exceeds the maximum number of tokens allowed",
            C.context_length,
        ),
        # Azure
        (
            400,
            None,
            "content_filter",
            "The response was filtered due to the prompt triggering Azure OpenAI's content"
            " management policy.",
            C.content_filter,
        ),
        # ours
        (502, "upstream_error", "upstream_authentication", "", C.authentication),
        (504, "timeout_error", "upstream_timeout", "", C.timeout),
        (502, "upstream_error", "upstream_connection_lost", "", C.connection),
        (502, "upstream_error", "upstream_connection_failed", "", C.connection),
        (502, "upstream_error", "upstream_error", "", C.server_error),
        (401, "invalid_request_error", "invalid_api_key", "", C.authentication),
        (408, None, None, "", C.timeout),
        (413, None, "request_too_large", "too large", C.bad_request),
        (418, None, None, "", C.other),
        # proxies in front of vendors
        (520, "upstream_error", "upstream_error", "", C.server_error),
        (521, None, None, "", C.connection),
        (522, None, None, "", C.connection),
        (523, None, None, "", C.connection),
        (524, None, None, "", C.timeout),
        (525, None, None, "", C.connection),
        (526, None, None, "", C.connection),
        (527, None, None, "", C.server_error),
        (530, None, None, "", C.connection),
        (501, None, None, "", C.server_error),
        (505, None, None, "", C.server_error),
        (507, None, None, "", C.server_error),
        (598, None, None, "", C.timeout),
        (599, None, None, "", C.connection),
        # Groq, whose flex tier has no room
        (498, None, None, "Flex tier capacity exceeded", C.overloaded),
        # Text Generation Inference, and Google
        (424, "generation", None, "Request failed during generation", C.server_error),
        (499, None, "CANCELLED", "The operation was cancelled.", C.server_error),
    ],
)
def test_the_class_of_an_error(
    status: int, type: str | None, code: str | None, message: str, expected: ErrorClass
) -> None:
    assert classify(status, type, code, message) is expected


@pytest.mark.parametrize("status", range(500, 600))
def test_whatever_a_server_answers_with_another_target_may_be_asked(status: int) -> None:
    for body in (b"", b"error code: %d" % status, b"<html><title>x</title></html>", b"{}"):
        error = vendor_error("p", status, {}, body)
        assert error.status == status
        assert error.error_class in FALLS_BACK
        assert error.error_class.value in RoutingSettings().fall_back_on
        assert error.error_class.handling.blames_target


def test_a_wording_counts_only_with_its_status() -> None:
    assert classify(429, None, None, "prompt is too long") is C.rate_limit
    assert classify(400, None, None, "PROMPT IS TOO LONG") is C.context_length


def test_an_error_knows_its_class() -> None:
    assert APIError(529, "x").error_class is C.overloaded
    assert APIError(400, "x", code="context_length_exceeded").error_class is C.context_length


@pytest.mark.parametrize(
    "error",
    [
        unsupported_parameter("seed", "p"),
        unsupported_capability("p", "chats"),
        not_offered("p", "x"),
    ],
)
def test_what_a_provider_here_cannot_do_is_a_class_of_its_own(error: APIError) -> None:
    assert error.error_class is C.unsupported
    assert not error.was_sent
    vendors = APIError(error.status, error.message, code=error.code)
    assert vendors.error_class in (C.bad_request, C.not_found)  # a vendor's is about the request


HANDLING = {
    # class: retried, falls back, blamed, cools at once, retry-after counts, passes
    C.context_length: (0, 1, 0, 0, 0, 0),
    C.content_filter: (0, 1, 0, 0, 0, 0),
    C.quota: (0, 1, 1, 1, 1, 0),
    C.rate_limit: (1, 1, 1, 0, 1, 1),
    C.authentication: (0, 1, 1, 1, 0, 0),
    C.overloaded: (1, 1, 1, 0, 1, 1),
    C.timeout: (0, 1, 1, 0, 0, 1),
    C.connection: (1, 1, 1, 0, 0, 1),
    C.not_found: (0, 1, 0, 0, 0, 0),
    C.bad_request: (0, 0, 0, 0, 0, 0),
    C.server_error: (1, 1, 1, 0, 1, 1),
    C.unsupported: (0, 0, 0, 0, 0, 0),
    C.other: (0, 0, 0, 0, 0, 0),
}


def test_what_each_class_means_for_the_request_and_its_target() -> None:
    table = {
        kind: (
            kind.handling.retries,
            kind.handling.falls_back,
            kind.handling.blames_target,
            kind.handling.cools_at_once,
            kind.handling.heeds_retry_after,
            kind.handling.passes,
        )
        for kind in ErrorClass
    }
    assert table == HANDLING
    assert set(FALLS_BACK) == {kind for kind, row in HANDLING.items() if row[1]}


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "7", "retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "-7"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0),
    ],
)
def test_when_to_come_back(headers: dict[str, str], seconds: float | None) -> None:
    assert APIError(429, "x", headers=headers).retry_after == seconds


def test_a_date_to_come_back_at() -> None:
    date = email.utils.formatdate(time.time() + 100, usegmt=True)
    seconds = APIError(429, "x", headers={"retry-after": date}).retry_after
    assert seconds is not None
    assert 90 < seconds <= 100
