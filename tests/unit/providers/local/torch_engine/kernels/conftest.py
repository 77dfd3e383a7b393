"""A tiny model, and a check of its kernels that the interpreter gets through soon."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.tiny_models import make_model

    return make_model(tmp_path_factory.mktemp("models") / "tiny", num_hidden_layers=1)


@pytest.fixture
def quick_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter takes its time."""
    from providers.local.torch_engine.loading import self_check

    monkeypatch.setattr(self_check, "SEQUENCES", ((1, 1), (1, 40), (20, 25), (18, 18)))
