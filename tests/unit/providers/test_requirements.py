"""What is said of packages that are not there."""

from __future__ import annotations

import sys

import pytest

from providers.base import ProviderStartError
from providers.requirements import lacking, require


def test_what_is_there_is_not_complained_of() -> None:
    assert lacking(["json", "msgspec"], "for nothing", "aws") is None
    require(["json"], "for nothing")


def test_what_is_missing_is_named_with_the_extra_that_brings_it() -> None:
    message = lacking(["json", "no_such", "no_such.part"], "to sign", "aws")
    assert message == (
        "no_such and no_such.part are needed to sign: pip install 'llama-compat[aws]'"
    )
    with pytest.raises(ProviderStartError, match=r"no_such is needed to sign.*\[torch\]"):
        require(["no_such"], "to sign")


def test_a_package_that_can_t_be_imported_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore", None)
    assert lacking(["botocore"], "to sign", "aws") is not None
