"""`doctor`: what this machine has of what a server needs, a line each, and what mends it."""

from __future__ import annotations

import errno
import importlib.metadata
import importlib.util
import json as json_format
import os
import platform
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from routing.cli import completion
from routing.cli.terminal import console, harmless, print_

if TYPE_CHECKING:
    from llama_compat.distribution import Distribution, ProviderSettings

MIN_OPEN_FILES = 4096
"""A stream through a gateway has two connections, each an open file."""

MIN_FREE_BYTES = 4 << 30
"""Less than a small model takes while it is pulled."""

BUILT = datetime(2026, 11, 1, tzinfo=UTC)
"""A clock that shows an earlier time is wrong."""


class Level(StrEnum):
    """How bad something is."""

    ok = "ok"
    note = "note"
    """It is not there, and is not needed by everybody."""
    warning = "warning"
    """It will serve, worse than it could."""
    problem = "problem"
    """It will not serve."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        level: how bad it is.
        what: was looked at.
        said: what was found.
        mend: what to do about it; empty where there is nothing to do.
    """

    level: Level
    what: str
    said: str
    mend: str = ""


def doctor(
    template: Annotated[
        str | None,
        typer.Argument(
            metavar="[TEMPLATE]",
            help="What is to be served; without it, the machine and the keys in its environment.",
            autocompletion=completion.templates,
        ),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Also ask each vendor for its models, with its key.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="JSON in place of lines.")] = False,
) -> None:
    """Look at what a server needs here: Python, engines, ports, keys, disk, limits, the clock."""
    found = list(findings(template, live=live))
    if json:
        print_(json_format.dumps([asdict(each) for each in found], indent=2))
    else:
        for each in found:
            _show(each)
    if any(each.level is Level.problem for each in found):
        raise typer.Exit(1)


_STYLES = {
    Level.ok: "green",
    Level.note: "dim",
    Level.warning: "yellow",
    Level.problem: "bold red",
}


def _show(finding: Finding) -> None:
    from rich.text import Text

    line = Text(f"{finding.level:<8}", style=_STYLES[finding.level])
    line.append(harmless(f"{finding.what}: {finding.said}"), style="default not bold not dim")
    if finding.mend:
        line.append(harmless(f"  ->  {finding.mend}"), style="default not bold not dim")
    console().print(line, soft_wrap=True)


def findings(template: str | None, *, live: bool = False) -> Iterator[Finding]:
    """What is found, in an order that people would ask in.

    Args:
        template: what is to be served, if that is known.
        live: whether vendors are asked.
    """
    yield python()
    distribution = None
    if template is not None:
        one, distribution = read(template)
        yield one
    types = None if distribution is None else {each.type for each in distribution.providers}
    if types is None or "local::torch" in types:
        yield torch(needed=types is not None)
    if types is None or "local::llama_cpp" in types:
        yield llama_cpp(needed=types is not None)
    if distribution is not None:
        yield from wanted(distribution)
    yield port(*(("127.0.0.1", 8321) if distribution is None else _address(distribution)))
    yield from disks(distribution)
    yield open_files()
    yield clock(time.time())
    if distribution is None:
        yield from keys_in(os.environ, live=live)
    elif live:
        yield from vendors(distribution.providers)


def python() -> Finding:
    """The interpreter."""
    said = f"{platform.python_version()}, {platform.machine()}, in {sys.prefix}"
    if sys.maxsize < 2**32:
        return Finding(Level.problem, "Python", said, "install a Python of 64 bits")
    if sys.prefix == sys.base_prefix:
        return Finding(
            Level.note,
            "Python",
            f"{said}, which is the system's own",
            "a virtual environment keeps it apart: python -m venv .venv",
        )
    return Finding(Level.ok, "Python", said)


