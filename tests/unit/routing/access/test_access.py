"""What lets requests in, from one template to the next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llama_compat.distribution import Distribution, load_distribution
from providers.registry import config_model
from routing.runtime import Runtime
from tests.integration.server_process import write_template


def distribution(folder: Path, **sections: Any) -> Distribution:
    server = {"storage": f"sqlite:{folder / 'storage.sqlite'}", **sections.pop("server", {})}
    path = write_template(
        folder / "t.yaml",
        server=server,
        providers=[{"id": "echo", "type": "local::echo"}],
        models=[{"id": "echo", "provider": "echo"}],
        **sections,
    )
    return load_distribution(str(path), config_model)


TEAM = {"id": "t", "limits": {"concurrent": 1}}


@pytest.mark.parametrize(
    ("sections", "has_access", "keeps"),
    [
        ({}, False, False),
        ({"server": {"api_keys": ["sk-one-key"]}}, False, False),
        ({"keys": [{"name": "a", "key": "sk-a"}]}, False, False),
        ({"teams": [TEAM]}, True, False),
        ({"teams": [{"id": "t", "budget": {"amount": 1}}]}, True, True),
        ({"server": {"stored_keys": True}}, True, True),
    ],
)
def test_nothing_is_there_that_nobody_asked_for(
    tmp_path: Path, sections: dict[str, Any], has_access: bool, keeps: bool
) -> None:
    runtime = Runtime(distribution(tmp_path, **sections))
    assert (runtime.access is not None) == has_access
    assert (runtime.limits is not None) == has_access
    assert (runtime.ledger is not None) == has_access
    assert (runtime.access is not None and runtime.access.keeper is not None) == keeps
    assert not (tmp_path / "storage.sqlite").exists()


async def test_a_reload_goes_on_counting_where_it_was(tmp_path: Path) -> None:
    first = Runtime(distribution(tmp_path, teams=[TEAM], server={"stored_keys": True}))
    await first.start()
    more = {"id": "t", "limits": {"concurrent": 2}}
    second = Runtime(distribution(tmp_path, teams=[more], server={"stored_keys": True}), first)
    assert second.access is first.access
    assert second.limits is not first.limits
    await second.start()
    await first.stop()
    # What both have goes on when the first one ends.
    assert second.access is not None
    assert second.access.keeper is not None
    await second.access.keeper.refresh(at_once=True)
    elsewhere = {"stored_keys": True, "storage": f"sqlite:{tmp_path / 'other.sqlite'}"}
    third = Runtime(distribution(tmp_path, teams=[more], server=elsewhere), second)
    assert third.access is not second.access
    without = Runtime(distribution(tmp_path), second)
    assert without.access is None
    await second.stop()
