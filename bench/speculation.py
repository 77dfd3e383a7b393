"""What guessing tokens (`speculation`) gives where text repeats its prompt, and costs else.

    python -m bench.speculation [--model starter] [--rounds 5] [--quantization int8]
    python -m bench.speculation --quantization none --draft starter --draft-quantization int8
    python -m bench.speculation --eagle random --sizes 1 4 8

Guesses are read off the text (`ngram`), or said by a draft, which may be the model itself in fewer
bits, or by an EAGLE-3 head. A `random` one is never right: with it, what a head costs is measured,
which reads what the model computes also where nothing is guessed.

One request at a time, and two and four, or as many as is said, on two engines that differ in
nothing else, in turns in each round: an edit, whose reply is mostly its prompt; a story; and a
prompt of random tokens whose reply is drawn as randomly. Prompts are in the cache before, so that
replies alone are timed.
Replies have to be the same. Reported are the tokens/s with guesses of those without, medians of
the rounds' ratios. Writes `bench/results/speculation.json`, with a draft `speculation-draft.json`,
with a head `speculation-eagle.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file

from bench.machine import write_results
from llama_compat.types import (
    GreedySamplingStrategy,
    SamplingParams,
    SamplingStrategy,
    TopPSamplingStrategy,
)
from providers.local.engine import Generation, Sampled
from providers.local.models import store as model_store
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.engine import TorchEngine
from providers.local.torch_engine.loading.loader import load

WANTED = {"edit": 1.6, "elsewhere": 0.97}
"""Tokens/s of those without guesses, at least; for an edit at one request."""

TOKENS = 192
SIZES = (1, 2, 4)


class Workload(NamedTuple):
    """What is asked.

    Attributes:
        prompts: token ids, one for each request that runs at the same time.
        strategy: of sampling.
    """

    prompts: list[tuple[int, ...]]
    strategy: SamplingStrategy


def source_of(number: int) -> str:
    """A file that somebody wants to have changed in one place."""
    names = ("width", "height", "depth", "weight", "price", "count", "angle", "speed")
    return "\n\n".join(
        f"def get_{name}(item):\n    value = item.data[{name!r}]\n"
        f"    if value is None:\n        return {place + number}\n    return value"
        for place, name in enumerate(names)
    )


def workloads(model: Any, count: int) -> dict[str, Workload]:
    """So many of each, of which the first are for one request at a time."""

    def asked(text: str) -> tuple[int, ...]:
        chat = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
        return tuple(model.tokenizer.encode(chat, add_special_tokens=False))

    dice, greedy = random.Random(0), GreedySamplingStrategy()
    edits = [
        asked(f"Repeat this file, but call get_price get_cost:\n\n{source_of(number)}")
        for number in range(count)
    ]
    who = ("a sailor", "a baker", "two sisters", "an old dog")
    where = ("in a bottle", "under a stone", "at the market", "in a dream")
    stories = [
        asked(f"Tell a story about {who[at % 4]} who finds a letter {where[at // 4 % 4]}.")
        for at in range(count)
    ]
    noise = [
        tuple(dice.randrange(1000, model.vocab_size) for _ in range(300)) for _ in range(count)
    ]
    return {
        "edit": Workload(edits, greedy),
        "story": Workload(stories, greedy),
        "random": Workload(noise, TopPSamplingStrategy(temperature=1.5, top_p=1.0)),
    }


async def reply(engine: TorchEngine, prompt: tuple[int, ...], asked: Workload, tokens: int) -> Any:
    """The token ids of a reply."""
    sampling = SamplingParams(strategy=asked.strategy, seed=1, ignore_eos=True)
    said: list[int] = []
    async for outputs in engine.generate(Generation(prompt, sampling, tokens)):
        said += [each.token_id for each in outputs if isinstance(each, Sampled)]
    return said


async def timed(engine: TorchEngine, asked: Workload, size: int) -> tuple[float, list[list[int]]]:
    """Tokens a second of so many requests at a time, and what was said."""
    prompts = asked.prompts[:size]
    await asyncio.gather(*(reply(engine, prompt, asked, 1) for prompt in prompts))
    began = time.perf_counter()
    said = await asyncio.gather(*(reply(engine, prompt, asked, TOKENS) for prompt in prompts))
    return size * TOKENS / (time.perf_counter() - began), said


async def compare(
    engines: dict[str, TorchEngine], rounds: int, sizes: Sequence[int]
) -> dict[str, Any]:
    """All workloads, by both engines in turns."""
    found: dict[str, Any] = {}
    for name, asked in workloads(engines["none"].model, max(sizes)).items():
        for size in sizes:
            ratios, rates = [], []
            before = engines["guesses"].stats
            for turn in range(rounds + 1):
                order = ["none", "guesses"] if turn % 2 else ["guesses", "none"]
                results = {each: await timed(engines[each], asked, size) for each in order}
                assert results["none"][1] == results["guesses"][1], f"{name}: another text"
                if turn:  # the first one warms up
                    ratios.append(results["guesses"][0] / results["none"][0])
                    rates.append(results["none"][0])
            after = engines["guesses"].stats
            guessed = after.guessed_tokens - before.guessed_tokens
            right = after.guessed_right_tokens - before.guessed_right_tokens
            found[f"{name}, {size} at a time"] = {
                "ratio": round(statistics.median(ratios), 3),
                "ratios": [round(each, 3) for each in ratios],
                "tokens_per_s_without": round(statistics.median(rates), 1),
                "guessed_a_token": round(guessed / (size * TOKENS * (rounds + 1)), 3),
                "right": round(right / guessed, 3) if guessed else None,
            }
            print(name, size, json.dumps(found[f"{name}, {size} at a time"]), flush=True)
    return found


def opened(name: str, quantization: str, speculation: Any) -> TorchEngine:
    """An engine that runs."""
    settings = {"device": "cpu", "quantization": quantization, "speculation": speculation}
    config = TorchConfig.model_validate(settings)
    engine = TorchEngine(load(name, model_store.resolve(name), config, 2048))
    engine.start()
    return engine


def random_head(folder: Path, model: Path) -> str:
    """Write an EAGLE-3 head to `folder` that knows nothing of the model in `model`, of the sizes
    that one would have; its path."""
    config = json.loads((model / "config.json").read_text("utf-8"))
    size, between, known = config["hidden_size"], config["intermediate_size"], 8192
    heads, keys = config["num_attention_heads"], config["num_key_value_heads"]
    width = size // heads
    shapes = {
        "fc": (size, 3 * size),
        "midlayer.self_attn.q_proj": (size, 2 * size),
        "midlayer.self_attn.k_proj": (keys * width, 2 * size),
        "midlayer.self_attn.v_proj": (keys * width, 2 * size),
        "midlayer.self_attn.o_proj": (size, size),
        "midlayer.mlp.gate_proj": (between, size),
        "midlayer.mlp.up_proj": (between, size),
        "midlayer.mlp.down_proj": (size, between),
        "lm_head": (known, size),
        **dict.fromkeys(("norm", "midlayer.hidden_norm", "midlayer.input_layernorm"), (size,)),
        "midlayer.post_attention_layernorm": (size,),
    }
    torch.manual_seed(0)
    weights = {f"{name}.weight": torch.randn(shape) * 0.05 for name, shape in shapes.items()}
    # Tokens as far from each other as can be.
    weights["d2t"] = torch.arange(known) * (config["vocab_size"] // known - 1)
    save_file(weights, folder / "model.safetensors")
    own = {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": known}
    layer = {"model_type": "llama", "num_hidden_layers": 1, "tie_word_embeddings": False}
    (folder / "config.json").write_text(json.dumps(config | own | layer), "utf-8")
    return str(folder)


def guessing_head(head: str, model: str, quantization: str, folder: Path) -> dict[str, str]:
    """The `speculation` of an EAGLE-3 head: one that is there, or a `random` one for `model`, which
    is written to `folder`."""
    if head == "random":
        head = random_head(folder, model_store.resolve(model))
    return {"eagle": head, "quantization": quantization}


def main(arguments: Sequence[str] | None = None) -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--model", default="starter")
    parser.add_argument("--quantization", default="int8", choices=("int8", "float16", "none"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-record", action="store_true", help="print the figures, no more")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="at a time")
    parser.add_argument("--draft", help="a model that guesses, in place of the text")
    parser.add_argument("--draft-quantization", default="auto")
    parser.add_argument("--eagle", help="an EAGLE-3 head that guesses, or 'random'")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        measure(options, Path(folder))


def measure(options: argparse.Namespace, folder: Path) -> None:
    """Compare, and write what came of it; `folder` is for what is made for that."""
    guesses: Any = "ngram"
    written = "speculation"
    if options.draft is not None:
        guesses = {"draft": options.draft, "quantization": options.draft_quantization}
        written = "speculation-draft"
    elif options.eagle is not None:
        guesses = guessing_head(options.eagle, options.model, options.quantization, folder)
        written = "speculation-eagle"
    engines = {
        name: opened(options.model, options.quantization, each)
        for name, each in {"none": "none", "guesses": guesses}.items()
    }
    try:
        found = asyncio.run(compare(engines, options.rounds, options.sizes))
    finally:
        for engine in engines.values():
            engine.stop()
    results = {
        "model": options.model,
        "quantization": options.quantization,
        "guesses": guesses if options.eagle is None else {"eagle": options.eagle},
        "tokens": TOKENS,
        "rounds": options.rounds,
        "wanted": WANTED,
        "of without": found,
    }
    if not options.no_record:
        write_results(written, results, "torch", "transformers")


if __name__ == "__main__":
    main()
