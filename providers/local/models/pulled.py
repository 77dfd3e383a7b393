"""What lies in the store, and how it goes again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from providers.local.models.folders import (
    ModelStoreError,
    bytes_under,
    partial_folder,
    store_folder,
)
from providers.local.models.quantized import method_of, settings_of
from providers.local.models.store import STARTER_FOLDER, STARTER_GGUF, locked, place_of


class Pulled(NamedTuple):
    """A model in the store.

    Attributes:
        name: by which templates and `pull` know it.
        folder: where it is.
        size: its bytes on disk, with what engines keep beside it.
        context: tokens that it holds; None where its files don't say, or are GGUF.
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


def remove(name: str) -> Pulled:
    """Take a model out of the store; what it was.

    A process that runs it goes on: what it has opened stays until it ends. It waits for a pull of
    the same model.

    Raises:
        ModelStoreError: it is not in the store, or can't be removed.
    """
    place_of(name)
    with locked(name, lambda step, done=0, total=None: None):
        there = {each.name: each for each in pulled()}
        if name not in there:
            known = f" There are: {', '.join(there)}." if there else " There are none."
            raise ModelStoreError(f"There is no model '{name}' in the store.{known}")
        gone = partial_folder("removed") / f"{name.replace('/', '--').replace(':', '-')}"
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
    for folder in models.glob("gguf/*/*/*"):
        repository = f"{folder.parent.parent.name}/{folder.parent.name}"
        # The folder's name has no slashes; the file's may.
        for file in sorted(folder.rglob("*.gguf"))[:1]:
            path = file.relative_to(folder).as_posix()
            yield _pulled(f"hf:{repository}:{path}", folder, is_gguf=True)


def _pulled(name: str, folder: Path, *, is_gguf: bool) -> Pulled:
    config = {} if is_gguf else _config(folder / "config.json")
    settings = settings_of(config)
    method = None if settings is None else method_of(settings)
    return Pulled(name, folder, bytes_under(folder), _context(config), is_gguf, method)


def _config(path: Path) -> dict[str, Any]:
    try:
        members = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return members if isinstance(members, dict) else {}


def _context(config: dict[str, Any]) -> int | None:
    inner = config.get("text_config")
    for holder in (config, inner if isinstance(inner, dict) else {}):
        found = holder.get("max_position_embeddings")
        if found:
            return found if isinstance(found, int) else None
    return None
