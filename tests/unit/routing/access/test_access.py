"""What lets requests in, from one template to the next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llama_compat.distribution import Distribution, KeyGrant, load_distribution
from providers.registry import config_model
from routing.access.keys.store import KEYS, KeyStore
from routing.batches.asking import Asker
from routing.runtime import Runtime
from routing.storage.storage import open_storage
from routing.vector_stores.embedding import TextEmbedder
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


@pytest.mark.parametrize("work", ["batches", "vector stores"])
async def test_work_of_a_key_that_another_process_has_just_made_is_done(
    tmp_path: Path, work: str
) -> None:
    runtime = Runtime(distribution(tmp_path, server={"stored_keys": True}))
    await runtime.start()
    look_for = (
        Asker(runtime).look_for if work == "batches" else TextEmbedder(runtime, None).principal
    )
    elsewhere = open_storage(f"sqlite:{tmp_path / 'storage.sqlite'}", [KEYS])
    await elsewhere.start()
    key, _ = await KeyStore(elsewhere).create(KeyGrant(name="new"))
    assert runtime.owner(key.id) is None
    found = await look_for(key.id)
    assert found is not None
    assert found.name == "new"
    assert await look_for("key-of-nobody") is None
    await elsewhere.stop()
    await runtime.stop()
