"""What benchmarks on a GPU share: real models' shapes, what the card can do, and times.

Two numbers bound what a computation takes: its bytes over what a large copy on the same card moves
a second, and its operations over what a large matrix product does, both measured in the same run.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from bench.machine import write_results


@dataclass(frozen=True, slots=True)
class Shape:
    """What a model's layers are, as its config says.

    Attributes:
        kind: as transformers calls it.
        hidden: numbers of a token between layers.
        intermediate: of an MLP, or of each expert.
        layers: how many.
        heads, kv_heads, head_dim: of the attention.
        vocabulary: tokens.
        tied: whether the head is the table of embeddings.
        experts, chosen: how many, and how many a token takes; 0 where there are none.
        window: how many tokens most layers look back at; None for all.
    """

    kind: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool = False
    experts: int = 0
    chosen: int = 0
    window: int | None = None

    @property
    def qkv(self) -> int:
        """Outputs of the product that makes queries, keys and values."""
        return (self.heads + 2 * self.kv_heads) * self.head_dim

    @property
    def layer_weights(self) -> int:
        """Numbers that a layer has for a token: of experts, those of the chosen."""
        attention = (self.qkv + self.heads * self.head_dim) * self.hidden
        mlps = 3 * self.hidden * self.intermediate * max(1, self.chosen)
        return attention + mlps + self.experts * self.hidden

    @property
    def weights(self) -> int:
        """Numbers that a step of one token reads: all but the table of embeddings."""
        return self.layers * self.layer_weights + self.hidden * self.vocabulary

    def read_by(self, tokens: int) -> float:
        """Numbers that a step of so many tokens reads: of experts those that somebody takes, where
        all are liked alike."""
        taken = self.experts and 1 - (1 - self.chosen / self.experts) ** tokens
        more = self.experts * taken - self.chosen
        return self.weights + more * 3 * self.hidden * self.intermediate * self.layers

    @property
    def kv(self) -> int:
        """Numbers of a token in the KV cache."""
        return 2 * self.layers * self.kv_heads * self.head_dim

    def config(self, **settings: Any) -> Any:
        """transformers' config of it."""
        from transformers import AutoConfig

        return AutoConfig.for_model(
            self.kind,
            hidden_size=self.hidden,
            intermediate_size=self.intermediate,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            head_dim=self.head_dim,
            vocab_size=self.vocabulary,
            tie_word_embeddings=self.tied,
            max_position_embeddings=16384,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=0,
            **(
                {
                    "num_experts": self.experts,
                    "num_experts_per_tok": self.chosen,
                    "moe_intermediate_size": self.intermediate,
                }
                if self.experts
                else {}
            ),
            **settings,
        )

    def model(self, device: torch.device, **settings: Any) -> Any:
        """transformers' model in bfloat16, with random weights."""
        from transformers import AutoModelForCausalLM

        with torch.device(device):
            model = AutoModelForCausalLM.from_config(self.config(**settings), dtype=torch.bfloat16)
        return model.eval()


SHAPES = {
    "llama 3.1 8b": Shape("llama", 4096, 14336, 32, 32, 8, 128, 128256),
    "qwen3 8b": Shape("qwen3", 4096, 12288, 36, 32, 8, 128, 151936),
    "qwen3 30b-a3b": Shape("qwen3_moe", 2048, 768, 48, 32, 4, 128, 151936, experts=128, chosen=8),
    "gemma3 12b": Shape("gemma3_text", 3840, 15360, 48, 16, 8, 256, 262208, True, window=1024),
    "qwen3 0.6b": Shape("qwen3", 1024, 3072, 28, 16, 8, 128, 151936, tied=True),
}


CACHE_BYTES = 400 * 2**20
"""More than any card's own cache has, several times: an H100's has 50 MB."""


def copies_for(nbytes: int) -> int:
    """How many of so many bytes take turns: none is in the card's cache when its turn comes."""
    return max(2, min(64, -(-CACHE_BYTES // nbytes)))


def has_cuda() -> bool:
    """Whether there is a GPU; where there is none, that is said."""
    if torch.cuda.is_available():
        return True
    print("no CUDA here")
    return False


class Peaks(NamedTuple):
    """What the card does: bytes a second of a copy, read and written, and operations a second of
    a matrix product in bfloat16."""

    bandwidth: float
    operations: float


def median_seconds(run: Callable[[], object], repeats: int = 30) -> float:
    """How long the GPU takes for `run`, which was run before."""
    for _ in range(3):
        run()
    taken = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        taken.append(start.elapsed_time(end) / 1000)
    return statistics.median(taken)


def as_graph(run: Callable[[], object]) -> Callable[[], None]:
    """`run` as one CUDA graph, so that what is timed is not the launching of it."""
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def measure_peaks() -> Peaks:
    """Both, on random numbers."""
    source = torch.randint(0, 2**31 - 1, (2**29,), dtype=torch.int32, device="cuda")
    target = torch.empty_like(source)
    copied = median_seconds(lambda: target.copy_(source), 10)
    size = 8192
    left, right = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    product = median_seconds(lambda: torch.mm(left, right), 10)
    return Peaks(2 * source.nbytes / copied, 2 * size**3 / product)


def error_of(found: torch.Tensor, expected: torch.Tensor) -> float:
    """How far it is off, as a part of the length of what it should be."""
    wanted = expected.double()
    return float((found.double() - wanted).norm() / wanted.norm())


def kernel_times(run: Callable[[], object]) -> dict[str, tuple[int, float]]:
    """The kernels that `run` consists of, by name: how often each runs, and its microseconds in
    all, those that take longest first."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        run()
        torch.cuda.synchronize()
    kernels = [
        (each.key, each.count, float(each.device_time_total)) for each in profiler.key_averages()
    ]
    return {
        name: (count, taken) for name, count, taken in sorted(kernels, key=lambda each: -each[2])
    }


def fault_of(error: Exception) -> str:
    """What has failed, short enough for a table: the others are worth having."""
    return f"{type(error).__name__}: {error}"[:300]


def write_cuda(name: str, measured: dict[str, Any]) -> Path:
    """Write results with the card named, to `$OUT` too where that is set: a lent machine keeps
    nothing."""
    named = {
        "device": torch.cuda.get_device_name(),
        "cuda": torch.version.cuda,
        **measured,
    }
    path = write_results(name, named, "torch", "triton", "transformers")
    if "OUT" in os.environ:
        shutil.copy(path, Path(os.environ["OUT"]))
    return path


def print_rows(title: str, rows: Sequence[dict[str, Any]]) -> None:
    """A line for each, short enough for a terminal."""
    print(f"== {title}")
    for row in rows:
        print("  ".join(f"{name}={_short(value)}" for name, value in row.items()), flush=True)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else json.dumps(value)
