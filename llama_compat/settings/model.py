"""What every part of a template is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class TemplateSettings(BaseModel):
    """Settings as a template has them: nothing in them is unknown, nobody changes them once they
    are read, and what is wrong with one is told without its value, which may be a secret."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    gone: ClassVar[Mapping[str, str]] = {}
    """Settings of earlier versions by name, and what to do about each: for who has an old
    template."""
