"""A smaller model that goes ahead changes nothing but how many steps there are."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")

from providers.base import ProviderStartError
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.drafts import guesser_of
from providers.local.torch_engine.loading.footprint import footprint
from providers.local.torch_engine.loading.loader import load
from providers.local.torch_engine.scheduling.draft import DraftGuesser
from providers.local.torch_engine.scheduling.speculation import NgramGuesser
from tests.tiny_models import make_model
from tests.unit.providers.local.engines import generate, make_architecture, opened
from tests.unit.providers.local.torch_engine.guessing import (
    SAMPLINGS,
    draw_as_the_model_says,
    guessed_for_the_same_reply,
    pay_what_was_expected,
)
from tests.unit.providers.local.torch_engine.test_engine import ENDLESS, random_prompt

PROMPT, OTHER = random_prompt(40, 3), random_prompt(21, 4)
DRAFT = {"quantization": "none"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def engines(folder: Path) -> Any:
    """Without a draft, and with one that says the same, which costs nothing."""
    with pytest.MonkeyPatch.context() as patch:
        # Both are as small as the other, so that it would never pay.
        patch.setattr(DraftGuesser, "_cost", lambda self, usual: 0.05)
        patch.setattr(DraftGuesser, "_pay", lambda self, asked: None)
        drafted = {"draft": str(folder), "tokens": 4, "quantization": "none"}
        made = [opened(folder, speculation=each, kernels="sdpa") for each in ("none", drafted)]
        yield made
        for engine in made:
            engine.stop()


@pytest.mark.parametrize("name", SAMPLINGS)
async def test_the_reply_is_the_same_in_fewer_steps(engines: Any, name: str) -> None:
    guessed = await guessed_for_the_same_reply(engines, PROMPT, 50, name)
    if "penalised" not in name:
        # It draws by the same numbers, at any temperature.
        assert guessed.right > 0.95 * guessed.tokens


async def test_two_at_a_time(engines: Any) -> None:
    said = [
        await asyncio.gather(*(generate(engine, each, 40, **ENDLESS) for each in (PROMPT, OTHER)))
        for engine in engines
    ]
    assert [each.token_ids for each in said[0]] == [each.token_ids for each in said[1]]


async def test_what_is_drawn_is_distributed_as_the_model_says(engines: Any) -> None:
    await draw_as_the_model_says(engines, PROMPT)


async def test_another_model_as_a_draft_is_left_alone_soon(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_model(tmp_path / "other", seed=9)
    # What it takes is not measured here, but said: a tenth of a step for each token.
    monkeypatch.setattr(DraftGuesser, "_cost", lambda self, usual: 0.1)
    monkeypatch.setattr(DraftGuesser, "_pay", pay_what_was_expected)
    engine = await asyncio.to_thread(opened, folder, speculation=DRAFT | {"draft": str(other)})
    try:
        said = await generate(engine, PROMPT, 60, **ENDLESS)
        stats = engine.stats
    finally:
        await asyncio.to_thread(engine.stop)
    assert len(said.token_ids) == 60
    # Of 1.5 steps at first and 0.02 for each, at 0.35 a guess; those that are right bring in one.
    assert 0.35 * stats.guessed_tokens - stats.guessed_right_tokens <= 1.5 + 60 * 0.02
    assert stats.guessed_tokens > 0


def test_it_is_counted_with_its_model(folder: Path) -> None:
    settings = {"device": "cpu", "quantization": "none"}
    plain = TorchConfig.model_validate(settings)
    drafted = TorchConfig.model_validate(
        {**settings, "speculation": DRAFT | {"draft": str(folder)}}
    )
    without, with_draft = (
        footprint("tiny", folder, each, None, generates=True) for each in (plain, drafted)
    )
    loaded = load("tiny", folder, drafted, None)
    assert loaded.draft is not None
    cache = loaded.draft.blocks * 4 * 16 * 2 * 2 * 2 * 16 * 4
    more = with_draft.needs["cpu"] - without.needs["cpu"]
    assert more >= without.weights + 0.9 * cache
    assert with_draft.weights - without.weights == more
    assert with_draft.parks == 0


@pytest.mark.parametrize(
    ("what", "words"),
    [("other tokens", "has other tokens"), ("unbatched", "can't have a draft, since")],
)
def test_what_does_not_go_together_is_refused(
    folder: Path, tmp_path: Path, what: str, words: str
) -> None:
    if what == "unbatched":
        model, draft = make_architecture(tmp_path, "phi3 with longrope"), folder
    else:
        model, draft = folder, make_model(tmp_path / "other")
        tokens = json.loads((draft / "tokenizer.json").read_text())
        known = tokens["model"]["vocab"]
        known["a"], known["b"] = known["b"], known["a"]
        (draft / "tokenizer.json").write_text(json.dumps(tokens))
    config = TorchConfig.model_validate(
        {"device": "cpu", "quantization": "none", "speculation": {"draft": str(draft)}}
    )
    with pytest.raises(ProviderStartError, match=words):
        load("tiny", model, config, None)


def test_where_there_are_guesses(folder: Path) -> None:
    config = TorchConfig(device="cpu", quantization="none")
    loaded = load("tiny", folder, config, None)
    assert isinstance(guesser_of(loaded), NgramGuesser)
    assert guesser_of(replace(loaded, kernels="triton")) is None
    assert guesser_of(replace(loaded, batched=False)) is None
    without = config.model_copy(update={"speculation": "none"})
    assert guesser_of(replace(loaded, config=without)) is None
