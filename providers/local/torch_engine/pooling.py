"""What sentence-transformers does with a transformer's states: the steps that a folder names.

`modules.json` lists them, each with a folder of its own: pooling, for some models dense layers, and
for most normalisation. Prompts and whether vectors may be cut are in other files beside it.

Sources: https://sbert.net/docs/package_reference/sentence_transformer/modules.html for the steps;
that `matryoshka_dimensions` and `is_matryoshka` in config.json allow a cut is vLLM's rule.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

Pooling = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""`[texts, tokens, hidden]` and a mask `[texts, tokens]` to `[texts, hidden]`."""


def _sum(states: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return (states * weights.unsqueeze(-1).to(states.dtype)).sum(1)


def _mean(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return _sum(states, mask) / mask.sum(1, keepdim=True).to(states.dtype)


def _mean_by_root(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return _sum(states, mask) / mask.sum(1, keepdim=True).to(states.dtype).sqrt()


def _later_more(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The mean in which a token counts the more, the later it comes."""
    weights = mask * torch.arange(1, mask.shape[1] + 1, device=mask.device)
    return _sum(states, weights) / weights.sum(1, keepdim=True).to(states.dtype)


def _largest(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return states.masked_fill(mask.unsqueeze(-1) == 0, -torch.inf).amax(1)


def _first(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return states[:, 0]


def _last(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return states[torch.arange(len(states), device=states.device), mask.sum(1) - 1]


POOLINGS: dict[str, Pooling] = {
    "cls_token": _first,
    "lasttoken": _last,
    "max_tokens": _largest,
    "mean_sqrt_len_tokens": _mean_by_root,
    "mean_tokens": _mean,
    "weightedmean_tokens": _later_more,
}
"""By the word in the pooling's config, behind `pooling_mode_`."""

_MODE = "pooling_mode_"

_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "torch.nn.modules.activation.Tanh": torch.tanh,
    "torch.nn.modules.linear.Identity": lambda vectors: vectors,
    "torch.nn.modules.activation.GELU": torch.nn.functional.gelu,
    "torch.nn.modules.activation.ReLU": torch.relu,
}

CUT_FAMILIES = frozenset({"qwen3", "gemma3_text"})
"""By `model_type`: Qwen3-Embedding and EmbeddingGemma, whose authors say on their pages, not in
their config, that vectors may be cut (https://huggingface.co/Qwen/Qwen3-Embedding-0.6B,
https://huggingface.co/google/embeddinggemma-300m)."""


@dataclass(frozen=True)
class DenseStep:
    """A layer behind the pooling.

    Attributes:
        weight, bias: of it.
        activation: what comes behind.
    """

    weight: torch.Tensor
    bias: torch.Tensor | None
    activation: Callable[[torch.Tensor], torch.Tensor]

    def __call__(self, vectors: torch.Tensor) -> torch.Tensor:
        """What it makes of vectors, `[texts, in]` to `[texts, out]`."""
        weight = self.weight.to(vectors.device)
        bias = None if self.bias is None else self.bias.to(vectors.device)
        return self.activation(torch.nn.functional.linear(vectors, weight, bias))


@dataclass(frozen=True)
class Steps:
    """What a folder has done with the states.

    Attributes:
        pooling: makes one vector of a text's.
        dense: layers behind it, in float32.
        normalize: whether vectors have length 1.
        prompt: what every text begins with.
        may_be_cut: whether the model was trained for vectors that are cut (Matryoshka).
        sizes: to which they may be cut; empty for any.
    """

    pooling: Pooling
    dense: tuple[DenseStep, ...]
    normalize: bool
    prompt: str
    may_be_cut: bool
    sizes: tuple[int, ...]


def read_steps(folder: Path) -> Steps:
    """What `modules.json` and the files beside it say.

    Raises:
        ValueError: of a step that is not known here.
        OSError: a file is missing.
    """
    listed = json.loads((folder / "modules.json").read_text("utf-8"))
    steps = [(str(step["type"]).rpartition(".")[2], str(step["path"])) for step in listed]
    for _, path in steps:
        if Path(path).is_absolute() or ".." in Path(path).parts:
            raise ValueError(f"the folder of a step, {path}, is not in the model's own")
    kinds = [kind for kind, _ in steps]
    dense = kinds.count("Dense")
    normalize = kinds[-1:] == ["Normalize"]
    if kinds != ["Transformer", "Pooling", *["Dense"] * dense, *["Normalize"] * normalize]:
        raise ValueError(f"its steps are {', '.join(kinds)}, of which some are not known here")
    own = settings_in(folder / "config.json")
    sizes = tuple(int(each) for each in own.get("matryoshka_dimensions") or ())
    is_known = own.get("model_type") in CUT_FAMILIES
    pooled = settings_in(folder / steps[1][1] / "config.json")
    prompt = _prompt(settings_in(folder / "config_sentence_transformers.json"))
    if prompt and pooled.get("include_prompt") is False:
        raise ValueError("its pooling leaves a prompt out, which is not known here")
    return Steps(
        _pooling(pooled),
        tuple(_dense(folder / path) for kind, path in steps if kind == "Dense"),
        normalize,
        prompt,
        bool(own.get("is_matryoshka", sizes or is_known)),
        sizes,
    )


def settings_in(path: Path) -> dict[str, Any]:
    """The members of a JSON file; none where it is not there."""
    if not path.is_file():
        return {}
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def _pooling(settings: dict[str, Any]) -> Pooling:
    modes = [mode for mode, is_on in settings.items() if mode.startswith(_MODE) and is_on]
    if len(modes) != 1 or modes[0].removeprefix(_MODE) not in POOLINGS:
        raise ValueError(f"its pooling is {' and '.join(modes) or 'none'}, which is not known here")
    return POOLINGS[modes[0].removeprefix(_MODE)]


def _dense(folder: Path) -> DenseStep:
    settings = settings_in(folder / "config.json")
    activation = str(settings.get("activation_function"))
    if activation not in _ACTIVATIONS:
        raise ValueError(f"a dense layer has the activation {activation}, not known here")
    weights = load_file(folder / "model.safetensors")
    bias = weights.get("linear.bias")
    return DenseStep(
        weights["linear.weight"].float(),
        None if bias is None else bias.float(),
        _ACTIVATIONS[activation],
    )


def _prompt(settings: dict[str, Any]) -> str:
    """What goes before every text, where the folder names one that does."""
    name = settings.get("default_prompt_name")
    return str((settings.get("prompts") or {}).get(name) or "") if name else ""
