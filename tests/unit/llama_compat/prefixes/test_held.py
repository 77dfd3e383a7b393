"""Which prompts a cache holds: as its blocks come and go, and as it is told in pieces."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from llama_compat.prefixes import held as module
from llama_compat.prefixes.held import CacheNews, HeldPrompts, blocks_in

A, B, C = (bytes([number]) * 8 for number in (1, 2, 3))


class Follower:
    """Somebody who asks now and then."""

    def __init__(self, held: HeldPrompts) -> None:
        self._held = held
        self.last = CacheNews("", 0, True)
        self.knows: set[bytes] = set()

    def ask(self) -> CacheNews:
        news = self.last = self._held.news(self.last.log, self.last.number)
        if news.is_all:
            self.knows = set()
        self.knows |= set(blocks_in(news.stored))
        self.knows -= set(blocks_in(news.removed))
        return news


def test_a_block_is_held_while_all_that_it_needs_is_there() -> None:
    held = HeldPrompts()
    follower = Follower(held)
    assert follower.ask().is_all
    held.learn([(A, [b"1", b"2"]), (B, [b"3"])])
    held.stored(b"1")
    held.stored(b"3")
    assert follower.ask().stored == B
    assert not follower.last.is_all
    held.stored(b"2")
    assert follower.ask().stored == A
    held.removed(b"1")
    assert (follower.ask().stored, follower.last.removed) == (b"", A)
    held.removed(b"2")
    assert follower.ask() == CacheNews(follower.last.log, follower.last.number, False)
    assert follower.knows == {B}


def test_what_came_and_went_between_two_questions_is_told_as_it_is_now() -> None:
    held = HeldPrompts()
    follower = Follower(held)
    follower.ask()
    held.learn([(A, [b"1"]), (B, [b"2"])])
    for _ in range(3):
        held.stored(b"1")
        held.removed(b"1")
        held.removed(b"2")
        held.stored(b"2")
    news = follower.ask()
    assert (news.stored, news.removed) == (B, A)


def test_what_is_in_the_cache_before_a_prompt_is_learned_counts() -> None:
    held = HeldPrompts()
    held.stored(b"1")
    held.learn([(A, [b"1", b"2"])], {b"2"}.__contains__)
    assert held.news().stored == A
    held.removed(b"2")
    assert held.news().stored == b""


def test_who_has_missed_too_much_is_told_all() -> None:
    held = HeldPrompts()
    held._news = type(held._news)(maxlen=4)
    follower = Follower(held)
    follower.ask()
    held.learn([(bytes([number]) * 8, [bytes([number])]) for number in range(10)])
    for number in range(10):
        held.stored(bytes([number]))
    assert follower.ask().is_all
    assert len(follower.knows) == 10
    held.removed(bytes([0]))
    assert not follower.ask().is_all
    assert len(follower.knows) == 9


def test_one_that_is_another_is_told_all_of() -> None:
    one, other = HeldPrompts(), HeldPrompts()
    news = one.news()
    assert other.news(news.log, news.number).is_all
    assert not one.news(news.log, news.number).is_all
    assert one.news(news.log, news.number + 1).is_all  # which it never told


def test_one_that_is_cleared_is_empty_until_it_is_filled_again() -> None:
    held = HeldPrompts()
    follower = Follower(held)
    held.learn([(A, [b"1"])])
    held.stored(b"1")
    follower.ask()
    held.cleared()
    assert follower.ask().is_all
    assert follower.knows == set()
    held.stored(b"1")
    follower.ask()
    assert follower.knows == {A}


def test_what_was_not_asked_for_for_the_longest_time_is_given_up() -> None:
    held = HeldPrompts()
    follower = Follower(held)
    most = module.MOST_BLOCKS
    blocks = [number.to_bytes(8, "big") for number in range(most + 1)]
    held.stored(b"x")
    held.learn([(block, [b"x"]) for block in blocks[:most]])
    held.learn([(blocks[0], [b"x"])])
    follower.ask()
    held.learn([(blocks[most], [b"x"])])
    assert follower.ask().removed == blocks[1]
    assert not held.knows(blocks[1])
    assert held.knows(blocks[0])


NEEDS = st.lists(st.integers(0, 5), min_size=1, max_size=3)
DONE = st.one_of(
    st.tuples(st.just("learn"), st.integers(0, 4), NEEDS),
    st.tuples(st.sampled_from(["stored", "removed"]), st.integers(0, 5), st.none()),
    st.tuples(st.sampled_from(["ask", "cleared"]), st.just(0), st.none()),
)


@given(st.lists(DONE, max_size=60))
def test_whoever_follows_knows_what_is_held(
    done: Sequence[tuple[str, int, list[int] | None]],
) -> None:
    held, needs, stored = HeldPrompts(), {}, set()  # type: ignore[var-annotated]
    follower = Follower(held)
    for what, number, wanted in done:
        if what == "learn":
            assert wanted is not None
            block = bytes([number]) * 8
            needs[block] = {bytes([each]) for each in wanted}
            held.learn([(block, tuple(bytes([each]) for each in wanted))])
        elif what == "ask":
            follower.ask()
        elif what == "cleared":
            held.cleared()
            stored.clear()
        else:
            getattr(held, what)(bytes([number]))
            (stored.add if what == "stored" else stored.discard)(bytes([number]))
    follower.ask()
    assert follower.knows == {block for block, wanted in needs.items() if wanted <= stored}