def read(template: str) -> tuple[Finding, Distribution | None]:
    """Whether the template can be served, and what it says."""
    from llama_compat.distribution import load_distribution
    from llama_compat.distribution.problems import TemplateError
    from providers.registry import config_model

    try:
        distribution = load_distribution(template, config_model)
    except TemplateError as error:
        said = str(error).splitlines()[0]
        finding = Finding(Level.problem, "template", said, f"llama-compat check {template}")
        return finding, None
    counts = (
        _counted(len(distribution.providers), "provider"),
        _counted(len(distribution.models), "model"),
    )
    said = f"{template}, {' and '.join(counts)}"
    return Finding(Level.ok, "template", said), distribution


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def wanted(distribution: Distribution) -> Iterator[Finding]:
    """Whether the models that engines of this process are to run are on this machine."""
    from providers.local.models import store
    from routing.cli.pulling import wanted_models

    for model in wanted_models(distribution):
        if store.is_missing(model):
            mend = f"llama-compat pull {model}"
            yield Finding(Level.problem, "model", f"{model} is not on this machine", mend)
        else:
            yield Finding(Level.ok, "model", f"{model} is on this machine")


def torch(*, needed: bool) -> Finding:
    """PyTorch and the GPUs that it sees."""
    what = "torch"
    if importlib.util.find_spec("torch") is None:
        return _missing(what, "torch", needed)
    try:
        import torch as installed
    except Exception as error:  # a build for another machine fails in many ways
        return Finding(
            Level.problem if needed else Level.warning,
            what,
            f"can't be imported: {error}",
            "pip install --force-reinstall 'llama-compat[torch]'",
        )
    said = str(installed.__version__)
    if installed.cuda.is_available():
        names = [
            f"{properties.name} ({properties.total_memory / (1 << 30):.0f} GiB)"
            for index in range(installed.cuda.device_count())
            if (properties := installed.cuda.get_device_properties(index))
        ]
        return Finding(Level.ok, what, f"{said}, {', '.join(names)}")
    if _has_nvidia():
        reason = "is a build for CPUs" if installed.version.cuda is None else "can't use it"
        return Finding(
            Level.warning,
            what,
            f"{said} {reason}, though there is an NVIDIA GPU",
            "install the build for its driver: https://pytorch.org/get-started/locally/",
        )
    return Finding(Level.ok, what, f"{said}, on {installed.get_num_threads()} cores of a CPU")


def _has_nvidia() -> bool:
    program = shutil.which("nvidia-smi")
    if program is None:
        return False
    with suppress(OSError, subprocess.TimeoutExpired):
        listed = subprocess.run([program, "-L"], capture_output=True, timeout=10, check=False)
        return listed.returncode == 0 and bool(listed.stdout.strip())
    return False


def llama_cpp(*, needed: bool) -> Finding:
    """llama.cpp, as a library of this process."""
    what = "llama.cpp"
    if importlib.util.find_spec("llama_cpp") is None:
        return _missing(what, "llama-cpp", needed)
    version = importlib.metadata.version("llama-cpp-python")
    try:
        import llama_cpp as installed

        gpu = installed.llama_supports_gpu_offload()
    except Exception as error:
        return Finding(
            Level.problem if needed else Level.warning,
            what,
            f"can't be loaded: {error}",
            "pip install --force-reinstall --no-binary llama-cpp-python 'llama-compat[llama-cpp]'",
        )
    return Finding(Level.ok, what, f"{version}, {'GPU and CPU' if gpu else 'CPU'}")


def _missing(what: str, extra: str, needed: bool) -> Finding:
    level = Level.problem if needed else Level.note
    return Finding(level, what, "is not installed", f"pip install 'llama-compat[{extra}]'")


def _address(distribution: Distribution) -> tuple[str, int]:
    return distribution.server.host, distribution.server.port


def port(host: str, number: int) -> Finding:
    """Whether the server could listen where it is to."""
    what = f"port {number}"
    if number == 0:
        return Finding(Level.ok, "port", "any that is free")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, number))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return Finding(
                    Level.warning,
                    what,
                    "somebody listens there already",
                    "end that, or take another: llama-compat run TEMPLATE --port 0",
                )
            reason = error.strerror or str(error)
            mend = "take one above 1023, and an address of this machine"
            return Finding(Level.problem, what, f"can't be used on {host} ({reason})", mend)
    return Finding(Level.ok, what, f"free on {host}")


