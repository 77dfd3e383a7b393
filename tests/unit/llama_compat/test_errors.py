"""What errors say that are made of numbers, and of models by their clients' names."""

from __future__ import annotations

import pytest

from llama_compat.errors import APIError, UnsupportedHere, context_length_exceeded, told_by_name


def test_a_prompt_that_was_not_counted_is_not_said_to_be_empty() -> None:
    error = context_length_exceeded(2048, 0, 5000)
    assert "prompt" not in error.message
    assert error.param == "max_tokens"


def test_prompt_and_reply_are_added_up() -> None:
    error = context_length_exceeded(2048, 1000, 1500)
    assert "1000 in the prompt and 1500 for the completion make 2500" in error.message


def test_each_client_is_told_of_a_model_by_its_own_name() -> None:
    error = UnsupportedHere(503, "The model '/models/mine' is busy.", param="model", code="busy")
    error.about("/models/mine")
    error.is_last = True
    for name in ("public", "alias"):
        with (
            pytest.raises(APIError, match=f"^The model '{name}' is busy.$") as raised,
            told_by_name(name),
        ):
            raise error
        said = raised.value
        assert isinstance(said, UnsupportedHere)
        assert said.__cause__ is error
        assert said.message == str(said)
        assert (said.status, said.param, said.code, said.is_last) == (503, "model", "busy", True)
    assert error.message == "The model '/models/mine' is busy."


def test_what_names_no_model_is_raised_as_it_is() -> None:
    error = APIError(400, "'public' is not what you think.")
    with pytest.raises(APIError) as raised, told_by_name("other"):
        raise error
    assert raised.value is error
