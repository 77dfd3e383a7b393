"""Attention in Triton beside PyTorch's: sequences of many kinds in one step."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import random
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("triton", reason="needs the extra 'dev' on Linux, or torch's build for CUDA")

from providers.local.torch_engine.kernels.attention import paged_attention, splits_for
from providers.local.torch_engine.kernels.places import Places, PromptSpan
from providers.local.torch_engine.model.attention import Scores, SequenceSpan, attend
from providers.local.torch_engine.model.kv_cache import packed

BLOCK_SIZE = 16
DECODING = [(1, 1), (1, 16), (1, 17), (1, 200)]
PROMPTS = [(5, 5), (70, 90), (16, 33)]
MIXED = [(1, 40), *PROMPTS, (1, 9)]


class Case:
    """Random queries and a random cache, in which the blocks of sequences are scattered.

    Args:
        sequences: new tokens of each, and how many there are with them.
        heads: of queries, and of keys.
        head_dim: of each.
        device: where all of it is.
        dtype: of queries and cache.
    """

    def __init__(
        self,
        sequences: list[tuple[int, int]],
        heads: tuple[int, int],
        head_dim: int,
        device: Any,
        dtype: Any = None,
    ) -> None:
        torch.manual_seed(0)
        dtype = dtype or torch.float32
        self.scale = head_dim**-0.5
        needed = [-(-length // BLOCK_SIZE) for _, length in sequences]
        free = random.Random(0).sample(range(sum(needed)), sum(needed))
        blocks = [[free.pop() for _ in range(count)] for count in needed]
        tokens = sum(new for new, _ in sequences)
        shape = (tokens, heads[0] + 2 * heads[1], head_dim)
        self.queries = torch.randn(shape).to(device, dtype)[:, : heads[0]]
        slots = sum(needed) * BLOCK_SIZE
        self.cached = torch.randn(slots, 2 * heads[1], head_dim).to(device, dtype)
        starts, self.spans = [0], []
        tables = torch.full((max(needed), len(sequences)), 10**6, dtype=torch.int32)
        for column, ((new, length), own) in enumerate(zip(sequences, blocks, strict=True)):
            self.spans.append(SequenceSpan(starts[-1], new, length, own, BLOCK_SIZE, device))
            starts.append(starts[-1] + new)
            tables[: len(own), column] = torch.tensor(own)
        decoding = next(
            (place for place, (new, _) in enumerate(sequences) if new > 1), len(sequences)
        )
        nothing = torch.zeros(0, dtype=torch.int32)
        self.places = Places(
            nothing,
            nothing,
            torch.tensor([length for _, length in sequences], dtype=torch.int32).to(device),
            torch.tensor(starts, dtype=torch.int32).to(device),
            tables.to(device),
            [PromptSpan(*each) for each in sequences[decoding:]],
        )

    def expected(self, window: int | None) -> Any:
        """What PyTorch finds, in float32."""
        return attend(
            self.queries.float(), self.cached.float(), self.spans, Scores(self.scale, window)
        )

    def found(self, window: int | None, splits: int | None = None) -> Any:
        """What the kernels find."""
        return paged_attention(
            self.queries,
            self.cached,
            self.places,
            block_size=BLOCK_SIZE,
            scale=self.scale,
            window=window,
            splits=splits,
        )


def distance(found: Any, expected: Any) -> float:
    return float((found.float() - expected).norm() / expected.norm())


@pytest.mark.parametrize("window", [None, 24])
@pytest.mark.parametrize("splits", [1, 2, 4])
def test_replies(device: Any, splits: int, window: int | None) -> None:
    case = Case(DECODING, (6, 2), 24, device)
    assert distance(case.found(window, splits), case.expected(window)) < 1e-5


@pytest.mark.parametrize("window", [None, 24])
@pytest.mark.parametrize(("heads", "head_dim"), [((4, 4), 16), ((6, 2), 24)])
def test_prompts(device: Any, heads: tuple[int, int], head_dim: int, window: int | None) -> None:
    case = Case(PROMPTS, heads, head_dim, device)
    assert distance(case.found(window), case.expected(window)) < 1e-5


def test_both_in_a_step(device: Any) -> None:
    case = Case(MIXED, (3, 1), 16, device)
    assert distance(case.found(None), case.expected(None)) < 1e-5


def test_more_heads_to_a_key_than_rows(device: Any) -> None:
    case = Case([(1, 30), (9, 20)], (20, 1), 16, device)
    assert distance(case.found(None), case.expected(None)) < 1e-5


def test_wide_heads(device: Any) -> None:
    case = Case([(1, 70), (3, 40)], (2, 1), 256, device)
    assert distance(case.found(None, 2), case.expected(None)) < 1e-5


@pytest.mark.parametrize("window", [None, 24])
@pytest.mark.parametrize("sequences", [DECODING, MIXED])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_in_half_precision(
    device: Any, dtype: Any, sequences: list[tuple[int, int]], window: int | None
) -> None:
    if device.type == "cpu" and dtype is torch.bfloat16:
        pytest.skip("the interpreter multiplies bfloat16 matrices as if they were integers")
    case = Case(sequences, (4, 2), 64, device, dtype)
    found = case.found(window)
    assert found.dtype == dtype
    assert distance(found, case.expected(window)) < 1e-2


@pytest.mark.parametrize("sequences", [DECODING, MIXED])
def test_a_cache_in_fp8(device: Any, sequences: list[tuple[int, int]]) -> None:
    case = Case(sequences, (4, 2), 64, device)
    case.cached = packed(case.cached, torch.float8_e4m3fn)
    assert distance(case.found(None), case.expected(None)) < 1e-5
    by_torch = attend(case.queries, case.cached, case.spans, Scores(case.scale, None))
    assert distance(by_torch, case.expected(None)) < 1e-5


@pytest.mark.cuda
@pytest.mark.parametrize("in_fp8", [False, True])
@pytest.mark.parametrize("heads", [(32, 8), (28, 4), (16, 8)])
def test_large(device: Any, heads: tuple[int, int], in_fp8: bool) -> None:
    if device.type != "cuda":
        pytest.skip("takes too long in the interpreter")
    shapes = [(1, 1 + 97 * place) for place in range(40)] + [(700, 700), (300, 2000), (1, 5)]
    case = Case(shapes, heads, 128, device, torch.bfloat16)
    if in_fp8:
        case.cached = packed(case.cached, torch.float8_e4m3fn)
    for window in (None, 512):
        assert distance(case.found(window), case.expected(window)) < 1e-2


@pytest.mark.parametrize("splits", [1, 4])
def test_rows_that_fill_a_batch_up_do_no_harm(device: Any, splits: int) -> None:
    case = Case([(1, 40), (1, 50)], (2, 1), 16, device)
    expected = case.expected(None)
    case.places.lengths[1] = 0
    found = case.found(None, splits)
    assert distance(found[:1], expected[:1]) < 1e-5
    assert not found[1].any()


def test_splits() -> None:
    # Two programs for each of 132 processors, as a power of 2, and no more than is of use.
    assert splits_for(1, 132) == 32
    assert splits_for(8, 132) == 32
    assert splits_for(64, 132) == 4
    assert splits_for(66, 132) == 4
    assert splits_for(67, 132) == 2
    # More are halved, up to eight for each.
    assert splits_for(512, 132) == 2
    assert splits_for(1055, 132) == 2
    assert splits_for(1056, 132) == 1
    assert splits_for(2048, 132) == 1
