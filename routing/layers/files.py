"""Files that clients have uploaded here, and name in what they ask: what is in them goes on, as if
it had been sent with the request."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from msgspec import Raw
from msgspec.structs import replace

from llama_compat.dialects.base import NamedFile, WireFiles
from llama_compat.errors import APIError
from llama_compat.exchange import Call, Reply
from llama_compat.off_loop import LARGE_BYTES, off_loop
from llama_compat.wire.json_fields import from_raw, to_raw
from llama_compat.wire.malformed import UNREADABLE
from routing.batches.files import FileStore, is_id
from routing.request import Handler, Request

_NAMES = b"file_id"
"""In every request that names a file, unless the name is written in escapes."""


class FilesLayer:
    """Gives calls what is in the files that they name. One that is none of this server's is left to
    the vendor whose it may be.

    Args:
        next: answers requests.
        files: the files.
        max_bytes: what those of one request may come to.
    """

    def __init__(self, next: Handler, files: FileStore, max_bytes: int) -> None:
        self._next = next
        self._files = files
        self._max_bytes = max_bytes

    def __call__(self, request: Request) -> Awaitable[Reply]:
        """Answer a request.

        Raises:
            APIError: 404, a file is not there; 400, it is none that can be where it is named; 413,
                the files are too large; 503; what the next layer raises.
        """
        call = request.call
        wire = None if call is None else call.operation.files
        if call is None or wire is None or wire.member not in call.fields:
            return self._next(request)
        raw = call.fields[wire.member]
        if memoryview(raw).nbytes <= LARGE_BYTES and _NAMES not in bytes(raw):
            return self._next(request)
        return self._answer(request, call, wire, raw)

    async def _answer(self, request: Request, call: Call, wire: WireFiles, raw: Raw) -> Reply:
        size = memoryview(raw).nbytes
        value, named = await off_loop(size, _look, raw, wire)
        if named:
            size += await self._put(call.principal.id, named)
            fields = {**call.fields, wire.member: await off_loop(size, to_raw, value)}
            request.call = replace(call, fields=fields)
        return await self._next(request)

    async def _put(self, owner: str, named: Sequence[NamedFile]) -> int:
        """Put files where they are named; how large they are together."""
        size = 0
        for each in named:
            file = await self._files.get(owner, each.id)
            size += file.bytes
            if size > self._max_bytes:
                raise APIError(
                    413,
                    f"'{each.path}': the files that a request names may have {self._max_bytes}"
                    " bytes together. Name fewer, or smaller ones, or have `max_body_bytes` of the"
                    " template raised.",
                    param=each.path,
                    code="file_too_large",
                )
            data = b"".join([piece async for piece in self._files.content(file.id)])
            await off_loop(len(data), each.put, file.filename, file.media_type, data)
        return size


def _look(raw: Raw, wire: WireFiles) -> tuple[object, list[NamedFile]]:
    """The value of a member, and the files of this server that it names."""
    if _NAMES not in bytes(raw):
        return None, []
    try:
        value = from_raw(raw)
        return value, [each for each in wire.named(value) if is_id(each.id)]
    except UNREADABLE:  # whoever reads it says so
        return None, []
