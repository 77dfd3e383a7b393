"""The command line.

What a command does not need it does not import: a gateway starts in about a second.
"""

from routing.cli import records  # noqa: F401 (its commands)
from routing.cli.commands import app, main

__all__ = ["app", "main"]
