"""Tokens that a sequence may well say next, read off what it has said and heard before.

An edit, a summary or a table repeats what is in its prompt. So where the last tokens of a sequence
stand earlier in it, what followed there is computed with the next step, at little more than the
price of one token; of it is taken what would have been chosen anyway (prompt lookup, as in
arXiv:2304.04487). Every token is drawn as it would be without, so that a reply is the same.
"""

from __future__ import annotations

from collections.abc import Sequence

GRAM = 3
"""Tokens that have to be the same: of two, every other place in a text is like another one."""

LONGEST_LOOK = 32_768
"""Tokens of a prompt that are looked through, the last: ten milliseconds of them."""

MOST_ROWS = 8
"""Tokens that a step computes where some of them are guessed: as many as cost an int8 step a
quarter of its time each (`bench/results/engine-quantized.json`), and less in wider numbers."""

ROW_COST = 0.25
"""What a further token of a step costs, in steps of a single token, at most."""

EARNED = 0.02
"""What each step may lose by guesses that were wrong, in steps."""

AT_FIRST, AT_MOST = 0.5, 4.0
"""What a sequence has for guesses when it begins, and the most that it can have saved up, in
steps."""

NARROWEST = 2


class Guesses:
    """What one sequence may go on with, and whether guessing has paid so far.

    It keeps an account in steps: a guess costs, one that was right brings in a step, and every step
    earns a little, so that it never loses more than that, and tries again now and then.
    """

    def __init__(self) -> None:
        self._after: dict[tuple[int, ...], int] = {}
        self._known = 0
        self._account = AT_FIRST
        self._width = NARROWEST

    def next(self, token_ids: Sequence[int], most: int, sequences: int) -> tuple[int, ...]:
        """What may come after `token_ids`, `most` tokens at most; nothing where it would not pay.

        Args:
            token_ids: of the sequence so far; only ever more from call to call.
            most: how many there is room for.
            sequences: how many the step computes.
        """
        self._account = min(AT_MOST, self._account + EARNED)
        width = min(most, self._width, int(self._account / cost_of_one(sequences)))
        if width < min(NARROWEST, most) or width < 1 or len(token_ids) <= GRAM:
            return ()
        self._learn(token_ids)
        at = self._after.get(tuple(token_ids[-GRAM:]))
        return () if at is None else tuple(token_ids[at : at + width])

    def settle(self, guessed: int, right: int, sequences: int) -> None:
        """So many were guessed with a step, of which the first so many were right."""
        self._account += right - guessed * cost_of_one(sequences)
        self._width = 2 * self._width if right == guessed else max(NARROWEST, right)
        self._width = min(self._width, MOST_ROWS)

    def _learn(self, token_ids: Sequence[int]) -> None:
        """Where each few tokens are followed by more; of those that come again, the last place."""
        first = max(self._known, len(token_ids) - LONGEST_LOOK, GRAM)
        for end in range(first, len(token_ids)):
            self._after[tuple(token_ids[end - GRAM : end])] = end
        self._known = len(token_ids)


def cost_of_one(sequences: int) -> float:
    """What a further token costs a sequence, in its share of a step that computes so many."""
    return ROW_COST * sequences / (1 + ROW_COST * (sequences - 1))
