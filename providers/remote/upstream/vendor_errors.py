"""A vendor's error, in whatever shape, as OpenAI's; and which of its headers a client may see.

The shapes: OpenAI's `{"error": {"message", "type", "param", "code"}}`, which Anthropic and Gemini
vary; `{"error": "text"}` (Ollama, Hugging Face); `{"message", "type", "code"}` (vLLM, Mistral);
FastAPI's `{"detail": ...}`; AWS's `{"message"}`, whose type is in a header or in `__type`; and what
stands in front of a vendor: HTML, plain text, nothing.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec import Raw

from llama_compat.dialects.openai.finish_reasons import BrokenOffError
from llama_compat.error_classes import OPENAI_CODES, ErrorClass
from llama_compat.errors import APIError, upstream_error
from llama_compat.exchange import ADAPTED_HEADER, DROPPED_HEADER, VENDORS_ID_HEADER
from llama_compat.wire.json_fields import unicode_from_raw
from llama_compat.wire.retry_after import read_retry_after, retry_after

_NO_MESSAGE = "an error without a message"

NO_ERROR = (None, *map(Raw, (b"null", b'""', b"false", b"{}", b"[]", b"0")))
"""What an `error` may be in a reply that is none: some vendors have it in each."""

MAX_TEXT = 500
"""An error that is plain text is cut after as many characters."""

RELAYED_HEADERS = {
    "retry-after": "retry-after",
    "retry-after-ms": "retry-after-ms",
    "openai-processing-ms": "openai-processing-ms",
    # The router answers with the request id that it sent along; this is the vendor's own.
    "x-request-id": VENDORS_ID_HEADER,
    "request-id": VENDORS_ID_HEADER,
    "apim-request-id": VENDORS_ID_HEADER,
    "x-amzn-requestid": VENDORS_ID_HEADER,
    # What another of these servers left out, or said in another way.
    DROPPED_HEADER: DROPPED_HEADER,
    ADAPTED_HEADER: ADAPTED_HEADER,
}
_WAITS = frozenset({"retry-after", "retry-after-ms"})
RELAYED_PREFIXES = ("x-ratelimit-", "anthropic-ratelimit-")

STATUS_BY_TYPE = {
    "invalid_request_error": 400,
    "not_found_error": 404,
    "rate_limit_error": 429,
    "insufficient_quota": 429,
    "rate_limit_exceeded": 429,
    "server_error": 500,
    "api_error": 500,
    "service_unavailable_error": 503,
    "overloaded_error": 529,
    "authentication_error": 401,
    "permission_error": 403,
    "billing_error": 402,
    "request_too_large": 413,
    "timeout_error": 504,
    # https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html
    "AccessDeniedException": 403,
    "InternalServerException": 500,
    "ModelErrorException": 424,
    "ModelNotReadyException": 429,
    "ModelStreamErrorException": 424,
    "ModelTimeoutException": 408,
    "ResourceNotFoundException": 404,
    "ServiceUnavailableException": 503,
    "ThrottlingException": 429,
    "ValidationException": 400,
}
"""What the type or the code of an error means that has no status of its own, as it comes as an
event of a stream."""

ABOUT_THE_KEY = frozenset(
    {
        "ExpiredTokenException",
        "IncompleteSignatureException",
        "InvalidSignatureException",
        "MissingAuthenticationTokenException",
        "UnrecognizedClientException",
    }
)
"""AWS's types for credentials that it does not take, whatever the status."""

FINAL_STATUSES = frozenset({408, 413, 429})
"""Those below 500 that a proxy in front of the API gives with good reason."""


