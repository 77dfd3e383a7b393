"""`local::llama_cpp` and pictures: what a model says of them is what llama.cpp says by itself."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from io import BytesIO
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch', to make tiny models")
pytest.importorskip("llama_cpp", reason="needs the extra 'llama-cpp'")
Image = pytest.importorskip("PIL.Image", reason="needs the extra 'llama-cpp'")

from llama_compat.errors import APIError
from llama_compat.types import (
    ChatCompletionResponse,
    ImageContent,
    UserMessage,
)
from providers.base import ProviderStartError
from providers.local.engine import Stats
from providers.local.llama_cpp_engine import loader
from providers.local.llama_cpp_engine.provider import LlamaCppProvider
from tests.tiny_ggufs import gguf_of, projector_of
from tests.tiny_models import make_model
from tests.unit.providers.local.engines import tried_once
from tests.unit.providers.local.llama_cpp_engine.showing import (
    Turn,
    ask,
    encoded,
    llama_cpp_says,
    message,
    pixels,
    refused,
    reply_to,
    running,
    say,
)

KINDS = ("idefics3", "gemma3", "qwen2vl_merger")
"""Of projectors: pictures in pieces with text between; those that are computed at once; those whose
parts have rows and columns."""

CALLED = {"<fake_token_around_image>": 397, "<global-img>": 398, "\n\n": 399}
"""What stands around the pieces of a picture of `idefics3`."""

TURNS: tuple[Turn, ...] = ("What is in ", (50, 90, 1), " and in ", (70, 30, 2), "? Say it.")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny", max_position_embeddings=2048)


@pytest.fixture(scope="module")
def models(folder: Path) -> dict[str, Path]:
    """A model of each kind, with what it sees beside it."""
    made = {}
    for kind in KINDS:
        place = folder.with_name(kind)
        place.mkdir()
        axes = (2, 3, 3, 0) if kind == "qwen2vl_merger" else ()
        called = CALLED if kind == "idefics3" else {}
        made[kind] = gguf_of(folder, place / "model.gguf", axes=axes, called=called)
        projector_of(place / "mmproj.gguf", kind)
    return made


@pytest.fixture(scope="module")
def tried() -> Callable[..., bool]:
    return tried_once()


@pytest.fixture(autouse=True)
def remembered(tried: Callable[..., bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "try_out", tried)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_reply_is_what_llama_cpp_says_itself(models: dict[str, Path], kind: str) -> None:
    path = models[kind]
    expected = llama_cpp_says(path, *TURNS)
    other = llama_cpp_says(path, *TURNS[:3], (70, 30, 3), *TURNS[4:])
    assert expected != other, "the model does not look at what is there"
    async with running(path, max_step_tokens=8) as provider:
        alone = await say(provider, *TURNS)
        again = await say(provider, *TURNS)
        beside = await asyncio.gather(
            say(provider, *TURNS[:3], (70, 30, 3), *TURNS[4:]),
            say(provider, "No picture at all"),
            say(provider, *TURNS),
        )
        stats: Stats = provider.engine_stats()[str(path)]
    assert alone == again == beside[2] == expected
    assert beside[0] == other
    assert stats.cached_tokens > 0


# Prefixes and company -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_a_second_turn_goes_on_behind_the_pictures_of_the_first(
    models: dict[str, Path], kind: str
) -> None:
    first, second = message(*TURNS), message("And ", (40, 60, 4), "?")
    async with running(models[kind], max_step_tokens=8, prefix_cache=False) as provider:
        expected = await ask(provider, first, second)
    async with running(models[kind], max_step_tokens=8) as provider:
        await ask(provider, first)
        [engine] = provider.engines.values()
        before = engine.stats
        assert await ask(provider, first, second) == expected
        cached = engine.stats.cached_tokens - before.cached_tokens
        assert cached >= before.prompt_tokens - 10, "its pictures were computed again"


@pytest.mark.parametrize("kind", ["gemma3", "qwen2vl_merger"])
async def test_another_picture_in_the_same_place_is_seen(
    models: dict[str, Path], kind: str
) -> None:
    """What is computed of a picture is told from what is computed of any other of its size."""
    async with running(models[kind], max_step_tokens=8) as provider:
        one = await say(provider, "Look: ", (64, 64, 1), " What is it?")
        other = await say(provider, "Look: ", (64, 64, 2), " What is it?")
    assert one == llama_cpp_says(models[kind], "Look: ", (64, 64, 1), " What is it?")
    assert other == llama_cpp_says(models[kind], "Look: ", (64, 64, 2), " What is it?")
    assert one != other


@pytest.mark.parametrize("kind", ["gemma3", "qwen2vl_merger"])
async def test_deterministic_replies_are_the_same_beside_others(
    models: dict[str, Path], kind: str
) -> None:
    async with running(
        models[kind], max_step_tokens=8, deterministic=True, max_sequences=2
    ) as provider:
        alone = await say(provider, *TURNS)
        replies = await asyncio.gather(
            say(provider, *TURNS), say(provider, "Look: ", (64, 64, 2)), say(provider, *TURNS)
        )
    assert replies[0] == replies[2] == alone


ROUNDING = 0.02
"""By so much a logprob differs at most where the same is computed in other pieces: keys and values
are kept in 16 bits."""


def is_same_but_for_ties(found: ChatCompletionResponse, expected: ChatCompletionResponse) -> bool:
    """Whether a reply is the expected one, up to where two tokens are as likely as each other; what
    comes behind that has another beginning."""
    scores = zip(found.logprobs or (), expected.logprobs or (), strict=True)
    tokens = zip(found.token_ids or (), expected.token_ids or (), strict=True)
    for (own, wanted), (score, other) in zip(tokens, scores, strict=True):
        likeliest, second = other.top
        if abs(score.top[0].logprob - likeliest.logprob) > ROUNDING:
            return False
        if own != wanted:
            return likeliest.logprob - second.logprob < ROUNDING
    return True


async def test_who_had_to_make_room_is_shown_the_picture_again(models: dict[str, Path]) -> None:
    path = models["qwen2vl_merger"]

    async def all_of(provider: LlamaCppProvider) -> list[ChatCompletionResponse]:
        asked = (message("Look: ", (64, 64, seed)) for seed in (1, 2, 3))
        return await asyncio.gather(
            *(reply_to(provider, each, tokens=60, logprobs=2) for each in asked)
        )

    async with running(path, max_step_tokens=8, prefix_cache=False, max_sequences=1) as provider:
        alone = await all_of(provider)
    # 256 tokens, of 2 layers with 2 heads of 16 + 16 numbers.
    async with running(path, max_step_tokens=8, kv_cache=256 * 256, max_sequences=3) as provider:
        replies = await all_of(provider)
        [engine] = provider.engines.values()
        assert engine.stats.preempted > 0
    assert all(map(is_same_but_for_ties, replies, alone))
    assert not is_same_but_for_ties(replies[0], alone[1])


# What can't be ------------------------------------------------------------------------------------


@pytest.fixture
async def seeing(models: dict[str, Path]) -> AsyncIterator[LlamaCppProvider]:
    async with running(models["qwen2vl_merger"], images={"max_pixels": 400 * 400}) as provider:
        yield provider


async def test_a_file_that_breaks_off_is_refused(seeing: LlamaCppProvider) -> None:
    file = BytesIO()
    Image.fromarray(pixels(60, 60, 1)).save(file, "PNG")
    torn = base64.b64encode(file.getvalue()[:4000]).decode()
    error = await refused(seeing, ImageContent(f"data:image/png;base64,{torn}"))
    assert error.code == "invalid_image"
    assert error.param == "messages[0].content[0]"


async def test_a_small_file_of_many_pixels_is_refused(seeing: LlamaCppProvider) -> None:
    error = await refused(seeing, encoded(Image.new("L", (3000, 3000))))
    assert error.code == "image_too_large"


async def test_more_tokens_than_the_context_holds_are_refused(seeing: LlamaCppProvider) -> None:
    # 12 x 12 parts each.
    pictures = [encoded(Image.new("RGB", (192, 192), (seed, 0, 0))) for seed in range(30)]
    error = await refused(seeing, *pictures)
    assert error.code == "context_length_exceeded"


async def test_more_pictures_than_may_be_are_refused(seeing: LlamaCppProvider) -> None:
    error = await refused(seeing, *[encoded(Image.new("RGB", (8, 8)))] * 100)
    assert error.code == "too_many_images"


ODD_SIZES = ((1, 1), (2, 2), (1, 2000), (2000, 1), (3, 500), (1500, 1500))


@pytest.mark.parametrize("kind", KINDS)
async def test_sizes_of_all_kinds_are_shown_or_refused(models: dict[str, Path], kind: str) -> None:
    """An assertion of llama.cpp would end the process."""
    said, refusals = [], []
    async with running(models[kind]) as provider:
        for size in ODD_SIZES:
            try:
                picture = encoded(Image.new("RGB", size))
                said.append(await ask(provider, UserMessage((picture,)), tokens=2))
            except APIError as error:
                refusals.append(error)
    assert {len(each) for each in said} == {2}
    assert len(said) + len(refusals) == len(ODD_SIZES)
    assert {each.status for each in refusals} <= {400}


async def test_a_text_can_t_stand_for_a_picture(seeing: LlamaCppProvider) -> None:
    [engine] = seeing.engines.values()
    for text in (engine.model.senses["image"].mark, "<__media__>", "<|image_pad|>"):
        assert len(await say(seeing, text, tokens=2)) == 2


async def test_a_picture_for_a_model_of_text_alone_is_refused(folder: Path) -> None:
    path = gguf_of(folder, folder.with_name("alone.gguf"))
    async with running(path) as provider:
        error = await refused(provider, encoded(Image.new("RGB", (8, 8))))
    assert "takes text alone" in error.message


async def start_fails(path: Path, mmproj: Path | str) -> str:
    with pytest.raises(ProviderStartError) as caught:
        async with running(path, mmproj=str(mmproj)):
            pass
    return str(caught.value)


async def test_what_is_for_another_model_is_refused_when_it_is_loaded(
    models: dict[str, Path], folder: Path, tmp_path: Path
) -> None:
    path = models["gemma3"]
    narrow = projector_of(tmp_path / "narrow.gguf", "gemma3", width=32)
    said = await start_fails(path, narrow)
    assert "mismatch between text model (n_embd = 64) and mmproj (n_embd = 32)" in said
    assert "mmproj: none" in said
    tokens = projector_of(tmp_path / "tokens.gguf", "idefics3")
    assert "no token for something that is written around" in await start_fails(path, tokens)
    assert "is a model" in await start_fails(path, path)
    assert "no GGUF file at" in await start_fails(path, tmp_path / "nowhere.gguf")
    torn = tmp_path / "torn.gguf"
    torn.write_bytes(narrow.read_bytes()[:3000])
    assert "it can't use" in await start_fails(path, torn)


async def test_none_has_a_model_take_text_alone(models: dict[str, Path]) -> None:
    async with running(models["gemma3"], mmproj="none") as provider:
        error = await refused(provider, encoded(Image.new("RGB", (8, 8))))
    assert "takes text alone" in error.message
