"""URLs, the way to their servers, and headers."""

from __future__ import annotations

import pytest

from providers.remote import http1
from providers.remote.http1.headers import Headers


@pytest.mark.parametrize(
    ("text", "origin", "target"),
    [
        ("http://a.b", "http://a.b", "/"),
        ("https://A.b:443/v1", "https://a.b", "/v1"),
        ("http://a.b:8080/v1?x=1&y=%20#z", "http://a.b:8080", "/v1?x=1&y=%20"),
        ("http://[::1]:80/x", "http://[::1]", "/x"),
        ("https://b\u00fccher.example/\u00e4 b?q=\u00f6", "https://xn--bcher-kva.example",
            "/%C3%A4%20b?q=%C3%B6"),
        ("http://a.b/x\r\ny", "http://a.b", "/x%0D%0Ay"),
        (" http://a.b/ ", "http://a.b", "/"),
    ],
)  # fmt: skip
def test_urls_are_taken_apart(text: str, origin: str, target: str) -> None:
    url = http1.parse_url(text)
    assert (str(url.origin), url.target) == (origin, target)


@pytest.mark.parametrize(
    "text",
    ["", "a.b", "ftp://a.b", "http://", "http:///x", "http://a.b:x", "http://a.b:99999",
     "http://a.b:0", "http://[::1", "http://a b/", "http://a\u2028b/", "http://a\r\nb/"],
)  # fmt: skip
def test_what_is_no_url_is_refused(text: str) -> None:
    with pytest.raises(http1.InvalidURLError):
        http1.parse_url(text)


def test_credentials_are_told_and_not_shown() -> None:
    url = http1.parse_url("http://me:p%40ss@a.b/")
    assert url.credentials == "me:p@ss"
    assert url.basic == "Basic bWU6cEBzcw=="
    assert "p@ss" not in repr(url)


def test_ways_to_a_server() -> None:
    http, https = (http1.parse_url(f"{scheme}://a.b:81/").origin for scheme in ("http", "https"))
    proxy = http1.parse_url("http://me:x@proxy:3128")
    direct, forwarded, tunnel = (
        http1.NetworkRoute(http),
        http1.NetworkRoute(http, proxy),
        http1.NetworkRoute(https, proxy),
    )
    assert (direct.before, direct.after) == (b"", b" HTTP/1.1\r\nhost: a.b:81\r\n")
    assert forwarded.before == b"http://a.b:81"
    assert b"proxy-authorization: Basic bWU6eA==\r\n" in forwarded.after
    assert tunnel.before == b""
    assert b"proxy-authorization" not in tunnel.after
    assert (direct.is_tunnel, forwarded.is_tunnel, tunnel.is_tunnel) == (False, False, True)
    elsewhere = http1.NetworkRoute(http1.parse_url("http://c.d/").origin, proxy)
    assert forwarded.key == elsewhere.key, "a proxy's connections serve all it forwards to"
    assert len({direct.key, forwarded.key, tunnel.key, http1.NetworkRoute(https).key}) == 4


def test_headers_become_lines() -> None:
    assert http1.encode_headers({"a": " b ", "c": "\u00e4"}) == b"a: b\r\nc: \xc3\xa4\r\n"


@pytest.mark.parametrize(
    "headers", [{"a\r\nb": "c"}, {"": "c"}, {"a:": "c"}, {"a": "b\r\nc: d"}, {"a": "\x00"}]
)
def test_headers_can_not_hold_lines(headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="can't have"):
        http1.encode_headers(headers)


def test_headers_are_found_in_any_case() -> None:
    headers = Headers({"retry-after": "7"})
    assert headers["Retry-After"] == headers.get("RETRY-AFTER") == "7"
    assert "x" not in headers
    assert dict(headers) == {"retry-after": "7"}
