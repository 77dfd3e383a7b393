"""The names of models in a vendor's list."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def model_names(names: Iterable[Any], prefix: str = "") -> list[str]:
    """Those of `names` that can be a model's, without `prefix`, each once.

    What is no text, empty or not printable is left out: it could not be asked for.
    """
    usable = [name for name in names if isinstance(name, str) and name and name.isprintable()]
    return list(dict.fromkeys(name.removeprefix(prefix) for name in usable))
