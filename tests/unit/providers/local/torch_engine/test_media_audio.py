"""Audio in prompts: the same tokens as `generate`, however the work is cut up and shared."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
transformers = pytest.importorskip("transformers", reason="needs the extra 'torch'")

from llama_compat.types import (
    AudioContent,
    DocumentContent,
    ImageContent,
    Message,
    TextContent,
    UserMessage,
)
from providers.local.media.audio import audio_file
from providers.local.torch_engine.provider import TorchProvider
from tests.tiny_audio import AUDIO_MODELS, make_audio_model, sound
from tests.tiny_models import make_model
from tests.tiny_vision import data_url, picture
from tests.unit.providers.local.torch_engine.asking import (
    TOKENS,
    answer,
    engine_of,
    refused,
    request_of,
    started,
)


@dataclass(frozen=True)
class Ask:
    """What is said: texts, and audio as files."""

    said: tuple[str | bytes, ...]

    @property
    def message(self) -> Message:
        return UserMessage(
            tuple(TextContent(each) if isinstance(each, str) else heard(each) for each in self.said)
        )

    @property
    def samples(self) -> list[Any]:
        files = (audio_file(each, "") for each in self.said if isinstance(each, bytes))
        return [each.unpacked(16_000) for each in files]


def heard(file: bytes) -> AudioContent:
    return AudioContent("audio/wav", base64.b64encode(file).decode())


HIGH, LOW, SHORT = sound(0.9, 1), sound(0.9, 2), sound(0.4, 3, rate=44_100, channels=2)

ASKS = {
    "one": Ask(("What is said in ", HIGH, "? Write it.")),
    "another": Ask(("What is said in ", LOW, "? Write it.")),
    "two": Ask(("Compare ", HIGH, " with ", SHORT, " in one line, please.")),
    "turned around": Ask(("Compare ", SHORT, " with ", HIGH, " in one line, please.")),
    "begins with one": Ask((SHORT, "What is this?")),
    "text": Ask(("The quick brown fox jumps over the lazy dog. " * 3,)),
}


@pytest.fixture(scope="module", params=AUDIO_MODELS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_audio_model(tmp_path_factory.mktemp("models") / request.param, request.param)


@pytest.fixture
async def provider(folder: Path) -> AsyncIterator[TorchProvider]:
    provider = await started(folder)
    yield provider
    await provider.stop()


class Theirs:
    """Transformers' own model of a folder, whose prompts are prepared as its own processors do."""

    def __init__(self, folder: Path) -> None:
        self._model = transformers.AutoModelForMultimodalLM.from_pretrained(folder).eval()
        self._extractor = transformers.AutoFeatureExtractor.from_pretrained(folder)
        config = self._model.config
        self._audio = getattr(config, "audio_token_id", None) or config.audio_token_index

    def says(self, ask: Ask, prompt_ids: tuple[int, ...], guess: list[int]) -> list[int]:
        """What it says to a prompt.

        Args:
            ask: with the audio of the prompt.
            prompt_ids: the prompt.
            guess: what that may be. One that is right is found to be so in one step, and one that
                is wrong changes nothing.
        """
        given = self._heard(ask)
        if len(guess) == TOKENS and self._audio not in guess:
            ids = torch.tensor([[*prompt_ids, *guess[:-1]]])
            with torch.inference_mode():
                made = self._model(
                    input_ids=ids, attention_mask=torch.ones_like(ids), **given, use_cache=False
                )
            if made.logits[0, len(prompt_ids) - 1 :].argmax(-1).tolist() == guess:
                return guess
        ids = torch.tensor([prompt_ids])
        found = self._model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            **given,
            max_new_tokens=TOKENS,
            do_sample=False,
            eos_token_id=None,
        )
        return list(found[0, len(prompt_ids) :].tolist())

    def _heard(self, ask: Ask) -> dict[str, Any]:
        if not ask.samples:
            return {}
        if self._model.config.model_type == "qwen2_audio":
            made = self._extractor(
                ask.samples,
                sampling_rate=16_000,
                return_attention_mask=True,
                padding="max_length",
                return_tensors="pt",
            )
            return {
                "input_features": made["input_features"],
                "feature_attention_mask": made["attention_mask"],
            }
        window = 2 * self._model.config.audio_config.max_source_positions
        settings = {"pad_to_multiple_of": window * self._extractor.hop_length, "truncation": False}
        made = [
            self._extractor(
                each, sampling_rate=16_000, padding=True, return_tensors="pt", **settings
            )
            for each in ask.samples
        ]
        pictures = [each["input_features"].reshape(16, -1, window) for each in made]
        return {"input_features": torch.cat([each.transpose(0, 1) for each in pictures])}


async def test_the_tokens_are_transformers_own(folder: Path, provider: TorchProvider) -> None:
    """All at once, their prompts in pieces; then each once more, from what is kept of it."""
    names = list(ASKS)
    found = await asyncio.gather(*(answer(provider, ASKS[name].message) for name in names))
    cold = dict(zip(names, found, strict=True))
    theirs = Theirs(folder)
    for name, each in cold.items():
        assert each.token_ids == theirs.says(ASKS[name], each.prompt_ids, each.token_ids), name
    # What is heard decides on what is said, and the order does.
    assert cold["one"].prompt_ids == cold["another"].prompt_ids
    assert cold["one"].token_ids != cold["another"].token_ids
    assert cold["two"].token_ids != cold["turned around"].token_ids
    for name in reversed(names):
        warm = await answer(provider, ASKS[name].message)
        assert warm.token_ids == cold[name].token_ids, name
        assert warm.cached_tokens >= (16 if name in ("one", "two", "text") else 0), name
    # What is there of this one ends amid the audio.
    otherwise = Ask(("What is said in ", HIGH, ", and why?"))
    again = await answer(provider, otherwise.message)
    assert again.cached_tokens >= 16
    assert again.token_ids == theirs.says(otherwise, again.prompt_ids, again.token_ids)
    assert provider.inputs(provider.models[0].name) == ("text", "audio")


