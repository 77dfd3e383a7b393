"""Files of audio: how long they are, and their samples.

A file of some bytes may say that it holds hours. So how long it is is read first, and a WAV file is
held to what it has.
"""

from __future__ import annotations

import wave
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from io import BytesIO
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from providers.local.media.medium import Kind, MediumFile, broken_medium, invalid_medium
from providers.local.media.resampling import resampled

if TYPE_CHECKING:
    import numpy

    Samples = numpy.ndarray[Any, numpy.dtype[numpy.float32]]

RATES = (
    *(8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000),
    *(88_200, 96_000, 176_400, 192_000),
)
"""Samples a second that recordings have, from telephones' to studios'."""

MAX_CHANNELS = 16
"""More than any recording has that a model can make something of."""

_MP3_FRAMES = (b"\xff\xfb", b"\xff\xfa", b"\xff\xf3", b"\xff\xf2", b"\xff\xe3", b"\xff\xe2")
"""How a frame of layer III of MPEG 1, 2 and 2.5 begins, without a checksum and with one
(ISO 11172-3, 2.4.2.3)."""

_SNDFILE_BEGINS = (b"RIFF", b"fLaC", b"OggS", b"ID3", *_MP3_FRAMES)
"""How WAV, FLAC, Ogg and MP3 begin: libsndfile knows twenty more formats, most of them for old
programs, whose readers nobody need be able to reach."""


@dataclass(frozen=True)
class AudioFile(MediumFile):
    """A file of audio as it came.

    Attributes:
        frames: how many samples each of its channels has.
        rate: how many there are a second.
    """

    kind: ClassVar[Kind] = "audio"

    frames: int
    rate: int

    @property
    def seconds(self) -> float:
        """How long it takes."""
        return self.frames / self.rate

    @property
    def extent(self) -> str:
        """See `MediumFile`."""
        return f"{self.seconds:.2f} s"

    def samples_at(self, rate: int) -> int:
        """How many samples `unpacked` gives."""
        return -(-self.frames * rate // self.rate)

    def unpacked(self, rate: int) -> Samples:
        """Its samples, float32 `[samples]` from -1 to 1, of all its channels together.

        Args:
            rate: how many there are to be a second.

        Raises:
            APIError: 400; the file is damaged behind its first bytes.
        """
        import numpy

        try:
            frames = _open(self.content).read()
        except Exception as error:  # of a damaged file, whatever its reader stumbles over
            raise self.broken(error) from error
        if len(frames) != self.frames:
            raise self.broken(ValueError(f"it ends after {len(frames)} of {self.frames} samples"))
        if not numpy.isfinite(frames).all():
            raise self.broken(ValueError("some of its samples are no numbers (NaN or infinite)"))
        # Numbers of 32 bits may be anything, and louder than 1 is what no loudspeaker plays.
        mono = frames.mean(axis=1, dtype=numpy.float32).clip(-1, 1)
        return resampled(mono, self.rate, rate)


def audio_file(content: bytes, param: str) -> AudioFile:
    """The file, as far as its first bytes tell.

    Args:
        content: its bytes.
        param: see `MediumFile`.

    Raises:
        APIError: 400; it is none that can be read, is cut off, or holds nothing.
    """
    try:
        opened = _open(content)
    except _UnknownFormatError as error:
        raise invalid_medium("audio", param, f"is none that can be read: {error}") from error
    except Exception as error:  # of a damaged file, whatever its reader stumbles over
        raise broken_medium("audio", param, error) from error
    if not opened.frames:
        raise invalid_medium("audio", param, "has no samples.")
    if opened.rate not in RATES:
        why = f"has {opened.rate} samples a second: send one with {', '.join(map(str, RATES))}."
        raise invalid_medium("audio", param, why)
    if opened.channels > MAX_CHANNELS:
        why = f"has {opened.channels} channels, more than {MAX_CHANNELS}."
        raise invalid_medium("audio", param, why)
    return AudioFile(content, param, opened.frames, opened.rate)


class _UnknownFormatError(ValueError):
    """A file is in none of the formats that are read here; the message is a part of a sentence."""


class _Opened(NamedTuple):
    """A file whose first bytes were read.

    Attributes:
        frames, channels, rate: as they say.
        read: gives its samples, float32 `[frames, channels]`.
    """

    frames: int
    channels: int
    rate: int
    read: Callable[[], Samples]


def _open(content: bytes) -> _Opened:
    """Open a file: one of WAV with the standard library, any other with libsndfile, if it is there.

    Raises:
        _UnknownFormatError: it is in none of the formats that are read.
        Exception: it is damaged.
    """
    if content[:4] == b"RIFF" and content[8:12] == b"WAVE":
        try:
            return _open_wav(content)
        except wave.Error as error:
            if not str(error).startswith("unknown format"):
                raise
    return _open_with_sndfile(content)


def _open_wav(content: bytes) -> _Opened:
    try:
        reader = wave.open(BytesIO(content))  # noqa: SIM115 (it holds no more than these bytes)
    except EOFError as error:
        raise ValueError("it is cut off within its header") from error
    width, channels, frames = reader.getsampwidth(), reader.getnchannels(), reader.getnframes()
    if width not in _PCM:
        raise ValueError(f"its samples have {8 * width} bits, and not 8, 16, 24 or 32")
    held = len(reader.readframes(frames))
    if held != frames * width * channels:
        raise ValueError(
            f"its header says that it holds {frames} samples, and {held // (width * channels)} are"
            " there: it was cut off, or written by a program that did not know how long it is"
        )
    reader.rewind()
    return _Opened(
        frames,
        channels,
        reader.getframerate(),
        lambda: _PCM[width](reader.readframes(frames)).reshape(-1, channels),
    )


def _pcm8(data: bytes) -> Samples:
    import numpy

    return (numpy.frombuffer(data, numpy.uint8).astype(numpy.float32) - 128) * numpy.float32(
        1 / 128
    )


def _pcm16(data: bytes) -> Samples:
    import numpy

    return numpy.frombuffer(data, "<i2").astype(numpy.float32) * numpy.float32(2**-15)


def _pcm24(data: bytes) -> Samples:
    import numpy

    # As the upper three bytes of a number of four.
    wide = numpy.zeros((len(data) // 3, 4), numpy.uint8)
    wide[:, 1:] = numpy.frombuffer(data, numpy.uint8).reshape(-1, 3)
    return _pcm32(wide.tobytes())


def _pcm32(data: bytes) -> Samples:
    import numpy

    return numpy.frombuffer(data, "<i4").astype(numpy.float32) * numpy.float32(2**-31)


_PCM: dict[int, Callable[[bytes], Samples]] = {1: _pcm8, 2: _pcm16, 3: _pcm24, 4: _pcm32}
"""By the bytes of a sample: what makes numbers from -1 to 1 of them."""


def _open_with_sndfile(content: bytes) -> _Opened:
    taken = "WAV (PCM of 8, 16, 24 or 32 bits)"
    try:
        soundfile = import_module("soundfile")
    except (ImportError, OSError) as error:
        raise _UnknownFormatError(
            f"send {taken}. MP3, FLAC, Ogg and other WAV are read as well where"
            " 'llama-compat[audio]' is installed."
        ) from error
    if not content.startswith(_SNDFILE_BEGINS):
        raise _UnknownFormatError(f"send {taken}, MP3, FLAC or Ogg.")
    file = soundfile.SoundFile(BytesIO(content))
    return _Opened(
        file.frames,
        file.channels,
        file.samplerate,
        lambda: file.read(file.frames, dtype="float32", always_2d=True),
    )
