"""What checks need in memory, loaded before requests come rather than with the first of them."""

from __future__ import annotations

from collections.abc import Iterable

from llama_compat.guardrails.asked.languages import identifier
from llama_compat.guardrails.asked.presidio import UnknownEntities, analyzer
from llama_compat.guardrails.settings import CheckSettings


class UnusableCheck(Exception):
    """A check that can't do what it is there for; the message says why, and which one it is."""


def load(checks: Iterable[CheckSettings]) -> None:
    """Load what `checks` need; it takes seconds, and is nothing for an event loop.

    Raises:
        UnusableCheck: one can't be had.
    """
    for check in checks:
        try:
            if check.language is not None:
                identifier()
            if check.presidio is not None:
                analyzer(check.presidio)
        except (UnknownEntities, ImportError, OSError) as error:
            raise UnusableCheck(f"guardrail '{check.name}': {error}") from None
