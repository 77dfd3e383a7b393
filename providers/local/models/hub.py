"""A model of Hugging Face: its newest revision, file by file, by the hub's own library."""

from __future__ import annotations

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
from providers.local.requirements import require

HF_FILES = ["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja"]
"""What is taken of a Hugging Face repository: weights, settings, tokenizer, chat template."""

HF_FILES_LEFT_OUT = ["*/*", "consolidated*"]
"""The same weights again, in other formats."""


def pull_from_hub(repository: str, folder: Path, progress: Progress) -> None:
    """Make the model folder `folder` of `repository`; the caller holds the model's lock.

    Raises:
        ModelStoreError: it can't be had whole; what has arrived is kept.
    """
    require(["huggingface_hub"], "to pull from Hugging Face")
    partial = partial_folder("hf--" + repository.replace("/", "--"))
    for file in partial.rglob("*.incomplete"):
        file.unlink()  # parts of files, which the library does not go on with
    progress("Listing its files")
    revision, sizes = _files_on_hub(repository)
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
            f"The download of {repository} is not complete:"
            f" {failure or 'missing are ' + ', '.join(missing) + '.'} What has arrived is kept; to"
            f" go on, run: llama-compat pull hf:{repository}"
        )
    shutil.rmtree(partial / ".cache", ignore_errors=True)
    publish(partial, folder)


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


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__
