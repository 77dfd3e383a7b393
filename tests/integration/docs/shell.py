"""A shell that reads a page of the documentation, as a person would type what it says."""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import metadata
from pathlib import Path

import yaml

from tests.documents import Snippet, variables, whole_template
from tests.forked import kept_for_others
from tests.integration.server_process import ServerProcess, write_template

_RUN = re.compile(r"llama-compat run (\S+)(.*)")
_INSTALL = re.compile(r"pip install 'llama-compat\[([\w,-]+)\]'")
"""Would change what the other tests run with, by as much as 250 MB."""
_MAKE = "make serve"
"""Serves the starter from an environment that it makes; here there is one already."""
_SAYS = re.compile(r"^ *#> ?(.*\n?)", re.M)

_END = "=== the command has ended with"
_ADDRESS = "localhost:8321"

SUFFIXES = {
    "remote::anthropic-messages": "",
    "remote::ollama-native": "",
    "remote::gemini-native": "/v1beta",
}
"""Where the stand-in for a vendor has its API; that of all others is under `/v1`."""

SECONDS = 120
"""More than any command here takes."""

_BIN = Path(__file__).parent / "bin"
"""Has the command as a fork, which imports nothing each time."""

LATE = ("llama-compat usage", "llama-compat export", "curl -s http://localhost:8321/metrics")
"""What shows requests a moment after they have ended, and is asked again until it does."""

LATE_SECONDS = 30

NOBODY = "http://localhost:9"
"""Where nobody listens: a page names it to show what happens then."""


