"""Files of audio: which are taken, and what is made of them, whichever engine hears them."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import base64
import math
import re
import struct
import wave
from io import BytesIO
from typing import Any

import pytest

numpy = pytest.importorskip("numpy", reason="needs the extra 'torch' or 'llama-cpp'")

from llama_compat.errors import APIError
from llama_compat.types import AudioContent, UserMessage
from providers.local.media.audio import RATES, AudioFile, audio_file
from providers.local.media.files import media_files
from providers.local.media.limits import AudioLimits, MediaLimits
from tests.tiny_audio import floats, sound


def files_of(*files: bytes, **limits: Any) -> list[AudioFile]:
    parts = tuple(AudioContent("audio/wav", base64.b64encode(each).decode()) for each in files)
    found = media_files([UserMessage(parts)], MediaLimits(audio=AudioLimits(**limits)))
    return [each for each in found if isinstance(each, AudioFile)]


def refusal_of(*files: bytes, **limits: Any) -> APIError:
    def unpack() -> None:
        for each in files_of(*files, **limits):
            each.unpacked(16_000)

    with pytest.raises(APIError) as raised:
        unpack()
    assert raised.value.status == 400
    assert (raised.value.param or "").startswith("messages[0].content[")
    return raised.value


def edited(content: bytes, at: int, form: str, value: int) -> bytes:
    """A WAV file whose header says something else."""
    size = struct.calcsize(form)
    return content[:at] + struct.pack(form, value) + content[at + size :]


CHANNELS, RATE, BITS, HELD = (22, "<H"), (24, "<I"), (34, "<H"), (40, "<I")
"""Where they are in a WAV file's header."""


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_samples_are_the_same_in_as_many_bits_as_may_be(width: int) -> None:
    [file] = files_of(sound(0.1, 7, width=width))
    [exact] = files_of(sound(0.1, 7, width=4))
    samples = file.unpacked(16_000)
    assert samples.dtype == numpy.float32
    assert len(samples) == file.samples_at(16_000) == 1600
    assert 0.3 < abs(samples).max() <= 1
    assert abs(samples - exact.unpacked(16_000)).max() < 4 / 2 ** (8 * width)


def test_channels_become_one() -> None:
    file = BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(2)
        writer.setsampwidth(2)
        writer.setframerate(16_000)
        writer.writeframes(struct.pack("<4h", 16384, 0, -16384, -16384))
    [found] = files_of(file.getvalue())
    assert found.unpacked(16_000).tolist() == [0.25, -0.5]
    assert (found.frames, found.seconds) == (2, 2 / 16_000)


