"""The file of weights that are kept beside their model: written once, and read into memory before
torch is there.

What torch's import leaves of the machine reads it: one thread, as that keeps Python to itself, and
all cores once somebody waits for it, but for those that engines compute on meanwhile.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import threading
import zlib
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from providers.local.threads.giving_way import piece
from providers.local.torch_engine.config import PACKED, TorchConfig
from providers.local.torch_engine.formats.header import header_in

_AT_ONCE = min(8, os.cpu_count() or 1)
"""Tensors that are read at the same time, where nothing else computes."""

_PIECE = 4 * 2**20
"""Bytes of them that are read at a time: some milliseconds."""

_ALIGNED = 64
"""Bytes that a tensor begins at a multiple of, as torch's own do."""


def kept_beside(folder: Path, name: str) -> Path:
    """Where something with this name is kept that was made of the model in `folder`."""
    return folder / ".llama-compat" / name


def file_in(folder: Path, quantization: str) -> Path:
    """Where the weights of the model in `folder` are kept: `quantization` is of `PACKED`."""
    return kept_beside(folder, f"{quantization}.safetensors")


def likely_weights(folder: Path, config: TorchConfig) -> KeptWeights | None:
    """Those that a start of the model in `folder` will read; None where it may be others, or where
    there are none. What is read in vain was read beside something else."""
    kinds = PACKED if config.quantization == "auto" else PACKED & {config.quantization}
    files = [file for kind in kinds if (file := file_in(folder, kind)).is_file()]
    if len(files) != 1 or config.device not in ("auto", "cpu") or config.dtype != "auto":
        return None
    return KeptWeights(files[0])


class KeptTensor(NamedTuple):
    """A tensor as it was read.

    Attributes:
        dtype: as safetensors calls it.
        shape: of it.
        offset: in bytes, from where the memory begins.
        size: in bytes.
    """

    dtype: str
    shape: tuple[int, ...]
    offset: int
    size: int


class Numbers(NamedTuple):
    """A tensor that is to be kept.

    Attributes:
        dtype: as safetensors calls it.
        shape: of it.
        data: its bytes, in order.
    """

    dtype: str
    shape: tuple[int, ...]
    data: memoryview


def write_weights(file: Path, tensors: Mapping[str, Numbers], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file; it is on the disk when this returns.

    The library for that keeps all of Python waiting until it has written the last byte.

    Args:
        file: the new file.
        tensors: by name.
        metadata: what it says beside them.

    Raises:
        OSError: it can't be written.

    Source: https://huggingface.co/docs/safetensors, Format.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name, (dtype, shape, data) in tensors.items():
        begin, end = end, end + data.nbytes
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # so that the numbers begin where any of theirs may
    with file.open("wb") as opened:
        opened.write(struct.pack("<Q", len(text)) + text)
        for each in tensors.values():
            for begin in range(0, each.data.nbytes, _PIECE):
                with piece():
                    opened.write(each.data[begin : begin + _PIECE])
        opened.flush()
        os.fsync(opened.fileno())


class _Opened(NamedTuple):
    """A file that is open.

    Attributes:
        file: itself; of what is put in its place meanwhile nothing is read.
        start: where its numbers begin.
        begins: where each tensor does, behind that.
        metadata: what it says beside its tensors.
        tensors: by name.
        memory: of all of them.
    """

    file: BinaryIO
    start: int
    begins: Mapping[str, int]
    metadata: Mapping[str, str]
    tensors: Mapping[str, KeptTensor]
    memory: mmap.mmap


class KeptWeights:
    """Reads the tensors of a safetensors file into memory of their own.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._opened: _Opened | None = None
        self._left: deque[str] = deque()
        self._sums: dict[str, int] = {}
        self._opening = threading.Lock()
        self._aside: Future[None] | None = None
        self._is_over = False

    def open(self) -> Mapping[str, str]:
        """Open the file, which is done once.

        Returns:
            What it says beside its tensors.

        Raises:
            OSError: it can't be read.
            ValueError: it is damaged.
        """
        return self._open().metadata

    def begin(self, aside: ThreadPoolExecutor) -> None:
        """Read it in a thread of `aside`, after what that does before."""
        self._aside = aside.submit(self._read_some)

    def _open(self) -> _Opened:
        with self._opening:
            if self._opened is None:
                file = self.path.open("rb")
                try:
                    self._opened = _opened(file)
                except BaseException:
                    file.close()
                    raise
                tensors = self._opened.tensors
                self._left.extend(sorted(tensors, key=lambda name: -tensors[name].size))
            return self._opened

    def _read_some(self) -> None:
        """Read tensors until none is left, the largest first."""
        opened = self._open()
        whole = memoryview(opened.memory)
        while not self._is_over:
            try:
                name = self._left.popleft()
            except IndexError:
                return
            tensor = opened.tensors[name]
            into, done, total = whole[tensor.offset : tensor.offset + tensor.size], 0, 0
            begin = opened.start + opened.begins[name]
            while done < tensor.size:
                with piece():
                    some = [into[done : done + _PIECE]]
                    count = os.preadv(opened.file.fileno(), some, begin + done)
                    if not count:
                        raise OSError(f"{self.path} ends within '{name}'")
                    # A gigabyte a second and core, at least.
                    total = zlib.crc32(into[done : done + count], total)
                    done += count
            self._sums[name] = total

    def read(self) -> tuple[mmap.mmap, Mapping[str, KeptTensor], Mapping[str, int]]:
        """Read what is left of it, by several threads.

        Returns:
            The memory, the tensors in it, and what changes with any of their numbers.

        Raises:
            OSError: it ends before its tensors do.
            ValueError: it is damaged.
        """
        opened = self._open()
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="reading") as threads:
            for each in [threads.submit(self._read_some) for _ in range(_AT_ONCE)]:
                each.result()
        if self._aside is not None:
            self._aside.result()
        return opened.memory, opened.tensors, self._sums

    def close(self) -> None:
        """Read nothing more of it."""
        self._is_over = True
        if self._aside is not None and not self._aside.cancel():
            self._aside.exception()  # waits for it
        if self._opened is not None:
            self._opened.file.close()


def _opened(file: BinaryIO) -> _Opened:
    """Of a file that was just opened.

    Raises:
        ValueError: it is damaged.
    """
    start, header = header_in(file)
    begins, tensors, offset = {}, {}, 0
    try:
        metadata = header.pop("__metadata__", {})
        for name, each in header.items():
            begin, end = each["data_offsets"]
            if not 0 <= begin <= end <= os.fstat(file.fileno()).st_size - start:
                raise ValueError(f"it has no '{name}'")
            begins[name] = begin
            tensors[name] = KeptTensor(each["dtype"], tuple(each["shape"]), offset, end - begin)
            offset += -(-(end - begin) // _ALIGNED) * _ALIGNED
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"its header is damaged: {error}") from error
    return _Opened(file, start, begins, metadata, tensors, _memory(offset))


def _memory(size: int) -> mmap.mmap:
    """So many bytes, in pages as large as the system has."""
    memory = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(AttributeError, OSError):  # a system that has none
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory
