"""With how many threads a running engine computes its steps."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("transformers", reason="needs the extra 'torch'")

from providers.local.threads.team_size import TeamSize
from providers.local.torch_engine.cpu_thread import on_cpu_thread, use_threads
from tests.tiny_models import make_model
from tests.unit.providers.local.engines import generate, running


def test_another_number_of_threads_lasts_as_long_as_a_call() -> None:
    before = on_cpu_thread(torch.get_num_threads)

    def with_more() -> list[int]:
        counted = []
        for more in (3, 5, 5):
            use_threads(before + more)
            counted.append(torch.get_num_threads() - before)
        return counted

    def failing() -> None:
        use_threads(before + 1)
        raise ZeroDivisionError

    assert on_cpu_thread(with_more) == [3, 5, 5]
    assert on_cpu_thread(torch.get_num_threads) == before
    with pytest.raises(ZeroDivisionError):
        on_cpu_thread(failing)
    assert on_cpu_thread(torch.get_num_threads) == before


@pytest.mark.parametrize("threads", [None, 1])
async def test_an_engine_computes_with_what_its_team_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int | None
) -> None:
    from providers.local.torch_engine import thread_team

    taken: list[tuple[Hashable, int]] = []

    class Watched(TeamSize):
        def took(self, work: Hashable, seconds: float) -> None:
            taken.append((work, torch.get_num_threads()))
            super().took(work, seconds)

        @property
        def threads(self) -> int:
            return super().threads if threads else 1 + len(taken) % 2

    monkeypatch.setattr(thread_team, "TeamSize", Watched)
    settings: dict[str, Any] = {} if threads is None else {"threads": threads}
    make_model(tmp_path)
    async with running(tmp_path, **settings) as engine:
        taken.clear()
        await generate(engine, [5, 6, 7], 4)
    assert [work for work, _ in taken] == [(1, 3), (1, 1), (1, 1), (1, 1)]
    assert [each for _, each in taken] == [1, 1, 1, 1] if threads else [1, 2, 1, 2]
