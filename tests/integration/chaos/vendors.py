"""Three vendors, each a process that can be broken and mended while a server asks it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.integration.chaos.upstream import MODES
from tests.integration.server_process import free_port

NAMES = ("one", "two", "three")

START_SECONDS = 30

FAULTS = ("killed", "frozen", *(mode for mode in MODES if mode != "healthy"))
"""All that can happen to a vendor. One that is frozen takes connections and never answers."""


class Happened(NamedTuple):
    """What a vendor did with a request."""

    at: int
    vendor: str
    what: str


class VendorProcess:
    """One vendor.

    Args:
        name: its name.
        folder: of its files.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.port = free_port()
        self._folder = folder
        self._set_mode("healthy")
        self._process = self._start()

    @property
    def url(self) -> str:
        """Where its OpenAI API is."""
        return f"http://127.0.0.1:{self.port}/v1"

    def break_(self, fault: str) -> None:
        """Let `fault` happen to it."""
        if fault == "killed":
            self._process.kill()
            self._process.wait()
        elif fault == "frozen":
            self._process.send_signal(signal.SIGSTOP)
        else:
            self._set_mode(fault)

    def mend(self) -> None:
        """Make it well again, whatever happened to it."""
        self._set_mode("healthy")
        self._process.send_signal(signal.SIGCONT)
        if self._process.poll() is not None:
            self._process = self._start()

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()

    def log(self) -> Iterator[tuple[str, Happened]]:
        """The ids of the requests that it was asked, and what it did, in the order of time."""
        for line in (self._folder / f"{self.name}.log").read_text().splitlines():
            at, request_id, what = line.split()
            yield request_id, Happened(int(at), self.name, what)

    def _set_mode(self, mode: str) -> None:
        written = self._folder / f"{self.name}.mode.new"
        written.write_text(mode)
        written.replace(self._folder / f"{self.name}.mode")

    def _start(self) -> subprocess.Popen[bytes]:
        ready = self._folder / f"{self.name}.ready"
        ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "tests.integration.chaos.upstream", self.name]
        process = subprocess.Popen([*command, str(self.port), str(self._folder)])
        until(ready.exists, START_SECONDS)
        return process


@contextmanager
def three_vendors(folder: Path) -> Iterator[Mapping[str, VendorProcess]]:
    """All of them, by name."""
    vendors: dict[str, VendorProcess] = {}
    try:
        for name in NAMES:
            vendors[name] = VendorProcess(name, folder)
        yield vendors
    finally:
        for vendor in vendors.values():
            vendor.stop()


def histories(vendors: Mapping[str, VendorProcess]) -> Mapping[str, list[Happened]]:
    """What all vendors did with each request, by its id, in the order of time."""
    found: dict[str, list[Happened]] = defaultdict(list)
    for vendor in vendors.values():
        for request_id, happened in vendor.log():
            found[request_id].append(happened)
    return {request_id: sorted(events) for request_id, events in found.items()}


def until(condition: Callable[[], object], seconds: float) -> None:
    """Wait for `condition`; it has to come true within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.01)
