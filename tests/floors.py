"""The unit tests with every direct dependency at the oldest version that pyproject.toml allows.

    python -m tests.floors [--folder FOLDER] [PYTEST ARGUMENT ...]

It makes an environment of its own, in which whatever pyproject.toml names with `>=` has exactly
that version; what those need in turn is as new as they allow. pip says so if the floors can't be
had together, and the tests say so if one is too low.

torch is the exception that needs watching: on Linux pip's own index has the build for CUDA, which
is gigabytes large. Give an index with another build as `--torch-index`, or configure pip so that it
finds one. Only the version that is its floor has been tried, as no older build was to be had; an
older one may well do.

llama-cpp-python's floor is the version that the tests ran with, which `make floors` takes from
where it was compiled; pip by itself would compile it anew, for a quarter of an hour.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
EXTRAS = ("torch", "llama-cpp", "dev")

_REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+)(?:\[[\w,-]+\])?(?:>=(?P<floor>[\w.]+))?(?:,|;sys_platform==|$)"
)


def declared(project: dict[str, Any], extras: Iterable[str]) -> Iterator[str]:
    """The direct dependencies, as they are written, of the project and these of its extras."""
    yield from project["dependencies"]
    for extra in extras:
        yield from project["optional-dependencies"][extra]


def floor_of(requirement: str) -> str | None:
    """`name==version` for a requirement that has a floor.

    Raises:
        ValueError: it is written in a way that is not understood here.
    """
    match = _REQUIREMENT.match(requirement.replace(" ", ""))
    if match is None:
        raise ValueError(f"pyproject.toml: {requirement!r} is no 'name>=version'")
    return f"{match['name']}=={match['floor']}" if match["floor"] else None


def floors(extras: Iterable[str] = EXTRAS) -> list[str]:
    """Every floor in pyproject.toml, as pip's constraints."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    found = map(floor_of, declared(project, extras))
    return sorted({floor for floor in found if floor is not None}, key=str.lower)


def main() -> int:
    """Make the environment, run the unit tests in it; pytest's exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=ROOT / ".venv-floors")
    parser.add_argument("--torch-index", help="where to get torch, if not from the usual index")
    options, pytest_arguments = parser.parse_known_args()
    folder: Path = options.folder
    pinned = floors()
    print("\n".join(pinned))
    if not (folder / "pyvenv.cfg").is_file():
        venv.create(folder, with_pip=True)
    python = str(folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python"))
    constraints = folder / "floors.txt"
    constraints.write_text("\n".join(pinned) + "\n")
    install = [
        python,
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "-c",
        str(constraints),
    ]
    if options.torch_index:
        subprocess.run([*install, "--index-url", options.torch_index, "torch"], check=True)
    subprocess.run([*install, "-e", f"{ROOT}[{','.join(EXTRAS)}]"], check=True)
    tests = pytest_arguments or ["tests/unit"]
    return subprocess.run([python, "-m", "pytest", *tests], cwd=ROOT).returncode


if __name__ == "__main__":
    raise SystemExit(main())
