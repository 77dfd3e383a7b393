"""Packages that only some providers need, and that an extra brings."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from providers.base import ProviderStartError


def lacking(modules: Sequence[str], purpose: str, extra: str) -> str | None:
    """What to do about those of `modules` that can't be imported, which none of them is for it;
    None if they all can.

    Args:
        modules: what the extra brings, by the names that are imported.
        purpose: what they are for, such as `by the provider 'x'`.
        extra: the one of this package's extras that brings them.
    """
    missing = [name for name in modules if not _is_there(name)]
    if not missing:
        return None
    return (
        f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} needed {purpose}:"
        f" pip install 'llama-compat[{extra}]'"
    )


def require(modules: Sequence[str], purpose: str, extra: str = "torch") -> None:
    """Check that `modules`, which the extra `extra` brings, can be imported; without doing so.

    Raises:
        ProviderStartError: they can't; the message says how to install them.
    """
    if (message := lacking(modules, purpose, extra)) is not None:
        raise ProviderStartError(message)


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it is part of
        return False
