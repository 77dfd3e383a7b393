"""What holds for all settings of a template."""

from __future__ import annotations

import pytest
from pydantic import SecretStr, ValidationError

from llama_compat.distribution import Distribution
from llama_compat.settings.model import TemplateSettings


class _Example(TemplateSettings):
    key: SecretStr
    size: int = 1


def test_what_is_wrong_is_told_without_what_was_said() -> None:
    with pytest.raises(ValidationError) as caught:
        _Example.model_validate({"key": ["sk-secret"], "size": "sk-secret", "other": "sk-secret"})
    assert [each["loc"] for each in caught.value.errors()] == [("key",), ("size",), ("other",)]
    assert "sk-secret" not in str(caught.value)


def test_nobody_changes_them() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        _Example(key=SecretStr("x")).size = 2  # type: ignore[misc]
    assert issubclass(Distribution, TemplateSettings)
