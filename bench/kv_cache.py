"""What a KV cache of 8 bits (`kv_cache_dtype: int8`) costs in quality, and gives in speed.

    python -m bench.kv_cache [--model starter] [--text bench/text.md] [--rounds 3]

Quality: the text in windows of 1024 tokens, with weights in float32, so that nothing else differs:
how much the perplexity rises, and how often the likeliest next token is another. Speed: replies of
one request and of four, behind prompts of some lengths, with weights of 8 bits; both engines take
turns, and the medians of the rounds' ratios count. Writes `bench/results/kv-cache.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from bench.machine import write_results
from bench.perplexity import changes, logits_of, perplexity, windows_of
from llama_compat.types import GreedySamplingStrategy, SamplingParams
from providers.local.block_manager import BLOCK_SIZE
from providers.local.engine import Generation, Sampled
from providers.local.models import store as model_store
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.engine import TorchEngine, started
from providers.local.torch_engine.loading.loader import LoadedModel, load

WINDOW = 1024
CONTEXTS = (256, 2000, 7500)
SIZES = (1, 4)
TOKENS = 48
KINDS = ("auto", "int8")


def loaded_with(name: str, kind: str, quantization: str, context: int) -> LoadedModel:
    """The model, with such a cache."""
    config = TorchConfig.model_validate(
        {
            "device": "cpu",
            "quantization": quantization,
            "kv_cache_dtype": kind,
            "max_sequences": max(SIZES),
            "speculation": "none",
        }
    )
    return load(name, model_store.resolve(name), config, context)


def quality(name: str, text: str) -> dict[str, Any]:
    """What 8 bits change."""
    found: dict[str, torch.Tensor] = {}
    for kind in KINDS:
        loaded = loaded_with(name, kind, "none", WINDOW + BLOCK_SIZE)
        windows = windows_of(loaded, text, WINDOW, 2 * WINDOW)
        found[kind] = logits_of(loaded, windows)
    exact = found["auto"]
    return {
        "tokens": len(windows) * WINDOW,
        "float32_perplexity": round(perplexity(exact, windows), 3),
        **changes(found["int8"], exact, windows),
    }


async def reply(engine: TorchEngine, prompt: tuple[int, ...], tokens: int) -> int:
    """How many tokens came."""
    sampling = SamplingParams(strategy=GreedySamplingStrategy(), ignore_eos=True)
    said = 0
    async for outputs in engine.generate(Generation(prompt, sampling, tokens)):
        said += sum(isinstance(each, Sampled) for each in outputs)
    return said


async def rate(engine: TorchEngine, prompts: list[tuple[int, ...]]) -> float:
    """Tokens a second behind prompts that are in the cache."""
    await asyncio.gather(*(reply(engine, each, 1) for each in prompts))
    began = time.perf_counter()
    said = await asyncio.gather(*(reply(engine, each, TOKENS) for each in prompts))
    return sum(said) / (time.perf_counter() - began)


async def speed(engines: dict[str, TorchEngine], token_ids: tuple[int, ...], rounds: int) -> Any:
    """Both caches in turns."""
    found = {}
    for context in CONTEXTS:
        for size in SIZES:
            prompts = [
                ((token_ids[at + 1 :] + token_ids) * (2 + context // len(token_ids)))[:context]
                for at in range(size)
            ]
            ratios, rates = [], []
            for turn in range(rounds):
                order = KINDS if turn % 2 else KINDS[::-1]
                rated = {kind: await rate(engines[kind], prompts) for kind in order}
                ratios.append(rated["int8"] / rated["auto"])
                rates.append(rated["auto"])
            found[f"{context} tokens, {size} at a time"] = {
                "ratio": round(statistics.median(ratios), 3),
                "ratios": [round(each, 3) for each in ratios],
                "float32_tokens_per_s": round(statistics.median(rates), 1),
            }
            print(
                context, size, json.dumps(found[f"{context} tokens, {size} at a time"]), flush=True
            )
    return found


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--model", default="starter", help="as in a template (default: starter)")
    parser.add_argument("--text", type=Path, default=Path(__file__).with_name("text.md"))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    text = options.text.read_text("utf-8")
    measured: dict[str, Any] = {"model": options.model, **quality(options.model, text)}
    print(json.dumps(measured), flush=True)
    longest = max(CONTEXTS) + TOKENS + BLOCK_SIZE
    engines = {kind: started(loaded_with(options.model, kind, "int8", longest)) for kind in KINDS}
    try:
        token_ids = engines["auto"].model.tokenizer.encode(text, add_special_tokens=False)
        measured["int8 of float32"] = asyncio.run(speed(engines, token_ids, options.rounds))
    finally:
        for engine in engines.values():
            engine.stop()
    print(write_results("kv-cache", measured, "torch", "transformers"))


if __name__ == "__main__":
    main()
