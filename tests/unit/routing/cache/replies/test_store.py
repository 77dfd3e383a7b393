"""Bounds of what is kept."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import given
from hypothesis import strategies as st

from routing.cache.replies.store import ENTRY_BYTES, Entry, MemoryReplies, age_of

Result = TypeVar("Result")


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def entry(*keys: bytes, size: int = 10, now: float = 0) -> Entry:
    return Entry(keys, "chat", bytes(size), None, kept_at=now)


def at_once(work: Coroutine[Any, Any, Result]) -> Result:
    """What `work`, which waits for nothing, comes to."""
    try:
        work.send(None)
    except StopIteration as ended:
        result: Result = ended.value
        return result
    raise AssertionError("it waits")


def found(cache: MemoryReplies, key: bytes, max_age: float | None = None) -> Entry | None:
    return at_once(cache.find((key,), max_age))


def test_what_is_older_than_it_may_be_is_forgotten() -> None:
    time = Time()
    cache = MemoryReplies(1 << 20, 60, time)
    kept = entry(b"a", b"meaning")
    at_once(cache.keep(kept))
    time.now = 59
    assert found(cache, b"a") is found(cache, b"meaning") is kept
    assert age_of(kept, time.now) == 59
    assert found(cache, b"a", max_age=58) is None
    assert found(cache, b"a", max_age=59) is kept
    time.now = 60
    assert found(cache, b"meaning") is None
    assert found(cache, b"a") is None
    assert (len(cache), cache.size) == (0, 0)


def test_what_nobody_asked_for_makes_room() -> None:
    cache = MemoryReplies(3 * (ENTRY_BYTES + 10), 60, Time())
    for key in (b"a", b"b", b"c"):
        at_once(cache.keep(entry(key)))
    assert found(cache, b"a") is not None
    at_once(cache.keep(entry(b"d")))
    assert [found(cache, key) is not None for key in (b"a", b"b", b"c", b"d")] == [
        True,
        False,
        True,
        True,
    ]
    assert cache.size == cache.max_bytes


def test_one_that_is_too_large_drives_nothing_out() -> None:
    cache = MemoryReplies(2 * ENTRY_BYTES, 60, Time())
    at_once(cache.keep(entry(b"a")))
    at_once(cache.keep(entry(b"b", size=3 * ENTRY_BYTES)))
    assert found(cache, b"a") is not None
    assert found(cache, b"b") is None


def test_a_new_reply_takes_the_place_of_the_old_one() -> None:
    cache = MemoryReplies(1 << 20, 60, Time())
    at_once(cache.keep(entry(b"a", b"m")))
    other = entry(b"b", b"m")
    at_once(cache.keep(other))
    assert found(cache, b"m") is other
    assert found(cache, b"a") is not None
    new = entry(b"a", b"m")
    at_once(cache.keep(new))
    assert found(cache, b"a") is found(cache, b"m") is new
    assert len(cache) == 2


KEYS = st.lists(st.sampled_from([b"a", b"b", b"c", b"d", b"e"]), min_size=1, max_size=2)


@given(st.lists(st.tuples(KEYS, st.integers(0, 4000), st.floats(0, 20)), max_size=40))
def test_it_never_has_more_than_it_may(kept: list[tuple[list[bytes], int, float]]) -> None:
    time = Time()
    cache = MemoryReplies(8000, 60, time)
    for keys, size, later in kept:
        time.now += later
        at_once(cache.keep(entry(*keys, size=size, now=time.now)))
        found(cache, keys[0])
        assert cache.size == sum(each.size for each in cache) <= cache.max_bytes
        there = {each.number for key in b"abcde" if (each := found(cache, bytes([key])))}
        assert there <= {each.number for each in cache}
