"""What a template says of storage, records and prices."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from llama_compat.distribution.observability import (
    PriceSettings,
    RecordsSettings,
    StorageAddress,
    default_storage,
)

ADDRESS = TypeAdapter(StorageAddress)


@pytest.mark.parametrize(
    "address", ["sqlite:x.sqlite", "postgres://me:secret@host/d", "postgresql:///d"]
)
def test_storage_is_sqlite_or_postgres_and_shows_no_password(address: str) -> None:
    read = ADDRESS.validate_python(address)
    assert read.get_secret_value() == address
    assert "secret" not in repr(read)


@pytest.mark.parametrize("address", ["sqlite:", "postgres://", "mysql://d", "x.sqlite"])
def test_other_storage_is_a_mistake(address: str) -> None:
    with pytest.raises(ValidationError, match="expected sqlite:PATH or postgres://"):
        ADDRESS.validate_python(address)


def test_storage_is_a_file_of_this_user_by_default() -> None:
    address = default_storage().get_secret_value()
    assert address.startswith("sqlite:/")
    assert address.endswith("llama-compat/operations.sqlite")


def test_no_bodies_are_kept_unless_that_is_said() -> None:
    assert RecordsSettings().record_bodies is None


def test_what_is_to_be_redacted_is_a_regular_expression() -> None:
    assert RecordsSettings(redact=["sk-[a-z]+"]).redact == ["sk-[a-z]+"]
    with pytest.raises(ValidationError, match="no regular expression: missing \\)"):
        RecordsSettings(redact=["("])


def test_no_price_is_below_nothing() -> None:
    assert PriceSettings(input=0, output=0).cached_input is None
    with pytest.raises(ValidationError):
        PriceSettings(input=1, output=-1)
