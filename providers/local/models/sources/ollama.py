"""A model of Ollama's library, or of a mirror of it (`OLLAMA_REGISTRY`), by the name that it has
there.

Ollama's registry is one of container images: a manifest names layers by their digests, one of which
is a GGUF and others its parameters, template, system message and licenses. What it says of itself:
https://github.com/ollama/ollama/blob/main/server/internal/manifest/manifest.go, and for the layers
of GGUF models server/images.go beside it, both read 2026-11-23. What is public needs no token.
"""

from __future__ import annotations

import json
import os
import re
import urllib.error
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from providers.local.models import forecast
from providers.local.models.folders import (
    ModelStoreError,
    Progress,
    flat,
    partial_folder,
    publish,
)
from providers.local.models.forecast import ModelForecast
from providers.local.models.gguf_header import read_remote_header
from providers.local.models.sources import ranged
from providers.local.models.sources.ranged import BrokenError, WantedFile

REGISTRY = "https://registry.ollama.ai"
PREFIX = "ollama:"
DEFAULT_TAG = "latest"
LIBRARY = "library"
"""The namespace of models that Ollama itself publishes, which goes without saying."""

MANIFEST_TYPE = "application/vnd.docker.distribution.manifest.v2+json"

_LAYER = "application/vnd.ollama.image."
_MODEL, _PARAMS, _PROJECTOR = f"{_LAYER}model", f"{_LAYER}params", f"{_LAYER}projector"

GGUF_NAME, PARAMS_NAME, PROJECTOR_NAME = "model.gguf", "params.json", "projector.gguf"
MANIFEST_NAME = "manifest.json"

_FILES: Mapping[str, str] = {
    _MODEL: GGUF_NAME,
    _PARAMS: PARAMS_NAME,
    _PROJECTOR: PROJECTOR_NAME,
    f"{_LAYER}template": "template.txt",
    f"{_LAYER}system": "system.txt",
    f"{_LAYER}messages": "messages.json",
    f"{_LAYER}license": "license.txt",
}
"""What each layer is called in a model's folder; several licenses are numbered."""

_NOT_RUN: Mapping[str, str] = {
    f"{_LAYER}adapter": "it is a LoRA adapter over another model",
    f"{_LAYER}tensor": "its weights are no GGUF",
}

_NAME = re.compile(
    r"(?:(?P<namespace>\w[\w.-]*)/)?(?P<model>\w[\w.-]*)(?::(?P<tag>\w[\w.-]*))?", re.ASCII
)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_MOST_BYTES = 1 << 20
"""Of a manifest; they have one or two thousand."""

NO_SUCH_MODEL = 404


class OllamaName(NamedTuple):
    """A model of the library: whose, which, and in which size."""

    namespace: str
    model: str
    tag: str

    @classmethod
    def of(cls, name: str) -> OllamaName:
        """What `name`, which begins with `ollama:`, says.

        Raises:
            ModelStoreError: it is no such name.
        """
        match = _NAME.fullmatch(name.removeprefix(PREFIX))
        if match is None:
            raise ModelStoreError(
                f"'{name}' is not the name of an Ollama model: write 'ollama:NAME',"
                " 'ollama:NAME:TAG' or 'ollama:USER/NAME:TAG', such as 'ollama:llama3.2:1b'. What"
                " Ollama calls hf.co/ORG/NAME is pulled as 'hf:ORG/NAME:FILE.gguf'."
            )
        return cls(match["namespace"] or LIBRARY, match["model"], match["tag"] or DEFAULT_TAG)

    def __str__(self) -> str:
        """As short as it can be said."""
        namespace = "" if self.namespace == LIBRARY else f"{self.namespace}/"
        tag = "" if self.tag == DEFAULT_TAG else f":{self.tag}"
        return f"{PREFIX}{namespace}{self.model}{tag}"

    def within(self, models: Path) -> Path:
        """Its folder in the store."""
        return models / "ollama" / self.namespace / self.model / self.tag


