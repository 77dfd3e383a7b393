"""What guardrails would look through."""

from __future__ import annotations

from typing import Any

from llama_compat.guardrails.documents import mapped
from llama_compat.guardrails.settings import Place


def texts_of(value: Any, place: Place) -> list[tuple[Place, str]]:
    """Every text in `value`, decoded from JSON, with where it stands."""
    found: list[tuple[Place, str]] = []

    def note(at: Place, text: str) -> str:
        found.append((at, text))
        return text

    mapped(value, place, note)
    return found
