"""Vendors' keys stay in the process that asks vendors."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from providers import environments


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "OPENAI_API_KEY": "sk-of-a-vendor",
        "VOYAGE_API_KEY": "sk-of-another",
        "HF_TOKEN": "of-a-hub",
        "LANG": "() { echo function; }",
        "TZ": "Asia/Tokyo",
    }.items():
        monkeypatch.setenv(name, value)


pytestmark = pytest.mark.usefixtures("told")


def test_a_program_gets_what_it_needs_and_what_is_named() -> None:
    environment = environments.of_program({"TOKEN": SecretStr("of-the-program")})
    assert environment.keys().isdisjoint({"OPENAI_API_KEY", "VOYAGE_API_KEY", "HF_TOKEN", "LANG"})
    assert (environment["TOKEN"], environment["TZ"]) == ("of-the-program", "Asia/Tokyo")
    assert environment["PATH"]


def test_a_reader_of_strangers_files_gets_no_more_than_where_its_packages_are() -> None:
    environment = environments.of_reader()
    assert environment.keys() <= {"LC_ALL", "PYTHONPATH", "SYSTEMROOT", "TMPDIR", "TZ"}
    assert environment["TZ"] == "Asia/Tokyo"


def test_what_uses_this_machine_gets_all_but_vendors_keys() -> None:
    environment = environments.without_vendors_keys()
    assert environment.keys().isdisjoint({"OPENAI_API_KEY", "VOYAGE_API_KEY"})
    assert environment["HF_TOKEN"] == "of-a-hub"
