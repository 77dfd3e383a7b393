"""What lies in the store, and how it goes again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from providers.local.models.folders import ModelStoreError
from providers.local.models.pulled import pulled, remove


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LLAMA_COMPAT_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def models(store: Path) -> Path:
    """A store with a model of each kind, and one that is not whole yet."""
    models = store / "models"
    write(models / "starter" / "config.json", json.dumps({"max_position_embeddings": 8192}))
    write(models / "starter.gguf" / "model.gguf", "GGUF" * 1000)
    seen = {"text_config": {"max_position_embeddings": 4096}}
    write(models / "hf" / "org" / "seeing" / "config.json", json.dumps(seen))
    write(models / "hf" / "org" / "broken" / "config.json", "{")
    write(models / "gguf" / "org" / "name" / "q4--a.gguf" / "q4" / "a.gguf", "GGUF")
    write(store / "partial" / "hf" / "org" / "half" / "config.json", "{}")
    return models


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(text)


def test_all_that_is_whole_by_its_name(models: Path) -> None:
    assert [(each.name, each.context, each.is_gguf) for each in pulled()] == [
        ("hf:org/broken", None, False),
        ("hf:org/name:q4/a.gguf", None, True),
        ("hf:org/seeing", 4096, False),
        ("starter", 8192, False),
        ("starter.gguf", None, True),
    ]
    assert [each.size for each in pulled() if each.name == "starter.gguf"] == [4000]


def test_nothing_where_nothing_was_pulled(store: Path) -> None:
    assert pulled() == []
    with pytest.raises(ModelStoreError, match=r"'starter' in the store\. There are none\."):
        remove("starter")


@pytest.mark.parametrize("name", ["starter", "starter.gguf", "hf:org/name:q4/a.gguf"])
def test_one_is_removed_and_the_others_stay(models: Path, store: Path, name: str) -> None:
    before = {each.name for each in pulled()}
    removed = remove(name)
    assert not removed.folder.exists()
    assert {each.name for each in pulled()} == before - {name}
    assert list((store / "partial" / "removed").iterdir()) == []
    with pytest.raises(ModelStoreError, match="There are: hf:org/broken"):
        remove(name)


@pytest.mark.parametrize("name", ["", "../x", "hf:org", "hf:../..", "/etc", "hf:org/seeing/.."])
def test_what_is_no_name_removes_nothing(models: Path, name: str) -> None:
    with pytest.raises(ModelStoreError):
        remove(name)
    assert len(pulled()) == 5
