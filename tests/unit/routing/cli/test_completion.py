"""What Tab offers in a shell."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path

import pytest
from typer.testing import CliRunner

from llama_compat.distribution import list_templates
from routing.cli import app
from tests.local_server import Handler, send, serving
from tests.unit.routing.cli.terminals import COMMAND


def offered(line: str, folder: Path | None = None) -> Sequence[str]:
    """What bash is offered at the end of `line`: by the command, in this process."""
    with chdir(folder or "."):
        done = CliRunner().invoke(
            app,
            prog_name="llama-compat",
            env={
                "_LLAMA_COMPAT_COMPLETE": "complete_bash",
                "COMP_WORDS": line,
                "COMP_CWORD": str(len(line.split(" ")) - 1),
            },
        )
    assert done.exit_code == 0
    return done.stdout.split()


def offered_in_a_shell(line: str, folder: Path | None = None) -> Sequence[str]:
    """The same of the command as it is installed."""
    words = line.split(" ")
    done = subprocess.run(
        [COMMAND],
        cwd=folder,
        env={
            **os.environ,
            "_LLAMA_COMPAT_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.parametrize("command", ["run", "check"])
def test_templates(tmp_path: Path, command: str) -> None:
    (tmp_path / "mine.yaml").touch()
    (tmp_path / "notes.txt").touch()
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "other.yml").touch()
    shipped = [name for name, _ in list_templates()]
    assert set(offered(f"llama-compat {command} ", tmp_path)) == {*shipped, "mine.yaml", "more/"}
    assert offered(f"llama-compat {command} mi", tmp_path) == ["mine.yaml"]
    assert offered(f"llama-compat {command} more/o", tmp_path) == ["more/other.yml"]
    assert offered(f"llama-compat {command} nowhere/", tmp_path) == []


@pytest.mark.program
def test_the_command_that_is_installed_offers_the_same(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").touch()
    for line in ("llama-compat ", "llama-compat run "):
        found = offered_in_a_shell(line, tmp_path)
        assert found
        assert found == offered(line, tmp_path)


def test_commands() -> None:
    assert {"run", "init", "keys", "pull"} <= set(offered("llama-compat "))
    assert "create" in offered("llama-compat keys c")


def test_models_that_can_be_pulled() -> None:
    assert "starter" in offered("llama-compat pull st")
    assert offered("llama-compat pull nothing") == []


def test_models_of_the_server_that_is_spoken_to() -> None:
    def answer(handler: Handler) -> None:
        models = [{"id": name, "object": "model"} for name in ("apple", "avocado", "banana")]
        send(handler, 200, json.dumps({"object": "list", "data": models}).encode())

    with serving(answer) as url:
        assert offered(f"llama-compat chat --base-url {url} --model a") == ["apple", "avocado"]
    assert offered(f"llama-compat chat --base-url {url} --model a") == []
