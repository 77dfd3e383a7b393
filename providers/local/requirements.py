"""Packages that only some of the local models need."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from providers.base import ProviderStartError


def require(modules: Sequence[str], purpose: str, extra: str = "torch") -> None:
    """Check that `modules`, which the extra `extra` brings, can be imported; without doing so.

    Raises:
        ProviderStartError: they can't; the message says how to install them.
    """
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise ProviderStartError(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} needed {purpose}:"
            f" pip install 'llama-compat[{extra}]'"
        )
