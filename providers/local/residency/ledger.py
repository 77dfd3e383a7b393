"""What is taken of each device's memory, by whom."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

Sizes = Mapping[str, int]
"""Bytes, by the device: `cpu`, `cuda:0` and so on."""


class MemoryLedger:
    """Counts bytes. It is told what somebody takes before that is taken, and what somebody gives
    back once that was given.

    Args:
        bounds: what may be taken of each device.
    """

    def __init__(self, bounds: Sizes) -> None:
        self.bounds = dict(bounds)
        self._taken: dict[Hashable, Sizes] = {}

    def taken_by(self, who: Hashable) -> Sizes:
        """What `who` has."""
        return self._taken.get(who, {})

    def put(self, who: Hashable, sizes: Sizes) -> None:
        """`who` has this from now on, in place of what it had."""
        if any(sizes.values()):
            self._taken[who] = {device: size for device, size in sizes.items() if size}
        else:
            self._taken.pop(who, None)

    @property
    def used(self) -> dict[str, int]:
        """What is taken of each device."""
        used = dict.fromkeys(self.bounds, 0)
        for sizes in self._taken.values():
            for device, size in sizes.items():
                used[device] = used.get(device, 0) + size
        return used

    def missing(self, who: Hashable, sizes: Sizes) -> dict[str, int]:
        """What is not free of `sizes`, for `who` to have in place of what it has."""
        used, has = self.used, self.taken_by(who)
        lacking = {
            device: used.get(device, 0) - has.get(device, 0) + size - self.bounds.get(device, 0)
            for device, size in sizes.items()
        }
        return {device: size for device, size in lacking.items() if size > 0}

    @property
    def over(self) -> dict[str, int]:
        """What is taken beyond the bounds, as one was lowered, or an estimate too low."""
        over = {device: size - self.bounds.get(device, 0) for device, size in self.used.items()}
        return {device: size for device, size in over.items() if size > 0}


def sum_of(one: Sizes, other: Sizes) -> dict[str, int]:
    """What both take together."""
    return {each: one.get(each, 0) + other.get(each, 0) for each in {**one, **other}}


def in_words(size: int) -> str:
    """A size for people: `3.50 GB`."""
    return f"{size / 1e9:.2f} GB" if size >= 1e7 else f"{size / 1e6:.2f} MB"


def all_in_words(sizes: Sizes) -> str:
    """The same of each device: `3.50 GB of cpu`."""
    return ", ".join(f"{in_words(size)} of {each}" for each, size in sizes.items()) or "nothing"
