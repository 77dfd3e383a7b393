"""Which storage a command is about."""

from __future__ import annotations

from pathlib import Path

from llama_compat.distribution import default_storage
from routing.cli.storages import storage_address


def test_the_storage_that_is_named_counts_before_that_of_the_template(tmp_path: Path) -> None:
    template = tmp_path / "template.yaml"
    template.write_text(
        "version: 1\n"
        "server: {storage: 'sqlite:own.sqlite'}\n"
        "providers: [{id: echo, type: 'local::echo'}]\n"
        "models: [{id: echo, provider: echo}]\n"
    )
    usual = default_storage().get_secret_value()
    assert storage_address(None, None) == (usual, None)
    assert storage_address(None, "sqlite:x") == ("sqlite:x", None)
    own, distribution = storage_address(str(template), None)
    assert own == "sqlite:own.sqlite"
    assert distribution is not None
    assert storage_address(str(template), "sqlite:x") == ("sqlite:x", distribution)
