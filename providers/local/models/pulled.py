"""What lies in the store, and how it goes again."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from providers.local.models.folders import (
    ModelStoreError,
    bytes_under,
    flat,
    partial_folder,
    store_folder,
)
from providers.local.models.forecast import (
    ModelForecast,
    context_in,
    context_of,
    of_folder,
    of_gguf,
)
from providers.local.models.gguf_header import read_header
from providers.local.models.projectors import is_projector
from providers.local.models.quantized import config_in, method_of, settings_of
from providers.local.models.sources.ollama import OllamaName
from providers.local.models.store import STARTER_FOLDER, STARTER_GGUF, locked, place_of


class Pulled(NamedTuple):
    """A model in the store.

    Attributes:
        name: by which templates and `pull` know it.
        folder: where it is.
        size: its bytes on disk, with what engines keep beside it.
        context: tokens that it holds; None where its files don't say.
        is_gguf: whether `local::llama_cpp` runs it; else `local::torch` does.
        quantized_by: what quantized its weights, as its config calls it; None where nothing did,
            or it is GGUF.
    """

    name: str
    folder: Path
    size: int
    context: int | None
    is_gguf: bool
    quantized_by: str | None = None


def pulled() -> list[Pulled]:
    """All that is in the store and complete, by name."""
    return sorted(_found(store_folder() / "models"))


def forecast_of(model: Pulled) -> ModelForecast:
    """What runs a model that is in the store, and how; what it takes is not looked at."""
    if model.is_gguf:
        return of_gguf(model.name, model.name, model.size, ())
    return of_folder(model.name, model.folder, model.size, None)


def remove(name: str) -> Pulled:
    """Take a model out of the store; what it was.

    A process that runs it goes on: what it has opened stays until it ends. It waits for a pull of
    the same model.

    Raises:
        ModelStoreError: it is not in the store, or can't be removed.
    """
    if (place := place_of(name)) is not None:
        # Names that say the same in other words are of one model.
        name = next((each.name for each in pulled() if each.folder == place), name)
    with locked(name, lambda step, done=0, total=None: None):
        there = {each.name: each for each in pulled()}
        if name not in there:
            known = f" There are: {', '.join(there)}." if there else " There are none."
            raise ModelStoreError(f"There is no model '{name}' in the store.{known}")
        gone = partial_folder("removed") / flat(name)
        try:
            shutil.rmtree(gone, ignore_errors=True)
            # Whole or not at all: what is half gone would look like a model.
            there[name].folder.rename(gone)
        except OSError as error:
            raise ModelStoreError(
                f"The model '{name}' can't be removed from {there[name].folder}:"
                f" {error.strerror or error}."
            ) from error
        shutil.rmtree(gone, ignore_errors=True)
        return there[name]


def _found(models: Path) -> Iterator[Pulled]:
    for name in (STARTER_FOLDER, STARTER_GGUF):
        if (models / name).is_dir():
            yield _pulled(name, models / name, is_gguf=name == STARTER_GGUF)
    for folder in models.glob("hf/*/*"):
        yield _pulled(f"hf:{folder.parent.name}/{folder.name}", folder, is_gguf=False)
    for folder in models.glob("ollama/*/*/*"):
        called = OllamaName(folder.parent.parent.name, folder.parent.name, folder.name)
        yield _pulled(str(called), folder, is_gguf=True)
    for folder in models.glob("gguf/*/*/*"):
        repository = f"{folder.parent.parent.name}/{folder.parent.name}"
        # The folder's name has no slashes; the file's may.
        for file in _ggufs(folder)[:1]:
            path = file.relative_to(folder).as_posix()
            yield _pulled(f"hf:{repository}:{path}", folder, is_gguf=True)


def _pulled(name: str, folder: Path, *, is_gguf: bool) -> Pulled:
    if is_gguf:
        return Pulled(name, folder, bytes_under(folder), _gguf_context(folder), is_gguf)
    settings = settings_of(config_in(folder))
    method = None if settings is None else method_of(settings)
    return Pulled(name, folder, bytes_under(folder), context_of(folder), is_gguf, method)


def _ggufs(folder: Path) -> list[Path]:
    """Its GGUF files, the model before what makes embeddings of pictures for it."""
    return sorted(folder.rglob("*.gguf"), key=lambda file: (is_projector(file.name), file))


def _gguf_context(folder: Path) -> int | None:
    for file in _ggufs(folder)[:1]:
        try:
            return context_in(read_header(file))
        except (OSError, ValueError):
            return None  # who loads it says what is wrong with it
    return None
