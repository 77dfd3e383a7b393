"""What a target was sent: bounded, aged, and a prompt's end forgotten before its beginning."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

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
