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
from bench.perplexity import changes, logits_of, perplexity, windows_of
from providers.local.models import store as model_store
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.loading.loader import load
from providers.local.torch_engine.model.linear import MAKES

WINDOW = 256


def compare(name: str, text: str, tokens: int) -> dict[str, Any]:
    """All kinds of weights on the same text."""
    folder = model_store.resolve(name)
    found: dict[str, torch.Tensor] = {}
    for quantization in MAKES:
        config = TorchConfig.model_validate(
            {"device": "cpu", "quantization": quantization, "max_sequences": 1}
        )
        loaded = load(name, folder, config, 2 * WINDOW)
        windows = windows_of(loaded, text, WINDOW, tokens)
        found[quantization] = logits_of(loaded, windows)
    exact = found.pop("none")
    return {
        "model": name,
        "tokens": len(windows) * WINDOW,
        "float32_perplexity": round(perplexity(exact, windows), 3),
        **{kind: changes(logits, exact, windows) for kind, logits in found.items()},
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
