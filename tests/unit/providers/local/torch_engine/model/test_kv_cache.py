"""Keys and values of 8 bits: what is lost of them, and that a model goes on with them."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")

from providers.base import ProviderStartError
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.loading import paged as loaded_by
from providers.local.torch_engine.loading.footprint import footprint
from providers.local.torch_engine.loading.loader import load
from providers.local.torch_engine.model.kv_cache import (
    CacheShape,
    KVCache,
    RowShape,
    is_packed,
    numbers_of,
    packed,
    read,
    unpacked,
    write,
)
from tests.tiny_models import make_model
from tests.unit.providers.local.engines import generate, make_architecture, running
from tests.unit.providers.local.torch_engine.test_engine import ENDLESS, random_prompt

F8 = torch.float8_e4m3fn
PROMPT = random_prompt(150, 8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny")


def test_no_number_is_further_off_than_half_a_step_of_its_head() -> None:
    torch.manual_seed(0)
    rows = torch.randn(50, 6, 64) * torch.logspace(-6, 4, 50)[:, None, None]
    rows[7, 2] = 0.0
    rows[9, 1, 5] = torch.nan
    found = unpacked(packed(rows, torch.int8))
    assert found[9, 1].isnan().all()
    found[9, 1] = rows[9, 1] = 0.0
    steps = rows.abs().amax(-1, keepdim=True) / 127
    assert ((found - rows).abs() <= 0.5001 * steps).all()
    assert (found - rows).abs().amax() > 0, "nothing was packed"
    assert not found[7, 2].any()


def test_a_layer_takes_a_quarter_and_what_is_written_is_read() -> None:
    plain, small = (CacheShape([RowShape(4, 64)], kind) for kind in (torch.float32, torch.int8))
    assert small.bytes_per_token == plain.bytes_per_token * 68 // 256
    cache = KVCache(small, 2, 16, torch.device("cpu"))
    [layer] = cache.layers
    assert is_packed(layer)
    assert layer.nbytes == 32 * small.bytes_per_token
    rows = torch.randn(3, 4, 64)
    write(layer, torch.tensor([30, 1, 17]), rows)
    assert torch.equal(unpacked(layer[[30, 1, 17]]), unpacked(packed(rows, torch.int8)))


def test_in_fp8_a_layer_has_no_scales_and_what_is_too_large_is_the_largest() -> None:
    plain, small = (CacheShape([RowShape(4, 64)], kind) for kind in (torch.bfloat16, F8))
    assert small.bytes_per_token == plain.bytes_per_token // 2
    [layer] = KVCache(small, 2, 16, torch.device("cpu")).layers
    assert is_packed(layer)
    assert numbers_of(layer) == RowShape(4, 64)
    rows = torch.randn(3, 4, 64)
    rows[0, 0, :2] = torch.tensor([1e5, -1e5])
    slots = torch.tensor([30, 1, 17])
    write(layer, slots, rows.bfloat16())
    found = read(layer, slots, torch.bfloat16)
    assert found.dtype == torch.bfloat16
    assert found[0, 0, :2].tolist() == [448.0, -448.0]
    rows[0, 0, :2] = found[0, 0, :2].float()
    # Three bits behind the first, and so many more for what is next to nothing.
    assert ((found.float() - rows).abs() <= rows.abs() / 15.9 + 2**-10).all()
    assert (found.float() - rows).abs().amax() > 0, "nothing was packed"


@pytest.mark.parametrize("kind", [torch.float32, torch.int8, F8])
def test_layers_differ_and_some_have_nothing_of_their_own(kind: torch.dtype) -> None:
    shape = CacheShape([RowShape(4, 16), RowShape(0, 0), RowShape(2, 32), 0], kind)
    cache = KVCache(shape, 3, 16, torch.device("cpu"))
    first, nothing, wide, again = cache.layers
    assert again is first
    assert [numbers_of(each) for each in (first, nothing, wide)] == list(shape.layers[:3])
    assert nothing.nbytes == 0
    assert first.nbytes + wide.nbytes == 3 * 16 * shape.bytes_per_token


@pytest.mark.parametrize("kernels", ["auto", "sdpa"])
async def test_a_model_says_nearly_the_same(folder: Path, kernels: str) -> None:
    await says_nearly_the_same(folder, kernels=kernels)


@pytest.mark.parametrize("name", ["gemma4_text", "qwen3_5_text"])
async def test_a_model_of_unlike_layers_says_nearly_the_same(tmp_path: Path, name: str) -> None:
    await says_nearly_the_same(make_architecture(tmp_path, name))


async def test_in_fp8_a_model_says_nearly_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # PyTorch's operations know it on CPUs too, which are not asked for it otherwise.
    monkeypatch.setattr(loaded_by, "lacks_fp8", lambda _: None)
    await says_nearly_the_same(folder, "fp8", 2.0, kernels="sdpa")


async def says_nearly_the_same(
    folder: Path, packed_as: str = "int8", most: float = 0.5, **options: Any
) -> None:
    settings = {"max_step_tokens": 64, **options}
    found = []
    for kind in ("auto", packed_as):
        async with running(folder, kv_cache_dtype=kind, **settings) as engine:
            # In pieces, from the cache, and beside another.
            first = await generate(engine, PROMPT, 8, logprobs=400, **ENDLESS)
            again = await generate(engine, PROMPT, 8, logprobs=400, **ENDLESS)
            assert again.cached_tokens == 144
            assert again.token_ids == first.token_ids
            found.append(first)
    plain, small = ([dict(each.top) for each in said.scores] for said in found)
    off = max(abs(plain[0][token] - small[0][token]) for token in range(300))
    assert 1e-4 < off < most


def test_there_is_room_for_nearly_four_times_as_many_tokens(folder: Path) -> None:
    blocks, needs = [], []
    for kind in ("auto", "int8"):
        config = TorchConfig.model_validate(
            {
                "device": "cpu",
                "quantization": "none",
                "kernels": "sdpa",
                "kv_cache_dtype": kind,
                "kv_cache": 1e5,
            }
        )
        blocks.append(load("tiny", folder, config).blocks.total)
        whole = config.model_copy(update={"kv_cache": 1e9})
        needs.append(footprint("tiny", folder, whole, None, generates=True).kv_cache or 0)
    # Heads of 16 numbers: 20 bytes rather than 64.
    assert blocks[1] // blocks[0] == 3
    assert needs[1] == needs[0] * 20 // 64


def test_what_has_other_numbers_can_not_have_it(folder: Path) -> None:
    config = TorchConfig.model_validate(
        {"device": "cpu", "dtype": "bfloat16", "kv_cache_dtype": "int8"}
    )
    with pytest.raises(ProviderStartError, match="kv_cache_dtype: int8' on 'cpu' in bfloat16"):
        load("tiny", folder, config)


def test_fp8_is_for_gpus(folder: Path) -> None:
    config = TorchConfig.model_validate({"device": "cpu", "kv_cache_dtype": "fp8"})
    with pytest.raises(ProviderStartError, match=r"'kv_cache_dtype: fp8' on 'cpu': .* GPU with"):
        load("tiny", folder, config)


def test_what_keeps_few_numbers_of_a_token_can_not_have_it(tmp_path: Path) -> None:
    config = TorchConfig.model_validate({"device": "cpu", "kv_cache_dtype": "int8"})
    with pytest.raises(ProviderStartError, match="numbers that keys and values are made of"):
        load("tiny", make_architecture(tmp_path, "deepseek_v2"), config)
