"""Vendors' errors, in the shapes that they really have."""

from __future__ import annotations

import email.utils
import json
import time
from typing import Any

import pytest

from llama_compat.dialects.openai.finish_reasons import BrokenOffError
from llama_compat.error_classes import ErrorClass
from llama_compat.wire.json_fields import to_raw
from providers.remote.upstream.vendor_errors import (
    NO_ERROR,
    error_in_answer,
    error_in_stream,
    makes_no_sense,
    relayed_headers,
    vendor_error,
)

KEY = "sk-secret-key-of-the-template"


def shown(
    status: int, body: Any, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, Any]]:
    """Status and error that the client sees."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    error = vendor_error("mine", status, headers or {}, raw)
    return error.status, error.body()["error"]


SHAPES: list[tuple[str, int, Any, dict[str, Any]]] = [
    (
        "OpenAI",
        400,
        {"error": {"message": "Bad.", "type": "odd_error", "param": "top_p", "code": "odd"}},
        {"message": "Bad.", "type": "odd_error", "param": "top_p", "code": "odd"},
    ),
    (
        "Anthropic",
        529,
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
        {"message": "Overloaded", "type": "overloaded_error", "param": None, "code": None},
    ),
    (
        "Gemini",
        404,
        {"error": {"code": 404, "message": "No model.", "status": "NOT_FOUND"}},
        {"message": "No model.", "type": "not_found_error", "code": "NOT_FOUND"},
    ),
    (
        "Gemini's list",
        429,
        [{"error": {"code": 429, "message": "Quota.", "status": "RESOURCE_EXHAUSTED"}}],
        {"message": "Quota.", "code": "rate_limit_exceeded"},
    ),
    ("Ollama", 404, {"error": "model 'x' not found"}, {"message": "model 'x' not found"}),
    (
        "Hugging Face",
        422,
        {"error": "Input too long", "error_type": "validation"},
        {"message": "Input too long", "type": "validation"},
    ),
    (
        "vLLM",
        400,
        {"object": "error", "message": "Too long.", "type": "BadRequestError", "code": 400},
        {"message": "Too long.", "type": "BadRequestError", "code": "400"},
    ),
    (
        "FastAPI",
        422,
        {"detail": [{"loc": ["body", "messages", 0], "msg": "Field required", "type": "missing"}]},
        {"message": "messages.0: Field required", "param": "messages.0"},
    ),
    ("FastAPI's text", 404, {"detail": "Not Found"}, {"message": "Not Found"}),
    (
        "Mistral",
        422,
        {
            "object": "error",
            "message": {"detail": [{"loc": ["body", "user"], "msg": "Extra inputs"}]},
            "type": "invalid_request_error",
        },
        {"message": "user: Extra inputs", "type": "invalid_request_error"},
    ),
    (
        "no message",
        500,
        {"error": {"code": "x"}},
        {"message": '{"error": {"code": "x"}}', "code": "x"},
    ),
    ("another object", 418, {"a": 1}, {"message": '{"a": 1}'}),
]


@pytest.mark.parametrize(
    ("status", "body", "expected"), [each[1:] for each in SHAPES], ids=[each[0] for each in SHAPES]
)
def test_an_error_survives(status: int, body: Any, expected: dict[str, Any]) -> None:
    seen_status, error = shown(status, body)
    assert seen_status == status
    assert {name: error[name] for name in expected} == expected
    assert set(error) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize(
    "body", [{"error": {"message": f"Bad key {KEY}"}}, b"", b"<html>no</html>"]
)
def test_a_refused_key_is_not_the_clients(status: int, body: Any) -> None:
    seen_status, error = shown(status, body)
    assert seen_status == 502
    assert error["code"] == "upstream_authentication"
    assert "'mine'" in error["message"]
    assert str(status) in error["message"]
    assert KEY not in error["message"]


def test_geminis_refused_key() -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}]
    status, error = shown(400, {"error": {"code": 400, "message": "No.", "details": details}})
    assert (status, error["code"]) == (502, "upstream_authentication")


@pytest.mark.parametrize(
    ("status", "body", "seen_status", "said"),
    [
        (502, b"<html><title>502 Bad\nGateway</title><h1>x</h1></html>", 502, "502 Bad Gateway"),
        (502, b'<HTML><TITLE id="a">A &amp; B</Title>', 502, "A & B"),
        (502, b"<html><title>" * 5000, 502, "without a title"),
        (502, b"<html><title" * 5000, 502, "without a title"),
        (503, b"<!DOCTYPE html><body>long</body>", 503, "503"),
        (404, b"<html><title>Welcome</title></html>", 502, "base_url"),
        (429, b"slow down", 429, "slow down"),
        (500, b"", 500, "empty body"),
        (500, b'{"error": {"mess', 500, "500"),
        (500, b'{"error": {"message": ' + b"[" * 900 + b"]" * 900 + b"}}", 500, "500"),
        (500, b"[" * 100_000, 500, "500"),
        (500, b"\xff\xfe\x00binary", 500, "500"),
        (302, b"", 502, "redirection"),
        (407, b"", 502, "407"),
    ],
)
def test_what_is_no_json(status: int, body: bytes, seen_status: int, said: str) -> None:
    status, error = shown(status, body)
    assert status == seen_status
    assert said in error["message"]
    assert "'mine'" in error["message"]
    assert "<" not in error["message"]


def test_long_text_is_cut() -> None:
    assert len(shown(500, b"x" * 100_000)[1]["message"]) < 600


@pytest.mark.parametrize("status", [407, 600, 999])
def test_a_status_that_the_client_can_not_have_is_502(status: int) -> None:
    assert shown(status, {"error": {"message": "Odd."}})[0] == 502
    assert shown(status, b"Odd.")[0] == 502


def test_half_a_character_in_an_error_is_a_whole_one() -> None:
    """For no language but JSON's escapes can say it, and not every client's has those."""
    body = b'{"error":{"message":"Bad \\ud83d.","code":"\\ude42"}}'
    error = json.loads(vendor_error("mine", 400, {}, body).json())["error"]
    assert (error["message"], error["code"]) == ("Bad \ufffd.", "\ufffd")


@pytest.mark.parametrize("body", [b"", b"slow down", b"<html><title>Slow down</title></html>"])
def test_a_rate_limit_has_openais_code_whatever_the_body(body: bytes) -> None:
    error = vendor_error("mine", 429, {}, body)
    assert (error.status, error.code) == (429, "rate_limit_exceeded")


@pytest.mark.parametrize("value", [None, "", False, {}, [], 0])
def test_what_says_nothing_is_no_error(value: Any) -> None:
    assert to_raw(value) in NO_ERROR


def test_a_refused_key_may_come_with_status_200() -> None:
    error = {"message": "Incorrect API key: sk-se***late", "code": 401}
    refused = error_in_answer("mine", json.dumps({"error": error}).encode())
    assert (refused.status, refused.code) == (502, "upstream_authentication")
    assert "sk-se" not in refused.message


def test_headers_that_help_are_relayed() -> None:
    headers = {
        "Retry-After": "7",
        "retry-after-ms": "6500",
        "X-RateLimit-Remaining-Tokens": "0",
        "X-Request-Id": "req_vendor",
        "Set-Cookie": "a=b",
        "Server": "vendor",
        "openai-organization": "org",
        "x-ratelimit-odd": "caf\u00e9",
    }
    expected = {
        "retry-after": "7",
        "retry-after-ms": "6500",
        "x-ratelimit-remaining-tokens": "0",
        "x-upstream-request-id": "req_vendor",
    }
    assert relayed_headers(headers) == expected
    assert vendor_error("mine", 429, headers, b"{}").headers == expected


@pytest.mark.parametrize(
    ("said", "relayed"),
    [
        ({"retry-after": "20.2"}, {"retry-after": "21"}),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, {"retry-after": "0"}),
        ({"retry-after": "1e999"}, {}),
        ({"retry-after": "1e300"}, {}),
        ({"retry-after": "-5"}, {}),
        ({"retry-after": "nan"}, {}),
        ({"retry-after": "tomorrow"}, {}),
        ({"retry-after": ""}, {}),
        (
            {"retry-after": "9", "retry-after-ms": "-1"},
            {"retry-after": "9", "retry-after-ms": "9000"},
        ),
        ({"retry-after-ms": "inf"}, {}),
        ({"retry-after-ms": "20.5"}, {"retry-after-ms": "21"}),
    ],
)
def test_when_to_come_back_is_relayed_as_it_is_understood(
    said: dict[str, str], relayed: dict[str, str]
) -> None:
    assert relayed_headers(said) == relayed
    error = vendor_error("mine", 429, said, b"{}")
    assert error.headers == relayed
    assert (error.retry_after is None) is (not relayed)


def test_a_date_is_relayed_as_seconds() -> None:
    date = email.utils.formatdate(time.time() + 7200, usegmt=True)
    assert 7000 < int(relayed_headers({"Retry-After": date})["retry-after"]) <= 7201


def test_geminis_delay_is_a_retry_after() -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.07s"}]
    body = json.dumps({"error": {"message": "Quota.", "details": details}}).encode()
    assert vendor_error("mine", 429, {}, body).headers == {"retry-after": "35"}
    assert vendor_error("mine", 429, {"Retry-After": "1"}, body).headers == {"retry-after": "1"}


def test_a_delay_without_end_is_none() -> None:
    details = [{"retryDelay": "1" * 5000 + "s"}]
    body = json.dumps({"error": {"message": "Quota.", "details": details}}).encode()
    assert vendor_error("mine", 429, {}, body).headers == {}


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ({"message": "Slow.", "code": 429}, 429),
        ({"message": "Slow.", "code": "503"}, 503),
        ({"message": "Slow.", "type": "overloaded_error"}, 529),
        ({"message": "Slow.", "type": "timeout_error"}, 504),
        ({"message": "Slow.", "type": "request_too_large"}, 413),
        ({"message": "Slow.", "type": "billing_error"}, 402),
        ({"message": "Slow.", "code": 524}, 524),
        ({"type": "error", "message": "Slow.", "code": "rate_limit_exceeded"}, 429),
        ({"message": "Slow.", "code": 401}, 502),
        ({"message": "Slow.", "code": "odd"}, 502),
        ({"message": "Slow.", "code": True}, 502),
        ({"message": "Slow."}, 502),
        ({"message": "Slow.", "code": 400}, 400),
    ],
)
def test_an_error_that_comes_with_200_may_have_a_status(error: dict[str, Any], status: int) -> None:
    data = json.dumps({"error": error}).encode()
    assert error_in_stream("mine", data).status == status
    assert error_in_answer("mine", data).status == status
    assert error_in_stream("mine", data).type != "error"


@pytest.mark.parametrize("data", [b"", b"[]", b"text", b'"text"', b"[[[["])
def test_an_error_that_is_no_json(data: bytes) -> None:
    for error in (error_in_stream("mine", data), error_in_answer("mine", data)):
        assert error.status == 502
        assert error.message


@pytest.mark.parametrize(
    ("status", "body", "ours"),
    [
        (
            400,
            {
                "error": {
                    "code": 400,
                    "message": "exceeds the available context size (512 tokens)",
                    "type": "exceed_context_size_error",
                }
            },
            (400, "context_length_exceeded"),
        ),
        (
            413,
            {"error": {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"}},
            (400, "context_length_exceeded"),
        ),
        (402, {"error": {"message": "Insufficient Balance"}}, (402, "insufficient_quota")),
        (403, {"error": {"message": "Flagged by moderation."}}, (403, "content_filter")),
        (400, {"error": {"message": "no", "code": "own_word"}}, (400, "own_word")),
    ],
)
def test_the_code_is_openais_whatever_vendor_it_was(
    status: int, body: object, ours: tuple[int, str]
) -> None:
    error = vendor_error("p", status, {}, json.dumps(body).encode())
    assert (error.status, error.code) == ours


def test_a_reply_that_was_broken_off_has_a_code_of_its_own() -> None:
    error = makes_no_sense("p", BrokenOffError("abort"))
    assert (error.status, error.code) == (502, "upstream_aborted")
    assert "'abort'" in error.message


@pytest.mark.parametrize(
    ("status", "headers", "body", "kind", "type"),
    [
        (
            429,
            {"x-amzn-errortype": "ThrottlingException:http://internal.amazon.com/x/"},
            b'{"message":"Too many tokens, please wait before trying again."}',
            ErrorClass.rate_limit,
            "ThrottlingException",
        ),
        (
            400,
            {},
            b'{"__type":"com.amazon.coral.service#ThrottlingException","Message":"Slow down"}',
            ErrorClass.rate_limit,
            "ThrottlingException",
        ),
        (
            429,
            {"x-amzn-errortype": "ModelNotReadyException"},
            b'{"message":"Not ready"}',
            ErrorClass.overloaded,
            "ModelNotReadyException",
        ),
        (
            400,
            {"x-amzn-errortype": "ServiceQuotaExceededException"},
            b'{"message":"No more"}',
            ErrorClass.quota,
            "ServiceQuotaExceededException",
        ),
        (
            408,
            {"x-amzn-errortype": "ModelTimeoutException"},
            b'{"message":"Too long"}',
            ErrorClass.timeout,
            "ModelTimeoutException",
        ),
        (
            400,
            {"x-amzn-errortype": "ValidationException"},
            b'{"message":"The provided model identifier is invalid."}',
            ErrorClass.bad_request,
            "ValidationException",
        ),
    ],
)
def test_an_error_of_awss(
    status: int, headers: dict[str, str], body: bytes, kind: ErrorClass, type: str
) -> None:
    error = vendor_error("aws", status, headers, body)
    assert (error.error_class, error.type) == (kind, type)


def test_credentials_that_aws_does_not_take_are_about_the_key_whatever_the_status() -> None:
    for headers, body in (
        ({"x-amzn-errortype": "ExpiredTokenException:x"}, b'{"message":"token abc expired"}'),
        ({}, b'{"__type":"x#InvalidSignatureException","message":"abc"}'),
    ):
        error = vendor_error("aws", 400, headers, body)
        assert (error.status, error.code) == (502, "upstream_authentication")
        assert "abc" not in error.message
