"""What a package index shows of the package: the README, which is written for the repository.

Its links lead to files beside it, and an index has none of those. Where `[project.urls]` in
pyproject.toml has a `Source` they lead there; otherwise their text stays, and pictures go.
Hatchling calls this whenever it builds the package.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://)([^)]+)\)")


class LongDescription(MetadataHookInterface):
    """Makes the project's `readme`, which is dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text("utf-8")
        source = metadata.get("urls", {}).get("Source")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": long_description(text, source),
        }


def long_description(readme: str, source: str | None) -> str:
    """The README for who has nothing but it.

    Args:
        readme: its text.
        source: the address of the repository, if there is one.
    """

    def elsewhere(link: re.Match[str]) -> str:
        mark, text, path = link.groups()
        if source is None:
            return "" if mark else text
        kind = "raw" if mark else "blob"
        return f"{mark}[{text}]({source.rstrip('/')}/{kind}/HEAD/{path})"

    return _LINK.sub(elsewhere, readme)
