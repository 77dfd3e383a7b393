"""Smaller models that go ahead of larger ones, loaded; see `scheduling.draft`."""

from __future__ import annotations

from providers.base import ProviderStartError
from providers.local.block_manager import BLOCK_SIZE
from providers.local.models import store as model_store
from providers.local.torch_engine.config import DraftConfig, TorchConfig
from providers.local.torch_engine.loading import loader
from providers.local.torch_engine.scheduling.draft import PLACES, Draft
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


def load_draft(model: loader.LoadedModel, settings: DraftConfig) -> Draft:
    """Load the draft of a model; called in the thread that loads that.

    Raises:
        ProviderStartError: it can't be loaded, or they don't go together.
    """
    name, length = model.model.name, model.model.context_length
    if (
        not model.batched
        or model.kernels == "triton"
        or model.long_rope is not None
        or model.states is not None
    ):
        why = "it runs on transformers' own code"
        if model.batched:
            why = "it turns long sequences otherwise, which are computed anew then"
        if model.states is not None:
            why = "some of its layers keep a state, which would have to go back from a wrong guess"
        if model.kernels == "triton":
            why = "on a GPU, in Triton kernels, a step begins before the last one's tokens are read"
        raise ProviderStartError(
            f"The model '{name}' can't have a draft, since {why}: leave 'speculation' out of the"
            " template."
        )
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
