"""Whether the libraries of llama-cpp-python fit what is called here.

Its low-level API follows llama.cpp's, which changes. What is used of a library is listed where it
is used, and looked for when it is loaded; what does not fit is an `ImportError` that says what
does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

TESTED = "0.3.36"
"""The version of llama-cpp-python that this was written for."""


def fitting(
    load: Callable[[], Any],
    functions: Mapping[str, int],
    fields: Mapping[str, tuple[str, ...]],
    *,
    failed: str = "can't be loaded",
    mends: str,
) -> Any:
    """A library of llama-cpp-python, once it is known to fit.

    Args:
        load: imports it.
        functions: those that are called, and how many arguments each takes.
        fields: the structures that are filled in or read, and their fields.
        failed: what is wrong where it can't be loaded.
        mends: what a person has to do then, or where it does not fit.

    Raises:
        ImportError: it can't be loaded, or does not fit.
    """
    try:
        library = load()
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise ImportError(
            f"llama-cpp-python {installed_version()} {failed} ({error}); {mends}"
        ) from error
    lacking = misfit(library, functions, fields)
    if lacking is not None:
        raise ImportError(
            f"llama-cpp-python {installed_version()} does not fit: {lacking}; {mends}"
        )
    return library


def misfit(
    library: Any, functions: Mapping[str, int], fields: Mapping[str, tuple[str, ...]]
) -> str | None:
    """What `library` lacks of `functions` and `fields`, if anything."""
    for name, arguments in functions.items():
        function = getattr(library, name, None)
        if function is None:
            return f"it has no {name}"
        if len(getattr(function, "argtypes", None) or ()) != arguments:
            return f"its {name} does not take {arguments} arguments"
    for name, wanted in fields.items():
        structure = getattr(library, name, None)
        has = [field for field, _ in getattr(structure, "_fields_", ())]
        lacking = [field for field in wanted if field not in has]
        if lacking:
            return f"its {name} has no {lacking[0]}"
    return None


def installed_version() -> str:
    """That of llama-cpp-python."""
    try:
        return version("llama-cpp-python")
    except PackageNotFoundError:
        return "(of unknown version)"
