"""What goes ahead of a model, loaded: a smaller one (`scheduling.draft`), or a head (`heads`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from providers.base import ProviderStartError
from providers.local.block_manager import BLOCK_SIZE
from providers.local.models import store as model_store
from providers.local.torch_engine.config import (
    DraftConfig,
    EagleConfig,
    MTPConfig,
    TorchConfig,
)
from providers.local.torch_engine.heads import eagle_checkpoint, mtp_checkpoint
from providers.local.torch_engine.heads.head import GuessingHead
from providers.local.torch_engine.loading import loader
from providers.local.torch_engine.model import linear
from providers.local.torch_engine.model.decoder import Decoder
from providers.local.torch_engine.scheduling.draft import Draft
from providers.local.torch_engine.scheduling.measured_guesser import PLACES
from providers.local.torch_engine.tokenizer import HubTokenizer

ENOUGH = 1e18
"""Bytes that a KV cache may have which gets what its few sequences need, and no more."""


def draft_config(config: TorchConfig, draft: DraftConfig) -> TorchConfig:
    """What a draft is loaded with."""
    return config.model_copy(
        update={
            "quantization": draft.quantization,
            "speculation": "none",
            "max_sequences": PLACES,
            # It knows by itself what its places hold; of states none are kept for others.
            "prefix_cache": False,
            "kv_cache": ENOUGH,
        }
    )


def check_ahead(model: loader.LoadedModel) -> None:
    """See that something can go ahead of a model, as its settings say.

    Raises:
        ProviderStartError: nothing can.
    """
    if not model.batched:
        why = "it runs on transformers' own code"
    elif model.kernels == "triton":
        why = "on a GPU, in Triton kernels, a step begins before the last one's tokens are read"
    elif model.long_rope is not None:
        why = "it turns long sequences otherwise, which are computed anew then"
    else:
        return
    what = "have a draft"
    if isinstance(model.config.speculation, EagleConfig):
        what = "have an EAGLE-3 head"
    elif isinstance(model.config.speculation, MTPConfig):
        what = "guess by MTP"
    raise ProviderStartError(
        f"The model '{model.model.name}' can't {what}, since {why}: leave 'speculation' out of the"
        " template."
    )


def load_heads(
    name: str, folder: Path, config: TorchConfig, decoder: Decoder, quantization: str
) -> Sequence[GuessingHead]:
    """Load the heads that guess for a model; called in the thread that loads that.

    Args:
        name: the provider's name for the model, for messages.
        folder: of the model.
        config: of the model.
        decoder: the model.
        quantization: of its weights, one of `linear.MAKES`.

    Returns:
        One for each further token, in this order; none where the settings ask for none.

    Raises:
        ProviderStartError: one can't be loaded, or they don't go together.
    """
    settings = config.speculation
    if isinstance(settings, MTPConfig):
        return mtp_checkpoint.read_heads(name, folder, decoder, linear.MAKES[quantization])
    if not isinstance(settings, EagleConfig):
        return ()
    own = model_store.resolve(settings.eagle)
    device, dtype = decoder.embedding.device, decoder.embedding.dtype
    kept = head_quantization(own, config, settings, device, dtype)
    return (eagle_checkpoint.read_head(name, own, settings, decoder, kept),)


def head_quantization(
    folder: Path,
    config: TorchConfig,
    settings: EagleConfig,
    device: torch.device,
    dtype: torch.dtype,
) -> str:
    """How the weights of a head are kept: one of `linear.MAKES`.

    Raises:
        ProviderStartError: not as the template says.
    """
    own = config.model_copy(update={"quantization": settings.quantization})
    return loader.chosen_quantization(settings.eagle, folder, own, device, dtype)


def load_draft(model: loader.LoadedModel, settings: DraftConfig) -> Draft:
    """Load the draft of a model; called in the thread that loads that.

    Raises:
        ProviderStartError: it can't be loaded, or they don't go together.
    """
    name, length = model.model.name, model.model.context_length
    folder = model_store.resolve(settings.draft)
    config = draft_config(model.config, settings)
    loaded = loader.load_here(settings.draft, folder, config, length, model.device)
    # It renders no prompts.
    loaded.model.tokenizer.close()
    tokens, own = model.model.tokenizer, loaded.model.tokenizer
    assert isinstance(tokens, HubTokenizer)
    assert isinstance(own, HubTokenizer)
    if not loaded.batched or loaded.long_rope is not None or loaded.states is not None:
        fault = "has no paged cache, keeps states, or turns long sequences otherwise"
    elif not own.has_tokens_of(tokens):
        fault = "has other tokens"
    else:
        return Draft(
            loaded.runner,
            -(-loaded.longest // BLOCK_SIZE),
            loaded.longest,
            loaded.limits.tokens,
            settings.tokens,
        )
    raise ProviderStartError(
        f"The model '{settings.draft}' can't be the draft of '{name}', as it {fault}: name a"
        " smaller one of the same family in 'speculation', or leave that out of the template."
    )
