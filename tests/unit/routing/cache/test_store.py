"""Bounds of what is kept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from routing.cache.store import ENTRY_BYTES, Entry, ReplyCache


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def entry(*keys: bytes, size: int = 10) -> Entry:
    return Entry(keys, "chat", b"form", bytes(size), None)


def test_what_is_older_than_it_may_be_is_forgotten() -> None:
    time = Time()
    cache = ReplyCache(1 << 20, 60, time)
    kept = entry(b"a", b"meaning")
    cache.keep(kept)
    time.now = 59
    assert cache.find(b"a") is cache.find(b"meaning") is kept
    assert cache.age(kept) == 59
    assert cache.find(b"a", max_age=58) is None
    assert cache.find(b"a", max_age=59) is kept
    time.now = 60
    assert cache.find(b"meaning") is None
    assert cache.find(b"a") is None
    assert (len(cache), cache.size) == (0, 0)


def test_what_nobody_asked_for_makes_room() -> None:
    cache = ReplyCache(3 * (ENTRY_BYTES + 10), 60, Time())
    for key in (b"a", b"b", b"c"):
        cache.keep(entry(key))
    assert cache.find(b"a") is not None
    cache.keep(entry(b"d"))
    assert [cache.find(key) is not None for key in (b"a", b"b", b"c", b"d")] == [
        True,
        False,
        True,
        True,
    ]
    assert cache.size == cache.max_bytes


def test_one_that_is_too_large_drives_nothing_out() -> None:
    cache = ReplyCache(2 * ENTRY_BYTES, 60, Time())
    cache.keep(entry(b"a"))
    cache.keep(entry(b"b", size=3 * ENTRY_BYTES))
    assert cache.find(b"a") is not None
    assert cache.find(b"b") is None


def test_a_new_reply_takes_the_place_of_the_old_one() -> None:
    cache = ReplyCache(1 << 20, 60, Time())
    cache.keep(entry(b"a", b"m"))
    other = entry(b"b", b"m")
    cache.keep(other)
    assert cache.find(b"m") is other
    assert cache.find(b"a") is not None
    new = entry(b"a", b"m")
    cache.keep(new)
    assert cache.find(b"a") is cache.find(b"m") is new
    assert len(cache) == 2


KEYS = st.lists(st.sampled_from([b"a", b"b", b"c", b"d", b"e"]), min_size=1, max_size=2)


@given(st.lists(st.tuples(KEYS, st.integers(0, 4000), st.floats(0, 20)), max_size=40))
def test_it_never_has_more_than_it_may(kept: list[tuple[list[bytes], int, float]]) -> None:
    time = Time()
    cache = ReplyCache(8000, 60, time)
    for keys, size, later in kept:
        time.now += later
        cache.keep(entry(*keys, size=size))
        cache.find(keys[0])
        assert cache.size == sum(each.size for each in cache) <= cache.max_bytes
        found = {id(each) for key in b"abcde" if (each := cache.find(bytes([key])))}
        assert found <= {id(each) for each in cache}