class Shell:
    """Runs the snippets of one page, in a folder of its own.

    `llama-compat run` starts a server on a free port, and `localhost:8321` is that server from then
    on. Vendors are stood in for by one that repeats what it is told.

    Args:
        snippets: of the page.
        folder: where files are written.
    """

    def __init__(self, snippets: Sequence[Snippet], folder: Path) -> None:
        self._folder = folder
        self._server: ServerProcess | None = None
        self._vendor: ServerProcess | None = None
        self._models = sorted(_remote_models(each for each in snippets if each.is_template))
        path = [str(Path(sys.executable).parent), os.environ["PATH"]]
        self._env = {
            **os.environ,
            "PATH": os.pathsep.join(path),
            "COLUMNS": "100",
            "XDG_DATA_HOME": str(folder),
        }
        for snippet in snippets:
            if snippet.is_template:
                self._env |= variables(snippet.text)
        if sys.platform == "linux":
            self._env |= kept_for_others() | {"PATH": os.pathsep.join([str(_BIN), *path])}
        self._bash = subprocess.Popen(
            ["bash"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            env=self._env,
        )

    def close(self) -> None:
        """End all that runs."""
        for server in (self._server, self._vendor):
            if server is not None:
                server.kill()
        self._bash.communicate("exit\n")

    def run(self, snippet: Snippet) -> None:
        """Do what a snippet says, and hold what comes of it against what it says of that."""
        if snippet.language == "yaml" and snippet.title:
            self._write(snippet)
        elif snippet.language == "console":
            for command, expected in _commands(snippet.text):
                self._expect(command, expected)
        elif snippet.language == "python":
            expected = "".join(_SAYS.findall(snippet.text))
            said = _python(self._here(snippet.text))
            assert _is_so(expected, said), _difference(snippet.text, expected, said)

    # Files ----------------------------------------------------------------------------------------

    def _write(self, snippet: Snippet) -> None:
        path = self._folder / snippet.title
        if not snippet.is_template:
            path.write_text(snippet.text)
            return
        template = whole_template(snippet.text)
        for provider in template["providers"]:
            config = provider.setdefault("config", {})
            is_remote = provider["type"].startswith("remote::")
            if is_remote and not config.get("base_url", "").startswith(NOBODY):
                config["base_url"] = self._vendor_url() + SUFFIXES.get(provider["type"], "/v1")
        path.write_text(yaml.safe_dump(template, sort_keys=False))

    def _vendor_url(self) -> str:
        if self._vendor is None:
            template = write_template(
                self._folder / "vendor-of-the-test.yaml",
                providers=[{"id": "vendor", "type": "local::echo"}],
                models=[{"id": model, "provider": "vendor"} for model in self._models],
            )
            self._vendor = ServerProcess(template)
            self._vendor.wait_until_ready()
        return self._vendor.url

    def _expect(self, command: str, expected: str) -> None:
        """Run a command, which prints what the page says, if the page says anything."""
        begun = time.monotonic()
        said = self._command(self._here(command))
        while expected.strip() and not _is_so(expected, said):
            asks_again = command.startswith(LATE) and time.monotonic() - begun < LATE_SECONDS
            assert asks_again, _difference(command, expected, said)
            time.sleep(0.2)
            said = self._command(self._here(command))

    # Commands -------------------------------------------------------------------------------------

    def _command(self, command: str) -> str:
        """What a command prints. Bash does it, but for the server, which has to be waited for."""
        runs = _RUN.fullmatch("llama-compat run starter" if command == _MAKE else command)
        if runs is not None:
            return self._serve(*runs.groups())
        if installs := _INSTALL.fullmatch(command):
            unknown = {*installs[1].split(",")} - {*_extras()}
            assert not unknown, f"$ {command}\nThere are no extras {unknown}."
            return ""
        assert self._bash.stdin is not None
        self._bash.stdin.write(f"{command}\nstatus=$?; echo; echo '{_END}' $status\n")
        self._bash.stdin.flush()
        too_long = threading.Timer(SECONDS, self._bash.kill)
        too_long.start()
        try:
            return self._said(command)
        finally:
            too_long.cancel()

    def _said(self, command: str) -> str:
        said = ""
        assert self._bash.stdout is not None
        for line in self._bash.stdout:
            if line.startswith(_END):
                assert line.removeprefix(_END).strip() == "0", f"$ {command}\n{said}"
                return said
            said += line
        raise AssertionError(f"bash ended: $ {command}\n{said}")

    def _serve(self, template: str, options: str) -> str:
        if self._server is not None:
            self._server.stop()
        path = self._folder / template
        source = path if path.is_file() else template
        self._server = ServerProcess(source, env=self._env, options=options.split())
        self._server.wait_until_ready()
        self._server.wait_for_log("models: ")  # the last of what it says then
        return self._server.log.replace(self._server.url[7:], "127.0.0.1:8321")

    def _here(self, text: str) -> str:
        return text.replace(_ADDRESS, self._server.url[7:]) if self._server else text


def _extras() -> Sequence[str]:
    return metadata("llama-compat").get_all("Provides-Extra") or ()


def _commands(text: str) -> Iterator[tuple[str, str]]:
    """Each command of a console, and what it prints."""
    lines = text.splitlines(keepends=True)
    while lines:
        command = lines.pop(0)
        assert command.startswith("$ "), command
        while _goes_on(command):
            command += lines.pop(0)
        expected = ""
        while lines and not lines[0].startswith("$ "):
            expected += lines.pop(0)
        yield command.removeprefix("$ ").rstrip(), expected


def _goes_on(command: str) -> bool:
    try:
        shlex.split(command)
    except ValueError:
        return True  # inside of quotes
    return command.endswith("\\\n")


def _remote_models(templates: Iterator[Snippet]) -> set[str]:
    """What the vendors of these templates call their models."""
    names = set()
    for snippet in templates:
        template = whole_template(snippet.text)
        for model in template.get("models") or ():
            names.add(model.get("provider_model", model["id"]))
            names |= {each.get("model", model["id"]) for each in model.get("targets") or ()}
    return names


def _python(text: str) -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(text, "<a snippet>", "exec"), {"__name__": "__main__"})
    return said.getvalue()


def _is_so(expected: str, said: str) -> bool:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    checker = doctest.OutputChecker()
    return checker.check_output(expected.strip() + "\n", said.strip() + "\n", flags)


def _difference(source: str, expected: str, said: str) -> str:
    return f"{source}\n--- the page says:\n{expected}\n--- it is:\n{said}"
