"""What settings say of themselves where `SecretStr` says too much or too little.

Both are beside a type, as in `Annotated[SecretStr, ADDRESS]`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SecretKind:
    """Which part of a setting is secret."""

    of: str


ADDRESS = SecretKind("address")
"""An address of which only the user, the password and the query are secret."""

ARGUMENTS = SecretKind("arguments")
"""A program and its arguments, among which keys may be: all but the program is secret."""
