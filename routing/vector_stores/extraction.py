"""The pieces of a file, found where nothing else waits for it: in a thread where that is quick and
safe, and in a process of its own for everything else."""

from __future__ import annotations

import asyncio
import sys

import msgspec

from providers import environments
from routing.process.programs import end_program, start_program
from routing.vector_stores.chunking import TextChunk
from routing.vector_stores.formats import Pieces, UnreadableFile, is_plain, pieces

MOST_IN_THREAD = 1 << 20
"""Bytes of plain text of which pieces are made in a thread: that takes a tenth of a second."""


async def pieces_of(
    filename: str, data: bytes, *, size: int, overlap: int, seconds: float
) -> list[TextChunk]:
    """The pieces of a file.

    Args:
        filename: its name.
        data: what is in it.
        size, overlap: as for `chunking.chunks`.
        seconds: that it may take.

    Raises:
        UnreadableFile: there are none.
    """
    if len(data) <= MOST_IN_THREAD and is_plain(filename, data):
        found = await asyncio.to_thread(pieces, filename, data, size, overlap)
    else:
        found = await _apart(filename, data, size, overlap, seconds)
    if found.code:
        raise UnreadableFile(found.code, found.message)
    return found.chunks


async def _apart(filename: str, data: bytes, size: int, overlap: int, seconds: float) -> Pieces:
    # It knows nothing of this process: neither its environment nor its open files.
    command = [sys.executable, "-P", "-m", "routing.vector_stores.formats"]
    told = [_argument(filename), str(size), str(overlap), str(int(seconds))]
    process = await start_program([*command, *told], environments.of_reader())
    try:
        async with asyncio.timeout(seconds):
            said, _ = await process.communicate(data)
    except TimeoutError:
        raise UnreadableFile(
            "invalid_file", f"Its text was not found within {seconds:g} seconds."
        ) from None
    finally:
        await end_program(process)
    try:
        return await asyncio.to_thread(msgspec.json.decode, said, type=Pieces)
    except msgspec.MsgspecError:
        raise UnreadableFile(
            "invalid_file", "Its text can't be found: it takes too much memory, or time."
        ) from None


def _argument(filename: str) -> str:
    """A file's name as programs can be given it; of a long one its ending counts."""
    return filename.replace("\x00", "").encode("utf-8", "replace").decode()[-1000:]
