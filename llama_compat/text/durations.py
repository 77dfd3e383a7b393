"""How long something is, as people write it: `90s`, `10m`, `1h30m`."""

from __future__ import annotations

import re

_UNITS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 0.001,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 7 * 86400.0,
}
_WHOLE = re.compile(r"(?:\d{1,9}(?:\.\d{1,9})?(?:[nuµm]s|[smhdw]))+")
_PART = re.compile(r"([\d.]+)([nuµm]s|[smhdw])")


def seconds_of(text: str) -> float:
    """The seconds that `text` stands for: numbers with `ns`, `us`, `ms`, `s`, `m`, `h`, `d`
    or `w` behind them.

    Raises:
        ValueError: it is something else.
    """
    if not _WHOLE.fullmatch(text):
        raise ValueError("expected a time such as 90s, 10m or 1h30m")
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
