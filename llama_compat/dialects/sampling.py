"""How a vendor is told how tokens are chosen and when generation ends, whatever its words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_compat.types import GreedySamplingStrategy, SamplingParams, TopKSamplingStrategy

SAMPLING_DEFAULTS = {
    "temperature": 1.0,
    "top_p": 1.0,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "repetition_penalty": 1.0,
}
"""What counts where nobody says anything, by OpenAI's names."""


def sampling_members(sampling: SamplingParams, names: Mapping[str, str]) -> dict[str, Any]:
    """The members of a request that say `sampling`. What nobody set is left out; what was set to
    the default here is said, as a vendor's own may be another.

    Args:
        sampling: what is asked for.
        names: the vendor's, by OpenAI's; what it has no name for is left out.
    """
    strategy = sampling.strategy
    said: dict[str, Any] = {}
    if isinstance(strategy, GreedySamplingStrategy):
        said["temperature"] = 0.0
    else:
        said["temperature"], said["top_p"] = strategy.temperature, strategy.top_p
        if isinstance(strategy, TopKSamplingStrategy):
            said["top_k"] = strategy.top_k
    said["max_tokens"] = sampling.max_tokens
    said["stop"] = list(sampling.stop) or None
    said["seed"] = sampling.seed
    said["frequency_penalty"] = sampling.frequency_penalty
    said["presence_penalty"] = sampling.presence_penalty
    said["repetition_penalty"] = sampling.repetition_penalty
    return {
        names[name]: value
        for name, value in said.items()
        if name in names
        and value is not None
        and (value != SAMPLING_DEFAULTS.get(name) or name in sampling.stated)
    }
