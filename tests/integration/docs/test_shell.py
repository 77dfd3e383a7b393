"""The shell that reads the pages notices what is not so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.documents import Snippet
from tests.integration.docs.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell((), tmp_path)
    try:
        yield shell
    finally:
        shell.close()


def console(text: str) -> Snippet:
    return Snippet("console", "", text, 1)


def python(text: str) -> Snippet:
    return Snippet("python", "", text, 1)


def test_what_is_said_is_what_is_printed(shell: Shell) -> None:
    shell.run(console("$ export A=one\n$ echo $A \\\n    two\none two\n$ echo 'a\n  b'\n...b\n"))
    shell.run(python("print('a', 1)\n#> a 1\n"))


@pytest.mark.parametrize(
    "snippet",
    [
        console("$ echo one\ntwo\n"),
        console("$ echo one\none\n$ echo two three\n...two\n"),
        console("$ false\n"),
        console("$ llama-compat check nothing.yaml\n"),
        console("$ pip install 'llama-compat[redis,readis]'\n"),
        python("print('a')\n#> b\n"),
        python("print('a')\n"),
        python("#> a\n"),
        python("assert False\n"),
    ],
)
def test_what_is_not_so_is_noticed(shell: Shell, snippet: Snippet) -> None:
    with pytest.raises(AssertionError):
        shell.run(snippet)


def test_nothing_is_installed(shell: Shell) -> None:
    shell.run(console("$ pip install 'llama-compat[redis,postgres]'\n"))


def test_a_command_that_does_not_end_is_ended(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.integration.docs.shell.SECONDS", 0.2)
    with pytest.raises(AssertionError, match="bash ended"):
        shell.run(console("$ sleep 5\n"))
