"""What errors say that are made of numbers."""

from __future__ import annotations

from llama_compat.errors import context_length_exceeded


def test_a_prompt_that_was_not_counted_is_not_said_to_be_empty() -> None:
    error = context_length_exceeded(2048, 0, 5000)
    assert "prompt" not in error.message
    assert error.param == "max_tokens"


def test_prompt_and_reply_are_added_up() -> None:
    error = context_length_exceeded(2048, 1000, 1500)
    assert "1000 in the prompt and 1500 for the completion make 2500" in error.message
