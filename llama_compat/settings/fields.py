"""Kinds of settings that many have."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

Name = Annotated[str, Field(min_length=1)]

Positive = Annotated[int, Field(ge=1)]

# A key whose items are all commented out holds nothing.
NothingIsEmpty = BeforeValidator(lambda value: [] if value is None else value)
