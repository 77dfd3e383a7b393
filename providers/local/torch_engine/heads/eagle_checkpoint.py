"""An EAGLE-3 head read from its folder.

As SafeAILab, SpecForge and vLLM's speculators write them: a `config.json` of one Llama layer, and
weights of which `fc` fuses what the model's layers give, `midlayer` or `layers.0` is the layer, and
`d2t` says how much larger the model's token is than the head's. Older ones are a pickle of tensors
alone (`pytorch_model.bin`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from providers.base import ProviderStartError
from providers.local.torch_engine.config import EagleConfig
from providers.local.torch_engine.formats.weight_files import weight_files
from providers.local.torch_engine.heads.eagle import EagleHead
from providers.local.torch_engine.heads.head import HeadError
from providers.local.torch_engine.loading.weights import decoder_of
from providers.local.torch_engine.model import linear
from providers.local.torch_engine.model.decoder import Decoder
from providers.local.torch_engine.model.norm import Norm

PICKLE = "pytorch_model.bin"
"""What the first heads came as; it is read as tensors, and nothing in it is run."""

UNUSED = ("t2d", "rotary_emb.inv_freq", "mask_hidden")
"""What weights may have that follows from the rest, or is not asked for here."""

LAYER = "layers.0."
PROJECTIONS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
"""Of a layer, those that take an embedding beside a state."""


class HeadConfig(NamedTuple):
    """What a head's `config.json` says.

    Attributes:
        layer: transformers' config of a Llama model with that layer.
        vocab_size: of the model.
        draft_vocab_size: of the head.
        adds_to_normed: see `EagleHead`.
        layers: see `EagleHead`; None for the usual ones.
    """

    layer: Any
    vocab_size: int
    draft_vocab_size: int
    adds_to_normed: bool
    layers: tuple[int, ...] | None

    @classmethod
    def of(cls, folder: Path) -> HeadConfig:
        """Read the one in `folder`.

        Raises:
            HeadError: it is that of something else.
        """
        from transformers import LlamaConfig

        try:
            said = json.loads((folder / "config.json").read_text("utf-8"))
            # Speculators have the layer's apart.
            layer = {**said.get("transformer_layer_config", said)}
            kind, count = layer.get("model_type", "llama"), layer.get("num_hidden_layers", 1)
            names = [str(each) for each in said.get("architectures") or ()]
        except (OSError, ValueError, AttributeError, TypeError) as error:
            raise HeadError(f"its config.json can't be read ({error})") from error
        if not any("eagle3" in name.lower() for name in names):
            raise HeadError(
                f"its config.json is that of '{', '.join(names) or 'nothing'}', and not of an"
                " EAGLE-3 head"
            )
        if kind != "llama" or count != 1:
            raise HeadError(
                f"it has {count} layers of the kind '{kind}': those of one Llama layer are read"
            )
        try:
            made = LlamaConfig.from_dict(layer)
            vocabulary = int(made.vocab_size)
            return cls(
                made,
                vocabulary,
                int(said.get("draft_vocab_size") or vocabulary),
                bool(said.get("norm_before_residual", False)),
                _layers(said),
            )
        except Exception as error:  # of a damaged config, whatever its reader stumbles over
            raise HeadError(f"its config.json makes no sense ({error})") from error


def _layers(said: Mapping[str, Any]) -> tuple[int, ...] | None:
    """The layers that give states: vLLM counts what comes in, SpecForge and SGLang what comes
    out."""
    name = "eagle_aux_hidden_state_layer_ids"
    ids, first = said.get(name), 0
    if not ids:
        ids, first = (said.get("eagle_config") or {}).get(name), 1
    return tuple(sorted(int(each) + first for each in ids)) if ids else None


def usual_layers(count: int) -> tuple[int, ...]:
    """Those that give states where a config does not say: of a model of so many layers a low one,
    one in the middle and a high one."""
    return tuple(sorted((2, count // 2, count - 3)))


def read_head(
    name: str, folder: Path, settings: EagleConfig, model: Decoder, quantization: str
) -> EagleHead:
    """Read the head in `folder`.

    Args:
        name: the provider's name for the model, for messages.
        folder: the head's.
        settings: of it.
        model: that it guesses for, which may share its embeddings with it.
        quantization: of its weights, one of `linear.MAKES`.

    Raises:
        ProviderStartError: there is none that goes with the model.
    """
    try:
        return _read(folder, HeadConfig.of(folder), model, quantization)
    except HeadError as error:
        raise ProviderStartError(
            f"'{settings.eagle}' can't guess for '{name}', as {error}: name an EAGLE-3 head that"
            " was trained for this model in 'speculation', or leave that out of the template."
        ) from error


def _read(folder: Path, config: HeadConfig, model: Decoder, quantization: str) -> EagleHead:
    make = linear.MAKES[quantization]
    vocabulary, width = model.embedding.shape
    if config.vocab_size != vocabulary:
        raise HeadError(
            f"it was trained for a model of {config.vocab_size} tokens, and this one has"
            f" {vocabulary}"
        )
    layers = config.layers or usual_layers(len(model.layers))
    if len(set(layers)) != len(layers) or layers[0] < 0 or layers[-1] > len(model.layers):
        raise HeadError(
            f"it takes what goes into the layers {', '.join(map(str, layers))}, and the model has"
            f" {len(model.layers)}"
        )
    weights = _Weights(folder, model)
    fuse = weights.take("fc.weight")
    if fuse.shape != (config.layer.hidden_size, width * len(layers)):
        raise HeadError(
            f"it makes {fuse.shape[0]} numbers of {fuse.shape[-1]}, where its config says"
            f" {config.layer.hidden_size} and {len(layers)} layers of the model give {width} each"
        )
    fuse_bias = weights.take_if_there("fc.bias")
    norm = weights.take(f"{LAYER}hidden_norm.weight")
    offsets = weights.take_if_there("d2t")
    epsilon = float(config.layer.rms_norm_eps)
    with torch.inference_mode():
        head = EagleHead(
            inner=_inner(config, weights, model, make, linear.HEADS.get(quantization)),
            fuse=make(fuse, fuse_bias),
            state_norm=Norm(norm.float(), epsilon, model.embedding.dtype),
            adds_to_normed=config.adds_to_normed,
            layers=layers,
            targets=_targets(config, offsets, model),
        )
    if weights.left:
        raise HeadError(f"it has weights that an EAGLE-3 head has not: {weights.left}")
    return head


def _targets(
    config: HeadConfig, offsets: torch.Tensor | None, model: Decoder
) -> torch.Tensor | None:
    count, vocabulary = config.draft_vocab_size, config.vocab_size
    if offsets is None:
        if count != vocabulary:
            raise HeadError(
                f"it knows {count} tokens, and does not say which of {vocabulary} they are: 'd2t'"
                " is missing"
            )
        return None
    own = torch.arange(count, device=model.embedding.device)
    targets = own + offsets.long() if offsets.shape == own.shape else None
    if (
        targets is None
        or int(targets.min()) < 0
        or int(targets.max()) >= vocabulary
        or len(targets.unique()) != count
    ):
        raise HeadError(f"its 'd2t' does not say which tokens its {count} are")
    return targets


def _inner(
    config: HeadConfig,
    weights: _Weights,
    model: Decoder,
    make: linear.Make,
    make_head: linear.Make | None,
) -> Decoder:
    """The layer, with what is before and behind it, by the way of transformers' Llama."""
    from transformers import LlamaForCausalLM
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    hidden = config.layer.hidden_size
    table = weights.take_if_there("embed_tokens.weight")
    if table is not None and table.shape != (config.vocab_size, hidden):
        raise HeadError(f"its embeddings are {list(table.shape)}")
    if table is None and model.embedding.shape[1] != hidden:
        raise HeadError(
            f"it has no embeddings, and those of the model have {model.embedding.shape[1]} numbers,"
            f" where its own states have {hidden}"
        )
    with torch.device("meta"):
        module = LlamaForCausalLM(config.layer)
        layer = module.model.layers[0]
        for name in PROJECTIONS:
            old = layer.get_submodule(name)
            made = torch.nn.Linear(2 * hidden, old.out_features, bias=old.bias is not None)
            layer.set_submodule(name, made)
        module.lm_head = torch.nn.Linear(hidden, config.draft_vocab_size, bias=False)
    device, dtype = model.embedding.device, model.embedding.dtype
    module.model.rotary_emb = LlamaRotaryEmbedding(config.layer).to(device)
    module.model.embed_tokens.weight = torch.nn.Parameter(
        torch.empty(0, hidden, device=device, dtype=dtype), requires_grad=False
    )
    state = {
        name: weights.take(name.removeprefix("model."))
        for name, parameter in module.named_parameters()
        if parameter.is_meta
    }
    for name, parameter in module.named_parameters():
        if name in state and state[name].shape != parameter.shape:
            raise HeadError(
                f"its weight '{name.removeprefix('model.')}' is {list(state[name].shape)}, and by"
                f" its config {list(parameter.shape)}"
            )
    module.load_state_dict(state, strict=False, assign=True)
    inner = decoder_of(module, make, make_head)
    return replace(inner, embedding=model.embedding if table is None else table)


