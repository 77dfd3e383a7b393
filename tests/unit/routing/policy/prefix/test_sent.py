"""What a target was sent: bounded, aged, and a prompt's end forgotten before its beginning."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llama_compat.prefixes.held import CacheNews
from routing.policy.prefix.sent import SentPrefixes

PROMPTS = st.lists(st.integers(0, 2), min_size=1, max_size=6)


def chain(prompt: list[int]) -> list[bytes]:
    """Stands for a prompt of these blocks: each is known by itself and all before it."""
    return [bytes(prompt[: end + 1]) for end in range(len(prompt))]


def test_the_end_of_a_prompt_is_forgotten_first() -> None:
    sent = SentPrefixes()
    sent.add(chain([1, 2, 3]), 0.0, -1.0, most=4)
    sent.add(chain([5, 6]), 1.0, -1.0, most=4)
    assert sent.held(chain([1, 2, 3]), -1.0) == 2
    assert sent.held(chain([5, 6, 7]), -1.0) == 2
    assert sent.held(chain([2]), -1.0) == 0
    assert len(sent) == 4


def test_what_is_sent_again_stays() -> None:
    sent = SentPrefixes()
    for now, prompt in enumerate(([1, 2], [3, 4], [1, 2], [5, 6])):
        sent.add(chain(prompt), float(now), -1.0, most=4)
    assert sent.held(chain([1, 2]), -1.0) == 2
    assert sent.held(chain([3, 4]), -1.0) == 0


def test_what_is_old_counts_no_more_and_is_let_go() -> None:
    sent = SentPrefixes()
    sent.add(chain([1, 2]), 10.0, 0.0, most=9)
    assert sent.held(chain([1, 2]), 10.0) == 2
    assert sent.held(chain([1, 2]), 10.5) == 0
    assert sent.at(chain([1])[0]) == 10.0
    sent.add(chain([3]), 20.0, 10.5, most=9)
    assert len(sent) == 1


@given(st.lists(st.tuples(PROMPTS, st.floats(0, 3)), max_size=40), st.integers(1, 8), PROMPTS)
def test_it_is_bounded_and_whoever_has_a_block_has_those_before(
    asked: list[tuple[list[int], float]], most: int, prompt: list[int]
) -> None:
    sent, now, keep = SentPrefixes(), 0.0, 5.0
    for each, pause in asked:
        now += pause
        sent.add(chain(each), now, now - keep, most)
        assert len(sent) <= most
    blocks = chain(prompt)
    fresh = [sent.at(block) >= now - keep for block in blocks]
    assert fresh == sorted(fresh, reverse=True)
    assert sent.held(blocks, now - keep) == sum(fresh)


# What a target tells itself -----------------------------------------------------------------------


def block(*prompt: int) -> bytes:
    return bytes(prompt).ljust(8, b"\xff")


def blocks(*prompt: int) -> list[bytes]:
    return [block(*prompt[: end + 1]) for end in range(len(prompt))]


def news(
    stored: list[bytes] | None = None, removed: list[bytes] | None = None, *, all: bool = False
) -> CacheNews:
    return CacheNews("log", 1, all, b"".join(stored or []), b"".join(removed or []))


def test_what_it_says_that_it_holds_it_holds_whoever_sent_it_and_whenever() -> None:
    sent = SentPrefixes()
    assert not sent.is_told
    sent.tells(news(blocks(1, 2)), 0.0)
    assert sent.is_told
    assert sent.held(blocks(1, 2, 3), since=1000.0) == 2
    # No guess at what its cache holds counts for that.
    for number in range(10, 30):
        sent.add(blocks(number), 1.0, -1.0, most=4)
    assert sent.held(blocks(1, 2, 3), since=1000.0) == 2


def test_what_it_says_that_it_has_removed_is_gone_however_lately_it_was_sent() -> None:
    sent = SentPrefixes()
    sent.add(blocks(1, 2, 3), 0.0, -1.0, most=9)
    sent.tells(news(blocks(1, 2, 3)), 1.0)
    sent.tells(news(removed=[block(1, 2, 3)]), 2.0)
    assert sent.held(blocks(1, 2, 3), -1.0) == 2


def test_what_it_is_sent_and_has_not_computed_yet_counts() -> None:
    sent = SentPrefixes()
    sent.tells(news(all=True), 0.0)
    sent.add(blocks(1, 2), 1.0, 0.0, most=9)
    assert sent.held(blocks(1, 2), 0.0) == 2
    sent.tells(news(blocks(1, 2)), 2.0)
    assert sent.at(block(1)) == 1.0  # since when somebody has asked for it
    sent.add(blocks(1, 2), 3.0, 0.0, most=9)
    assert sent.at(block(1)) == 3.0


def test_all_that_it_holds_takes_the_place_of_what_it_told_before() -> None:
    sent = SentPrefixes()
    sent.tells(news([*blocks(1, 2), *blocks(3)]), 0.0)
    sent.add(blocks(4), 1.0, 0.0, most=9)
    sent.tells(news([block(1)], all=True), 2.0)
    assert [sent.held(each, 0.0) for each in (blocks(1, 2), blocks(3), blocks(4))] == [1, 0, 1]
    assert len(sent) == 2
