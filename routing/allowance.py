"""Memory that is everybody's."""

from __future__ import annotations

from typing import Protocol


class Allowance(Protocol):
    """One holder's share of memory that others want too."""

    def grow_to(self, size: int) -> None:
        """So many bytes are held now.

        Raises:
            APIError: there is no room for them beside what others hold.
        """

    def shrink_to(self, size: int) -> None:
        """No more than so many bytes are held now."""
