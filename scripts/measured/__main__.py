"""Write the pages of what was measured, and their plots; `--check` names the old ones."""

from __future__ import annotations

import sys

from scripts.measured.pages import generated
from scripts.measured.results import ROOT


def main(arguments: list[str]) -> int:
    """Returns the exit code: 1 if `--check` has found a file that is not as the results have it."""
    old = {
        path: text
        for path, text in generated().items()
        if not (ROOT / path).is_file() or (ROOT / path).read_text("utf-8") != text
    }
    if "--check" in arguments:
        for path in old:
            print(f"{path} is not what the results say. Run: make measured")
        return 1 if old else 0
    for path, text in old.items():
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(text, "utf-8")
        print(f"{path} is new")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
