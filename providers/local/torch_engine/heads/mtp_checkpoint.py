"""The MTP heads in a model's own checkpoint, which lie beside what transformers reads of it.

The layer of each is one of the model's, so that transformers reads it, as a model of one layer.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from providers.base import ProviderStartError
from providers.local.torch_engine.formats.known import quantized_in
from providers.local.torch_engine.formats.weight_files import late_weights, plain_weights
from providers.local.torch_engine.heads.head import HeadError
from providers.local.torch_engine.heads.mtp import MTPHead
from providers.local.torch_engine.loading.architectures import ARCHITECTURES
from providers.local.torch_engine.loading.checkpoint import plain_config, predictors_behind
from providers.local.torch_engine.loading.weights import decoder_of
from providers.local.torch_engine.model import linear
from providers.local.torch_engine.model.decoder import Decoder
from providers.local.torch_engine.model.norm import Norm

SHARED = ("embed_tokens.weight", "shared_head.head.weight", "lm_head.weight")
"""What some checkpoints have once more: it is the model's own."""


class Names(NamedTuple):
    """What a family of checkpoints calls the parts of a head.

    Attributes:
        layer: what the names of its layer begin with, before a number; empty where nothing does.
        embedding_norm, state_norm, projection: see `MTPHead`.
        norm: the last.
    """

    layer: str
    embedding_norm: str
    state_norm: str
    projection: str
    norm: str


