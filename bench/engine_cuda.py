"""How fast `local::torch` is on a GPU, beside what its memory allows and transformers' `generate`.

    python -m bench.engine --engine cuda [--parts copy,attention,decode,generate,batch]

Models have the shapes of real ones and random weights, so that nothing is downloaded. A roofline is
the time that the memory needs to give every byte that has to be read once, at the bandwidth that a
large copy on the same GPU reached a minute before: for a step of replies the weights (without the
table of embeddings, of which a few rows are read) and the keys and values of all tokens so far.

- `attention`: the kernel alone, 64 sequences of 2,048 tokens, heads as in Llama 3.1 8B
- `decode`: Llama 3.1 8B's shape in bfloat16; a step of 64 replies, and of 1, behind 1,024 tokens
- `generate`: 64 prompts of 32 to 1,024 tokens, beside transformers' `generate` on one static batch
- `batch`: nano-vllm's workload: 256 requests of 100 to 1,024 tokens in and as many out, in the
  shape of Qwen3 0.6B

Each part's figures are printed when they are there and written to `bench/results/engine-cuda.json`,
and to `$OUT` where that is set, so that a part that fails takes nothing with it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import statistics
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from bench.engine import prompts_of
from bench.machine import write_results
from bench.served import serve
from providers.local.engine import LocalModel
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.engine import TorchEngine
from providers.local.torch_engine.kernels.prompts import PACKAGES
from providers.local.torch_engine.loading.loader import LoadedModel
from providers.local.torch_engine.loading.paged import paged
from providers.local.torch_engine.loading.weights import decoder_of
from providers.local.torch_engine.model import linear
from providers.local.torch_engine.scheduling.scheduler import StepLimits
from routing.cli.machine.measuring import Served, metrics

SHAPES: dict[str, dict[str, Any]] = {
    "llama 3.1 8b": {
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 128256,
        "tie_word_embeddings": False,
        "max_position_embeddings": 8192,
    },
    "qwen3 0.6b": {
        "model_type": "qwen3",
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
        "max_position_embeddings": 4096,
    },
}


def config_of(shape: dict[str, Any]) -> Any:
    """transformers' config for one of `SHAPES`."""
    settings = {name: value for name, value in shape.items() if name != "model_type"}
    return AutoConfig.for_model(
        shape["model_type"], **settings, bos_token_id=None, eos_token_id=None, pad_token_id=0
    )


def random_model(shape: dict[str, Any], device: torch.device) -> Any:
    """transformers' model with random weights."""
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config_of(shape), dtype=torch.bfloat16)
    return model.eval()


def open_engine(
    name: str, module: Any, *, sequences: int, context: int, options: argparse.Namespace
) -> TorchEngine:
    """An engine that runs, on a transformers model, which is used up."""
    device = module.device
    limits = StepLimits(sequences=sequences, tokens=options.step_tokens, scored_tokens=128)
    vocab_size = module.config.vocab_size
    with torch.inference_mode():
        decoder = decoder_of(module, linear.plain)
    config = TorchConfig(
        kv_cache=0.85,
        kernels=options.kernels,
        prompt_attention=options.prompt_attention,
        cuda_graphs=options.cuda_graphs,
        overlap=options.overlap,
        prefix_cache=False,
        max_waiting=999,
    )
    runner, blocks, kernels, _ = paged(name, decoder, context, limits, config)
    loaded = LoadedModel(
        config=config,
        # No text is made here, so that nobody asks for the tokenizer.
        model=LocalModel(name, None, None, vocab_size, context, {}, None),  # type: ignore[arg-type]
        runner=runner,
        blocks=blocks,
        limits=limits,
        device=device,
        dtype=torch.bfloat16,
        quantization="none",
        batched=True,
        kernels=kernels,
    )
    engine = TorchEngine(loaded)
    engine.start()
    return engine


def weight_bytes(shape: dict[str, Any]) -> int:
    """What a step reads of the weights: all but the table of embeddings."""
    head_dim, hidden = shape["head_dim"], shape["hidden_size"]
    heads = (2 * shape["num_attention_heads"] + 2 * shape["num_key_value_heads"]) * head_dim
    layer = heads * hidden + 3 * hidden * shape["intermediate_size"]
    return int(2 * (shape["num_hidden_layers"] * layer + hidden * shape["vocab_size"]))


def kv_bytes(shape: dict[str, Any]) -> int:
    """What a token takes in the KV cache."""
    heads = 2 * shape["num_key_value_heads"] * shape["head_dim"]
    return int(2 * shape["num_hidden_layers"] * heads)


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


