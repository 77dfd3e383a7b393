"""What processes that this one starts know of its environment, which holds vendors' keys.

There are three kinds, and a rule for each: programs that a template names, processes that read what
strangers wrote, and those of our own that use this machine as this process does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pydantic import SecretStr

from providers.remote.openai.vendors import VENDORS

_INHERITED = (
    *("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ"),
    "USER",
    # Windows
    *("APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT"),
    *("PROCESSOR_ARCHITECTURE", "PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP"),
    *("USERNAME", "USERPROFILE"),
)
"""What a program needs to find its way on a machine, and has no secret in it: as the MCP SDK has it
(mcp.client.stdio), with language, time zone and where temporary files go."""

_FOR_MODELS = frozenset({"HF_TOKEN"})
"""Those of vendors' keys that open models' files, too."""

_OF_A_READER = ("SYSTEMROOT", "TMPDIR", "TZ")


def of_program(named: Mapping[str, SecretStr]) -> dict[str, str]:
    """The environment of a program of the template's: `PATH` and the like, and what the template
    names."""
    return {**_some(_INHERITED), **{name: each.get_secret_value() for name, each in named.items()}}


def of_reader() -> dict[str, str]:
    """The environment of a module of ours that reads what a stranger wrote, and might be taken over
    by that: where its packages are, and nothing else that is of use."""
    path = os.pathsep.join(filter(None, sys.path))
    return {**_some(_OF_A_READER), "PYTHONPATH": path, "LC_ALL": "C.UTF-8"}


def without_vendors_keys() -> dict[str, str]:
    """The environment of a process that downloads, or has an engine run, with whatever this machine
    has been told about that: all of it, but for what opens vendors' APIs."""
    keys = {vendor.key_variable for vendor in VENDORS.values()} - _FOR_MODELS
    return {name: value for name, value in os.environ.items() if name not in keys}


def _some(names: tuple[str, ...]) -> dict[str, str]:
    return {
        name: os.environ[name]
        for name in names
        # A function of a shell would be run by one.
        if name in os.environ and not os.environ[name].startswith("()")
    }