class _Weights:
    """What is in a head's files, on the model's device and in its dtype.

    Raises:
        HeadError: they can't be read.
    """

    def __init__(self, folder: Path, model: Decoder) -> None:
        self._device, self._dtype = model.embedding.device, model.embedding.dtype
        try:
            found = _tensors(folder)
        except (OSError, ValueError, RuntimeError, SafetensorError, EOFError) as error:
            raise HeadError(f"its weights can't be read ({error})") from error
        self._found = {
            _name(name): tensor for name, tensor in found.items() if not name.endswith(UNUSED)
        }

    @property
    def left(self) -> str:
        """The names of those that nobody took."""
        return ", ".join(sorted(self._found))

    def take(self, name: str) -> torch.Tensor:
        """One that there has to be."""
        found = self.take_if_there(name)
        if found is None:
            raise HeadError(f"its weight '{name}' is missing")
        return found

    def take_if_there(self, name: str) -> torch.Tensor | None:
        """One, once."""
        found = self._found.pop(name, None)
        if found is None:
            return None
        return found.to(self._device, self._dtype if found.is_floating_point() else None)


def _tensors(folder: Path) -> dict[str, torch.Tensor]:
    files = weight_files(folder)
    if not files:
        found = torch.load(folder / PICKLE, map_location="cpu", weights_only=True)
        return {str(name): tensor for name, tensor in dict(found).items()}
    return {name: tensor for file in files for name, tensor in load_file(file).items()}


def _name(name: str) -> str:
    """What a weight is called here."""
    name = name.removeprefix("model.").replace("midlayer.", LAYER)
    return "d2t" if name == "draft_id_to_target_id" else name
