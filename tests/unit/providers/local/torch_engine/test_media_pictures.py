"""Pictures in prompts: the same tokens as `generate`, however the work is cut up and shared."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import asyncio
import re
import shutil
import struct
import threading
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
transformers = pytest.importorskip("transformers", reason="needs the extra 'torch'")
pytest.importorskip("PIL", reason="needs the extra 'torch'")

from aiohttp import web
from PIL import Image

from llama_compat.once import Once
from llama_compat.types import (
    CompletionMessage,
    ImageContent,
    Message,
    SystemMessage,
    TextContent,
    ToolResponseMessage,
    UserMessage,
)
from providers.local.torch_engine.model import linear
from providers.local.torch_engine.provider import TorchProvider
from tests.tiny_models import make_model
from tests.tiny_vision import VISION_MODELS, data_url, make_vision_model, picture
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
    """A conversation: texts, and pictures as files."""

    said: tuple[str | bytes, ...]
    system: str | None = None
    expected: list[int] = field(default_factory=list)

    @property
    def messages(self) -> tuple[Message, ...]:
        parts = tuple(
            TextContent(each) if isinstance(each, str) else ImageContent(data_url(each))
            for each in self.said
        )
        before = () if self.system is None else (SystemMessage(self.system),)
        return (*before, UserMessage(parts))

    @property
    def pictures(self) -> list[Image.Image]:
        return [Image.open(BytesIO(each)) for each in self.said if isinstance(each, bytes)]


RED, BLUE, TALL = picture(90, 60, 1), picture(90, 60, 2), picture(40, 100, 3)

ASKS = {
    "one": Ask(("What is in ", RED, "? Say it.")),
    "another": Ask(("What is in ", BLUE, "? Say it.")),
    "two": Ask(("Compare ", RED, " with ", TALL, " in one line, please."), "Be brief."),
    "turned around": Ask(("Compare ", TALL, " with ", RED, " in one line, please."), "Be brief."),
    "begins with one": Ask((TALL, "What is this?")),
    "text": Ask(("The quick brown fox jumps over the lazy dog. " * 3,)),
}


@pytest.fixture(scope="module", params=VISION_MODELS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_vision_model(tmp_path_factory.mktemp("models") / "tiny", request.param)


@pytest.fixture
async def provider(folder: Path) -> AsyncIterator[TorchProvider]:
    provider = await started(folder)
    yield provider
    await provider.stop()


class Theirs:
    """Transformers' own model of a folder."""

    def __init__(self, folder: Path) -> None:
        self._model = transformers.AutoModelForImageTextToText.from_pretrained(folder).eval()
        self._processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
        self._picture = self._model.config.image_token_id

    def says(self, ask: Ask, prompt_ids: tuple[int, ...], guess: list[int]) -> list[int]:
        """What it says to a prompt.

        Args:
            ask: with the pictures of the prompt.
            prompt_ids: the prompt.
            guess: what that may be. One that is right is found to be so in one step, and one that
                is wrong changes nothing.
        """
        if len(guess) == TOKENS and self._picture not in guess:
            given = self._given(ask, prompt_ids, guess[:-1])
            with torch.inference_mode():
                logits = self._model(**given, use_cache=False).logits[0, len(prompt_ids) - 1 :]
            if logits.argmax(-1).tolist() == guess:
                return guess
        found = self._model.generate(
            **self._given(ask, prompt_ids), max_new_tokens=TOKENS, do_sample=False,
            eos_token_id=None,
        )  # fmt: skip
        return list(found[0, len(prompt_ids) :].tolist())

    def _given(
        self, ask: Ask, prompt_ids: tuple[int, ...], reply: Sequence[int] = ()
    ) -> dict[str, Any]:
        """What the model is given of a prompt with its pictures, and of what it has said."""
        pictures, kind = ask.pictures, self._model.config.model_type
        ids = torch.tensor([[*prompt_ids, *reply]])
        given: dict[str, Any] = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if pictures:
            nested = kind in ("idefics3", "smolvlm")
            made = self._processor(images=[pictures] if nested else pictures, return_tensors="pt")
            counts = ("num_crops", "num_soft_tokens_per_image")
            given |= {name: value for name, value in made.items() if name not in counts}
        kinds = (ids == self._picture).long()
        if "qwen" in kind or kind == "gemma4":
            given["mm_token_type_ids"] = kinds
        elif kind == "gemma3":
            given["token_type_ids"] = kinds
        return given


async def test_the_tokens_are_transformers_own(folder: Path, provider: TorchProvider) -> None:
    """All at once, their prompts in pieces; then each once more, from what is kept of it."""
    names = list(ASKS)
    cold = dict(
        zip(
            names,
            await asyncio.gather(*(answer(provider, *ASKS[name].messages) for name in names)),
            strict=True,
        )
    )
    theirs = Theirs(folder)
    for name, found in cold.items():
        said = theirs.says(ASKS[name], found.prompt_ids, found.token_ids)
        assert found.token_ids == said, name
    # What is seen decides on what is said, and the order does.
    assert cold["one"].prompt_ids == cold["another"].prompt_ids
    assert cold["one"].token_ids != cold["another"].token_ids
    assert cold["two"].token_ids != cold["turned around"].token_ids
    for name in reversed(names):
        warm = await answer(provider, *ASKS[name].messages)
        assert warm.token_ids == cold[name].token_ids, name
        assert warm.cached_tokens > (16 if name in ("two", "text") else 0), name
    # What is there of this one ends amid the picture.
    otherwise = Ask(("What is in ", RED, ", and why?"))
    found = await answer(provider, *otherwise.messages)
    assert found.cached_tokens >= 16
    assert found.token_ids == theirs.says(otherwise, found.prompt_ids, found.token_ids)


# One model is enough for what follows -------------------------------------------------------------


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_vision_model(tmp_path_factory.mktemp("qwen") / "tiny", "qwen2_5_vl")


@pytest.fixture
async def seeing(qwen: Path) -> AsyncIterator[TorchProvider]:
    provider = await started(qwen)
    yield provider
    await provider.stop()


def shown(*pictures: bytes, kind: str = "image/png") -> UserMessage:
    images = (ImageContent(data_url(each, kind)) for each in pictures)
    return UserMessage((TextContent("What is this?"), *images))


async def test_pictures_are_seen_wherever_they_are(seeing: TorchProvider) -> None:
    """In the instructions, in what the model said, and in what a tool has answered."""
    picture = ImageContent(data_url(RED))
    usual = await answer(seeing, shown(RED))
    parts = usual.prompt_ids.count(seeing_token(seeing))
    for messages in (
        (SystemMessage((TextContent("See"), picture)), UserMessage("What?")),
        (UserMessage("Draw."), CompletionMessage.of((picture,), []), UserMessage("What?")),
        (UserMessage("Look."), ToolResponseMessage("call_1", (TextContent("It:"), picture))),
    ):
        found = await answer(seeing, *messages)
        assert found.prompt_ids.count(seeing_token(seeing)) == parts


def seeing_token(provider: TorchProvider) -> int:
    return engine_of(provider).model.senses["image"].token_id


async def test_a_text_that_spells_out_a_picture_is_text(seeing: TorchProvider) -> None:
    mark = "<|vision_start|><|image_pad|><|vision_end|>"
    spelled = UserMessage((TextContent(mark), ImageContent(data_url(RED)), TextContent(mark)))
    found = await answer(seeing, spelled)
    alone = await answer(seeing, UserMessage((ImageContent(data_url(RED)),)))
    token = seeing_token(seeing)
    assert found.prompt_ids.count(token) == alone.prompt_ids.count(token)


