"""A model of Hugging Face: its newest revision, file by file, by the hub's own library.

It is a folder of weights, settings and tokenizer, or a single GGUF file, which has all in one.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from providers.local.models.folders import (
    ModelStoreError,
    Progress,
    bytes_under,
    file_size,
    partial_folder,
    publish,
)
from providers.local.models.programs import run_python
from providers.requirements import require

HF_FILES = ["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja"]
"""What is taken of a Hugging Face repository: weights, settings, tokenizer, chat template."""

HF_FILES_LEFT_OUT = ["*/*", "consolidated*"]
"""The same weights again, in other formats."""

FIRST = "00001"

_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
"""How the name of a GGUF ends that was cut into parts."""


def pull_from_hub(name: str, folder: Path, progress: Progress) -> None:
    """Make the folder `folder` of the model `name`; the caller holds the model's lock.

    Args:
        name: `ORG/NAME`, or `ORG/NAME:FILE.gguf` for that file alone.
        folder: where to.
        progress: is told how far it is.

    Raises:
        ModelStoreError: it can't be had whole; what has arrived is kept.
    """
    require(["huggingface_hub"], "to pull from Hugging Face")
    repository, _, file = name.partition(":")
    partial = partial_folder("hf--" + re.sub("[/:]", "--", name))
    for part in partial.rglob("*.incomplete"):
        part.unlink()  # parts of files, which the library does not go on with
    progress("Listing its files")
    revision, listed = _files_on_hub(repository, f"then run: llama-compat pull hf:{name}")
    sizes = _gguf_files(repository, file, listed) if file else _model_files(repository, listed)
    # A process of its own can be stopped at any moment; the library's threads could not.
    failure = run_python(
        "huggingface_hub:snapshot_download",
        {
            "repo_id": repository,
            "revision": revision,
            "local_dir": str(partial),
            "allow_patterns": list(sizes),
        },
        lambda: progress("Downloading", bytes_under(partial), sum(sizes.values())),
        {"HF_HUB_DISABLE_PROGRESS_BARS": "1"},
    )
    # The library may be content with a folder that it could not complete, so the sizes decide.
    missing = [name for name, size in sizes.items() if file_size(partial / name) != size]
    if failure is not None or missing:
        raise ModelStoreError(
            f"The download of {name} is not complete:"
            f" {failure or 'missing are ' + ', '.join(missing) + '.'} What has arrived is kept; to"
            f" go on, run: llama-compat pull hf:{name}"
        )
    shutil.rmtree(partial / ".cache", ignore_errors=True)
    publish(partial, folder)


def _files_on_hub(repository: str, again: str) -> tuple[str, dict[str, int]]:
    """The newest revision of a repository, and the sizes in bytes of its files, by path.

    Raises:
        ModelStoreError: it can't be asked; `again` is what to do when that is mended.
    """
    from huggingface_hub import HfApi, errors

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
    sizes = {file.rfilename: file.size or 0 for file in model.siblings or ()}
    return model.sha or "main", sizes


def _model_files(repository: str, listed: dict[str, int]) -> dict[str, int]:
    """Of the `listed` files those that a model folder has, with their sizes."""
    from huggingface_hub.utils import filter_repo_objects

    names = filter_repo_objects(
        list(listed), allow_patterns=HF_FILES, ignore_patterns=HF_FILES_LEFT_OUT
    )
    sizes = {name: listed[name] for name in names}
    if not any(name.endswith(".safetensors") for name in sizes):
        raise ModelStoreError(
            f"{repository} has no safetensors weights, the only ones that are loaded here: choose a"
            " repository that has them, or a GGUF file of it:"
            f" llama-compat pull hf:{repository}:FILE.gguf"
        )
    return sizes


def _gguf_files(repository: str, file: str, listed: dict[str, int]) -> dict[str, int]:
    """The size of one GGUF file, or of all the parts of which it is the first."""
    split = _PART.search(file)
    names = [file]
    if split:
        count = int(split[2])
        names = [f"{file[: split.start()]}-{n:05}-of-{split[2]}.gguf" for n in range(1, count + 1)]
    if names[0] != file or not all(name in listed for name in names):
        ggufs = sorted(name for name in listed if name.endswith(".gguf"))
        firsts = [
            each for each in ggufs if (part := _PART.search(each)) is None or part[1] == FIRST
        ]
        raise ModelStoreError(
            f"{repository} has no {file} that is whole or the first of its parts. It has: "
            f"{', '.join(firsts) or 'no GGUF file at all'}."
        )
    return {name: listed[name] for name in names}


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__
