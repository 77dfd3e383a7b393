"""Attention of prompts by packages: with those that are there, and with stand-ins for the others.

The stand-ins compute, on any device, what the packages' documentation says that they do.
"""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import importlib.util
import logging
import sys
from importlib.machinery import ModuleSpec
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("triton", reason="needs the extra 'dev' on Linux, or torch's build for CUDA")

from providers.base import ProviderStartError
from providers.local.torch_engine.kernels.prompts import FlashAttention, FlashInfer, PromptAttention
from providers.local.torch_engine.loading import kernel_choice
from tests.unit.providers.local.engines import generate, opened, reference, running
from tests.unit.providers.local.torch_engine.kernels.test_attention import (
    BLOCK_SIZE,
    DECODING,
    MIXED,
    PROMPTS,
    Case,
    distance,
)
from tests.unit.providers.local.torch_engine.kernels.test_kernel_runner import options

PACKAGES = ("flashinfer", "flash_attn")


def attention_of_one(queries: Any, keys: Any, values: Any, scale: float, back: int) -> Any:
    """`[tokens, heads, head_dim]`; `back` is how far a token looks, itself not counted, or -1."""
    tokens, length = len(queries), len(keys)
    group = queries.shape[1] // keys.shape[1]
    ends = torch.arange(length - tokens, length, device=keys.device)[:, None]
    places = torch.arange(length, device=keys.device)
    visible = places <= ends
    if back >= 0:
        visible &= places >= ends - back
    scores = torch.einsum("qhd,khd->hqk", queries, keys.repeat_interleave(group, 1)) * scale
    weights = scores.masked_fill(~visible, -torch.inf).softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights, values.repeat_interleave(group, 1))


def flash_attn_varlen_func(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: int,
    max_seqlen_k: int,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
) -> Any:
    assert causal
    assert softmax_scale is not None
    assert cu_seqlens_q.dtype == cu_seqlens_k.dtype == torch.int32
    assert q.stride(-1) == k.stride(-1) == v.stride(-1) == 1
    assert window_size[1] == (-1 if window_size[0] == -1 else 0)
    tokens = list(pairwise(cu_seqlens_q.tolist()))
    cached = list(pairwise(cu_seqlens_k.tolist()))
    assert max_seqlen_q == max(end - start for start, end in tokens)
    assert max_seqlen_k == max(end - start for start, end in cached)
    assert (tokens[-1][1], cached[-1][1]) == (len(q), len(k))
    parts = [
        attention_of_one(
            q[own[0] : own[1]].float(),
            k[seen[0] : seen[1]].float(),
            v[seen[0] : seen[1]].float(),
            softmax_scale,
            window_size[0],
        )
        for own, seen in zip(tokens, cached, strict=True)
    ]
    return torch.cat(parts).to(q.dtype)


class BatchPrefillWithPagedKVCacheWrapper:
    def __init__(self, float_workspace_buffer: Any, kv_layout: str) -> None:
        assert (float_workspace_buffer.dtype, kv_layout) == (torch.uint8, "NHD")
        self.plans = 0

    def plan(
        self,
        qo_indptr: Any,
        paged_kv_indptr: Any,
        paged_kv_indices: Any,
        paged_kv_last_page_len: Any,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        page_size: int,
        *,
        causal: bool,
        sm_scale: float,
        window_left: int,
        q_data_type: Any,
    ) -> None:
        assert causal
        numbers = (qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len)
        assert {each.dtype for each in numbers} == {torch.int32}
        assert qo_indptr.device.type == paged_kv_indptr.device.type == "cpu"
        assert len(paged_kv_indices) == paged_kv_indptr[-1]
        self._tokens = list(pairwise(qo_indptr.tolist()))
        self._pages = [
            paged_kv_indices[first:end] for first, end in pairwise(paged_kv_indptr.tolist())
        ]
        self._last = paged_kv_last_page_len.tolist()
        self._heads = (num_qo_heads, num_kv_heads, head_dim_qk)
        self._page_size, self._scale, self._back = page_size, sm_scale, window_left
        self._dtype = q_data_type
        self.plans += 1

    def run(self, q: Any, paged_kv_cache: tuple[Any, Any]) -> Any:
        keys, values = paged_kv_cache
        assert keys.stride() == values.stride()
        assert (q.shape[1], keys.shape[2], keys.shape[3]) == self._heads
        assert (keys.shape[1], q.dtype) == (self._page_size, self._dtype)
        parts = []
        for (start, end), pages, last in zip(self._tokens, self._pages, self._last, strict=True):
            length = (len(pages) - 1) * self._page_size + last
            parts.append(
                attention_of_one(
                    q[start:end].float(),
                    keys[pages].flatten(0, 1)[:length].float(),
                    values[pages].flatten(0, 1)[:length].float(),
                    self._scale,
                    self._back,
                )
            )
        return torch.cat(parts).to(q.dtype)


