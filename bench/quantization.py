"""What `quantization` costs in quality: the same text with every kind of weights.

    python -m bench.quantization [--model starter] [--text bench/text.md] [--tokens 2048]

The text is read in windows of 256 tokens. Reported are the perplexity with each and how often the
likeliest next token is that of float32: what `auto` takes must raise the one by at most 1 % and
keep 97 % of the others. Prints the figures and writes them to `bench/results/quantization.json`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from bench.machine import write_results
from llama_compat.types import SamplingParams
from providers.local.block_manager import BLOCK_SIZE
from providers.local.engine import Generation
from providers.local.models import store as model_store
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.cpu_thread import on_cpu_thread
from providers.local.torch_engine.loading.loader import LoadedModel, load
from providers.local.torch_engine.model.linear import MAKES
from providers.local.torch_engine.scheduling.scheduler import Chunk
from providers.local.torch_engine.scheduling.sequence import TorchSequence

WINDOW = 256


@torch.inference_mode()  # type: ignore[untyped-decorator]
def logits_of(loaded: LoadedModel, windows: list[tuple[int, ...]]) -> torch.Tensor:
    """The logits after every token: `[windows, WINDOW, vocab_size]`."""
    made = []
    for token_ids in windows:
        generation = Generation(token_ids, SamplingParams(), 1, prompt_logprobs=True)
        sequence = TorchSequence(generation, lambda _: None)
        sequence.blocks = list(range(WINDOW // BLOCK_SIZE))
        made.append(loaded.runner.forward([Chunk(sequence, WINDOW)]))
    return torch.stack(made)


def perplexity(logits: torch.Tensor, windows: list[tuple[int, ...]]) -> float:
    """Of the tokens of each window but the first."""
    following = torch.tensor(windows)[:, 1:, None]
    logprobs = logits[:, :-1].log_softmax(-1).gather(2, following)
    return float((-logprobs.mean()).exp())


def compare(name: str, text: str, tokens: int) -> dict[str, Any]:
    """All kinds of weights on the same text."""
    folder = model_store.resolve(name)
    found: dict[str, torch.Tensor] = {}
    for quantization in MAKES:
        config = TorchConfig.model_validate(
            {"device": "cpu", "quantization": quantization, "max_sequences": 1}
        )
        loaded = load(name, folder, config, 2 * WINDOW)
        token_ids = loaded.model.tokenizer.encode(text, add_special_tokens=False)[:tokens]
        count = len(token_ids) // WINDOW
        windows = [token_ids[at * WINDOW : (at + 1) * WINDOW] for at in range(count)]
        found[quantization] = on_cpu_thread(logits_of, loaded, windows)
    exact = found.pop("none")
    before = perplexity(exact, windows)
    return {
        "model": name,
        "tokens": count * WINDOW,
        "float32_perplexity": round(before, 3),
        **{
            quantization: {
                "perplexity_rises_by": round(perplexity(logits, windows) / before - 1, 4),
                "same_likeliest_token": round(
                    float((logits.argmax(-1) == exact.argmax(-1)).float().mean()), 4
                ),
            }
            for quantization, logits in found.items()
        },
    }


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="starter", help="as in a template (default: starter)")
    parser.add_argument("--text", type=Path, default=Path(__file__).with_name("text.md"))
    parser.add_argument("--tokens", type=int, default=2048)
    options = parser.parse_args()
    measured = compare(options.model, options.text.read_text("utf-8"), options.tokens)
    measured["text"] = options.text.name
    path = write_results("quantization", measured, "torch", "transformers")
    print(json.dumps(measured, indent=2))
    print(f"written to {path}")


if __name__ == "__main__":
    main()