def disks(distribution: Distribution | None) -> Iterator[Finding]:
    """Where models and records are: whether that may be written, and has room."""
    from llama_compat.distribution.observability import default_storage
    from providers.local.models.folders import store_folder

    yield disk("models", store_folder(), "LLAMA_COMPAT_HOME=FOLDER keeps them elsewhere")
    storage = default_storage() if distribution is None else distribution.server.storage
    kind, _, path = storage.get_secret_value().partition(":")
    if kind == "sqlite":
        mend = "`server.storage: sqlite:PATH` puts it elsewhere"
        yield disk("storage", Path(path).expanduser().parent, mend)


def disk(what: str, folder: Path, mend: str) -> Finding:
    """One folder, which need not be there yet."""
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        return Finding(Level.problem, what, f"{there} may not be written", mend)
    free = shutil.disk_usage(there).free
    said = f"{free / (1 << 30):.1f} GiB free at {folder}"
    if free < MIN_FREE_BYTES:
        return Finding(Level.warning, what, said, f"make room; {mend}")
    return Finding(Level.ok, what, said)


def open_files(read_limit: Callable[[], tuple[int, int]] | None = None) -> Finding:
    """How many files, and so connections, a process may have open.

    Args:
        read_limit: gives the soft and the hard limit; the system's by default.
    """
    what = "open files"
    if read_limit is None:
        try:
            import resource
        except ImportError:  # Windows has no such limit
            return Finding(Level.ok, what, "no limit")
        infinite = resource.RLIM_INFINITY
        soft, hard = (
            sys.maxsize if each == infinite else each
            for each in resource.getrlimit(resource.RLIMIT_NOFILE)
        )
    else:
        soft, hard = read_limit()
    if soft == sys.maxsize:
        return Finding(Level.ok, what, "no limit")
    if soft >= MIN_OPEN_FILES:
        return Finding(Level.ok, what, f"{soft}")
    mend = (
        f"ulimit -n {min(hard, 65536)}"
        if hard > soft
        else "LimitNOFILE=65536 in the systemd unit, or /etc/security/limits.conf"
    )
    said = f"{soft}, some {soft // 2} streams at a time"
    return Finding(Level.warning, what, said, mend)


def clock(now: float) -> Finding:
    """Whether the clock can be right.

    Args:
        now: what it shows, in seconds since 1970.
    """
    shown = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    if now < BUILT.timestamp():
        mend = "set it: timedatectl set-ntp true"
        return Finding(Level.problem, "clock", f"{shown}, before this was released", mend)
    return Finding(Level.ok, "clock", shown)


def keys_in(environment: Mapping[str, str], *, live: bool = False) -> Iterator[Finding]:
    """The vendors whose keys are in the environment.

    Args:
        environment: the variables.
        live: whether each is asked, besides, if it takes its key.
    """
    from routing.cli.machine.discovery import providers_of, vendors_in

    found = vendors_in(environment)
    if not found:
        mend = "export OPENAI_API_KEY=..., and then: llama-compat init"
        yield Finding(Level.note, "keys", "no vendor's is in the environment", mend)
    for each in found:
        yield Finding(Level.ok, "keys", f"{each.name}: {each.why}")
    if live:
        yield from vendors(providers_of(found, environment))


def vendors(providers: Iterable[ProviderSettings]) -> Iterator[Finding]:
    """Whether each vendor takes its key, by asking for its models."""
    from routing.cli.machine.live import ask_all

    for provider, answer in ask_all(providers).items():
        if isinstance(answer, Exception):
            said = str(answer).removeprefix(f"Provider '{provider}': ")
            yield Finding(Level.problem, provider, said, _mend(answer))
        else:
            yield Finding(Level.ok, provider, f"answers, with {_counted(len(answer), 'model')}")


def _mend(error: Exception) -> str:
    """What to do where a vendor does not list its models."""
    code = getattr(error, "code", None)
    if code == "upstream_authentication":
        return ""  # it says itself what to do
    if code == "upstream_connection_failed":
        return "look at `base_url` in the template, the network, and HTTPS_PROXY if you set it"
    if getattr(error, "status", None) == 404:
        return "look at `base_url` in the template: does it end as the vendor's clients have it?"
    return "ask again later, or see the vendor's status page"
