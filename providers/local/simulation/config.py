"""What a simulated engine is like."""

from __future__ import annotations

from pydantic import ByteSize, Field

from llama_compat.distribution.residency import Device
from llama_compat.settings.model import TemplateSettings


class SimulationConfig(TemplateSettings):
    """The numbers of an engine that is only simulated. A step takes `step_seconds`,
    `step_seconds_per_sequence` for each sequence that decodes, and what the prompts in it take at
    `prefill_tokens_per_second`.

    The defaults are about those of an 8B model on one large GPU (smg's mock worker has the same,
    read 2026-11-22), with a small cache.
    """

    prefill_tokens_per_second: float = Field(8000, gt=0, allow_inf_nan=False)
    """Tokens of prompts that are computed in a second."""

    step_seconds: float = Field(0.006, ge=0, allow_inf_nan=False)
    """What each step takes, whatever is in it."""

    step_seconds_per_sequence: float = Field(0.00035, ge=0, allow_inf_nan=False)
    """What each sequence that decodes adds to a step."""

    kv_blocks: int = Field(4096, ge=1)
    """Blocks of the KV cache. What was computed stays there until its memory is needed."""

    block_tokens: int = Field(16, ge=1)
    """Tokens in a block."""

    max_sequences: int = Field(256, ge=1)
    """How many are generated at the same time; others wait."""

    step_tokens: int = Field(2048, ge=1)
    """Tokens that a step computes at most, of prompts and of replies together."""

    memory: ByteSize = ByteSize(0)
    """What each model takes of `device`, where the template's `memory` is shared: `5GB`."""

    device: Device = "cpu"
    """Where that is."""

    load_seconds: float = Field(0, ge=0, allow_inf_nan=False)
    """What loading a model takes."""

    unpark_seconds: float = Field(0, ge=0, allow_inf_nan=False)
    """What it takes until a model is back whose weights are parked in main memory."""

    @property
    def capacity(self) -> int:
        """Tokens that the cache holds, which a prompt and its reply may have together."""
        return self.kv_blocks * self.block_tokens
