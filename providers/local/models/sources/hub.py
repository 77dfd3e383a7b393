"""A model of Hugging Face, or of a mirror of it (`HF_ENDPOINT`): its newest revision, file by file.

It is a folder of weights, settings and tokenizer, or a single GGUF file, which has all in one. What
the hub is asked goes through its own library; files are fetched by `ranged`, as the library begins
a file anew that it was stopped in.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from providers.local.models import forecast
from providers.local.models.folders import (
    ModelStoreError,
    Progress,
    flat,
    partial_folder,
    publish,
)
from providers.local.models.forecast import ModelForecast, WeightShapes
from providers.local.models.gguf_header import read_remote_header
from providers.local.models.projectors import best_projector, is_projector
from providers.local.models.sizes import file_size
from providers.local.models.sources import ranged
from providers.local.models.sources.ranged import WantedFile
from providers.requirements import require

HF_FILES = ["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja"]
"""What is taken of a Hugging Face repository: weights, settings, tokenizer, chat template."""

HF_FILES_LEFT_OUT = ["*/*", "consolidated*"]
"""The same weights again, in other formats."""

STEPS = ["[0-9]_*/config.json", "[0-9]_*/model.safetensors"]
"""What a sentence-transformers repository has beside those: the steps behind its transformer."""

FIRST = "00001"

_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
"""How the name of a GGUF ends that was cut into parts."""

_WEIGHTS = ".safetensors"
_AT_ONCE = 8


@dataclass(frozen=True)
class HubFile:
    """A file of a repository: its bytes, and their digest as `ranged` wants it."""

    size: int
    digest: str | None


@dataclass(frozen=True)
class HubModel:
    """What is fetched of a repository.

    Attributes:
        name: `ORG/NAME`, or `ORG/NAME:FILE.gguf`.
        repository: `ORG/NAME`.
        file: the GGUF, or the first of its parts; empty for a model folder.
        revision: of all files.
        files: by path.
    """

    name: str
    repository: str
    file: str
    revision: str
    files: Mapping[str, HubFile]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(each.size for each in self.files.values())

    def wanted(self, names: Iterable[str], folder: Path) -> list[WantedFile]:
        """Those files of it, as they are fetched."""
        from huggingface_hub import hf_hub_url
        from huggingface_hub.utils import build_hf_headers

        headers = build_hf_headers()
        return [
            WantedFile(
                hf_hub_url(self.repository, name, revision=self.revision),
                str(folder / name),
                self.files[name].size,
                self.files[name].digest,
                headers,
            )
            for name in names
        ]


def pull_from_hub(
    name: str, folder: Path, progress: Progress, announce: forecast.Announce | None = None
) -> None:
    """Make the folder `folder` of the model `name`; the caller holds the model's lock.

    Args:
        name: `ORG/NAME`, or `ORG/NAME:FILE.gguf` for that file alone.
        folder: where to.
        progress: is told how far it is.
        announce: is told what is known of it before its weights are fetched.

    Raises:
        ModelStoreError: it can't be had whole; what has arrived is kept.
    """
    model, partial = _look_up(name, progress)
    if announce is not None:
        announce(_forecast(model, partial, progress))
    _fetch(model, model.files, partial, "Downloading", progress)
    publish(partial, folder)


def forecast_from_hub(name: str, progress: Progress) -> ModelForecast:
    """What is known of the model `name` without its weights; its settings are fetched.

    Raises:
        ModelStoreError: it can't be had.
    """
    model, partial = _look_up(name, progress)
    return _forecast(model, partial, progress)


def _look_up(name: str, progress: Progress) -> tuple[HubModel, Path]:
    require(["huggingface_hub"], "to pull from Hugging Face")
    repository, _, file = name.partition(":")
    partial = partial_folder(flat(f"hf:{name}"))
    # What earlier versions left there, by the hub's library.
    shutil.rmtree(partial / ".cache", ignore_errors=True)
    progress("Listing its files")
    revision, listed = _files_on_hub(repository, f"then run: llama-compat pull hf:{name}")
    files = _gguf_files(repository, file, listed) if file else _model_files(repository, listed)
    return HubModel(name, repository, file, revision, files), partial


def _fetch(
    model: HubModel, names: Iterable[str], partial: Path, step: str, progress: Progress
) -> None:
    wanted = model.wanted(names, partial)
    total = sum(each.size for each in wanted)
    failure = ranged.fetch(wanted, lambda done: progress(step, done, total))
    missing = [
        name
        for name, each in zip(names, wanted, strict=True)
        if file_size(Path(each.path)) != each.size
    ]
    if failure is not None or missing:
        raise ModelStoreError(
            f"The download of {model.name} is not complete:"
            f" {failure or 'missing are ' + ', '.join(missing) + '.'} What has arrived is kept; to"
            f" go on, run: llama-compat pull hf:{model.name}"
        )


# What it is ---------------------------------------------------------------------------------------


def _forecast(model: HubModel, partial: Path, progress: Progress) -> ModelForecast:
    name = f"hf:{model.name}"
    if model.file:
        progress("Reading its header")
        try:
            of_model = [
                each for each in model.files if each == model.file or not is_projector(each)
            ]
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                headers = list(pool.map(read_remote_header, model.wanted(of_model, Path())))
        except ValueError:
            headers = []  # who loads it says what is wrong with it
        return forecast.of_gguf(name, model.file, model.size, headers)
    settings = [each for each in model.files if not each.endswith(_WEIGHTS)]
    _fetch(model, settings, partial, "Reading its settings", progress)
    return forecast.of_folder(name, partial, model.size, _shapes(model))


def _shapes(model: HubModel) -> WeightShapes | None:
    """What the weights' headers say; None where they can't be asked."""
    from huggingface_hub import HfApi

    api = HfApi()

    def read(name: str) -> Mapping[str, Any]:
        found = api.parse_safetensors_file_metadata(model.repository, name, revision=model.revision)
        return dict(found.tensors)

    names = [each for each in model.files if each.endswith(_WEIGHTS)]
    try:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            found = list(pool.map(read, names))
    except Exception:  # whatever the library makes of a file that is none
        return None
    return WeightShapes({name: each.shape for tensors in found for name, each in tensors.items()})


# What there is ------------------------------------------------------------------------------------


def _files_on_hub(repository: str, again: str) -> tuple[str, dict[str, HubFile]]:
    """The newest revision of a repository, and its files, by path.

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
    found = {
        each.rfilename: HubFile(each.size or 0, _digest(each)) for each in model.siblings or ()
    }
    return model.sha or "main", found


