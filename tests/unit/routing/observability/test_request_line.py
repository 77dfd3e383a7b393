"""Lines of the log, for people and for machines."""

from __future__ import annotations

import json
import logging
import sys

from msgspec import structs

from routing.observability.request_line import JSONFormatter, RequestLine

FULL = RequestLine(
    "req_1", "/v1/chat/completions", "m", 502, 12.4, 7, 5, "a/x (timeout), b/y", "it broke"
)
SHORT = RequestLine("req_1", "/v1/chat/completions", "m", 0, 0.4)


def test_text() -> None:
    assert str(FULL) == (
        "req_1 POST /v1/chat/completions model=m status=502 12 ms tokens=7+5"
        " via a/x (timeout), b/y: it broke"
    )
    assert str(SHORT) == "req_1 POST /v1/chat/completions model=m status=- 0 ms"


def test_in_a_terminal_the_id_leads_to_its_page() -> None:
    named = structs.replace(SHORT, request_id="a/b#c")
    assert named.linked("http://h:1/") == (
        "\x1b]8;;http://h:1/#/requests/a%2Fb%23c\x1b\\a/b#c\x1b]8;;\x1b\\"
        " POST /v1/chat/completions model=m status=- 0 ms"
    )


def formatted(message: object, *arguments: object, exc_info: bool = False) -> dict[str, object]:
    info = sys.exc_info() if exc_info else None
    record = logging.LogRecord("a.logger", logging.WARNING, "", 1, message, arguments, info)
    record.created = 1.5
    line = JSONFormatter().format(record)
    assert "\n" not in line
    decoded: dict[str, object] = json.loads(line)
    assert decoded.pop("time") == "1970-01-01T00:00:01.500+00:00"
    assert decoded.pop("level") == "warning"
    assert decoded.pop("logger") == "a.logger"
    return decoded


def test_json_has_the_same_fields() -> None:
    assert formatted(FULL) == {
        "message": "request",
        "request_id": "req_1",
        "path": "/v1/chat/completions",
        "model": "m",
        "status": 502,
        "milliseconds": 12.4,
        "input_tokens": 7,
        "output_tokens": 5,
        "via": "a/x (timeout), b/y",
        "outcome": "it broke",
    }
    assert formatted(SHORT) == {
        "message": "request",
        "request_id": "req_1",
        "path": "/v1/chat/completions",
        "model": "m",
        "status": 0,
        "milliseconds": 0.4,
    }


def test_other_lines_are_their_message() -> None:
    assert formatted("%s of\n%s", 1, "two") == {"message": "1 of\ntwo"}
    assert formatted("half a character: \ud800") == {"message": "half a character: \ud800"}


def test_a_traceback_is_part_of_its_line() -> None:
    try:
        raise LookupError("nothing")
    except LookupError:
        line = formatted("failed", exc_info=True)
    assert "LookupError: nothing" in str(line["exception"])
