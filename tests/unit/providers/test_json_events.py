"""Answers that should be streams of events, and those that are not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llama_compat.errors import APIError
from providers.remote import json_events
from providers.remote.json_events import JSONEvents


def objects(*chunks: bytes) -> list[Any]:
    decoder = JSONEvents("p")
    fed = [each for chunk in chunks for each in decoder.feed(chunk)]
    return [*fed, *decoder.flush()]


@pytest.mark.parametrize("before", [b"", b"\n", b"\xef\xbb\xbf", b" \r\n"])
@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("value", [{"a": 1}, [{"a": 1}, {"b": 2}], []])
def test_what_is_no_stream_is_read_whole(before: bytes, indent: int | None, value: Any) -> None:
    body = before + json.dumps(value, indent=indent).encode()
    expected = value if isinstance(value, list) else [value]
    assert objects(body) == expected
    assert objects(*(body[at : at + 1] for at in range(len(body)))) == expected


def test_events_are_read_one_by_one() -> None:
    decoder = JSONEvents("p")
    assert list(decoder.feed(b"\n")) == []
    assert list(decoder.feed(b'data: {"a": 1}\n\ndata: {"b"')) == [{"a": 1}]
    assert list(decoder.feed(b": 2}")) == []
    assert list(decoder.flush()) == [{"b": 2}]


@pytest.mark.parametrize("body", [b'{"error":{"message":"Oh","code":429}}', b'[{"error":"Oh"}]'])
def test_an_error_in_place_of_a_stream_is_told(body: bytes) -> None:
    with pytest.raises(APIError, match="Oh"):
        objects(body)


def test_what_is_no_json_is_told() -> None:
    with pytest.raises(APIError, match="a web page instead of JSON: Log in"):
        objects(b"<html><title>Log in</title>")
    with pytest.raises(APIError, match="makes no sense"):
        objects(b'{"a": ')
    with pytest.raises(ValueError, match="expected JSON objects, got int"):
        objects(b"[1]")


def test_a_whole_reply_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_events, "MAX_WHOLE_BYTES", 10)
    assert objects(b'{"a":', b'"bc"}') == [{"a": "bc"}]
    with pytest.raises(ValueError, match="larger than 10 bytes"):
        objects(b'{"a":', b'"bcd"}')