def _digest(file: Any) -> str | None:
    """Of large files the hub says the hash of what is in them, of small ones git's."""
    if file.lfs is not None:
        return f"sha256:{file.lfs['sha256']}"
    return f"git:{file.blob_id}" if file.blob_id else None


def _model_files(repository: str, listed: Mapping[str, HubFile]) -> dict[str, HubFile]:
    """Of the `listed` files those that a model folder has."""
    from huggingface_hub.utils import filter_repo_objects

    names = [
        *filter_repo_objects(
            list(listed), allow_patterns=HF_FILES, ignore_patterns=HF_FILES_LEFT_OUT
        ),
        *(filter_repo_objects(list(listed), allow_patterns=STEPS) if _has_steps(listed) else ()),
    ]
    if not any(name.endswith(_WEIGHTS) for name in names):
        if ggufs := _first_parts(listed):
            likely = next((each for each in ggufs if _USUAL in each.upper()), ggufs[0])
            raise ModelStoreError(
                f"{repository} has GGUF files: choose one of them, as in llama-compat pull"
                f" hf:{repository}:{likely}. It has: {', '.join(ggufs)}."
            )
        raise ModelStoreError(
            f"{repository} has no safetensors weights, the only ones that are loaded here: choose a"
            " repository that has them, or a GGUF file of it:"
            f" llama-compat pull hf:{repository}:FILE.gguf"
        )
    return {name: listed[name] for name in names}


def _has_steps(listed: Mapping[str, HubFile]) -> bool:
    return "modules.json" in listed


def _gguf_files(repository: str, file: str, listed: Mapping[str, HubFile]) -> dict[str, HubFile]:
    """One GGUF file, or all the parts of which it is the first, and what makes embeddings of
    pictures for it, if the repository has that."""
    split = _PART.search(file)
    names = [file]
    if split:
        count = int(split[2])
        names = [f"{file[: split.start()]}-{n:05}-of-{split[2]}.gguf" for n in range(1, count + 1)]
    if names[0] != file or not all(name in listed for name in names):
        firsts = _first_parts(listed)
        raise ModelStoreError(
            f"{repository} has no {file} that is whole or the first of its parts. It has: "
            f"{', '.join(firsts) or 'no GGUF file at all'}."
        )
    projector = None if is_projector(file) else best_projector(listed)
    return {name: listed[name] for name in (*names, *filter(None, [projector]))}


def _first_parts(listed: Iterable[str]) -> list[str]:
    """The GGUF files, of those in parts the first."""
    ggufs = sorted(name for name in listed if name.endswith(".gguf"))
    return [each for each in ggufs if (part := _PART.search(each)) is None or part[1] == FIRST]


_USUAL = "Q4_K_M"
"""The quantization that most people take: little is lost, and it is half of eight bits."""


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__
