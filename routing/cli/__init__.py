"""The command line.

What a command does not need it does not import: a gateway starts in about a second.
"""

from routing.cli import models, records  # noqa: F401 (their commands)
from routing.cli.commands import app, main

__all__ = ["app", "main"]