def relayed_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Those of a vendor's headers that mean something to the client, in lower case.

    When to come back is said in seconds from now, and not at all where that makes no sense: there
    are clients that wait as long as they are told.
    """
    relayed: dict[str, str] = {}
    for name, value in headers.items():
        ours = _relayed_as(name)
        if ours is not None and value.isascii() and value.isprintable():
            relayed[ours] = value
    said = relayed.keys() & _WAITS
    if said:
        wait = read_retry_after(relayed)
        waits = {} if wait is None else retry_after(wait)
        for name in said:
            relayed.pop(name)
        relayed |= {name: value for name, value in waits.items() if name in said}
    return relayed


@lru_cache(maxsize=1024)
def _relayed_as(name: str) -> str | None:
    name = name.lower()
    return RELAYED_HEADERS.get(name) or (name if name.startswith(RELAYED_PREFIXES) else None)


def vendor_error(provider: str, status: int, headers: Mapping[str, str], body: bytes) -> APIError:
    """What to tell the client of an answer with a `status` of 300 or more.

    Status, message, type, code and param are the vendor's. But it is the template's key that a 401
    or 403 is about, not the client's: that is 502, as is a redirection, and HTML where the API
    would have answered in JSON.

    Args:
        provider: the provider's id.
        status, headers, body: the answer.
    """
    relayed = relayed_headers(headers)
    if status < 400:
        error = upstream_error(
            provider,
            f"answered with a redirection (HTTP {status}), which is not followed. Check"
            " `base_url`.",
        )
    elif (report := _parse_report(body, headers)) is not None:
        error = _from_report(provider, status, report, body)
        if report.retry_after and "retry-after" not in relayed:
            relayed["retry-after"] = report.retry_after
    elif status in (401, 403):
        error = upstream_authentication(provider, status)
    else:
        text, is_html = plain_text(body)
        kept = status >= 500 or status in FINAL_STATUSES or not is_html
        error = upstream_error(
            provider,
            f"answered with HTTP {status}"
            + (f": {text}" if text else " and an empty body.")
            + ("" if kept else " That is no API's answer. Check `base_url`."),
            status=_our_status(status) if kept else 502,
        )
        error.code = OPENAI_CODES.get(error.error_class, error.code) if kept else error.code
    error.headers = relayed
    return error


def error_in_answer(provider: str, body: bytes) -> APIError:
    """What to tell of an error that came in an answer with status 200: its own status if it names
    one, as OpenRouter's do, or 502."""
    report = _parse_report(body) or _Report(message=_NO_MESSAGE)
    if report.is_about_the_key(report.status):
        return upstream_authentication(provider, report.status or 401)
    status = 502 if report.status in (None, 500) else report.status
    error = _from_report(provider, status, report)
    error.message = f"Provider '{provider}': answered with an error: {report.message}"
    error.code = error.code or "upstream_error"
    return error


_ERROR_MEMBERS = frozenset({"detail", "message", "errors", "msg"})


def is_error_in_other_words(members: Mapping[str, Any]) -> bool:
    """Whether a reply that lacks what it should have is an error as FastAPI, vLLM and others write
    them."""
    return not _ERROR_MEMBERS.isdisjoint(members)


def says_error(value: Any) -> bool:
    """Whether the `error` of an answer, raw or decoded, is one."""
    return value not in NO_ERROR if isinstance(value, Raw) else bool(value)


def says_error_in(fields: Mapping[str, Any]) -> bool:
    """Whether the members of an answer, raw or decoded, have an `error` that is one."""
    return says_error(fields.get("error"))


def is_error_event(fields: Mapping[str, Any], members: Collection[str]) -> bool:
    """Whether an event of a stream, raw or decoded, tells of an error: by that name, or in other
    words while it has none of the `members` with which a stream says something."""
    if says_error(fields.get("error")):
        return True
    return is_error_in_other_words(fields) and fields.keys().isdisjoint(members)


def error_in_stream(provider: str, data: bytes) -> APIError:
    """What to tell of an error that is the data of an event: its own status if it names one."""
    report = _parse_report(data) or _Report(message=plain_text(data).text or _NO_MESSAGE)
    return _from_report(provider, report.status or 502, report, data)


