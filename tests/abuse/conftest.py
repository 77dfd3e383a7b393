"""The servers that are abused, and the eyes on them."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
import uvloop

from tests.abuse.watch import Seen, watching
from tests.integration.server_process import ServerProcess, running

IDLE_MACHINE_SECONDS = 0.1
"""How long another client may wait at most, on a machine that has nothing else to do."""

BUSY_MACHINE_SECONDS = 1.0
"""The same where all the tests run; a loop that stands still for longer is a fault anywhere."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = f"{Path(__file__).parent}{os.sep}"
    for item in items:
        if not str(item.path).startswith(here):  # a look at all of its parents takes a second
            continue
        item.add_marker(pytest.mark.abuse)
        if sys.platform != "linux":
            item.add_marker(pytest.mark.skip(reason="looks into /proc"))


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Tens of thousands of clients connect and leave, for a third of the work by this loop."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="session")
def idle_server() -> Iterator[ServerProcess]:
    """A server that nobody abuses: what it takes to answer is the machine's doing."""
    with running("echo") as process:
        yield process


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    """The server to abuse, with the settings that everybody has; some modules have their own."""
    with running("echo") as process:
        yield process
        assert "Traceback" not in process.log


@pytest.fixture
def unharmed(
    idle_server: ServerProcess, pytestconfig: pytest.Config
) -> Callable[..., AbstractContextManager[Seen]]:
    """`with unharmed(server, grows=BYTES):` what happens inside freezes and fills nothing.

    Another client's `/health` waits no longer than 100 ms (a second, unless `--abuse` says that the
    machine is idle) on top of what it waits for a server that is left alone, and the process grows
    by no more than `grows` bytes. `holds` is what one call into C takes that nothing can divide.
    """
    allowed = IDLE_MACHINE_SECONDS if pytestconfig.getoption("--abuse") else BUSY_MACHINE_SECONDS

    @contextmanager
    def checked(server: ServerProcess, *, grows: int, holds: float = 0.0) -> Iterator[Seen]:
        with watching(server, idle_server) as seen:
            yield seen
        assert seen.grown <= grows, f"grew by {seen.grown:,} bytes"
        assert seen.wait <= allowed + holds + seen.idle_wait, f"others waited {seen.wait:.3f} s"

    return checked
