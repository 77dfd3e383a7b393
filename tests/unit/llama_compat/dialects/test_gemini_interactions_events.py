"""A whole interaction as the events of a stream."""

from __future__ import annotations

from typing import Any

import pytest

from llama_compat.dialects.gemini_interactions.events import interaction_events

STEP = {"type": "model_output", "content": []}


def test_every_step_is_whole_where_it_begins_and_usage_comes_last() -> None:
    whole = {"id": "i", "status": "completed", "steps": [STEP], "usage": {"total_tokens": 1}}
    created, start, stop, completed = interaction_events(whole)
    assert created["interaction"] == {"id": "i", "status": "in_progress"}
    assert (start["step"], start["index"], stop["index"]) == (STEP, 0, 0)
    shown = {"id": "i", "status": "completed", "usage": {"total_tokens": 1}}
    assert completed["interaction"] == shown


@pytest.mark.parametrize("steps", ["x", {"a": 1}, ["x"], [STEP, None]])
def test_steps_that_are_none_are_no_interaction(steps: Any) -> None:
    with pytest.raises(ValueError, match="no array of objects"):
        list(interaction_events({"steps": steps}))
