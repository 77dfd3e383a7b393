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

from providers.local.torch_engine.texts.prompts import TextPrompts

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
    return states[torch.arange(len(states), device=states.device), mask.argmax(1)]


def _last(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    places = torch.arange(mask.shape[1], device=mask.device)
    return states[torch.arange(len(states), device=states.device), (places * mask).argmax(1)]


POOLINGS: dict[str, Pooling] = {
    "cls": _first,
    "lasttoken": _last,
    "max": _largest,
    "mean": _mean,
    "mean_sqrt_len_tokens": _mean_by_root,
    "weightedmean": _later_more,
}
"""By the `pooling_mode` in the pooling's config; several are put one behind the other."""

_MODE = "pooling_mode_"

_EARLIER = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""What sentence-transformers before 5.4 wrote in its place, one member a mode, in its order."""

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
        poolings: make one vector of a text's each, which stand one behind the other.
        dense: layers behind it, in float32.
        normalize: whether vectors have length 1.
        prompts: what texts begin with.
        pools_prompt: whether their tokens are pooled with those of the text.
        may_be_cut: whether the model was trained for vectors that are cut (Matryoshka).
        sizes: to which they may be cut; empty for any.
    """

    poolings: tuple[Pooling, ...]
    dense: tuple[DenseStep, ...]
    normalize: bool
    prompts: TextPrompts
    pools_prompt: bool
    may_be_cut: bool
    sizes: tuple[int, ...]

    def pooled(self, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """`[texts, tokens, hidden]` and a mask `[texts, tokens]` to `[texts, numbers]`."""
        return torch.cat([each(states, mask) for each in self.poolings], -1)


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
    return Steps(
        _poolings(pooled),
        tuple(_dense(folder / path) for kind, path in steps if kind == "Dense"),
        normalize,
        TextPrompts.of(settings_in(folder / "config_sentence_transformers.json")),
        pooled.get("include_prompt") is not False,
        bool(own.get("is_matryoshka", sizes or is_known)),
        sizes,
    )


def settings_in(path: Path) -> dict[str, Any]:
    """The members of a JSON file; none where it is not there."""
    if not path.is_file():
        return {}
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def _poolings(settings: dict[str, Any]) -> tuple[Pooling, ...]:
    named = settings.get("pooling_mode")
    if named is None:
        earlier = [mode for mode, is_on in settings.items() if mode.startswith(_MODE) and is_on]
        # In the order in which sentence-transformers puts them together.
        named = [_EARLIER[each] for each in _EARLIER if each in earlier]
        named += [each for each in earlier if each not in _EARLIER]
    modes = [named] if isinstance(named, str) else named
    if not modes or not all(mode in POOLINGS for mode in modes):
        raise ValueError(f"its pooling is {' and '.join(modes) or 'none'}, which is not known here")
    return tuple(POOLINGS[mode] for mode in modes)


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
