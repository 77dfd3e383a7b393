"""GGUF files that make embeddings of media for a model beside them: how they are told.

Repositories have them beside the models, often in several kinds of numbers; their names have
`mmproj` in them, as llama.cpp's converter calls them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

NUMBERS = ("f16", "bf16", "q8_0", "f32")
"""Of several for one model, that is taken whose numbers are called so; the first of these."""


def is_projector(name: str) -> bool:
    """Whether a file that is called so is one."""
    return name.endswith(".gguf") and "mmproj" in PurePosixPath(name).name.lower()


def best_projector(names: Iterable[str]) -> str | None:
    """That of `names` which is taken where nobody says which; None where none is one."""
    return min(filter(is_projector, names), key=_rank, default=None)


def _rank(name: str) -> tuple[int, str]:
    called = PurePosixPath(name).stem.lower()
    fits = (at for at, each in enumerate(NUMBERS) if re.search(rf"(?<![a-z0-9]){each}\b", called))
    return next(fits, len(NUMBERS)), called
