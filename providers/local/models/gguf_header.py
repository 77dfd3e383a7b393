"""What a GGUF file says of itself, read without llama.cpp, which dies of some damaged ones.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, read 2026-11-23.
"""

from __future__ import annotations

import io
import math
import re
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from providers.local.models.sources.ranged import WantedFile, read_range

_NUMBERS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_STRING, _ARRAY = 8, 9
_LONGEST = 1 << 24
"""Bytes of a string, or items of an array, in a file that is not damaged."""
_MOST_KEYS = 1 << 16
_MOST_DIMENSIONS = 8
_FIRST_BYTES = 1 << 18
"""Of a header that are asked for at once; it has the whole vocabulary."""
_KIND_AND_PLACE = 4 + 8
"""Bytes behind a tensor's dimensions."""

_PART = re.compile(r"-00001-of-(\d{5})\.gguf$")

Value = int | float | bool | str
"""Of a key; for an array of numbers the largest of them, others are left out."""


class GGUFHeader(NamedTuple):
    """What stands before the weights.

    Attributes:
        keys: what it says of itself.
        parameters: how many numbers its tensors have.
    """

    keys: Mapping[str, Value]
    parameters: int


def read_header(path: Path) -> Mapping[str, Value]:
    """The keys of the file at `path`, and what they say.

    Raises:
        ValueError: it is no such file, or is damaged.
        OSError: it can't be read.
    """
    with path.open("rb") as file, _explained():
        return _keys(file)[0]


def read_whole_header(file: BinaryIO) -> GGUFHeader:
    """The keys of a file, and how many numbers its tensors have.

    Raises:
        ValueError: it is no such file, or is damaged.
        OSError: it can't be read.
    """
    with _explained():
        keys, tensors = _keys(file)
        parameters = 0
        for _ in range(tensors):
            file.seek(_length(file), 1)
            (dimensions,) = struct.unpack("<I", file.read(4))
            if dimensions > _MOST_DIMENSIONS:
                raise ValueError(f"it has a tensor of {dimensions} dimensions")
            parameters += math.prod(struct.unpack(f"<{dimensions}Q", file.read(8 * dimensions)))
            file.seek(_KIND_AND_PLACE, 1)
        return GGUFHeader(keys, parameters)


def read_remote_header(wanted: WantedFile) -> GGUFHeader:
    """The same of a file on another machine, of which no more is asked for than that.

    Raises:
        ValueError: it is no such file, is damaged, or can't be had.
    """
    return read_whole_header(cast(BinaryIO, _RemoteFile(wanted)))


class _RemoteFile(io.RawIOBase):
    """A file that is read from its start on, as far as it is asked for."""

    def __init__(self, wanted: WantedFile) -> None:
        self._wanted = wanted
        self._had = b""
        self._at = 0

    def read(self, size: int = -1) -> bytes:
        end = self._wanted.size if size < 0 else min(self._at + size, self._wanted.size)
        while len(self._had) < end:
            # Twice as much each time, as a header may have megabytes.
            count = max(_FIRST_BYTES, len(self._had), end - len(self._had))
            wanted = self._wanted
            more = read_range(wanted.url, len(self._had), count, wanted.headers)
            if not more:
                break
            self._had += more
        found = self._had[self._at : end]
        self._at = end
        return found

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (self._at if whence == io.SEEK_CUR else 0)
        return self._at


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except (struct.error, KeyError):
        raise ValueError("its header is cut off, or damaged") from None


def _keys(file: BinaryIO) -> tuple[Mapping[str, Value], int]:
    """The keys, and how many tensors are behind them."""
    if file.read(4) != b"GGUF":
        raise ValueError("it is no GGUF file")
    version, tensors, keys = struct.unpack("<IQQ", file.read(20))
    if version < 2 or keys > _MOST_KEYS or tensors > _MOST_KEYS:
        raise ValueError(f"its header, of version {version}, is not one that is known")
    found: dict[str, Value] = {}
    for _ in range(keys):
        key = _string(file)
        value = _value(file, *struct.unpack("<I", file.read(4)))
        if value is not None:
            found[key] = value
    return found, tensors


def parts_of(path: Path) -> list[Path]:
    """The file at `path`, and those that it goes on in."""
    match = _PART.search(path.name)
    if match is None:
        return [path]
    name, count = path.name[: match.start()], int(match[1])
    return [path.with_name(f"{name}-{at:05}-of-{match[1]}.gguf") for at in range(1, count + 1)]


def _value(file: BinaryIO, kind: int) -> Value | None:
    if kind == _STRING:
        return _string(file)
    if kind != _ARRAY:
        return _number(file, kind)
    item, count = struct.unpack("<IQ", file.read(12))
    if count > _LONGEST:
        raise ValueError(f"it has an array of {count} items")
    if item == _STRING:
        for _ in range(count):
            file.seek(_length(file), 1)
        return None
    if item == _ARRAY:
        raise ValueError("it has an array of arrays")
    size = struct.calcsize(_NUMBERS[item])
    numbers = [each[0] for each in struct.iter_unpack(_NUMBERS[item], file.read(size * count))]
    return max(numbers, default=None)


def _number(file: BinaryIO, kind: int) -> Value:
    form = _NUMBERS[kind]
    number: Value = struct.unpack(form, file.read(struct.calcsize(form)))[0]
    return number


def _string(file: BinaryIO) -> str:
    return file.read(_length(file)).decode("utf-8", "replace")


def _length(file: BinaryIO) -> int:
    length: int = struct.unpack("<Q", file.read(8))[0]
    if length > _LONGEST:
        raise ValueError(f"it has a text of {length} bytes")
    return length
