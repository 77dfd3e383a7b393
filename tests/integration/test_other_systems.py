"""Where POSIX is not: the package is imported and serves without what only POSIX has."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.server_process import ServerProcess, write_template

WITHOUT_POSIX = """\
#!{python}
# As on Windows, as far as that can be had here.
import asyncio, signal, sys
{before}
for module in ("fcntl", "grp", "pwd", "readline", "resource", "syslog", "termios", "tty", "uvloop"):
    sys.modules[module] = None  # importing it fails
for name in ("SIGALRM", "SIGHUP", "SIGKILL", "SIGUSR1", "SIG_BLOCK", "pthread_sigmask"):
    delattr(signal, name)

def refuse(*_):
    raise NotImplementedError

asyncio.unix_events._UnixSelectorEventLoop.add_signal_handler = refuse
{then}
"""

SERVE = """
from routing.cli import main
main()
"""

IMPORT = """
import importlib, pkgutil
for floor in ("llama_compat", "providers", "routing"):
    for module in pkgutil.walk_packages(importlib.import_module(floor).__path__, floor + "."):
        if "torch_engine" not in module.name:
            importlib.import_module(module.name)
            print(module.name)
"""


WITH_MCP = """
try:
    import mcp  # which asks whether it is on Windows, not whether there is fcntl
except ImportError:
    pass
"""


def script(path: Path, then: str, before: str = "") -> Path:
    path.write_text(WITHOUT_POSIX.format(python=sys.executable, then=then, before=before))
    path.chmod(0o755)
    return path


def test_every_module_can_be_imported(tmp_path: Path) -> None:
    command = [script(tmp_path / "modules", IMPORT, WITH_MCP)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    imported = done.stdout.split()
    assert {
        "providers.local.models.store",
        "routing.process.server",
        "routing.process.workers",
    } <= set(imported)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_and_ends(tmp_path: Path, number: signal.Signals) -> None:
    template = write_template(
        tmp_path / "echo.yaml",
        providers=[{"id": "echo", "type": "local::echo"}],
        models=[{"id": "echo", "provider": "echo"}],
    )
    server = ServerProcess(template, executable=str(script(tmp_path / "serve", SERVE)))
    try:
        server.wait_until_ready()
        server.send_signal(number)
        server.send_signal(number)
        assert server.wait() == 0
        assert "Traceback" not in server.log
    finally:
        server.kill()
