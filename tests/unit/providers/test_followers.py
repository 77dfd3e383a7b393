"""Who is told of what changes."""

from __future__ import annotations

import pytest

from providers.followers import Followers


def test_each_is_told_until_it_leaves() -> None:
    followers: Followers[[int]] = Followers("things")
    first, second = list[int](), list[int]()
    assert not followers
    leave = followers.add(first.append)
    followers.add(second.append)
    followers.tell(1)
    leave()
    third = list[int]()
    followers.add(third.append)
    leave()  # again is nothing, and nobody else's end
    followers.tell(2)
    assert (first, second, third) == ([1], [1, 2], [2])
    followers.clear()
    assert not followers


def test_one_who_cant_take_it_keeps_it_from_nobody(caplog: pytest.LogCaptureFixture) -> None:
    followers: Followers[[int]] = Followers("things")
    told = list[int]()

    def breaks(number: int) -> None:
        raise RuntimeError("no")

    followers.add(breaks)
    followers.add(told.append)
    followers.tell(1)
    assert told == [1]
    assert "things: one of those who are told of it can't take that" in caplog.text
