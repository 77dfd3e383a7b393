"""What a template says as it is written: nothing of it has been checked, and any may be wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llama_compat.distribution.adapters import adapter_names
from llama_compat.distribution.problems import KeyPath
from llama_compat.distribution.reading.env_references import ResolvedDocument


def listed(value: Any) -> list[Any]:
    """`value`, if it is a list; else none."""
    return value if isinstance(value, list) else []


def items(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, dict[str, Any]]]:
    """The mappings in a list that is at `path`, and where each is."""
    for index, item in enumerate(listed(value)):
        if isinstance(item, dict):
            yield (*path, index), item


def mappings(document: ResolvedDocument, section: str) -> Iterator[tuple[KeyPath, dict[str, Any]]]:
    """Those in one of the lists that a template consists of, such as `models`."""
    yield from items(document.value.get(section), (section,))


def texts(document: ResolvedDocument, section: str, key: str) -> Iterator[tuple[KeyPath, str]]:
    """What each of those has under `key`, where that is a text and not an empty one."""
    for path, item in mappings(document, section):
        text = item.get(key)
        if text and isinstance(text, str):
            yield (*path, key), text


def model_names(document: ResolvedDocument) -> Iterator[tuple[KeyPath, str]]:
    """All names of models: ids, aliases and patterns, and those of models with an adapter."""
    for path, model in mappings(document, "models"):
        aliases = enumerate(listed(model.get("aliases")))
        names = [((*path, "id"), model.get("id"))]
        names += [((*path, "aliases", index), alias) for index, alias in aliases]
        yield from ((at, name) for at, name in names if isinstance(name, str) and name)
        yield from adapter_names(model, path)
