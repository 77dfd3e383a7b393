"""What clients say of the cache."""

from __future__ import annotations

import pytest

from routing.cache.control import USUAL, CacheControl, cache_control


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ([], USUAL),
        (["public, foo=bar"], CacheControl()),
        (["no-store"], CacheControl(no_store=True)),
        (["No-Cache"], CacheControl(no_cache=True)),
        (["max-age=60"], CacheControl(max_age=60.0)),
        (['max-age="60" , no-store'], CacheControl(no_store=True, max_age=60.0)),
        (["max-age=60", "max-age=5"], CacheControl(max_age=5.0)),
        (["max-age=0"], CacheControl(no_cache=True, max_age=0.0)),
        (["max-age=-1"], CacheControl(no_cache=True, max_age=0.0)),
        (["max-age=soon"], CacheControl(no_cache=True, max_age=0.0)),
        (["max-age"], CacheControl(no_cache=True, max_age=0.0)),
        (["max-age=" + "9" * 5000], CacheControl(max_age=1e9)),
        (["no-cache\xff, ,=,"], CacheControl()),
    ],
)
def test_what_is_meant(said: list[str], meant: CacheControl) -> None:
    headers = [(b"cache-control", each.encode("latin-1")) for each in said]
    assert cache_control([(b"accept", b"no-store"), *headers]) == meant