def provide(monkeypatch: pytest.MonkeyPatch, name: str, **content: Any) -> None:
    """A package of this name that has nothing else."""
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    vars(module).update(content)
    monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture
def flash_attn(monkeypatch: pytest.MonkeyPatch) -> None:
    provide(monkeypatch, "flash_attn", flash_attn_varlen_func=flash_attn_varlen_func)


@pytest.fixture
def flashinfer(monkeypatch: pytest.MonkeyPatch) -> None:
    wrapper = BatchPrefillWithPagedKVCacheWrapper
    provide(monkeypatch, "flashinfer", BatchPrefillWithPagedKVCacheWrapper=wrapper)


def with_prompts(case: Case, prompts: PromptAttention, window: int | None) -> Any:
    attend = prompts.of(case.places, BLOCK_SIZE)
    first = case.found(window, prompts=attend)
    # A layer more: what was planned for the step holds for all of its layers.
    assert torch.equal(case.found(window, prompts=attend), first)
    return first


@pytest.mark.parametrize("window", [None, 24])
@pytest.mark.parametrize("sequences", [PROMPTS, MIXED, [(1, 5), (30, 64)]])
@pytest.mark.parametrize("package", PACKAGES)
def test_stand_ins(
    device: Any,
    request: pytest.FixtureRequest,
    package: str,
    sequences: list[tuple[int, int]],
    window: int | None,
) -> None:
    request.getfixturevalue(package)
    case = Case(sequences, (6, 2), 16, device)
    prompts = FlashInfer(device) if package == "flashinfer" else FlashAttention()
    assert distance(with_prompts(case, prompts, window), case.expected(window)) < 1e-5


@pytest.mark.cuda
@pytest.mark.parametrize("window", [None, 24])
@pytest.mark.parametrize("package", PACKAGES)
def test_the_packages(device: Any, package: str, window: int | None) -> None:
    if device.type != "cuda" or importlib.util.find_spec(package) is None:
        pytest.skip(f"needs a CUDA GPU and {package}")
    case = Case(MIXED, (4, 2), 64, device, torch.bfloat16)
    prompts = FlashInfer(device) if package == "flashinfer" else FlashAttention()
    assert distance(with_prompts(case, prompts, window), case.expected(window)) < 1e-2


def test_a_step_is_planned_once_for_layers_of_a_kind(device: Any, flashinfer: None) -> None:
    case = Case(PROMPTS, (2, 1), 16, device)
    prompts = FlashInfer(device)
    for steps in (1, 2):
        attend = prompts.of(case.places, BLOCK_SIZE)
        for window in (None, 24, None, 24):
            attend(case.queries, case.cached, scale=1.0, window=window)
        assert [each.plans for each in prompts._wrappers.values()] == [steps, steps]


def test_steps_without_prompts_need_no_package(device: Any) -> None:
    case = Case(DECODING, (2, 1), 16, device)

    def refuse(*arguments: Any, **settings: Any) -> Any:
        raise AssertionError

    assert distance(case.found(None, prompts=refuse), case.expected(None)) < 1e-5


# Which is taken ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick_check", "tried_once", "flash_attn", "flashinfer")
@pytest.mark.parametrize(
    ("package", "kind"), [("flashinfer", FlashInfer), ("flash_attn", FlashAttention)]
)
async def test_whole_models(
    device: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, package: str, kind: Any
) -> None:
    prompts = [tuple(range(5, 45)), tuple(range(7, 30))]
    expected = reference(folder, prompts, 3)
    settings = options(device, prompt_attention=package, max_step_tokens=24)
    steps: list[list[tuple[int, int]]] = []
    of = kind.of

    def watched(self: Any, places: Any, block_size: int) -> Any:
        steps.append(places.prompts)
        return of(self, places, block_size)

    async with running(folder, **settings) as engine:
        monkeypatch.setattr(kind, "of", watched)
        found = [(await generate(engine, prompt, 3)).token_ids for prompt in prompts]
    assert found == expected
    assert steps == [[(24, 24)], [(16, 40)], [(23, 23)]]