def makes_no_sense(provider: str, error: ValueError) -> APIError:
    """502: what the vendor sent is not what was asked for; `error` says why."""
    if isinstance(error, BrokenOffError):
        return upstream_error(provider, f"{error}.", code="upstream_aborted")
    return upstream_error(provider, f"sent what makes no sense: {error}.")


def no_json(provider: str, body: bytes, error: ValueError) -> APIError:
    """502: a whole reply is no JSON object, which `error` says; and what it is instead."""
    text, is_html = plain_text(body)
    if not text:
        what = "answered with an empty body."
    elif is_html:
        what = f"answered with a web page instead of JSON: {text}. Check `base_url`."
    elif text.startswith(("data:", "event:", ":")):
        what = "answered with a stream although none was asked for."
    elif not text.startswith(("{", "[")):
        what = f"answered with text instead of JSON: {text}"
    else:
        return makes_no_sense(provider, error)
    return upstream_error(provider, what)


def upstream_authentication(provider: str, status: int) -> APIError:
    """502: the vendor refused the key. What it said is left out, as it may repeat the key."""
    what = "refused access with" if status == 403 else "rejected"
    return upstream_error(
        provider,
        f"the vendor {what} the API key configured for it (HTTP {status}). Check `api_key` in the"
        " template.",
        code="upstream_authentication",
    )


def missing_api_key(provider: str, variable: str) -> APIError:
    """502: the vendor wants a key, which is usually in `variable`, and the template has none."""
    return upstream_error(
        provider,
        "no API key is configured for it. Set it in the template, such as"
        f" `api_key: ${{env.{variable}}}`.",
        code="upstream_authentication",
    )


@dataclass(slots=True)
class _Report:
    """What a vendor says in an error, whatever it calls it."""

    message: str
    type: str | None = None
    param: str | None = None
    code: str | None = None
    status: int | None = None
    retry_after: str | None = None
    names_the_key: bool = False

    def is_about_the_key(self, status: int | None) -> bool:
        return self.names_the_key or status in (401, 403)


def _from_report(provider: str, status: int, report: _Report, body: bytes = b"") -> APIError:
    error = APIError(
        _our_status(status),
        report.message,
        type=report.type,
        param=report.param,
        code=report.code,
    )
    kind = error.error_class
    if kind in OPENAI_CODES:
        error.code = OPENAI_CODES[kind]
        if kind is ErrorClass.context_length:
            error.status = 400  # whatever the vendor makes of it: the request is what has to change
    elif report.is_about_the_key(status):
        return upstream_authentication(provider, status)
    if body:
        error.vendor_body = ("", body)
    return error


def _our_status(status: int) -> int:
    # 407 is about a proxy of ours, and what is past 599 is no status of HTTP.
    return status if 400 <= status < 600 and status != 407 else 502


def _parse_report(body: bytes, headers: Mapping[str, str] = {}) -> _Report | None:
    try:
        report = _read_report(unicode_from_raw(Raw(body)))
    except (ValueError, RecursionError):
        return None
    if report is not None and report.type is None and _AWS_TYPE in headers:
        report.type = _aws_type(headers[_AWS_TYPE])
        report.names_the_key = report.names_the_key or report.type in ABOUT_THE_KEY
    return report


_AWS_TYPE = "x-amzn-errortype"


def _aws_type(value: str) -> str:
    """The word alone: in front of it may be a namespace, and behind it an address."""
    return value.partition(":")[0].rpartition("#")[2]


