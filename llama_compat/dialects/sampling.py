"""How a vendor is told how tokens are chosen and when generation ends, whatever its words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from llama_compat.types import (
    GreedySamplingStrategy,
    SamplingParams,
    TopKSamplingStrategy,
    temperature_of,
)

SAMPLING_DEFAULTS = {
    "temperature": 1.0,
    "top_p": 1.0,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "repetition_penalty": 1.0,
}
"""What counts where nobody says anything, by OpenAI's names."""

_OF_EVERY_CHAT = (
    "max_completion_tokens",
    "parallel_tool_calls",
    "reasoning_effort",
    "response_format",
    "tool_choice",
    "tools",
)

OF_CHATS_ALONE = frozenset(
    {*_OF_EVERY_CHAT, "chat_template_kwargs", "verbosity"} - {"max_completion_tokens"}
)
"""OpenAI's names of what the vocabulary has for chats, and not for a prompt that is continued."""


def rendered_parameters(names: Iterable[str], *more: str) -> frozenset[str]:
    """OpenAI's names of all that a vendor's chat has words for.

    Args:
        names: those of how tokens are chosen, as for `sampling_members`.
        more: others that not every chat has.
    """
    return frozenset({*names, *_OF_EVERY_CHAT, *more})


def sampling_members(
    sampling: SamplingParams, names: Mapping[str, str], *, largest_seed: int | None = None
) -> dict[str, Any]:
    """The members of a request that say `sampling`. What nobody set is left out; what was set to
    the default here is said, as a vendor's own may be another.

    Args:
        sampling: what is asked for.
        names: the vendor's, by OpenAI's; what it has no name for is left out.
        largest_seed: the largest that it takes; what is beyond is told as another one, always the
            same.
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
    seed = sampling.seed
    if seed is not None and largest_seed is not None and abs(seed) > largest_seed:
        seed %= largest_seed + 1
    said["seed"] = seed
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


def too_warm(sampling: SamplingParams, vendor: str) -> Mapping[str, str]:
    """What APIs whose temperature ends where OpenAI's is half-way have no form for, by its name:
    why."""
    if temperature_of(sampling) <= 1.0:
        return {}
    return {"temperature": f"{vendor}'s goes from 0 to 1"}
