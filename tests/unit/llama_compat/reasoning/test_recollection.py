"""Where a conversation has come to."""

from __future__ import annotations

from llama_compat.reasoning.recollection import TurnPlace


def test_a_place_is_short_however_much_was_asked() -> None:
    """Every call of a conversation is looked for at one: what was asked is read once for all."""
    places = [TurnPlace(), TurnPlace()]
    for place, text in zip(places, ("x" * 1_000_000, "\ud800" * 1_000_000), strict=True):
        place.user_says(text)
        assert len(str(place)) < 100
    assert str(places[0]) != str(places[1])
    before = str(places[0])
    places[0].model_calls()
    assert str(places[0]) != before
