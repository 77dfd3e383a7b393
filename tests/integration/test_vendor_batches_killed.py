"""A process is killed while a vendor has its batch, in each of the phases: nothing is lost, and
nothing is paid for twice."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.integration.batch_vendors import BatchVendor
from tests.integration.batching import line, ordered, waited_for
from tests.integration.server_process import ServerProcess
from tests.integration.test_batches_killed import begun_again
from tests.integration.test_vendor_batches import TYPES, client_of, told, vendor_template

pytestmark = pytest.mark.server

NAMES = [f"r{n}" for n in range(100)]


def check(vendor: BatchVendor, answers: dict[str, str], errors: dict[str, str]) -> None:
    assert errors == {}
    assert answers == {name: f"say {name}" for name in NAMES}
    assert set(vendor.paid.values()) == {1}
    assert not vendor.single


# How a batch is found again that nobody was told of is each vendor's own; the rest is the same for
# those that follow OpenAI.
@pytest.mark.parametrize(
    ("phase", "kind"),
    [("created", kind) for kind in TYPES]
    + [
        (phase, kind)
        for phase in ("create", "running", "results")
        for kind in ("openai", "mistral", "anthropic", "gemini")
    ],
)
def test_killed_in_a_phase(tmp_path: Path, kind: str, phase: str) -> None:
    """Before the vendor has made the batch, after that and before it is told, while it works, and
    while its results come."""
    with BatchVendor(kind) as vendor:
        path = vendor_template(tmp_path, vendor)
        vendor.hold = phase if phase != "running" else ""
        if phase == "running":
            vendor.go.clear()
        server = ServerProcess(path)
        try:
            server.wait_until_ready()
            with client_of(server) as client:
                batch = ordered(client, [line(name, "cheap") for name in NAMES])
                if phase == "running":
                    waited_for(client, batch, lambda _: vendor.looks > 1)
                else:
                    vendor.wait_held()
            server.kill()
            if phase == "create":  # nobody is there any more who could be told
                vendor.refuse = [(503, "gone")]
            vendor.release.set()
            vendor.go.set()
            server = begun_again(path, server.port)
            with client_of(server) as client:
                batch = waited_for(client, batch)
                check(vendor, *told(client, batch))
            assert len(vendor.jobs) == 1
        finally:
            server.kill()


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_killed_at_any_moment(tmp_path: Path, kind: str) -> None:
    random.seed(28)
    with BatchVendor(kind) as vendor:
        path = vendor_template(tmp_path, vendor)
        server = ServerProcess(path)
        try:
            server.wait_until_ready()
            with client_of(server) as client:
                batch = ordered(client, [line(name, "cheap") for name in NAMES])
            for _ in range(6):
                time.sleep(random.uniform(0, 0.5))  # the moment is to be any
                server.kill()
                server = begun_again(path, server.port)
            with client_of(server) as client:
                batch = waited_for(client, batch)
                check(vendor, *told(client, batch))
        finally:
            server.kill()