@pytest.mark.parametrize("rate", RATES)
def test_every_rate_is_made_the_model_s(rate: int) -> None:
    at = numpy.arange(rate // 10) / rate
    tone = numpy.sin(2 * math.pi * 1000 * at) * 0.5
    file = BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(4)
        writer.setframerate(rate)
        writer.writeframes((tone * (2**31 - 1)).astype("<i4").tobytes())
    [found] = files_of(file.getvalue())
    samples = found.unpacked(16_000)
    assert len(samples) == found.samples_at(16_000)
    expected = numpy.sin(2 * math.pi * 1000 * numpy.arange(len(samples)) / 16_000) * 0.5
    inner = slice(300, -300)
    assert abs(samples - expected)[inner].max() < 1e-4


HOSTILE: dict[str, tuple[bytes, str]] = {
    "no audio": (b"This is no audio at all.", "none that can be read: send .*WAV"),
    "nothing": (b"", "none that can be read"),
    "header alone": (sound(0.1)[:20], "cut off within its header"),
    "torn": (sound(0.1)[:-1000], "1600 samples, and 1100 are there"),
    "hours": (edited(sound(0.1), *HELD, 0x7FFFFF00), "cut off, or written by a program"),
    "of unknown length": (edited(sound(0.1), *HELD, 0xFFFFFFFF), "cut off, or written by"),
    "no samples": (sound(0), "has no samples"),
    "no channels": (edited(sound(0.1), *CHANNELS, 0), "bad # of channels"),
    "many channels": (sound(0.01, channels=17), "17 channels, more than 16"),
    "no rate": (edited(sound(0.1), *RATE, 0), "has 0 samples a second"),
    "odd rate": (edited(sound(0.1), *RATE, 16_001), "has 16001 samples a second: send one with"),
    "odd bits": (edited(sound(0.1), *BITS, 0), "can't be read"),
    "many bits": (edited(sound(0.1), *BITS, 64), "64 bits, and not 8, 16, 24 or 32"),
    "not numbers": (floats(value=math.nan), "no numbers|none that can be read"),
    "infinite": (floats(value=math.inf), "no numbers|none that can be read"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_in_words(name: str) -> None:
    content, said = HOSTILE[name]
    error = refusal_of(content)
    assert error.code == "invalid_audio"
    assert re.search(said, error.message), error.message


def test_what_is_damaged_behind_its_header_is_found() -> None:
    """As of formats whose length is a guess until all of it is read."""
    whole = sound(0.1)
    file = AudioFile(whole, "messages[0].content[0]", 1601, 16_000)
    with pytest.raises(APIError, match="ends after 1600 of 1601 samples"):
        file.unpacked(16_000)


def test_not_in_base64() -> None:
    with pytest.raises(APIError, match="not in base64"):
        media_files([UserMessage((AudioContent("audio/wav", "@@"),))], MediaLimits())


def test_bounds_are_of_all_audio_together() -> None:
    second = sound(1)
    assert len(files_of(second, second, max_seconds=2, max_bytes=2 * len(second))) == 2
    assert refusal_of(second, second, max_seconds=1.9).code == "audio_too_large"
    assert refusal_of(second, second, max_bytes=2 * len(second) - 1).code == "audio_too_large"
    error = refusal_of(second, second, max_count=1)
    assert (error.code, error.param) == ("too_many_audio", "messages[0].content[1]")


def test_files_are_told_by_their_content() -> None:
    first, same, other = (audio_file(sound(0.1, seed), "x") for seed in (1, 1, 2))
    assert first.key == same.key != other.key
    assert "RIFF" not in repr(first)


# What libsndfile reads ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format", "subtype", "close"),
    [
        ("WAV", "FLOAT", 1e-6),
        ("FLAC", "PCM_16", 1e-4),
        ("OGG", "VORBIS", 0.2),
        ("MP3", "MPEG_LAYER_III", 0.2),
    ],
)
def test_other_formats_are_read_where_libsndfile_is_there(
    format: str, subtype: str, close: float
) -> None:
    soundfile = pytest.importorskip("soundfile", reason="needs the extra 'audio'")
    samples = audio_file(sound(1, 5), "x").unpacked(16_000)
    file = BytesIO()
    soundfile.write(file, samples, 16_000, format=format, subtype=subtype)
    [found] = files_of(file.getvalue())
    assert found.seconds == pytest.approx(1, abs=0.1)
    heard = found.unpacked(16_000)
    assert abs(heard[:15_000] - samples[:15_000]).max() < close
    assert refusal_of(file.getvalue()[:60]).code == "invalid_audio"


@pytest.mark.parametrize("rate", [32_000, 16_000, 8_000], ids=["1", "2", "2.5"])
def test_mp3_is_read_of_each_version_of_mpeg_with_checksums_or_without(rate: int) -> None:
    """libsndfile writes none with checksums: the bit is cleared that says that there is none, of a
    file that has room for one in silence."""
    soundfile = pytest.importorskip("soundfile", reason="needs the extra 'audio'")
    file = BytesIO()
    soundfile.write(file, numpy.zeros(rate), rate, format="MP3", subtype="MPEG_LAYER_III")
    without = file.getvalue()
    begin = without.index(b"\xff")
    assert without[begin + 1] & 0xE7 == 0xE3
    assert audio_file(without[begin:], "x").rate == rate
    with_checksums = bytearray(without[begin:])
    with_checksums[1] &= 0xFE
    assert audio_file(bytes(with_checksums), "x").rate == rate


def test_formats_that_nobody_sends_reach_no_reader() -> None:
    soundfile = pytest.importorskip("soundfile", reason="needs the extra 'audio'")
    file = BytesIO()
    soundfile.write(file, numpy.zeros(100), 16_000, format="AIFF", subtype="PCM_16")
    assert "send WAV" in refusal_of(file.getvalue()).message