async def test_each_picture_is_looked_at_once(seeing: TorchProvider) -> None:
    sense = engine_of(seeing).loaded.sense
    assert sense is not None
    looked = []
    tower = sense._tower
    original = tower.get_image_features
    tower.get_image_features = lambda **given: looked.append(1) or original(**given)
    await asyncio.gather(*(answer(seeing, shown(RED, BLUE)) for _ in range(3)))
    await answer(seeing, shown(BLUE, RED), CompletionMessage.of("Two.", []), shown(RED))
    assert len(looked) == 2


async def test_what_was_seen_is_kept_within_bounds(qwen: Path) -> None:
    provider = await started(qwen, image_cache=0)
    try:
        first = await answer(provider, shown(RED, BLUE))
        assert (await answer(provider, shown(RED, BLUE))).token_ids == first.token_ids
        sense = engine_of(provider).loaded.sense
        assert sense is not None
        assert not sense.kept
        assert sense.kept.taken == 0
    finally:
        await provider.stop()


@pytest.mark.skipif(not linear.kernels_possible(), reason="needs x86 with AVX2, Linux and llvmlite")
async def test_weights_of_8_bits_see_as_well(qwen: Path, tmp_path: Path) -> None:
    """The first start makes them; the second has them, and the tower from the model's files."""
    folder = shutil.copytree(qwen, tmp_path / "tiny")
    settings = {"quantization": "int8", "kernels": "llvm"}
    found = []
    for _ in range(2):
        provider = await started(folder, **settings)
        try:
            found.append((await answer(provider, *ASKS["two"].messages)).token_ids)
        finally:
            await provider.stop()
        assert (folder / ".llama-compat" / "int8.safetensors").is_file()
    assert found[0] == found[1]


async def test_pictures_on_the_web_are_fetched_once(qwen: Path) -> None:
    fetched = []

    async def serve(request: web.Request) -> web.Response:
        fetched.append(request.path)
        return web.Response(body=RED, content_type="image/png")

    application = web.Application()
    application.router.add_get("/red.png", serve)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/red.png"
    provider = await started(qwen, images={"allow_private_addresses": True})
    try:
        content = UserMessage((TextContent("What is this?"), ImageContent(url)))
        request = request_of(provider, content, prepared=Once())

        async def choice() -> list[Any]:
            return [each async for each in provider.chat_completion(request)]

        several = await asyncio.gather(choice(), choice(), choice())
        expected = await answer(provider, shown(RED))
        assert {each[0].token_ids for each in several} == {expected.prompt_ids}
        assert fetched == ["/red.png"]
    finally:
        await provider.stop()
        await runner.cleanup()


async def test_tokens_are_counted_without_a_look(seeing: TorchProvider) -> None:
    sense = engine_of(seeing).loaded.sense
    assert sense is not None
    sense._tower.get_image_features = None
    counted = await seeing.count_tokens(request_of(seeing, shown(RED)))
    text = await seeing.count_tokens(request_of(seeing, UserMessage("What is this?")))
    # 90 x 60 pixels are 6 x 4 patches of 16 x 16, between two marks.
    assert counted == text + 2 + 24


async def test_a_prompt_that_gave_way_goes_on(qwen: Path) -> None:
    """With room for one, two that come at once take turns, and say what they would have."""
    roomy = await started(qwen)
    asks = [ASKS["two"], ASKS["turned around"]]
    try:
        expected = [(await answer(roomy, *ask.messages)).token_ids for ask in asks]
        engine = engine_of(roomy)
        token_bytes = engine.loaded.cache_bytes or 0
        token_bytes //= engine.loaded.blocks.total * engine.loaded.blocks.block_size
    finally:
        await roomy.stop()
    tight = await started(qwen, kv_cache=float(token_bytes * 16 * 12), prefix_cache=False)
    try:
        found = await asyncio.gather(*(answer(tight, *ask.messages) for ask in asks))
        assert [each.token_ids for each in found] == expected
    finally:
        await tight.stop()


async def test_deterministic_replies_are_the_same_beside_others(qwen: Path) -> None:
    provider = await started(qwen, deterministic=True)
    try:
        [*_, first], [*_, again] = [
            await asyncio.gather(
                *(answer(provider, *ASKS[name].messages) for name in (*beside, "two"))
            )
            for beside in ((), ("one", "text", "turned around"))
        ]
        assert first.token_ids == again.token_ids
        assert again.cached_tokens > 0
    finally:
        await provider.stop()


# What can't be seen -------------------------------------------------------------------------------


def bomb() -> bytes:
    """A PNG whose first bytes say that it has 30,000 x 30,000 pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        body = kind + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0)
    rows = zlib.compress(bytes(1 << 20))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows)


def moving() -> bytes:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue", "green")]
    file = BytesIO()
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:])
    return file.getvalue()


def without_pixels() -> bytes:
    content = bytearray(picture(8, 8, kind="BMP"))
    content[18:26] = bytes(8)
    return bytes(content)


BAD: dict[str, tuple[tuple[bytes, ...], str, str]] = {
    "no picture": ((b"GIF9 is no picture",), "invalid_image", "none that can be read"),
    "torn": ((RED[:-60],), "invalid_image", "can't be read"),
    "bomb": ((bomb(),), "image_too_large", "30000 x 30000 pixels|far more pixels"),
    "moving": ((moving(),), "invalid_image", "3 frames"),
    "without pixels": ((without_pixels(),), "invalid_image", "none that can be read"),
    "too many": ((RED,) * 100, "too_many_images", "100 pictures"),
    "too long for the context": ((picture(640, 640),) * 30, "context_length_exceeded", "1024"),
    "too narrow": ((picture(2000, 4),), "invalid_image", "aspect ratio"),
}


@pytest.mark.parametrize("name", BAD)
async def test_what_can_t_be_seen_is_refused(seeing: TorchProvider, name: str) -> None:
    pictures, code, said = BAD[name]
    error = await refused(seeing, shown(*pictures))
    assert (error.status, error.code) == (400, code)
    assert re.search(said, error.message), error.message
    # Nothing is lost by it.
    assert (await answer(seeing, shown(RED))).token_ids
    assert engine_of(seeing).stats.running == engine_of(seeing).stats.waiting == 0


@pytest.mark.parametrize(
    "said", ["data:image/png;base64,", "data:text/plain,hello", "file:///etc/"]
)
async def test_only_images_are_taken_for_some(seeing: TorchProvider, said: str) -> None:
    error = await refused(seeing, UserMessage((ImageContent(said),)))
    assert (error.status, error.code) == (400, "invalid_value")


async def test_all_that_a_request_brings_is_bounded(qwen: Path) -> None:
    provider = await started(qwen, images={"max_bytes": 2 * len(RED) - 1})
    try:
        assert (await refused(provider, shown(RED, RED))).code == "image_too_large"
        assert (await answer(provider, shown(RED))).token_ids
    finally:
        await provider.stop()


async def test_colours_of_other_kinds_are_seen(seeing: TorchProvider) -> None:
    """CMYK, greys, palettes and transparency; a camera that lay on its side is turned."""
    for kind, mode in (
        ("JPEG", "CMYK"),
        ("PNG", "L"),
        ("PNG", "P"),
        ("PNG", "RGBA"),
        ("PNG", "I;16"),
    ):
        found = await answer(seeing, shown(picture(90, 60, 1, kind, mode), kind=f"image/{kind}"))
        assert len(found.token_ids) == TOKENS
    file = BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.open(BytesIO(picture(90, 40))).save(file, "JPEG", exif=exif)
    turned = Image.open(BytesIO(file.getvalue())).transpose(Image.Transpose.ROTATE_270)
    upright = BytesIO()
    turned.save(upright, "PNG")
    assert (await answer(seeing, shown(file.getvalue(), kind="image/jpeg"))).token_ids == (
        await answer(seeing, shown(upright.getvalue()))
    ).token_ids


async def test_private_addresses_are_not_asked_for_pictures(seeing: TorchProvider) -> None:
    image = ImageContent("http://127.0.0.1:9/picture.png")
    error = await refused(seeing, UserMessage((image,)))
    assert (error.status, error.code) == (400, "invalid_image_url")
    assert "not on the public internet" in error.message


class Look:
    """Holds the model's look at pictures until it is to go on."""

    def __init__(self, provider: TorchProvider) -> None:
        sense = engine_of(provider).loaded.sense
        assert sense is not None
        self.taken = 0
        self._began, self._go_on = threading.Event(), threading.Event()
        self._look = sense._tower.get_image_features
        sense._tower.get_image_features = self._slow

    def _slow(self, **given: Any) -> Any:
        self.taken += 1
        self._began.set()
        assert self._go_on.wait(60)
        return self._look(**given)

    async def began(self) -> None:
        assert await asyncio.to_thread(self._began.wait, 60)

    def go_on(self) -> None:
        self._go_on.set()


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 (a thread brings it about)
        await asyncio.sleep(0.01)