def _read_report(value: Any) -> _Report | None:
    if isinstance(value, list) and value:
        value = value[0]  # Gemini answers a stream's request with a list of one error
    if not isinstance(value, dict):
        return None
    error = value.get("error")
    members = error if isinstance(error, dict) else value
    message = _text(
        _first(members, "message", "detail", "errors") if isinstance(error, dict) else error
    ) or _text(_first(value, "message", "detail", "errors", "msg", "title", "Message"))
    code = _first(members, "code", "status_code")
    word = members.get("status")
    details = members.get("details")
    type = _string(_first(members, "type", "error_type"))
    if type == "error":
        type = None  # it is the event's: OpenAI's responses have all else beside it
    if type is None and isinstance(members.get("__type"), str):
        type = _aws_type(members["__type"])
    return _Report(
        message=message or json.dumps(value)[:MAX_TEXT],
        type=type,
        param=_string(members.get("param")) or _location(value.get("detail")),
        # Gemini's `code` is the HTTP status again; its `status` is the word for programs.
        code=_string(word) if isinstance(word, str) and word else _string(code),
        status=_status(code) or _status(word) or _status_of(type) or _status_of(code),
        retry_after=_retry_after(details),
        names_the_key=_has_reason(details, "API_KEY_INVALID") or type in ABOUT_THE_KEY,
    )


def _first(members: Mapping[str, Any], *names: str) -> Any:
    return next((members[name] for name in names if members.get(name)), None)


def _text(value: Any) -> str:
    """The message in `value`: a string, or what FastAPI, Mistral and Cloudflare make lists of."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "; ".join(filter(None, map(_text, value)))
    if isinstance(value, dict):
        text = _text(_first(value, "msg", "message", "detail"))
        place = _dotted(value.get("loc"))
        return f"{place}: {text}" if place and text else text
    return ""


def _location(detail: Any) -> str | None:
    if isinstance(detail, list) and detail and isinstance(detail[0], dict):
        return _dotted(detail[0].get("loc")) or None
    return None


def _dotted(location: Any) -> str:
    if not isinstance(location, list):
        return ""
    return ".".join(str(part) for part in location if part != "body")


def _string(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    return str(value) or None


def _status_of(word: Any) -> int | None:
    return STATUS_BY_TYPE.get(word) if isinstance(word, str) else None


def _status(value: Any) -> int | None:
    if isinstance(value, str) and re.fullmatch("[45][0-9][0-9]", value):
        value = int(value)
    return value if isinstance(value, int) and 400 <= value < 600 else None


_DELAY = re.compile(r"([0-9]{1,9})(\.[0-9]{1,9})?s")


def _retry_after(details: Any) -> str | None:
    # google.rpc.RetryInfo (https://cloud.google.com/apis/design/errors): "retryDelay": "34.07s"
    for detail in details if isinstance(details, list) else ():
        delay = detail.get("retryDelay") if isinstance(detail, dict) else None
        if isinstance(delay, str) and (seconds := _DELAY.fullmatch(delay)):
            return str(int(seconds[1]) + bool(seconds[2]))
    return None


def _has_reason(details: Any, reason: str) -> bool:
    return isinstance(details, list) and any(
        isinstance(detail, dict) and detail.get("reason") == reason for detail in details
    )


_TITLE = re.compile("<title", re.IGNORECASE)
_TITLE_END = re.compile("</title", re.IGNORECASE)


def _title(page: str) -> str | None:
    # One pattern for all of it would look for the end again from each `<title` there is.
    opening = _TITLE.search(page)
    begin = page.find(">", opening.end()) + 1 if opening else 0
    end = _TITLE_END.search(page, begin) if begin else None
    return html.unescape(page[begin : end.start()]) if end else None


class PlainText(NamedTuple):
    """What people can read of a body that is not JSON.

    Attributes:
        text: one line, not too long; of HTML the title alone.
        is_html: whether it is a web page.
    """

    text: str
    is_html: bool


def plain_text(body: bytes) -> PlainText:
    """What to show of `body`."""
    text = body[: 1 << 16].decode(errors="replace").strip()
    is_html = text.startswith("<")
    if is_html:
        title = _title(text)
        text = "(without a title)" if title is None else title
    text = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    return PlainText(text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 3] + "...", is_html)