def measure_copy() -> dict[str, float]:
    """Bytes a second, read and written, of a large copy."""
    source = torch.randint(0, 2**31 - 1, (2**29,), dtype=torch.int32, device="cuda")
    target = torch.empty_like(source)
    seconds = median_seconds(lambda: target.copy_(source))
    return {"bytes_per_second": 2 * source.nbytes / seconds}


def measure_attention(bandwidth: float) -> dict[str, Any]:
    """The kernel for replies, beside the bandwidth of a copy."""
    found = {}
    for batch, context in ((64, 2048), (64, 1024), (16, 2048), (1, 2048), (1, 32768)):
        for splits in (None, 1, 2, 4, 8, 16, 32):
            seconds, read = time_attention(batch, context, splits)
            found[f"batch {batch}, context {context}, splits {splits or 'chosen'}"] = {
                "microseconds": round(seconds * 1e6, 1),
                "of_copy_bandwidth": round(read / seconds / bandwidth, 3),
            }
    return found


def time_attention(batch: int, context: int, splits: int | None) -> tuple[float, int]:
    """Seconds of one launch, and the bytes of keys and values that it reads."""
    from providers.local.torch_engine.kernels.attention import paged_attention
    from providers.local.torch_engine.kernels.places import Places

    heads, kv_heads, head_dim, size = 32, 8, 128, 16
    blocks = -(-context // size)
    order = torch.randperm(batch * blocks, device="cuda", dtype=torch.int32)
    cached = torch.randn(
        batch * blocks * size, 2 * kv_heads, head_dim, device="cuda", dtype=torch.bfloat16
    )
    # Others than this one are read in between, so that none is still in the GPU's cache.
    caches = [cached, *(cached.clone() for _ in range(2**29 // cached.nbytes))]
    queries = torch.randn(batch, heads, head_dim, device="cuda", dtype=torch.bfloat16)
    numbers = torch.arange(batch + 1, device="cuda", dtype=torch.int32)
    lengths = torch.full((batch,), context, device="cuda", dtype=torch.int32)
    tables = order.view(batch, blocks).T.contiguous()
    places = Places(numbers, numbers, lengths, numbers, tables, ())
    scale = head_dim**-0.5

    def attend() -> None:
        for each in caches:
            paged_attention(
                queries, each, places, block_size=size, scale=scale, window=None, splits=splits
            )

    attend()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        attend()
    return median_seconds(graph.replay) / len(caches), cached.nbytes


async def serve_all(
    engine: TorchEngine, work: Sequence[tuple[Sequence[int], int]], temperature: float = 0.0
) -> list[Served]:
    """All at once."""
    return list(
        await asyncio.gather(
            *(serve(engine, prompt, tokens, temperature) for prompt, tokens in work)
        )
    )


def measure_decode(
    bandwidth: float, device: torch.device, options: argparse.Namespace
) -> dict[str, Any]:
    """Steps of replies beside their roofline."""
    name = options.shape or "llama 3.1 8b"
    shape = SHAPES[name]
    prompt_len, reply_len = options.input_len, options.output_len
    engine = open_engine(
        name, random_model(shape, device), sequences=64, context=4096, options=options
    )
    found: dict[str, Any] = {"kernels": engine.loaded.kernels}
    try:
        for batch in (1, 64):
            for temperature in (0.0, 0.8):
                rounds = []
                for turn in range(2):
                    prompts = prompts_of(batch, prompt_len, shape["vocab_size"], turn)
                    work = [(prompt, reply_len) for prompt in prompts]
                    rounds.append(asyncio.run(serve_all(engine, work, temperature)))
                served = rounds[-1]
                # While all of them are there.
                first = max(request.tokens[0] for request in served)
                last = min(request.tokens[-1] for request in served)
                steps = [
                    after - before
                    for before, after in zip(served[0].tokens, served[0].tokens[1:], strict=False)
                    if first <= before and after <= last
                ]
                seconds = statistics.median(steps)
                context = prompt_len + reply_len / 2
                read = weight_bytes(shape) + batch * context * kv_bytes(shape)
                found[f"batch {batch}, {'sampled' if temperature else 'greedy'}"] = {
                    "step_ms": round(seconds * 1000, 3),
                    "roofline_ms": round(read / bandwidth * 1000, 3),
                    "of_roofline": round(read / bandwidth / seconds, 3),
                    **metrics(served),
                }
    finally:
        engine.stop()
    return found


def measure_generate(device: torch.device, options: argparse.Namespace) -> dict[str, Any]:
    """Ragged prompts, beside `generate` on one batch that is padded on the left."""
    name = options.shape or "llama 3.1 8b"
    shape = SHAPES[name]
    chosen = random.Random(5)
    lengths = [chosen.randint(32, options.input_len) for _ in range(64)]
    prompts = [
        [chosen.randrange(1, shape["vocab_size"]) for _ in range(length)] for length in lengths
    ]
    module = random_model(shape, device)
    width = max(lengths)
    ids = torch.tensor([[0] * (width - len(each)) + each for each in prompts], device=device)
    mask = torch.tensor(
        [[0] * (width - len(each)) + [1] * len(each) for each in prompts], device=device
    )
    tokens = options.output_len
    theirs = []
    for _ in range(2):
        start = time.perf_counter()
        module.generate(
            ids,
            attention_mask=mask,
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            do_sample=False,
            pad_token_id=0,
        )
        if device.type == "cuda":
            torch.cuda.synchronize()
        theirs.append(time.perf_counter() - start)
    engine = open_engine(name, module, sequences=64, context=4096, options=options)
    try:
        rounds = [
            asyncio.run(serve_all(engine, [(each, tokens) for each in prompts])) for _ in range(2)
        ]
    finally:
        engine.stop()
    ours = metrics(rounds[-1])
    static = len(prompts) * tokens / theirs[-1]
    return {
        "kernels": engine.loaded.kernels,
        **ours,
        "generate_output_throughput": round(static, 1),
        "of_generate": round(ours["output_throughput"] / static, 2),
    }


def measure_batch(
    bandwidth: float, device: torch.device, options: argparse.Namespace
) -> dict[str, Any]:
    """nano-vllm's workload beside its roofline: every reply in one batch, all from the start."""
    name = options.shape or "qwen3 0.6b"
    shape = SHAPES[name]
    chosen = random.Random(0)
    most = min(1024, options.input_len)
    work = [
        (
            [
                chosen.randrange(10000) % shape["vocab_size"]
                for _ in range(chosen.randint(100, most))
            ],
            chosen.randint(100, most),
        )
        for _ in range(options.requests)
    ]
    engine = open_engine(
        name,
        random_model(shape, device),
        sequences=options.requests,
        context=4096,
        options=options,
    )
    try:
        asyncio.run(serve_all(engine, [(prompt[:50], 8) for prompt, _ in work], 0.6))
        served = asyncio.run(serve_all(engine, work, 0.6))
        stats = engine.stats
    finally:
        engine.stop()
    figures = metrics(served)
    steps = max(tokens for _, tokens in work)
    cached = sum(len(prompt) * tokens + tokens * (tokens - 1) // 2 for prompt, tokens in work)
    roofline = (steps * weight_bytes(shape) + cached * kv_bytes(shape)) / bandwidth
    seconds = len(work) / figures["request_throughput"]
    return {
        "kernels": engine.loaded.kernels,
        "preempted": stats.preempted,
        **figures,
        "seconds": round(seconds, 2),
        "roofline_seconds": round(roofline, 2),
        "of_roofline": round(roofline / seconds, 3),
    }


PARTS = ("copy", "attention", "decode", "generate", "batch")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, where there is a GPU."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--parts", default=",".join(PARTS), help="which, in this order")
    parser.add_argument("--kernels", default="triton", choices=("auto", "triton", "sdpa"))
    parser.add_argument(
        "--prompt-attention",
        default="triton",
        choices=("auto", "triton", *PACKAGES),
    )
    parser.add_argument("--no-cuda-graphs", dest="cuda_graphs", action="store_false")
    parser.add_argument("--no-overlap", dest="overlap", action="store_false")
    parser.add_argument("--shape", choices=SHAPES, help="in place of a part's own")
    parser.add_argument("--step-tokens", type=int, default=8192)
    parser.add_argument("--input-len", type=int, default=1024)
    parser.add_argument("--output-len", type=int, default=128)
    parser.add_argument("--requests", type=int, default=256)
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("no CUDA here")
        return
    device = torch.device("cuda")
    copied = measure_copy()
    bandwidth = copied["bytes_per_second"]
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "copy": lambda: copied,
        "attention": lambda: measure_attention(bandwidth),
        "decode": lambda: measure_decode(bandwidth, device, options),
        "generate": lambda: measure_generate(device, options),
        "batch": lambda: measure_batch(bandwidth, device, options),
    }
    measured: dict[str, Any] = {
        "device": torch.cuda.get_device_name(device),
        "dtype": "bfloat16",
        "options": vars(options),
        "results": {},
    }
    for name in options.parts.split(","):
        try:
            measured["results"][name] = parts[name]()
        except Exception:
            # The others are worth having.
            measured["results"][name] = {"failed": traceback.format_exc()}
        torch.cuda.empty_cache()
        print(name, json.dumps(measured["results"][name], indent=2), flush=True)
        path = write_results("engine-cuda", measured, "torch", "triton", "transformers")
        if "OUT" in os.environ:
            shutil.copy(path, Path(os.environ["OUT"]))
    print(f"written to {path}")


if __name__ == "__main__":
    main()