# One model is enough for what follows -------------------------------------------------------------


@pytest.fixture(scope="module")
def voxtral(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_audio_model(tmp_path_factory.mktemp("voxtral") / "tiny", "voxtral")


@pytest.fixture
async def hearing(voxtral: Path) -> AsyncIterator[TorchProvider]:
    provider = await started(voxtral)
    yield provider
    await provider.stop()


async def test_audio_of_several_windows_has_the_tokens_of_each(
    voxtral: Path, hearing: TorchProvider
) -> None:
    long = Ask(("Hear ", sound(2.5, 4), "."))
    found = await answer(hearing, long.message)
    assert found.prompt_ids.count(engine_of(hearing).model.senses["audio"].token_id) == 3 * 13
    assert found.token_ids == Theirs(voxtral).says(long, found.prompt_ids, found.token_ids)


async def test_each_file_is_heard_once_and_counted_without_hearing(hearing: TorchProvider) -> None:
    sense = engine_of(hearing).loaded.sense
    assert sense is not None
    times = []
    tower = sense._tower
    original = tower.get_audio_features
    tower.get_audio_features = lambda *given, **more: times.append(1) or original(*given, **more)
    ask = ASKS["two"].message
    counted = await hearing.count_tokens(request_of(hearing, ask))
    assert not times
    found = await asyncio.gather(*(answer(hearing, ask) for _ in range(3)))
    assert {len(each.prompt_ids) for each in found} == {counted}
    assert len(times) == 2, "each has one window"


async def test_what_is_too_long_or_too_short_is_refused(
    tmp_path: Path, hearing: TorchProvider
) -> None:
    error = await refused(hearing, UserMessage((heard(sound(82)),)))
    assert (error.status, error.code) == (400, "context_length_exceeded")
    provider = await started(make_audio_model(tmp_path / "qwen", "qwen2_audio"))
    try:
        for seconds, said in (
            (1.2, "takes 1.2 s, and the model hears no more than 1 s"),
            (0.01, "too short"),
        ):
            error = await refused(provider, UserMessage((heard(sound(seconds)),)))
            assert (error.status, error.code) == (400, "invalid_audio")
            assert said in error.message
    finally:
        await provider.stop()


async def test_its_bounds_are_the_template_s(voxtral: Path) -> None:
    file = sound(0.5)
    bounds = {"max_count": 2, "max_seconds": 0.8, "max_bytes": len(file) + 9_000}
    provider = await started(voxtral, audio=bounds)
    try:
        short = sound(0.1)
        for files, code in (
            ((short, short, short), "too_many_audio"),
            ((file, file), "audio_too_large"),
            ((sound(0.9, rate=8_000),), "audio_too_large"),
        ):
            error = await refused(provider, UserMessage(tuple(map(heard, files))))
            assert (error.status, error.code) == (400, code)
        assert (await answer(provider, UserMessage((heard(file), heard(short))))).token_ids
    finally:
        await provider.stop()


async def test_torn_files_are_refused_and_nothing_is_lost(hearing: TorchProvider) -> None:
    error = await refused(hearing, UserMessage((TextContent("Hear"), heard(HIGH[:-100]))))
    assert (error.status, error.code) == (400, "invalid_audio")
    assert error.param == "messages[0].content[1]"
    assert (await answer(hearing, ASKS["one"].message)).token_ids
    assert engine_of(hearing).stats.running == engine_of(hearing).stats.waiting == 0


async def test_who_can_t_hear_or_see_says_so(hearing: TorchProvider, tmp_path: Path) -> None:
    error = await refused(hearing, UserMessage((ImageContent(data_url(picture(9, 9))),)))
    assert error.code == "unsupported_content"
    assert "takes text and audio; leave the image out" in error.message
    deaf = await started(make_model(tmp_path / "tiny"))
    try:
        error = await refused(deaf, ASKS["one"].message)
        assert (error.code, error.param) == ("unsupported_content", "messages[0].content[1]")
        assert "takes text alone; leave the audio out" in error.message
        paper = DocumentContent("data:application/pdf;base64,JVBERi0xLjc=", "a.pdf")
        error = await refused(deaf, UserMessage((TextContent("Read"), paper)))
        assert (error.code, error.param) == ("unsupported_content", "messages[0].content[1]")
        assert "takes text alone; leave the document out" in error.message
    finally:
        await deaf.stop()


async def test_a_text_that_spells_out_audio_is_text(hearing: TorchProvider) -> None:
    token_id = engine_of(hearing).model.senses["audio"].token_id
    mark = TextContent("[BEGIN_AUDIO][AUDIO]")
    found = await answer(hearing, UserMessage((mark, heard(SHORT), mark)))
    assert found.prompt_ids.count(token_id) == 13
