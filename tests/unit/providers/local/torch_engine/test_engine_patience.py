"""What can wait gives way, and says the same as if it had not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("transformers", reason="needs the extra 'torch'")

from llama_compat.types import CAN_WAIT
from tests.unit.providers.local.engines import generate, running, until
from tests.unit.providers.local.torch_engine.test_engine_overlap import (
    PROMPTS,
    expected,
    folder,
    overlapping,
)

__all__ = ["expected", "folder"]


@pytest.mark.parametrize("made", [running, overlapping])
@pytest.mark.parametrize("max_sequences", [2, 6])
async def test_the_tokens_are_the_same(
    folder: Path, expected: list[list[int]], made: object, max_sequences: int
) -> None:
    async with made(folder, max_sequences=max_sequences) as engine:  # type: ignore[operator]
        patient = [
            asyncio.create_task(generate(engine, prompt, 24, priority=CAN_WAIT))
            for prompt in PROMPTS
        ]
        await until(lambda: engine.stats.generated_tokens > 0)
        first_of_all = [await generate(engine, prompt, 24) for prompt in PROMPTS[:3]]
        assert [each.token_ids for each in first_of_all] == expected[:3]
        assert [each.token_ids for each in await asyncio.gather(*patient)] == expected
        assert engine.stats.used_blocks == 0
