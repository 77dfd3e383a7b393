"""What all settings of a template are made of."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

# A key whose items are all commented out holds nothing.
NothingIsEmpty = BeforeValidator(lambda value: [] if value is None else value)
Name = Annotated[str, Field(min_length=1)]


class Settings(BaseModel):
    """Some settings: unknown keys are mistakes, and no value is shown in an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