QWEN = Names("layers.", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm")
DEEPSEEK = Names("", "enorm", "hnorm", "eh_proj", "shared_head.norm")
NAMES = (QWEN, DEEPSEEK)


def layer_config(config: Any) -> Any:
    """transformers' config of a text model of that one layer, whose vocabulary is left out.

    Args:
        config: of the model.
    """
    text = plain_config(copy.deepcopy(config.get_text_config()))
    text.num_hidden_layers = 1
    # As transformers' own `get_mtp_config`: it is an attention, and has the model's experts.
    others: dict[str, Any] = {
        "layer_types": ["full_attention"],
        "mlp_layer_types": ["sparse"],
        "first_k_dense_replace": 0,
        "mlp_only_layers": [],
    }
    for name, value in others.items():
        if getattr(text, name, None) is not None:
            setattr(text, name, value)
    text.vocab_size, text.tie_word_embeddings = 1, False
    text.pad_token_id = text.bos_token_id = text.eos_token_id = None
    return text


def layers_in(names: Iterable[str], config: Any) -> list[tuple[str, str]]:
    """What the names of the weights of each head begin with, and those of its layer, in the order
    in which they guess.

    Args:
        names: of the weights in a checkpoint.
        config: transformers', of the model.
    """
    there = list(names)
    found = []
    for start in predictors_behind(there, config):
        # Several layers of Qwen's share what is before and behind them.
        own = re.compile(re.escape(f"{start}{QWEN.layer}") + r"(\d+)\.")
        numbers = {int(match[1]) for each in there if (match := own.match(each))}
        layers = [f"{start}{QWEN.layer}{number}." for number in sorted(numbers)]
        found += [(start, layer) for layer in layers or [start]]
    return found


def read_heads(name: str, folder: Path, model: Decoder, make: linear.Make) -> list[MTPHead]:
    """Read the heads of the model in `folder`, in the order in which they guess.

    Args:
        name: the provider's name for the model, for messages.
        folder: in Hugging Face's layout.
        model: that it guesses for.
        make: of its products.

    Raises:
        ProviderStartError: there is none, or it is not whole.
    """
    try:
        return _read(folder, model, make)
    except HeadError as error:
        raise ProviderStartError(
            f"The model '{name}' can't guess by MTP, as {error}: choose a checkpoint that has such"
            " weights (Qwen3-Next, Qwen 3.5, DeepSeek V3 and GLM 4.5 were published with them), or"
            " leave 'speculation' out of the template."
        ) from error


def _read(folder: Path, model: Decoder, make: linear.Make) -> list[MTPHead]:
    from transformers import AutoConfig

    whole = AutoConfig.from_pretrained(folder, local_files_only=True)
    config = layer_config(whole)
    with _stored(folder, model.embedding.dtype) as stored:
        layers = layers_in(stored, whole)
        if not layers:
            raise HeadError("its files have no MTP weights")
        return [_head(stored, *each, config, model, make) for each in layers]


def _head(
    stored: Mapping[str, Any],
    start: str,
    layer: str,
    config: Any,
    model: Decoder,
    make: linear.Make,
) -> MTPHead:
    """The head whose layer's weights have names that begin with `layer`."""
    own = {
        each.removeprefix(start): stored[each]
        for each in stored
        if each.startswith(start) and not each.endswith(SHARED)
    }
    names = next((each for each in NAMES if f"{each.projection}.weight" in own), None)
    if names is None:
        raise HeadError(f"its MTP weights ('{start}*') are named as none that are read here")
    inner = _inner(config, own, layer.removeprefix(start), names, model, make)
    with torch.inference_mode():
        head = MTPHead(
            inner=inner,
            embedding_norm=_norm(own, names.embedding_norm, config, model),
            state_norm=_norm(own, names.state_norm, config, model),
            projection=make(_taken(own, names.projection, model), None),
            layers=(len(model.layers),),
            fuse=model.norm,
        )
    if over := [each for each in own if not (names.layer and each.startswith(names.layer))]:
        raise HeadError(f"it has MTP weights that are not known here: {_listed(over)}")
    return head


def _inner(
    config: Any,
    own: dict[str, Any],
    before: str,
    names: Names,
    model: Decoder,
    make: linear.Make,
) -> Decoder:
    """The layer whose weights' names begin with `before`, with what is behind it, by the way of
    transformers' model."""
    from transformers import AutoModelForCausalLM

    parts = {f"{part}.weight" for part in names[1:]}
    state = {
        f"model.layers.0.{each.removeprefix(before)}": own.pop(each)
        for each in list(own)
        if each.startswith(before) and each not in parts
    }
    dtype, device = model.embedding.dtype, model.embedding.device
    nothing = torch.zeros(1, config.hidden_size, dtype=dtype)
    state |= {"model.embed_tokens.weight": nothing, "lm_head.weight": nothing.clone()}
    if (norm := own.pop(f"{names.norm}.weight", None)) is not None:
        state["model.norm.weight"] = norm
    with torch.device("meta"):
        kind = type(AutoModelForCausalLM.from_config(config))
    module, found = kind.from_pretrained(
        None, config=config, state_dict=state, output_loading_info=True, dtype=dtype
    )
    if missing := found["missing_keys"]:
        raise HeadError(f"its MTP weights are not whole: they lack {_listed(missing)}")
    if over := found["unexpected_keys"]:
        raise HeadError(f"it has MTP weights that are not known here: {_listed(over)}")
    inner = decoder_of(module.eval().to(device), make, linear.MAKES["none"])
    return replace(inner, embedding=model.embedding, head=model.head)


def _stored(folder: Path, dtype: torch.dtype) -> AbstractContextManager[dict[str, Any]]:
    quantized = quantized_in(folder)
    return plain_weights(folder) if quantized is None else late_weights(folder, quantized, dtype)


def _taken(own: dict[str, Any], part: str, model: Decoder) -> torch.Tensor:
    found = own.pop(f"{part}.weight", None)
    if found is None:
        raise HeadError(f"its MTP weights are not whole: they lack {part}.weight")
    weight: torch.Tensor = found[...]
    return weight.to(model.embedding.device, model.embedding.dtype)


def _norm(own: dict[str, Any], part: str, config: Any, model: Decoder) -> Norm:
    weight = _taken(own, part, model).float()
    if ARCHITECTURES[config.model_type].norms_add_one:
        weight = 1 + weight
    return Norm(weight, float(config.rms_norm_eps), model.embedding.dtype)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)[:4])
