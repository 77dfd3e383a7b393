"""Tokens that a sequence may well say next, computed with the step before it is known whether.

A step with several tokens of a sequence takes little more time than one with a single one. So what
may come is computed with the next step, and of it is taken what would have been chosen anyway.
Every token is drawn as it would be without, so that a reply is the same whoever guesses:
`NgramGuesser` here, from what a sequence has said and heard before, or a smaller model (`draft`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from providers.local.torch_engine.scheduling.sequence import TorchSequence

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
"""What each step may lose by guesses that were wrong, in steps, as long as nothing was lost yet."""

SELDOMEST = 8.0
"""By how much less a step earns where much was lost, at most: what comes later may be guessed."""

AT_FIRST, AT_MOST = 0.5, 4.0
"""What a sequence has for guesses when it begins, and the most that it can have saved up, in
steps."""

NARROWEST = 2


class Account:
    """What guessing has brought a sequence so far, in steps.

    A guess costs, one that was right brings in a step, and every step earns a little, so that it
    never loses more than that, and tries again now and then: the more it has lost, the more seldom.

    Args:
        at_first: what there is of it.
    """

    def __init__(self, at_first: float = AT_FIRST) -> None:
        self._steps = at_first
        self._lost = 0.0
        self._width = NARROWEST

    def earn(self) -> None:
        """There is a step more."""
        earned = EARNED / min(SELDOMEST, 1.0 + self._lost)
        self._steps = min(AT_MOST, self._steps + earned)

    def width(self, most: int, cost: float) -> int:
        """How many to guess for the next step; 0 where that would not pay.

        Args:
            most: how many there is room for.
            cost: of one, in steps.
        """
        width = min(most, self._width, int(self._steps / cost))
        return 0 if width < min(NARROWEST, most) else width

    def spend(self, steps: float) -> None:
        """So much was paid, whatever comes of it."""
        self._steps -= steps
        self._lost = max(0.0, self._lost + steps)

    def settle(self, guessed: int, right: int, cost: float = 0.0) -> None:
        """So many were guessed with a step, of which the first so many were right.

        Args:
            guessed: how many.
            right: how many of them.
            cost: of one, in steps, as far as it was not spent.
        """
        self.spend(guessed * cost - right)
        self._width = 2 * self._width if right == guessed else max(NARROWEST, right)
        self._width = min(self._width, MOST_ROWS)


class GuessRoom(NamedTuple):
    """A sequence of a step, and how many of its next tokens there is room for."""

    sequence: TorchSequence
    most: int


class Guesser(Protocol):
    """Says what sequences may go on with."""

    def begins(self, sequence: TorchSequence) -> None:
        """There is one more."""

    def guess(self, asked: Sequence[GuessRoom], sequences: int) -> Sequence[tuple[int, ...]]:
        """What may come after the tokens of each; nothing where it would not pay.

        Args:
            asked: for which.
            sequences: how many the step computes.
        """

    def settle(self, sequence: TorchSequence, guessed: int, right: int, sequences: int) -> None:
        """So many were guessed for a sequence with the last step, of which the first so many were
        right."""


class NgramGuesser:
    """Reads guesses off what each sequence has said and heard before; see `Guesser`.

    An edit, a summary or a table repeats what is in its prompt. So where the last tokens of a
    sequence stand earlier in it, what followed there may follow again (prompt lookup, as in
    arXiv:2304.04487).
    """

    def begins(self, sequence: TorchSequence) -> None:
        """See `Guesser`."""
        sequence.guesses = Guesses()

    def guess(self, asked: Sequence[GuessRoom], sequences: int) -> Sequence[tuple[int, ...]]:
        """See `Guesser`."""
        return [
            () if guesses is None else guesses.next(each.token_ids, most, sequences)
            for each, most in asked
            for guesses in (each.guesses,)
        ]

    def settle(self, sequence: TorchSequence, guessed: int, right: int, sequences: int) -> None:
        """See `Guesser`."""
        if sequence.guesses is not None:
            sequence.guesses.settle(guessed, right, sequences)


class Guesses:
    """What one sequence may go on with: what followed where its last tokens stand earlier in it.

    Where another token came than the one that stands there, as in an edit, it may have taken that
    one's place, and what stands behind it may come next.
    """

    def __init__(self) -> None:
        self._after: dict[tuple[int, ...], int] = {}
        self._known = 0
        self._account = Account()
        self._place = 0
        self._behind: int | None = None
        self._is_behind = False

    def next(self, token_ids: Sequence[int], most: int, sequences: int) -> tuple[int, ...]:
        """What may come after `token_ids`, `most` tokens at most; nothing where it would not pay.

        Args:
            token_ids: of the sequence so far; only ever more from call to call.
            most: how many there is room for.
            sequences: how many the step computes.
        """
        behind, self._behind = self._behind, None
        self._account.earn()
        width = self._account.width(most, cost_of_one(sequences))
        if not width or len(token_ids) <= GRAM:
            return ()
        self._learn(token_ids)
        at = self._after.get(tuple(token_ids[-GRAM:]))
        self._is_behind = at is None
        if at is None:
            at = behind
        if at is None:
            return ()
        self._place = at
        return tuple(token_ids[at : at + width])

    def settle(self, guessed: int, right: int, sequences: int) -> None:
        """So many were guessed with a step of so many sequences, of which the first so many were
        right."""
        self._account.settle(guessed, right, cost_of_one(sequences))
        # Where what stands behind did not come either, more has changed than a token.
        if right < guessed and (right or not self._is_behind):
            self._behind = self._place + right + 1

    def _learn(self, token_ids: Sequence[int]) -> None:
        """Where each few tokens are followed by more; of those that come again, the last place."""
        first = max(self._known, len(token_ids) - LONGEST_LOOK, GRAM)
        for end in range(first, len(token_ids)):
            self._after[tuple(token_ids[end - GRAM : end])] = end
        self._known = len(token_ids)


def cost_of_one(sequences: int) -> float:
    """What a further token costs a sequence, in its share of a step that computes so many."""
    return ROW_COST * sequences / (1 + ROW_COST * (sequences - 1))
