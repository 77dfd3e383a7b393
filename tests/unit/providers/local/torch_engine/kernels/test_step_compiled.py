"""The kernels compile for a real GPU, which needs none: Triton brings NVIDIA's assembler.

The interpreter takes what the compiler refuses, such as types that change in a loop.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="needs the extra 'dev' on Linux, or torch's build for CUDA")
pytest.importorskip("transformers", reason="needs the extra 'torch'")

# What a graph's kernels are launched with for the shapes of Llama 3.1 8B, and others.
SCRIPT = """
import json
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from providers.local.torch_engine.kernels import attention, fp8, gates, heads, norms, products
from providers.local.torch_engine.kernels import sampling
from providers.local.torch_engine.kernels.experts import products as experts, router

X, I, F = "*bf16", "*i32", "*fp32"
CASES = []
for groups, dim, window in ((4, 128, 0), (3, 256, 512)):
    padded = triton.next_power_of_2(dim)
    for splits, (rows, tile, warps, stages) in (
        (8, attention.reply_tuning(padded, torch.bfloat16)),
        (1, attention.prompt_tuning(padded)),
    ):
        CASES.append((attention.attention_kernel,
            [X, X, I, I, I, X, *([F, F] if splits > 1 else [X, X]), "fp32", "i32"],
            [6144, 8, groups, dim, padded, 16, rows, tile, splits, window],
            {"num_warps": warps, "num_stages": stages}))
# A cache in FP8.
C = "*fp8e4nv"
for splits, (rows, tile, warps, stages) in (
    (8, attention.reply_tuning(128, torch.float8_e4m3fn)), (1, attention.prompt_tuning(128))
):
    CASES.append((attention.attention_kernel,
        [X, C, I, I, I, X, *([F, F] if splits > 1 else [X, X]), "fp32", "i32"],
        [6144, 8, 4, 128, 128, 16, rows, tile, splits, 0],
        {"num_warps": warps, "num_stages": stages}))
CASES.append((attention.join_kernel, [F, F, X], [96, 128, 8], {}))
CASES.append((norms.norm_kernel, [X, X, F, X, "i32", "i32", "fp32"], [True, 4096], {}))
for activation in ("silu", "gelu"):
    CASES.append((gates.gate_kernel, [X, X, "i32"], [activation, 1024], {}))
CASES.append((heads.heads_kernel, [X, F, I, I, X, F, F, "fp32", "fp32"],
    [32, 8, 64, 64, 32, True, 8, 448.0], {"num_warps": 4}))
CASES.append((heads.heads_kernel, [X, F, I, I, C, F, F, "fp32", "fp32"],
    [32, 8, 64, 64, 32, True, 8, 448.0], {"num_warps": 4}))
CASES.append((fp8.quantise_kernel, [X, C, F, "i32", "i32"], [448.0, 1e-30, 4096], {"num_warps": 8}))
CASES.append((sampling.sample_kernel, [F, "*i64", F, "i32", "i32", "i32"], [1.44, 4096],
    {"num_warps": 8}))
for weight, scaled, warps in ((X, False, 4), (C, True, 2)):
    for rows, split, stages in ((8, True, 4), (64, False, 3)):
        CASES.append((products.dot_kernel,
            [X, weight, F, X, F if split else X, "i32", "i32", "i32", "i32"],
            [rows, 64, 128, True, split, scaled, False],
            {"num_warps": warps, "num_stages": stages}))
    CASES.append((products.sum_of_products_kernel,
        [X, weight, F, X, X, "i32", "i32", "i32", "i32"],
        [1, 4, 1024, True, False, scaled, True, 1], {}))
CASES.append((products.join_splits_kernel, [F, F, X, X, "i32", "i32", "i32"], [512, True, True],
    {}))
# Of Qwen3 30B-A3B, with every kind of tiles.
CASES.append((router.route_kernel, [X, F, X, I, "fp32"], [128, 128, 8, 8, False, False, True],
    {"num_warps": 1}))
for pairs in (8, 2048, 8192, 65536):
    tiles = experts.tiles_of(pairs, 128, torch.bfloat16)
    CASES.append((experts.plan_kernel, [I, I, "i32", "i32"],
        [128, 256, tiles.rows, experts.MANY_PAIRS], {"num_warps": 8}))
    for inputs, outputs, activation in ((2048, 768, "silu"), (768, 2048, None)):
        CASES.append((experts.product_kernel, [X, X, X, X, I, "i32", "i32"],
            [inputs, outputs, 8, activation, tiles.rows, tiles.outputs, tiles.inputs],
            {"num_warps": tiles.warps, "num_stages": tiles.stages}))
CASES.append((experts.sum_kernel, [X, X, "i32"], [8, 1024], {}))

for kernel, types, constants, options in CASES:
    names = kernel.arg_names
    given = names[len(types):]
    signature = dict(zip(names, [*types, *["constexpr"] * len(constants)], strict=True))
    compiled = triton.compile(
        ASTSource(kernel, signature, constexprs=dict(zip(given, constants, strict=True))),
        target=GPUTarget("cuda", 90, 32), options=options,
    )
    print(json.dumps([kernel.__name__, len(compiled.asm["cubin"]), compiled.metadata.shared]))
"""


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="has no assembler")
def test_for_a_hopper_gpu() -> None:
    environment = {name: each for name, each in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_DISABLE_LINE_INFO"] = "1"  # a tenth of the work, of which nothing is seen
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    compiled = [json.loads(line) for line in done.stdout.splitlines()]
    assert {name for name, _, _ in compiled} == {
        "attention_kernel",
        "join_kernel",
        "norm_kernel",
        "gate_kernel",
        "heads_kernel",
        "quantise_kernel",
        "dot_kernel",
        "sum_of_products_kernel",
        "join_splits_kernel",
        "sample_kernel",
        "route_kernel",
        "plan_kernel",
        "product_kernel",
        "sum_kernel",
    }
    # Of the 227 KiB of shared memory that a processor has, so that two programs fit; but of the
    # largest products, whose data is used often enough.
    most = {"product_kernel": 200 * 1024}
    assert all(
        size > 0 and shared <= most.get(name, 100 * 1024) for name, size, shared in compiled
    ), compiled
