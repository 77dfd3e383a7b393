"""The store's folders: where they are, and how one that is finished gets to its place."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import platformdirs

from providers.base import ProviderStartError
from providers.local.models.sizes import file_size


class ModelStoreError(ProviderStartError):
    """A model can't be had; the message is one sentence with what mends it."""


class Progress(Protocol):
    """Called as a pull goes on, with how far it has come.

    `done` and `total` are bytes; a `total` of None means that nobody knows how long it takes.
    """

    def __call__(self, step: str, done: int = 0, total: int | None = None) -> None: ...


def store_folder() -> Path:
    """The store: `$LLAMA_COMPAT_HOME`, or `llama-compat` in the user's cache folder."""
    if home := os.environ.get("LLAMA_COMPAT_HOME"):
        return Path(home).expanduser()
    return platformdirs.user_cache_path("llama-compat", appauthor=False)


def flat(name: str) -> str:
    """The name of a model, or of a file in a repository, as that of one folder or file; those of
    no two are the same.

    What begins behind a slash or a colon is a letter, a digit or an underscore, so that two hyphens
    stand for either, unless there are such in the name itself.
    """
    if "--" in name:
        name = name.replace("-", "%2D")
    return re.sub("[/:]", "--", name)


def partial_folder(name: str) -> Path:
    """Where the download or the conversion `name`, which is `flat`, is under way."""
    folder = store_folder() / "partial" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def fresh_folder(path: Path) -> Iterator[Path]:
    """An empty folder, gone afterwards; what an interruption left in it goes first."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def publish(made: Path, folder: Path) -> None:
    """Move the finished folder `made` to its place, on disk before it is seen there."""
    for file in made.rglob("*"):
        if file.is_file():
            with file.open("r+b") as opened:  # Windows syncs only what may be written
                os.fsync(opened.fileno())
    folder.parent.mkdir(parents=True, exist_ok=True)
    made.rename(folder)


def bytes_under(folder: Path) -> int:
    """Bytes on disk under a folder in which others write and delete."""
    # os.walk passes over folders that go away under it; Path.rglob raises.
    return sum(
        file_size(Path(parent, name), allocated=True) or 0
        for parent, _, names in os.walk(folder)
        for name in names
    )
