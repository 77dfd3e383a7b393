"""The command line.

This is the one room that reaches up to providers and routing, and only inside its commands. What a
command does not need it does not import: a gateway starts in about a second.
"""

from llama_compat.cli import records  # noqa: F401 (its commands)
from llama_compat.cli.commands import app, main

__all__ = ["app", "main"]
