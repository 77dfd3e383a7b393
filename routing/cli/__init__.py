"""The command line.

What a command does not need it does not import: a gateway starts in about a second.
"""

from routing.cli import batches, models  # noqa: F401 (their commands)
from routing.cli.commands import app, main
from routing.cli.records import exporting, requests, usage  # noqa: F401 (theirs)

__all__ = ["app", "main"]
