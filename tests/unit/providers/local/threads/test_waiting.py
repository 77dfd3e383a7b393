"""Threads that wait for each other sleep before long, unless the environment says otherwise."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from providers.local.threads.waiting import WAITING, bounded_waiting
from providers.local.torch_engine.provider import TURNS
from tests.conftest import needs_torch


def test_only_what_is_imported_within_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in WAITING:
        monkeypatch.delenv(name, raising=False)
    with bounded_waiting(123):
        assert os.environ["OMP_WAIT_POLICY"] == "passive"
        assert os.environ["GOMP_SPINCOUNT"] == "123"
    assert not set(WAITING) & os.environ.keys()


@pytest.mark.parametrize("name", WAITING)
def test_the_users_own_settings_win(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for each in WAITING:
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv(name, "7")
    with bounded_waiting(123):
        assert {each: os.environ.get(each) for each in WAITING} == {
            each: "7" if each == name else None for each in WAITING
        }


WATCHED = """
import asyncio, builtins, json, os, sys
real, seen = builtins.__import__, []
def told():
    return [os.environ.get(each) for each in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")]
def watched(name, *args, **kwargs):
    if name == "torch" and "torch" not in sys.modules:
        seen.append(told())
    elif seen and name.startswith("providers."):
        print(json.dumps([seen[0], told()]))
        sys.exit()  # the rest of the engine takes seconds, and is told nothing more
    return real(name, *args, **kwargs)
builtins.__import__ = watched
from providers.base import ProviderModel
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.provider import TorchProvider
assert "torch" not in sys.modules
provider = TorchProvider("local", TorchConfig(device="cpu"), [ProviderModel(sys.argv[1])])
asyncio.run(provider.start())
"""


@needs_torch
@pytest.mark.engine
@pytest.mark.parametrize("given", [{}, {"OMP_WAIT_POLICY": "active"}], ids=["unset", "set"])
def test_torch_is_told_before_it_is_loaded(tmp_path: Path, given: dict[str, str]) -> None:
    (tmp_path / "config.json").write_text("{}")
    environment = {name: each for name, each in os.environ.items() if name not in WAITING} | given
    made = subprocess.run(
        [sys.executable, "-c", WATCHED, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    at_import, after = json.loads(made.stdout.splitlines()[-1])
    policy = given.get("OMP_WAIT_POLICY")
    assert at_import == ([policy, None] if policy else ["passive", str(TURNS)])
    assert after == [policy, None]
