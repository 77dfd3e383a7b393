"""Where the file lies that makes embeddings of media for a GGUF model: its `mmproj`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from providers.base import ProviderStartError
from providers.local.models import store
from providers.local.models.folders import ModelStoreError
from providers.local.models.gguf_header import read_header
from providers.local.models.projectors import best_projector, is_projector
from providers.local.models.sources.ollama import PROJECTOR_NAME

NO_PROJECTOR = "none"
"""Where a template says so of it, a model takes text alone."""

ELSEWHERE = frozenset({"hunyuanvl", "deepseek4v"})
"""Kinds of projectors that place a picture by what stands before it in the prompt. Here each is
placed by itself."""


def find_projector(name: str, wanted: str | None) -> Path | None:
    """The file for the model `name`; None where there is none.

    Args:
        name: of the model, which is on this machine.
        wanted: what the template says it is, if it does.

    Raises:
        ProviderStartError: that is not there, or is of a kind that is not supported.
        ModelStoreError: the model is not there.
    """
    if wanted == NO_PROJECTOR:
        return None
    model = store.resolve_gguf(name)
    if wanted is None:
        found = _beside(name, model)
    else:
        try:
            found = store.resolve_gguf(wanted)
        except ModelStoreError as error:
            raise ProviderStartError(f"The 'mmproj' of the model '{name}': {error}") from error
    if found is not None:
        _check_kind(name, found)
    return found


def projector_refused(name: str, path: Path, why: str) -> ProviderStartError:
    """The error for a projector that a model can't be used with."""
    return ProviderStartError(
        f"The model '{name}' can't use {path}: {why} Name the 'mmproj' file that was made for"
        " this model in the template, or write 'mmproj: none' there: then it takes text alone."
    )


def _beside(name: str, model: Path) -> Path | None:
    """The one in the model's folder, or that was pulled from the same repository."""
    alone = model.parent / PROJECTOR_NAME
    if alone.is_file():
        return alone
    if name.startswith("hf:"):
        # Each file that was pulled has a folder of its own, with its folders of the repository.
        folder = store.folder_of(name)
        return _best(folder.rglob("*.gguf")) or _best(folder.parent.rglob("*.gguf"))
    files = sorted(model.parent.glob("*.gguf"))
    models = {_stem(file) for file in files if not is_projector(file.name)}
    # In a folder of many models its name has to say whose it is.
    return _best(file for file in files if len(models) == 1 or _stem(model) in file.name.lower())


def _best(files: Iterable[Path]) -> Path | None:
    called = {str(file): file for file in files if file.is_file()}
    best = best_projector(called)
    return None if best is None else called[best]


def _stem(file: Path) -> str:
    """A model's name without how its numbers are written, and which part of it a file is."""
    called = re.sub(r"-\d{5}-of-\d{5}$", "", file.stem.lower())
    return re.sub(r"[.-](?:ud-)?(?:i?q\d\w*|b?f16|f32|mxfp4\w*)$", "", called)


def _check_kind(name: str, path: Path) -> None:
    try:
        header = read_header(path)
    except (OSError, ValueError) as error:
        raise projector_refused(name, path, f"it can't be read ({error}).") from error
    if header.get("general.architecture") != "clip":
        raise projector_refused(name, path, "it is a model, and nothing that a model sees with.")
    kind = header.get("clip.vision.projector_type") or header.get("clip.projector_type")
    if kind in ELSEWHERE:
        raise projector_refused(name, path, f"pictures of the kind '{kind}' are not supported.")
