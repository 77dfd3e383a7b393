"""What reading members raises is told as ValueError."""

from __future__ import annotations

import msgspec
import pytest

from llama_compat.wire.malformed import MALFORMED, malformed_as


@pytest.mark.parametrize("kind", MALFORMED)
def test_what_is_malformed_is_no_answer(kind: type[Exception]) -> None:
    with pytest.raises(ValueError, match=f"no answer: {kind.__name__}"), malformed_as("no answer"):
        raise kind("x")


def test_what_has_another_shape_is_told_in_its_own_words() -> None:
    expected = pytest.raises(ValueError, match=r"^no answer: Expected `int`, got `str`$")
    with expected as raised, malformed_as("no answer"):
        msgspec.convert("a", int)
    assert raised.value.__cause__ is None
