"""What goes wrong at a vendor, and what the client hears of it."""

from __future__ import annotations

import openai
import pytest

from tests.integration.relay import Gateway, chat

# The vendor answers, and says no. Behaviour; the client's status; what its error says.
VENDOR_ERRORS = [
    ("status-400", 400, {"message": "Bad 'top_p'.", "type": "bad_thing", "param": "top_p"}),
    ("status-400", 400, {"code": "too_odd"}),
    ("status-401", 502, {"code": "upstream_authentication"}),
    ("status-403", 502, {"code": "upstream_authentication"}),
    ("status-404", 404, {"message": "No such model.", "code": "model_not_found"}),
    ("status-422", 422, {}),
    ("status-429", 429, {"message": "Slow down.", "type": "tokens", "code": "rate_limit_exceeded"}),
    ("status-500", 500, {"message": "Something broke.", "type": "server_error"}),
    ("status-503", 503, {"message": "Overloaded.", "type": "overloaded"}),
    ("error-as-text", 404, {"message": "model 'x' not found, try pulling it first"}),
    ("error-first", 429, {}),
]

# The vendor answers with what makes no sense.
NONSENSE = [
    "html-502",
    "html-200",
    "torn-json",
    "json-array",
    "json-null",
    "empty-body",
    "error-200",
    "not-http",
    "cut-before-reply",
    "cut-inside-head",
    "cut-inside-body",
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("name", "status", "expected"), VENDOR_ERRORS)
def test_a_vendors_error_survives(
    gateway: Gateway, name: str, status: int, expected: dict[str, str], stream: bool
) -> None:
    if name == "error-first" and not stream:
        name = "status-429"
    reply = gateway.post(chat(name, stream=stream))
    assert reply.status == status
    error = reply.error()
    for key, value in expected.items():
        if key == "message":
            assert value in error["message"]
        else:
            assert error[key] == value


def test_the_request_id_is_ours_and_the_vendors_has_a_header_of_its_own(gateway: Gateway) -> None:
    reply = gateway.post(chat("status-503"))
    (own,) = reply.headers.get_all("x-request-id")
    assert own.startswith("req_")
    assert own != "req_of_the_vendor"
    assert reply.headers["x-upstream-request-id"] == "req_of_the_vendor"
    assert "scripted/status-503" in gateway.server.wait_for_log(own)
    assert "the vendor's request req_of_the_vendor" in gateway.server.wait_for_log(own)
    reply = gateway.post(chat("status-503"), headers={"x-request-id": "my-own"})
    assert reply.headers.get_all("x-request-id") == ["my-own"]
    assert reply.headers["x-upstream-request-id"] == "req_of_the_vendor"


def test_what_fastapi_says_is_told(gateway: Gateway) -> None:
    assert "Input should be a number" in gateway.post(chat("status-422")).error()["message"]


def test_an_error_keeps_the_headers_that_help(gateway: Gateway, request_id: str) -> None:
    reply = gateway.post(chat("status-429"), headers={"x-request-id": request_id})
    assert reply.headers["retry-after"] == "17"
    assert reply.headers["retry-after-ms"] == "16500"
    assert reply.headers["x-ratelimit-limit-requests"] == "60"
    assert reply.headers["x-ratelimit-remaining-tokens"] == "0"
    assert reply.headers.get_all("x-request-id") == [request_id]
    assert reply.headers["set-cookie"] is None
    assert reply.headers["server"] is None
    assert gateway.post(chat("status-503")).headers["retry-after"] == "30"


def test_the_sdk_raises_its_own_exceptions(gateway: Gateway) -> None:
    expected: dict[str, type[openai.APIStatusError]] = {
        "status-400": openai.BadRequestError,
        "status-401": openai.InternalServerError,
        "status-404": openai.NotFoundError,
        "status-422": openai.UnprocessableEntityError,
        "status-429": openai.RateLimitError,
        "status-500": openai.InternalServerError,
        "html-502": openai.InternalServerError,
    }
    for name, exception in expected.items():
        for stream in (False, True):
            with pytest.raises(exception) as raised:
                gateway.openai.chat.completions.create(**chat(name, stream=stream))
            assert type(raised.value) is exception
    with pytest.raises(openai.BadRequestError) as refused:
        gateway.openai.chat.completions.create(**chat("status-400"))
    assert (refused.value.param, refused.value.code) == ("top_p", "too_odd")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_is_502(gateway: Gateway, name: str, stream: bool) -> None:
    reply = gateway.post(chat(name, stream=stream))
    assert reply.status == 502
    error = reply.error()
    assert "scripted" in error["message"], "the message does not name the provider"
    assert "<html" not in error["message"]
    assert "Traceback" not in error["message"]


def test_a_page_is_told_by_its_title(gateway: Gateway) -> None:
    assert "502 Bad Gateway" in gateway.post(chat("html-502")).error()["message"]


def test_an_error_in_a_reply_of_200_is_told(gateway: Gateway) -> None:
    error = gateway.post(chat("error-200")).error()
    assert "The GPU fell over." in error["message"]
    assert error["code"] == "gpu_lost"


def test_json_that_is_no_completion_is_502(gateway: Gateway) -> None:
    assert gateway.post(chat("no-choices")).status == 502


def test_an_empty_error_keeps_its_status(gateway: Gateway) -> None:
    reply = gateway.post(chat("empty-500"))
    assert reply.status in (500, 502)
    assert "500" in reply.error()["message"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("provider", ["refused", "nameless", "not-tls"])
def test_a_vendor_that_cannot_be_reached_is_502(
    gateway: Gateway, provider: str, stream: bool
) -> None:
    reply = gateway.post(chat(f"{provider}/plain", stream=stream))
    assert reply.status == 502
    assert provider in reply.error()["message"]


@pytest.mark.parametrize(
    ("name", "stream"),
    [
        ("impatient/holds", False),
        ("impatient/holds", True),
        ("impatient/hangs-inside-body", False),
        ("hurried/holds", False),
        ("hurried/holds", True),
    ],
)
def test_a_vendor_that_is_too_slow_is_504(
    gateway: Gateway, request_id: str, name: str, stream: bool
) -> None:
    reply = gateway.post(chat(name, stream=stream), headers={"x-request-id": request_id})
    assert reply.status == 504
    assert name.partition("/")[0] in reply.error()["message"]
    gateway.upstream.request(request_id).wait_until_disconnected()


def test_the_gateway_has_no_traceback_to_show(gateway: Gateway) -> None:
    for name in NONSENSE:
        gateway.post(chat(name))
    assert "Traceback" not in gateway.server.log
