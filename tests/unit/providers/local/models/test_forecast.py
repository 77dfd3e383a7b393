"""What is told of a model before its weights are fetched, beside what it takes once it is here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("huggingface_hub")

from providers.local.models.forecast import ModelForecast
from providers.local.models.store import foretell, pull
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.loading.footprint import footprint
from tests.tiny_models import make_embedder, make_model, make_reranker
from tests.unit.providers.local.models.test_store import Hub, hub, only_this_machine, store

__all__ = ["hub", "only_this_machine", "store"]


def put(hub: Hub, folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    hub.files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
    return hub.files


def quiet(step: str, done: int = 0, total: int | None = None) -> None:
    pass


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """As much as is needed, and always as much."""
    monkeypatch.setattr("providers.local.torch_engine.loading.paged.free_memory", lambda _: 10**9)


def test_a_model_is_foretold_as_it_turns_out(hub: Hub, store: Path, tmp_path: Path) -> None:
    put(hub, make_model(tmp_path / "made"))
    told: list[ModelForecast] = []
    first = foretell("hf:org/name", quiet)
    assert list(store.rglob("config.json"))
    assert not list(store.rglob("model.safetensors*"))
    folder = pull("hf:org/name", quiet, told.append)
    assert told == [first]
    assert first.size == sum(map(len, hub.files.values()))
    assert first.context == 512
    assert (first.engine, first.how) == ("local::torch", "in batches")
    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", "pt") as file:
        counts = [file.get_tensor(name).numel() for name in file.keys()]  # noqa: SIM118
    assert first.parameters == sum(counts)
    assert [need.usual for need in first.needs].count(True) == 1
    for need in first.needs:
        assert need.numbers is not None
        kind = "none" if need.numbers.startswith(("float32", "bfloat")) else need.numbers
        config = TorchConfig(quantization=kind)
        taken = footprint("name", folder, config, None, generates=True)
        assert {need.device: need.bytes} == taken.needs
        assert need.fits is True


def test_one_that_is_too_large_is_told_to_be(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(hub, make_model(tmp_path / "made"))
    monkeypatch.setattr("providers.local.torch_engine.loading.paged.free_memory", lambda _: 1000)
    assert {need.fits for need in foretell("hf:org/name", quiet).needs} == {False}


def config_of(**members: Any) -> Callable[[dict[str, bytes]], None]:
    def change(files: dict[str, bytes]) -> None:
        config = json.loads(files["config.json"])
        files["config.json"] = json.dumps(config | members).encode()

    return change


@pytest.mark.parametrize(
    ("members", "engine", "how"),
    [
        ({"model_type": "gpt_neox"}, "local::torch", "one request at a time, since its archi"),
        ({"model_type": "of_next_year"}, None, "its config.json can't be read: "),
        ({"hidden_act": "relu"}, "local::torch", "one request at a time, since its activation"),
    ],
)
def test_how_it_would_run(
    hub: Hub, tmp_path: Path, members: dict[str, Any], engine: str | None, how: str
) -> None:
    config_of(**members)(put(hub, make_model(tmp_path / "made")))
    found = foretell("hf:org/name", quiet)
    assert found.engine == engine
    assert found.how.startswith(how)


def test_what_embeds_and_what_ranks(hub: Hub, tmp_path: Path) -> None:
    files = put(hub, make_embedder(tmp_path / "embeds"))
    assert foretell("hf:org/name", quiet).how == "in batches; it embeds texts"
    folder = pull("hf:org/name", quiet)
    # With the steps behind the transformer, whose folders are no other formats.
    assert (folder / "1_Pooling" / "config.json").read_bytes() == files["1_Pooling/config.json"]
    put(hub, make_reranker(tmp_path / "ranks"))
    hub.files["onnx/config.json"] = b"{}"
    from providers.local.models.pulled import remove

    remove("hf:org/name")
    assert foretell("hf:org/name", quiet).how == "in batches; it ranks documents"
    assert not (pull("hf:org/name", quiet) / "onnx").exists()


def test_a_mirror_without_ranges_tells_no_less(hub: Hub, tmp_path: Path) -> None:
    put(hub, make_model(tmp_path / "made"))
    first = foretell("hf:org/name", quiet)
    hub.knows_ranges = False
    assert foretell("hf:org/name", quiet) == first


def test_weights_that_are_none_tell_nothing(hub: Hub, tmp_path: Path) -> None:
    put(hub, make_model(tmp_path / "made"))["model.safetensors"] = b"\xff" * 5000
    found = foretell("hf:org/name", quiet)
    assert (found.parameters, found.needs, found.how) == (None, (), "in batches")
