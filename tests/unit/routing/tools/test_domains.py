"""Which URLs are at which domains."""

from __future__ import annotations

import pytest

from routing.tools.domains import Domains


@pytest.mark.parametrize(
    ("domain", "url", "is_there"),
    [
        ("example.com", "https://example.com/a", True),
        ("example.com", "https://www.example.com/a", True),
        ("example.com", "https://docs.example.com:8443/a", True),
        ("EXAMPLE.com", "https://Example.COM./", True),
        ("example.com", "https://notexample.com/", False),
        ("example.com", "https://example.com.evil.test/", False),
        ("example.com", "https://evil.test/example.com", False),
        ("example.com", "https://example.com@evil.test/", False),
        ("example.com/blog", "https://example.com/blog/1", True),
        ("example.com/blog", "https://example.com/shop", False),
        ("example.com/blog", "https://example.com/blog", True),
        ("example.com/blog/", "https://example.com/blog", True),
        ("Example.com/Blog", "https://example.com/Blog/1", True),
        ("example.com/blog", "https://example.com/blogger", False),
        ("example.com/blog", "https://example.com/blog/../shop", False),
        ("example.com/blog", "https://example.com/blog/%2E%2e/shop", False),
        ("example.com/blog", "https://example.com/x/..//blog/1", True),
        ("example.com/a b", "https://example.com/a%20b/c", True),
        ("https://example.com", "https://docs.example.com/a", True),
        ("https://example.com/blog", "http://example.com/blog/1", True),
        ("https://example.com/blog", "https://example.com/shop", False),
        ("*.example.com", "https://docs.example.com/a", True),
        ("example.com.", "https://example.com/a", True),
        ("bücher.example", "https://xn--bcher-kva.example/a", True),
        ("xn--bcher-kva.example", "https://www.bücher.example/a", True),
        ("\udcff.example", "https://\udcff.example/a", True),
    ],
)
def test_a_domain_has_what_is_below_it(domain: str, url: str, is_there: bool) -> None:
    assert Domains((domain,)).has(url) is is_there
    assert Domains((), (domain,)).has(url) is not is_there
