"""Where the time goes: `pytest -p tests.cpu_seconds` says what each module of tests took.

What counts is seconds of CPU, of the tests and of all that they start, which are the same whatever
else the machine does. Linux only, since `/proc` tells what runs still.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.forked import Forked

SHOWN = 60
"""Modules, those first that took most."""

_TICKS = os.sysconf("SC_CLK_TCK")


class Spent(NamedTuple):
    """What some tests took.

    Attributes:
        tests: how many they are.
        cpu: seconds of CPU, of theirs and of what they started.
        wall: seconds of a clock.
    """

    tests: int
    cpu: float
    wall: float

    def plus(self, other: Spent) -> Spent:
        """Both together."""
        return Spent(self.tests + other.tests, self.cpu + other.cpu, self.wall + other.wall)


class Times:
    """What each module took of those that this process runs; with workers, that all of them run."""

    def __init__(self) -> None:
        self._spent: dict[str, Spent] = {}
        self._tests = 0
        self._since: tuple[float, float] | None = None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Iterator[None]:
        if self._since is None:
            self._since = cpu_seconds(), time.monotonic()
        self._tests += 1
        result = yield
        if nextitem is None or nextitem.path != item.path:
            cpu, wall = self._since
            spent = Spent(self._tests, cpu_seconds() - cpu, time.monotonic() - wall)
            self._add(item.nodeid.partition("::")[0], spent)
            self._tests, self._since = 0, None
        return result

    def _add(self, module: str, spent: Spent) -> None:
        self._spent[module] = self._spent.get(module, Spent(0, 0.0, 0.0)).plus(spent)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["cpu_seconds"] = {name: tuple(each) for name, each in self._spent.items()}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        for module, spent in getattr(node, "workeroutput", {}).get("cpu_seconds", {}).items():
            self._add(module, Spent(*spent))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("seconds of CPU, and of a clock")
        total = Spent(0, 0.0, 0.0)
        for spent in self._spent.values():
            total = total.plus(spent)
        rows = sorted(self._spent.items(), key=lambda row: -row[1].cpu)[:SHOWN]
        for module, spent in [("all modules", total), *rows]:
            terminalreporter.line(f"{spent.cpu:8.1f} {spent.wall:8.1f} {spent.tests:6} {module}")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Times())


def cpu_seconds() -> float:
    """What this process has taken so far, and all that it started, whether it runs still or not."""
    mine = os.times()
    started = [*_children(os.getpid()), *Forked.running]
    return sum(mine[:4]) + Forked.taken + sum(map(_taken, started))


def _taken(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / _TICKS + sum(map(_taken, _children(pid)))


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, task.read_text().split())
        except OSError:
            continue
    return found
