"""The torch engine's steps on a CPU, computed by as many threads as compute them the soonest."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from providers.local.threads.team_size import TeamSize, sizes
from providers.local.torch_engine.cpu_thread import on_cpu_thread, use_threads
from providers.local.torch_engine.model_runner import Runner
from providers.local.torch_engine.scheduling.step import Chunk


class TeamRunner:
    """Runs a model on the CPU with as many threads as compute its steps the soonest.

    Args:
        runner: of the model; what it computes does not depend on the number of threads.
        threads: how many, if that is not to be found out.
    """

    def __init__(self, runner: Runner, threads: int | None) -> None:
        self._runner = runner
        self._size = TeamSize([threads] if threads else sizes(on_cpu_thread(torch.get_num_threads)))

    def forward(self, chunks: Sequence[Chunk], chosen: torch.Tensor | None = None) -> torch.Tensor:
        """See `Runner`."""
        begun = time.perf_counter()
        use_threads(self._size.threads)
        logits = self._runner.forward(chunks, chosen)
        work = (len(chunks), sum(each.rows for each in chunks))
        self._size.took(work, time.perf_counter() - begun)
        return logits
