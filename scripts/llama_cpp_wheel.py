"""Build llama-cpp-python once per machine: `python scripts/llama_cpp_wheel.py`.

There are no wheels of it on PyPI, and compiling all of it takes a quarter of an hour on two cores.
This leaves out what is not used here (llama.cpp's `common` library, and what runs ffmpeg in its
multimodal one), and keeps the wheel in the user's cache folder, where the next environment finds
it. Its last line on the standard output is the folder, for `pip install --find-links`.

Settings of one's own, such as `CMAKE_ARGS=-DGGML_CUDA=on`, are taken along; each combination of
version, settings and kind of CPU has a wheel of its own. It needs nothing but Python and a C++
compiler: CMake and Ninja come from PyPI where the machine has none.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).parents[1]
INCLUDED = ROOT / "scripts/llama_cpp.cmake"
SETTINGS = f"{shlex.quote(f'-DCMAKE_PROJECT_llama.cpp_INCLUDE={INCLUDED}')} -DMTMD_VIDEO=OFF"

TICK_SECONDS = 15
"""How often a line says how far the compiler is."""


def main() -> int:
    """Make sure that the wheel is there; print its folder."""
    requirement = pinned()
    folder = cache_folder() / "wheels" / f"{requirement.replace('==', '-')}-{fingerprint()}"
    if not has_wheel(folder):
        with lock(beside(folder, ".lock")):
            # Another checkout may have built it meanwhile.
            if not has_wheel(folder):
                build(requirement, folder)
    print(folder)
    return 0


def pinned() -> str:
    """`llama_cpp_python==VERSION` from the constraints."""
    lines = (ROOT / "constraints.txt").read_text("utf-8")
    found = re.search(r"^llama[-_]cpp[-_]python==\S+", lines, re.MULTILINE)
    if found is None:
        sys.exit("constraints.txt has no version of llama_cpp_python.")
    return found[0]


def cache_folder() -> Path:
    """Where models are kept too: `$LLAMA_COMPAT_HOME`, or the user's cache folder."""
    if home := os.environ.get("LLAMA_COMPAT_HOME"):
        return Path(home).expanduser()
    if sys.platform == "darwin":
        return Path("~/Library/Caches/llama-compat").expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "llama-compat"


def fingerprint() -> str:
    """What a wheel depends on, beside its version: settings, platform, the CPU's instructions."""
    parts = [os.environ.get("CMAKE_ARGS", ""), sys.platform, platform.machine()]
    # The text that it adds, and not where it lies: checkouts share the wheel.
    parts += [SETTINGS.replace(str(ROOT), ""), INCLUDED.read_text("utf-8")]
    try:
        cpu = Path("/proc/cpuinfo").read_text()
    except OSError:
        parts.append(platform.processor())
    else:
        parts += re.findall(r"^(?:flags|Features)\s*:.*", cpu, re.MULTILINE)[:1]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def beside(folder: Path, suffix: str) -> Path:
    """A file next to `folder` with its name, which has dots of its own."""
    return folder.with_name(folder.name + suffix)


def has_wheel(folder: Path) -> bool:
    """Whether the wheel is in `folder`; it is put there whole."""
    return any(folder.glob("*.whl"))


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Hold `path` against other processes; the system lets go of it when this one dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            import fcntl
        except ImportError:  # Windows: two at once do the same work twice, and no harm
            yield
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("Waiting for another checkout that builds llama.cpp")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def build(requirement: str, folder: Path) -> None:
    """Compile the wheel into `folder`; it appears there whole or not at all.

    Ends the program with what is to be done where there is no compiler, or it fails.
    """
    wanted = (os.environ.get("CXX"), "c++", "g++", "clang++", "cl")
    if not any(shutil.which(each) for each in wanted if each):
        sys.exit(
            "llama.cpp has to be compiled, and there is no C++ compiler. Install one, then run make"
            " again: 'apt install g++' on Debian and Ubuntu, 'dnf install gcc-c++' on Fedora,"
            " 'xcode-select --install' on macOS."
        )
    say(
        f"Compiling {requirement}, once on this machine: some 5 minutes on two cores. It is kept in"
        f" {folder.parent}"
    )
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".building-") as scratch:
        made, log_path = Path(scratch, "wheel"), beside(folder, ".log")
        command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-cache-dir", "--verbose"]
        command += ["--disable-pip-version-check", "--no-binary=llama-cpp-python"]
        command += ["--wheel-dir", str(made), requirement]
        settings = f"{SETTINGS} {os.environ.get('CMAKE_ARGS', '')}".strip()
        environment = {**os.environ, "CMAKE_ARGS": settings, "TMPDIR": scratch}
        with log_path.open("w") as log:
            process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, start_new_session=True
            )
            try:
                watch(process, log_path)
            except KeyboardInterrupt:
                sys.exit("Stopped; what was compiled is gone.")
            finally:
                end(process)
        if process.returncode != 0:
            tail = "\n".join(log_path.read_text(errors="replace").splitlines()[-15:])
            sys.exit(f"{tail}\n\nllama.cpp could not be compiled; all of the output: {log_path}")
        made.rename(folder)
    log_path.unlink()
    say("llama.cpp is compiled")


def watch(process: subprocess.Popen[bytes], log_path: Path) -> None:
    """Say how far `process` is until it ends."""
    began, done = time.monotonic(), threading.Event()

    def tell() -> None:
        while not done.wait(TICK_SECONDS):
            steps = re.findall(r"^\s*(\[\d+/\d+\])", log_path.read_text(errors="replace"), re.M)
            minutes, seconds = divmod(int(time.monotonic() - began), 60)
            say(f"Compiling llama.cpp {steps[-1] if steps else '...'} {minutes}:{seconds:02}")

    telling = threading.Thread(target=tell, daemon=True)
    telling.start()
    try:
        process.wait()
    finally:
        done.set()
        telling.join()


def end(process: subprocess.Popen[bytes]) -> None:
    """End `process` and the compilers that it runs."""
    with suppress(ProcessLookupError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGTERM)
        else:
            process.kill()
    process.wait()


def say(text: str) -> None:
    """A line for who watches; the standard output is for the result alone."""
    print(f"== {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