@pytest.mark.usefixtures("quick_check", "tried_once")
@pytest.mark.parametrize("package", PACKAGES)
def test_one_that_is_wrong_is_found_out(
    device: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    provide(
        monkeypatch,
        package,
        flash_attn_varlen_func=lambda q, *_, **__: q,
        BatchPrefillWithPagedKVCacheWrapper=Wrong,
    )
    with pytest.raises(ProviderStartError, match=rf"'{package}'.*'attention' is off.*auto"):
        opened(folder, **options(device, prompt_attention=package))


class Wrong(BatchPrefillWithPagedKVCacheWrapper):
    def run(self, q: Any, paged_kv_cache: Any) -> Any:
        return q


@pytest.mark.usefixtures("quick_check", "tried_once")
def test_one_that_is_not_there(device: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flash_attn", None)
    with pytest.raises(ProviderStartError, match=r"'flash_attn'.*flash_attn"):
        opened(folder, **options(device, prompt_attention="flash_attn"))


@pytest.mark.usefixtures("flash_attn")
def test_one_needs_triton_kernels(device: Any, folder: Path) -> None:
    settings = options(device, kernels="sdpa", prompt_attention="flash_attn")
    with pytest.raises(ProviderStartError, match=r"needs the kernels 'triton'.*runs in 'sdpa'"):
        opened(folder, **settings)


@pytest.fixture
def as_on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any decoder is taken for one in half precision on a GPU."""

    def may_serve(package: str, decoder: Any, kernels: str) -> bool:
        return importlib.util.find_spec(package) is not None

    monkeypatch.setattr(kernel_choice, "_may_serve", may_serve)


def step_attention(engine: Any) -> str:
    return type(engine.loaded.runner._prompts).__name__


@pytest.mark.usefixtures("quick_check", "tried_once", "as_on_gpu", "flash_attn", "flashinfer")
def test_auto_prefers_the_cache_as_it_is(device: Any, folder: Path) -> None:
    assert step_attention(opened(folder, **options(device))) == "FlashInfer"
    forced = options(device, prompt_attention="triton")
    assert step_attention(opened(folder, **forced)) == "NoneType"


@pytest.mark.usefixtures("quick_check", "tried_once", "as_on_gpu", "flash_attn")
def test_auto_goes_on_without_one_that_fails(
    device: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*arguments: Any, **settings: Any) -> Any:
        raise RuntimeError("no compiler")

    provide(monkeypatch, "flashinfer", BatchPrefillWithPagedKVCacheWrapper=refuse)
    with caplog.at_level(logging.INFO):
        assert step_attention(opened(folder, **options(device))) == "FlashAttention"
    assert "without 'flashinfer'" in caplog.text
    assert "RuntimeError: no compiler" in caplog.text
    assert "attention by flash_attn" in caplog.text


@pytest.mark.usefixtures("quick_check", "tried_once", "as_on_gpu")
def test_auto_goes_on_without_one_that_can_not_be_imported(
    device: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(name: str) -> Any:
        raise RuntimeError("another driver")

    provide(monkeypatch, "flashinfer", __getattr__=refuse)
    assert step_attention(opened(folder, **options(device))) == "NoneType"
    assert "RuntimeError: another driver" in caplog.text


@pytest.mark.usefixtures("flash_attn")
@pytest.mark.parametrize(
    ("where", "dtype", "kernels", "expected"),
    [
        ("cuda:1", torch.bfloat16, "triton", True),
        ("cuda", torch.float16, "triton", True),
        ("cuda", torch.float32, "triton", False),
        ("cuda", torch.float16, "sdpa", False),
        ("cpu", torch.float16, "triton", False),
    ],
)
def test_what_auto_tries(
    monkeypatch: pytest.MonkeyPatch, where: str, dtype: Any, kernels: str, expected: bool
) -> None:
    embedding = SimpleNamespace(device=torch.device(where), dtype=dtype)
    decoder: Any = SimpleNamespace(embedding=embedding)
    assert kernel_choice._may_serve("flash_attn", decoder, kernels) == expected
    monkeypatch.setitem(sys.modules, "flash_attn", None)
    assert not kernel_choice._may_serve("flash_attn", decoder, kernels)
