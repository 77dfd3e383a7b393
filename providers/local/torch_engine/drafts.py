"""What goes ahead of a model, a smaller one (`scheduling.draft`) or a head (`heads`): whether
anything can, how it is loaded, and what guesses with it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from providers.base import ProviderStartError
from providers.local.block_manager import BLOCK_SIZE
from providers.local.models import store as model_store
from providers.local.torch_engine.config import (
    AheadConfig,
    DraftConfig,
    EagleConfig,
    MTPConfig,
    TorchConfig,
)
from providers.local.torch_engine.heads import eagle_checkpoint, mtp_checkpoint
from providers.local.torch_engine.heads.guesser import HeadGuesser
from providers.local.torch_engine.heads.head import GuessingHead
from providers.local.torch_engine.loading import loader
from providers.local.torch_engine.model import linear
from providers.local.torch_engine.model.decoder import Decoder
from providers.local.torch_engine.scheduling.draft import Draft, DraftGuesser
from providers.local.torch_engine.scheduling.measured_guesser import PLACES
from providers.local.torch_engine.scheduling.speculation import Guesser, NgramGuesser
from providers.local.torch_engine.thread_team import TeamRunner
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


def why_not_ahead(model: loader.LoadedModel) -> str | None:
    """Why nothing can guess what comes next of a model; None where something can."""
    if not model.batched:
        return "it runs on transformers' own code"
    if model.kernels == "triton":
        return "on a GPU, in Triton kernels, a step begins before the last one's tokens are read"
    if model.long_rope is not None:
        return "it turns long sequences otherwise, which are computed anew then"
    return None


def check_ahead(model: loader.LoadedModel) -> None:
    """See that something can go ahead of a model, as its settings say.

    Raises:
        ProviderStartError: nothing can.
    """
    why = why_not_ahead(model)
    if why is None:
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


def guesser_of(loaded: loader.LoadedModel) -> Guesser | None:
    """What guesses tokens of a model, as its settings say; None where nothing does."""
    if why_not_ahead(loaded) is not None:
        return None
    if loaded.head is not None and isinstance(loaded.config.speculation, AheadConfig):
        return HeadGuesser(
            loaded.head,
            loaded.config.speculation.tokens,
            loaded.model.context_length,
            loaded.model.vocab_size,
            loaded.model.stop_tokens,
        )
    if loaded.draft is not None:
        draft = loaded.draft
        if loaded.device.type == "cpu":
            # It has a size of team of its own: its operations are shorter.
            draft = draft._replace(runner=TeamRunner(draft.runner, loaded.config.threads))
        return DraftGuesser(draft, loaded.model.vocab_size, loaded.model.stop_tokens)
    # Of a state there is a copy for each guess, so that one guesses by default without.
    wanted = loaded.config.speculation == "ngram" and loaded.states is None
    return NgramGuesser() if wanted else None
