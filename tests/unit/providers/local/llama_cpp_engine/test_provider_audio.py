"""`local::llama_cpp` and audio: what a model says of it is what llama.cpp says by itself."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch', to make tiny models")
pytest.importorskip("llama_cpp", reason="needs the extra 'llama-cpp'")
Image = pytest.importorskip("PIL.Image", reason="needs the extra 'llama-cpp'")

from providers.local.llama_cpp_engine import loader
from tests.tiny_audio import sound
from tests.tiny_ggufs import gguf_of, projector_of
from tests.tiny_models import make_model
from tests.unit.providers.local.engines import tried_once
from tests.unit.providers.local.llama_cpp_engine.showing import (
    Turn,
    ask,
    encoded,
    llama_cpp_says,
    message,
    refused,
    running,
    say,
)

HIGH, LOW = sound(1, 1), sound(1.5, 2, rate=44_100, channels=2)

HEARD: tuple[Turn, ...] = ("What is said in ", HIGH, " and in ", LOW, "? Write it.")
BOTH: tuple[Turn, ...] = ("What is in ", (50, 90, 1), " and in ", LOW, " and ", (70, 30, 2), "?")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One that hears, one that sees as well, and one that sees alone."""
    folder = make_model(tmp_path_factory.mktemp("models") / "tiny", max_position_embeddings=2048)
    made = {}
    for name, kind, hears in (
        ("hears", "voxtral", True),
        ("both", "gemma3", True),
        ("turns", "qwen2vl_merger", True),
        ("sees", "gemma3", False),
    ):
        place = folder.with_name(name)
        place.mkdir()
        axes = (2, 3, 3, 0) if name == "turns" else ()
        called = {"[BEGIN_AUDIO]": 397, "[AUDIO]": 398}
        made[name] = gguf_of(folder, place / "model.gguf", axes=axes, called=called)
        projector_of(place / "mmproj.gguf", kind, hears=hears)
    return made


@pytest.fixture(scope="module")
def tried() -> Callable[..., bool]:
    return tried_once()


@pytest.fixture(autouse=True)
def remembered(tried: Callable[..., bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "try_out", tried)


@pytest.mark.parametrize("name", ["hears", "both", "turns"])
async def test_a_reply_is_what_llama_cpp_says_itself(models: dict[str, Path], name: str) -> None:
    path, turns = models[name], HEARD if name == "hears" else BOTH
    changed = tuple(sound(1.5, 9) if each == LOW else each for each in turns)
    expected, other = llama_cpp_says(path, *turns), llama_cpp_says(path, *changed)
    assert expected != other, "the model does not hear what is there"
    async with running(path, max_step_tokens=8) as provider:
        alone = await say(provider, *turns)
        beside = await asyncio.gather(
            say(provider, *changed), say(provider, "No sound at all"), say(provider, *turns)
        )
        [engine] = provider.engines.values()
        assert engine.stats.cached_tokens > 0
    assert alone == beside[2] == expected
    assert beside[0] == other


async def test_a_second_turn_goes_on_behind_what_was_heard(models: dict[str, Path]) -> None:
    first, second = message(*HEARD), message("And ", HIGH, "?")
    async with running(models["hears"], max_step_tokens=8, prefix_cache=False) as provider:
        expected = await ask(provider, first, second)
    async with running(models["hears"], max_step_tokens=8) as provider:
        await ask(provider, first)
        [engine] = provider.engines.values()
        before = engine.stats
        assert await ask(provider, first, second) == expected
        cached = engine.stats.cached_tokens - before.cached_tokens
        assert cached >= before.prompt_tokens - 10, "its audio was computed again"


async def test_what_is_too_short_for_the_library_ends_nothing(models: dict[str, Path]) -> None:
    """llama.cpp ends the process on a single sample."""
    async with running(models["hears"]) as provider:
        assert len(await say(provider, "Hear ", sound(1 / 16_000), tokens=2)) == 2
        assert "has no samples" in (await refused(provider, *message(sound(0)).content)).message


async def test_models_say_what_they_take(models: dict[str, Path]) -> None:
    for name, inputs in (
        ("hears", ("text", "audio")),
        ("both", ("text", "image", "audio")),
        ("sees", ("text", "image")),
    ):
        async with running(models[name]) as provider:
            assert provider.inputs(str(models[name])) == inputs
            if name == "hears":
                error = await refused(provider, encoded(Image.new("RGB", (8, 8))))
                assert "takes text and audio; leave the image out" in error.message
            if name == "sees":
                error = await refused(provider, *message(HIGH).content)
                assert "takes text and image; leave the audio out" in error.message


async def test_a_text_can_t_stand_for_audio(models: dict[str, Path]) -> None:
    async with running(models["both"]) as provider:
        [engine] = provider.engines.values()
        for text in (engine.model.senses["audio"].mark, "<__media__>", "[AUDIO]"):
            assert len(await say(provider, text, tokens=2)) == 2
