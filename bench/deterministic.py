"""What `deterministic: true` costs on the CPU, and what it gives.

    python -m bench.deterministic [--engine torch|llama_cpp] [--rounds 5] [--prompts 40]

Two engines that differ in nothing else, in turns in each round: a prompt of 1,000 tokens that is
not in the cache, a reply alone, and eight replies at the same time. Reported are the tokens/s of
the deterministic one of those of the other, medians of the rounds' ratios. Then prompts are asked
alone and cold, together, and warm, greedily and with a seed: how many of the replies are another
one, with each engine. Writes `bench/results/deterministic-ENGINE.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import time
from collections.abc import Sequence
from typing import Any

from bench.machine import write_results
from llama_compat.types import GreedySamplingStrategy, SamplingParams, TopPSamplingStrategy
from providers.local.engine import Generation, Sampled
from providers.local.models import store as model_store

PROMPT_TOKENS, REPLY_TOKENS, TOGETHER = 1000, 96, 8
CONTEXT = 1536

GREEDY = SamplingParams(strategy=GreedySamplingStrategy(), ignore_eos=True)
SEEDED = SamplingParams(
    strategy=TopPSamplingStrategy(temperature=1.0, top_p=0.95), seed=7, ignore_eos=True
)


def opened(kind: str, *, deterministic: bool) -> Any:
    """An engine over the starter that runs."""
    settings = {"deterministic": deterministic, "max_sequences": TOGETHER}
    if kind == "torch":
        from providers.local.torch_engine.config import TorchConfig
        from providers.local.torch_engine.engine import TorchEngine
        from providers.local.torch_engine.loading.loader import load

        config = TorchConfig.model_validate({"device": "cpu", **settings})
        engine: Any = TorchEngine(load("starter", model_store.resolve("starter"), config, CONTEXT))
    else:
        from providers.local.llama_cpp_engine import loader
        from providers.local.llama_cpp_engine.config import LlamaCppConfig
        from providers.local.llama_cpp_engine.engine import LlamaEngine

        name = "starter.gguf"
        path = model_store.resolve_gguf(name)
        own = LlamaCppConfig.model_validate(settings)
        model = loader.open_model(name, path, own)
        engine = LlamaEngine(loader.load(name, model, path, own, CONTEXT))
    engine.start()
    return engine


async def reply(
    engine: Any, prompt: Sequence[int], tokens: int, sampling: SamplingParams = GREEDY
) -> list[int]:
    """The token ids of a reply."""
    said: list[int] = []
    async for outputs in engine.generate(Generation(tuple(prompt), sampling, tokens)):
        said += [each.token_id for each in outputs if isinstance(each, Sampled)]
    return said


def random_prompt(engine: Any, length: int, dice: random.Random) -> list[int]:
    """Tokens of any kind."""
    return [dice.randrange(100, engine.model.vocab_size) for _ in range(length)]


async def rates(engine: Any, turn: int) -> dict[str, float]:
    """Tokens a second of a prompt, of a reply alone, and of several together."""
    dice = random.Random(turn)
    began = time.perf_counter()
    await reply(engine, random_prompt(engine, PROMPT_TOKENS, dice), 1)
    found = {"prompt": PROMPT_TOKENS / (time.perf_counter() - began)}
    for name, count in (("1 reply", 1), (f"{TOGETHER} replies", TOGETHER)):
        prompts = [random_prompt(engine, 32, dice) for _ in range(count)]
        began = time.perf_counter()
        await asyncio.gather(*(reply(engine, each, REPLY_TOKENS) for each in prompts))
        found[name] = count * REPLY_TOKENS / (time.perf_counter() - began)
    return found


async def others(engine: Any, count: int, sampling: SamplingParams) -> dict[str, int]:
    """How many replies are another one than alone and cold."""
    dice = random.Random(0)
    chat = "<|im_start|>user\nTell me about {} in {} sentences.<|im_end|>\n<|im_start|>assistant\n"
    about = ("rivers", "bread", "the moon", "trains", "salt", "bees", "glass", "chess")
    texts = [
        chat.format(dice.choice(about), dice.randrange(2, 90)) + "word " * dice.randrange(40)
        for _ in range(count)
    ]
    encode = engine.model.tokenizer.encode
    prompts = [tuple(encode(each, add_special_tokens=False)) for each in texts]
    alone = []
    for prompt in prompts:
        salted = SamplingParams(**{**_members(sampling), "cache_salt": str(len(alone))})
        alone.append(await reply(engine, prompt, REPLY_TOKENS, salted))
    ways = {}
    for name in ("together", "together and warm"):
        found = await asyncio.gather(
            *(reply(engine, each, REPLY_TOKENS, sampling) for each in prompts)
        )
        ways[name] = sum(one != other for one, other in zip(alone, found, strict=True))
    return ways


def _members(sampling: SamplingParams) -> dict[str, Any]:
    return {name: getattr(sampling, name) for name in sampling.__struct_fields__}


async def compare(engines: dict[str, Any], rounds: int, prompts: int) -> dict[str, Any]:
    """Both engines in turns."""
    ratios: dict[str, list[float]] = {}
    plain: dict[str, list[float]] = {}
    for turn in range(rounds + 1):
        order = sorted(engines, reverse=bool(turn % 2))
        found = {name: await rates(engines[name], turn) for name in order}
        for what, rate in found["plain"].items():
            if turn:  # the first one warms up
                ratios.setdefault(what, []).append(found["deterministic"][what] / rate)
                plain.setdefault(what, []).append(rate)
    costs = {
        what: {
            "ratio": round(statistics.median(each), 3),
            "ratios": [round(one, 3) for one in each],
            "tokens_per_s_without": round(statistics.median(plain[what]), 1),
        }
        for what, each in ratios.items()
    }
    print(json.dumps(costs), flush=True)
    differ = {
        name: {
            "greedy": await others(engine, prompts, GREEDY),
            "seeded": await others(engine, prompts, SEEDED),
        }
        for name, engine in engines.items()
    }
    print(json.dumps(differ), flush=True)
    return {"costs": costs, "other_replies": differ, "prompts": prompts}


def main(arguments: Sequence[str] | None = None) -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--engine", default="torch", choices=("torch", "llama_cpp"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompts", type=int, default=40)
    parser.add_argument("--no-record", action="store_true", help="print the figures, no more")
    options = parser.parse_args(arguments)
    engines = {
        "plain": opened(options.engine, deterministic=False),
        "deterministic": opened(options.engine, deterministic=True),
    }
    try:
        found = asyncio.run(compare(engines, options.rounds, options.prompts))
    finally:
        for engine in engines.values():
            engine.stop()
    if not options.no_record:
        package = "torch" if options.engine == "torch" else "llama-cpp-python"
        write_results(f"deterministic-{options.engine}", found, package)


if __name__ == "__main__":
    main()
