"""Folders of tiny models, made once for the same arguments, and written again wherever a test wants
one of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec

P = ParamSpec("P")

KEPT_BYTES = 128 * 2**20
"""Of folders that a process keeps, those that it was asked for last."""


class _Made(NamedTuple):
    """A folder that was made.

    Attributes:
        files: what is in each, by its path in the folder.
        chance: torch's random numbers, as they go on behind it.
    """

    files: dict[Path, bytes]
    chance: Any


_kept: dict[str, _Made] = {}


def made_once(make: Callable[Concatenate[Path, P], Path]) -> Callable[Concatenate[Path, P], Path]:
    """Have what writes a model to a folder make it once.

    Args:
        make: takes the folder, and all that the model depends on: it seeds torch's random numbers,
            which go on behind it as if it had been made each time.
    """

    @wraps(make)
    def written(folder: Path, *arguments: P.args, **named: P.kwargs) -> Path:
        import torch

        key = repr((make.__qualname__, arguments, sorted(named.items())))
        made = _kept.pop(key, None)
        if made is None:
            with tempfile.TemporaryDirectory() as parent:
                make(Path(parent, "model"), *arguments, **named)
                made = _Made(_files_in(Path(parent, "model")), torch.get_rng_state())
        for path, content in made.files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        torch.set_rng_state(made.chance)
        _kept[key] = made
        while len(_kept) > 1 and sum(map(_size, _kept.values())) > KEPT_BYTES:
            del _kept[next(iter(_kept))]
        return folder

    return written


def _files_in(folder: Path) -> dict[Path, bytes]:
    files = filter(Path.is_file, folder.rglob("*"))
    return {each.relative_to(folder): each.read_bytes() for each in files}


def _size(made: _Made) -> int:
    return sum(map(len, made.files.values()))