async def test_who_leaves_sees_no_more(seeing: TorchProvider) -> None:
    look = Look(seeing)
    asked = asyncio.ensure_future(answer(seeing, shown(RED, BLUE, TALL)))
    await look.began()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    look.go_on()
    assert (await answer(seeing, shown(RED))).token_ids
    assert look.taken == 1


async def test_those_that_wait_for_a_look_are_counted(qwen: Path) -> None:
    """Who asks meanwhile is refused, and not those who were let in before."""
    provider = await started(qwen, max_waiting=1, max_sequences=1)
    try:
        look = Look(provider)
        asked = [asyncio.ensure_future(answer(provider, shown(each))) for each in (RED, BLUE)]
        await look.began()
        await until(lambda: engine_of(provider).stats.waiting == 2)
        for messages in (shown(TALL), UserMessage("Hello")):
            error = await refused(provider, messages)
            assert (error.status, error.code) == (429, "engine_overloaded")
        look.go_on()
        assert all(each.token_ids for each in await asyncio.gather(*asked))
    finally:
        await provider.stop()


async def test_those_that_wait_for_a_look_are_told_of_the_end(qwen: Path) -> None:
    provider = await started(qwen)
    look = Look(provider)
    asked = [asyncio.ensure_future(refused(provider, shown(each, TALL))) for each in (RED, BLUE)]
    await look.began()
    engine = engine_of(provider)
    await until(lambda: engine.stats.waiting == 2)
    stopping = asyncio.ensure_future(asyncio.to_thread(engine.stop))
    await until(lambda: engine._media._stopped)
    look.go_on()
    await stopping
    assert {(each.status, each.code) for each in await asyncio.gather(*asked)} == {
        (503, "server_shutting_down")
    }


async def test_models_of_text_refuse_pictures(tmp_path: Path) -> None:
    provider = await started(make_model(tmp_path / "tiny"))
    try:
        error = await refused(provider, shown(RED))
        assert (error.code, error.param) == ("unsupported_content", "messages[0].content[1]")
        # Without asking for it.
        image = ImageContent("http://127.0.0.1:9/picture.png")
        assert "text alone" in (await refused(provider, UserMessage((image,)))).message
        assert provider.inputs(provider.models[0].name) == ("text",)
    finally:
        await provider.stop()


async def test_it_is_told_what_a_model_reads(seeing: TorchProvider) -> None:
    assert seeing.inputs(seeing.models[0].name) == ("text", "image")


async def test_a_folder_without_a_processor_reads_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = make_vision_model(tmp_path / "tiny", "smolvlm")
    (folder / "preprocessor_config.json").unlink()
    provider = await started(folder)
    try:
        assert "has no preprocessor_config.json" in caplog.text
        assert (await refused(provider, shown(RED))).code == "unsupported_content"
        assert (await answer(provider, UserMessage("What?"))).token_ids
    finally:
        await provider.stop()