def pull_from_ollama(
    name: OllamaName,
    folder: Path,
    progress: Progress,
    announce: forecast.Announce | None = None,
) -> None:
    """Make the folder `folder` of the model `name`; the caller holds the model's lock.

    Raises:
        ModelStoreError: it can't be had whole; what has arrived is kept.
    """
    partial = partial_folder(flat(f"{PREFIX}{name.namespace}/{name.model}:{name.tag}"))
    manifest, wanted = _look_up(name, partial, progress)
    if announce is not None:
        announce(_forecast(name, wanted, progress))
    total = sum(each.size for each in wanted)
    failure = ranged.fetch(wanted, lambda done: progress("Downloading", done, total))
    if failure is not None:
        raise ModelStoreError(
            f"The download of {name} is not complete: {failure} What has arrived is kept; to go"
            f" on, run: llama-compat pull {name}"
        )
    (partial / MANIFEST_NAME).write_bytes(manifest)
    publish(partial, folder)


def forecast_from_ollama(name: OllamaName, progress: Progress) -> ModelForecast:
    """What is known of the model `name` without its weights.

    Raises:
        ModelStoreError: it can't be had.
    """
    _, wanted = _look_up(name, Path(), progress)
    return _forecast(name, wanted, progress)


def _forecast(name: OllamaName, wanted: list[WantedFile], progress: Progress) -> ModelForecast:
    progress("Reading its header")
    [model] = [each for each in wanted if Path(each.path).name == GGUF_NAME]
    try:
        headers = [read_remote_header(model)]
    except ValueError:
        headers = []  # who loads it says what is wrong with it
    return forecast.of_gguf(str(name), f"{name.model}-{name.tag}", model.size, headers)


# The manifest -------------------------------------------------------------------------------------


def _look_up(name: OllamaName, partial: Path, progress: Progress) -> tuple[bytes, list[WantedFile]]:
    """Its manifest, and the layers that are fetched.

    Raises:
        ModelStoreError: there is none, or it is of a kind that is not run here.
    """
    progress("Asking for its manifest")
    base = f"{os.environ.get('OLLAMA_REGISTRY') or REGISTRY}/v2/{name.namespace}/{name.model}"
    try:
        sent = ranged.read_all(
            f"{base}/manifests/{name.tag}", {"Accept": MANIFEST_TYPE}, _MOST_BYTES
        )
    except urllib.error.HTTPError as error:
        if error.code == NO_SUCH_MODEL:
            raise ModelStoreError(
                f"Ollama's library has no {name}: look for its name and its tags on"
                f" https://ollama.com/library/{name.model}."
            ) from None
        raise _unreachable(name, f"it answers {error.code}") from None
    except BrokenError as error:
        raise _unreachable(name, str(error).rstrip(".")) from None
    try:
        layers = _layers(json.loads(sent))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ModelStoreError(
            f"What the registry sent as the manifest of {name} is none ({error}): check"
            " OLLAMA_REGISTRY if you set it."
        ) from None
    for kind, _, _ in layers:
        if kind in _NOT_RUN:
            raise ModelStoreError(
                f"{name} can't be run here, since {_NOT_RUN[kind]}: choose a model that is a whole"
                " GGUF."
            )
    wanted = _wanted(base, layers, partial)
    if not any(Path(each.path).name == GGUF_NAME for each in wanted):
        raise ModelStoreError(
            f"{name} has no weights that could be fetched; some of Ollama's names are of models"
            " that run in its cloud. Choose another tag."
        )
    return sent, wanted


def _layers(manifest: Any) -> list[tuple[str, str, int]]:
    """Kind, digest and size of each layer."""
    found = []
    for layer in manifest["layers"]:
        # Behind a semicolon is what only kinds of layers have that are not taken here.
        kind, digest, size = layer["mediaType"].partition(";")[0], layer["digest"], layer["size"]
        if not _DIGEST.fullmatch(digest) or not isinstance(size, int) or size < 0:
            raise ValueError(f"a layer has the digest {digest!r} and the size {size!r}")
        found.append((kind, digest, size))
    return found


def _wanted(base: str, layers: list[tuple[str, str, int]], partial: Path) -> list[WantedFile]:
    wanted: dict[str, WantedFile] = {}
    for kind, digest, size in layers:
        if kind not in _FILES:
            continue
        file = Path(_FILES[kind])
        name, number = file.name, 2
        while name in wanted:
            name, number = f"{file.stem}-{number}{file.suffix}", number + 1
        wanted[name] = WantedFile(f"{base}/blobs/{digest}", str(partial / name), size, digest, {})
    return list(wanted.values())


def _unreachable(name: OllamaName, why: str) -> ModelStoreError:
    return ModelStoreError(
        f"Ollama's registry can't be asked for {name} ({why}): check the network, and"
        f" OLLAMA_REGISTRY if you set it, then run: llama-compat pull {name}"
    )
