"""How llama.cpp gets compiled once per machine; compiling itself is what `make test` does first."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from scripts import llama_cpp_wheel

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LLAMA_COMPAT_HOME", str(tmp_path))
    monkeypatch.delenv("CMAKE_ARGS", raising=False)
    return tmp_path


def folder_of() -> Path:
    """Where the script looks for its wheel."""
    name = llama_cpp_wheel.pinned().replace("==", "-")
    return llama_cpp_wheel.cache_folder() / "wheels" / f"{name}-{llama_cpp_wheel.fingerprint()}"


def run(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts/llama_cpp_wheel.py")],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


def test_a_wheel_that_is_there_is_not_built_again() -> None:
    folder = folder_of()
    folder.mkdir(parents=True)
    (folder / "llama_cpp_python-1-py3-none-any.whl").touch()
    ended = run(PATH="")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"{folder}\n", "")


def test_without_a_compiler_it_says_what_to_install(home: Path) -> None:
    ended = run(PATH="")
    assert ended.returncode == 1
    assert "there is no C++ compiler" in ended.stderr
    assert "apt install g++" in ended.stderr
    assert ended.stdout == ""
    assert not list(home.rglob("*.whl"))


@pytest.mark.program
def test_a_build_that_fails_says_why_and_leaves_nothing(home: Path) -> None:
    """There is no index, and so nothing to build."""
    nowhere = {
        "PIP_NO_INDEX": "1",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_FIND_LINKS": "",
        "CXX": "sh",
    }
    ended = run(**nowhere)
    assert ended.returncode == 1
    assert "No matching distribution found for llama_cpp_python==" in ended.stderr
    assert "llama.cpp could not be compiled; all of the output:" in ended.stderr
    assert not folder_of().exists()
    assert not [path for path in home.rglob("*") if path.name.startswith(".building")]


def test_each_combination_of_settings_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = llama_cpp_wheel.fingerprint()
    monkeypatch.setenv("CMAKE_ARGS", "-DGGML_CUDA=on")
    assert llama_cpp_wheel.fingerprint() != plain
    monkeypatch.delenv("CMAKE_ARGS")
    monkeypatch.setattr(llama_cpp_wheel, "SETTINGS", llama_cpp_wheel.SETTINGS + " -DMORE=on")
    assert llama_cpp_wheel.fingerprint() != plain


def test_one_that_was_compiled_with_another_cmake_file_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = llama_cpp_wheel.fingerprint()
    other = tmp_path / "llama_cpp.cmake"
    other.write_text("set(LLAMA_BUILD_COMMON OFF)\n")
    monkeypatch.setattr(llama_cpp_wheel, "INCLUDED", other)
    assert llama_cpp_wheel.fingerprint() != plain


ASKS_FOR_AMX = """
#if !defined(__AVX512VNNI__)
#error "this is not compiled for the CPU that was named"
#elif defined(__AMX_INT8__)
#error "llama.cpp's code for AMX is compiled"
#endif
int main(void) { return 0; }
"""


@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64") or not shutil.which("cmake"),
    reason="needs CMake, and a compiler for Intel's CPUs",
)
@pytest.mark.parametrize("language", ["C", "CXX"])
@pytest.mark.program
def test_nothing_is_compiled_for_amx(tmp_path: Path, language: str) -> None:
    """As on a CPU that has it; and where somebody's own flags ask for it too."""
    source = {"C": "main.c", "CXX": "main.cpp"}[language]
    (tmp_path / source).write_text(ASKS_FOR_AMX)
    (tmp_path / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.21)\nproject(llama.cpp {language})\n"
        f"add_executable(main {source})\n"
        "target_compile_options(main PRIVATE -march=sapphirerapids -mamx-int8)\n"
    )
    for command in (
        ["cmake", "-S", tmp_path, "-B", tmp_path / "made", *shlex.split(llama_cpp_wheel.SETTINGS)],
        ["cmake", "--build", tmp_path / "made"],
    ):
        ended = subprocess.run(command, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stdout + ended.stderr


def test_another_checkout_shares_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = llama_cpp_wheel.fingerprint()
    settings = llama_cpp_wheel.SETTINGS.replace(str(llama_cpp_wheel.ROOT), str(tmp_path))
    monkeypatch.setattr(llama_cpp_wheel, "ROOT", tmp_path)
    monkeypatch.setattr(llama_cpp_wheel, "SETTINGS", settings)
    assert llama_cpp_wheel.fingerprint() == plain


def test_the_version_is_the_one_that_the_bindings_were_written_for() -> None:
    pytest.importorskip("llama_cpp", reason="needs the extra 'llama-cpp'")
    from providers.local.llama_cpp_engine.bindings.fit import TESTED

    assert llama_cpp_wheel.pinned() == f"llama_cpp_python=={TESTED}"


def test_two_take_turns(home: Path) -> None:
    order: list[str] = []
    inside = threading.Event()

    def second() -> None:
        inside.wait()
        with llama_cpp_wheel.lock(home / "x.lock"):
            order.append("second")

    waiting = threading.Thread(target=second)
    waiting.start()
    with llama_cpp_wheel.lock(home / "x.lock"):
        inside.set()
        order.append("first")
    waiting.join(30)
    assert order == ["first", "second"]
