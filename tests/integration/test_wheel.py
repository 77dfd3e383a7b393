"""The wheel: built from this checkout, installed where there is nothing else, run elsewhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import openai
import pytest

from llama_compat import __version__
from tests.integration import wire
from tests.integration.server_process import ServerProcess

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "routing" / "page" / "assets"

HEAVY = ("torch", "transformers", "llama_cpp", "openai", "numpy", "huggingface_hub")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    finish(sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(folder), str(ROOT))
    [wheel] = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts folder of a fresh environment with the wheel and what it requires, no extras."""
    environment = tmp_path_factory.mktemp("environment")
    finish(sys.executable, "-m", "venv", "--without-pip", str(environment))
    # Of what is installed, only what is imported gets compiled, when it is.
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"), "install"]
    constraints = str(ROOT / "constraints.txt")
    finish(*pip, "--quiet", "--no-compile", "-c", constraints, str(wheel))
    return environment / "bin"


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory whose own packages have the names of ours, and break when imported."""
    for name in ("providers", "routing", "llama_compat"):
        package = tmp_path / name
        package.mkdir()
        (package / "__init__.py").write_text("raise RuntimeError('the wrong package')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def finish(*command: str) -> str:
    """Run a command that has to succeed; what it printed."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_wheel_holds_the_packages_and_every_template(wheel: Path) -> None:
    names = set(ZipFile(wheel).namelist())
    tops = {name.split("/")[0] for name in names}
    assert tops == {"llama_compat", "providers", "routing", f"llama_compat-{__version__}.dist-info"}
    templates = {f"llama_compat/templates/{path.name}" for path in (ROOT / "templates").iterdir()}
    assert templates <= names
    modules = {
        str(path.relative_to(ROOT))
        for package in ("llama_compat", "providers", "routing")
        for path in (ROOT / package).rglob("*.py")
    }
    assert modules <= names
    page = {str(each.relative_to(ROOT)) for each in PAGE.rglob("*.*")}
    assert page <= names


def test_the_commands_work_from_any_folder(installed: Path, elsewhere: Path) -> None:
    command = str(installed / "llama-compat")
    listed = finish(command, "list")
    assert all(path.stem in listed for path in (ROOT / "templates").glob("*.yaml"))
    assert "echo is fine" in finish(command, "check", "echo")
    assert finish(command, "--version").split() == ["llama-compat", __version__]


def test_echo_serves_from_any_folder_and_ends_with_0(installed: Path, elsewhere: Path) -> None:
    server = ServerProcess("echo", executable=str(installed / "llama-compat"))
    try:
        server.wait_until_ready()
        with openai.OpenAI(base_url=server.base_url, api_key="none") as client:
            reply = client.chat.completions.create(
                model="echo", messages=[{"role": "user", "content": "from a wheel"}]
            )
        assert reply.choices[0].message.content == "from a wheel"
        assert wire.request("GET", f"{server.url}/version").json() == {"version": __version__}
        server.send_signal(signal.SIGTERM)
        assert server.wait() == 0, server.log
    finally:
        server.kill()


def test_a_missing_extra_is_one_sentence_with_what_mends_it(
    installed: Path, elsewhere: Path
) -> None:
    ended = subprocess.run(
        [str(installed / "llama-compat"), "run", "starter", "--port", "0"],
        env={**os.environ, "LLAMA_COMPAT_HOME": str(elsewhere / "store")},
        capture_output=True,
        text=True,
    )
    assert ended.returncode != 0
    assert "pip install 'llama-compat[torch]'" in ended.stderr
    assert "Traceback" not in ended.stderr
    pulled = subprocess.run(
        [str(installed / "llama-compat"), "pull", "starter"],
        env={**os.environ, "LLAMA_COMPAT_HOME": str(elsewhere / "store")},
        capture_output=True,
        text=True,
    )
    assert pulled.returncode == 1
    assert "pip install 'llama-compat[torch]'" in pulled.stderr


def test_a_gateway_loads_nothing_heavy() -> None:
    """In the test's own environment, where all of it is installed."""
    script = """
import asyncio, sys
import routing.cli
from llama_compat.distribution import load_distribution
from providers.registry import config_model
from routing.process.server import Application

async def start_and_stop():
    app = Application(load_distribution("echo", config_model))
    await app.start()
    await app.stop()

asyncio.run(start_and_stop())
print(*sys.modules)
"""
    loaded = set(finish(sys.executable, "-c", script).split())
    assert "providers.local.echo" in loaded
    assert loaded.isdisjoint(HEAVY)
