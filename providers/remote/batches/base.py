"""What a vendor's batch API is, whosever it is: an input is handed over, asked for, and read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from enum import StrEnum
from typing import NamedTuple, TypeVar

import msgspec
from msgspec import Raw, Struct

from llama_compat.errors import APIError
from llama_compat.wire.json_fields import encode_json, unicode_from_raw
from providers.remote.upstream.deferred import Unsent
from providers.remote.upstream.exchanges import Upstream
from providers.remote.upstream.vendor_errors import no_json

Said = TypeVar("Said")

PAGE = 100
MAX_PAGES = 100
"""So many pages of a vendor's list are looked through for a batch that may be there."""

SKEW_SECONDS = 3600.0
"""Batches that are older than an order by so much, by the vendor's clock, are none of it."""

MAX_SAID_BYTES = 16 * 1024 * 1024
"""Of what a vendor says of a batch, or of a page of them, so much is read."""


class InputEnvelope(NamedTuple):
    """What an input is sent in.

    Attributes:
        before, between, after: bytes that stand before its lines, between two, and after them.
        content_type: of all of it.
    """

    before: bytes
    between: bytes
    after: bytes
    content_type: str


class Order(Struct, frozen=True):
    """What a vendor is to work on.

    Attributes:
        id: ours. It is a part of what each line is called, and of what the vendor is told besides.
        endpoint: what its lines ask, as the vendor calls it.
        model: the model that all of them ask, as the vendor calls it.
        headers: those that all of them have, and that mean something.
        lines: how many there are.
        asked: when the vendor was asked for it, in seconds since 1970; 0 for not yet.
        input_file: what the vendor calls the input; empty where it has none of its own.
    """

    id: str
    endpoint: str
    model: str
    headers: Mapping[str, str]
    lines: int = 0
    asked: float = 0.0
    input_file: str = ""


class VendorStatus(StrEnum):
    """How far a vendor's batch has come."""

    running = "running"
    ended = "ended"
    """All that could be answered was."""
    failed = "failed"
    """It was refused, and nothing of it was answered."""
    expired = "expired"
    cancelled = "cancelled"


class VendorProblem(Struct, frozen=True):
    """Why a vendor refused a batch.

    Attributes:
        code, message: in its words.
        line: the line of the input that it is about, from 1; None for all of it.
    """

    code: str
    message: str
    line: int | None = None


class VendorBatch(Struct, frozen=True):
    """A vendor's batch as it is now.

    Attributes:
        id: the vendor's.
        status: how far it has come.
        done: lines that have an answer, or an error, as far as the vendor tells.
        outputs: what there is to be read, as `VendorBatches.results` takes it.
        problems: why it was refused.
    """

    id: str
    status: VendorStatus
    done: int = 0
    outputs: Sequence[str] = ()
    problems: Sequence[VendorProblem] = ()


class FoundBatch(NamedTuple):
    """Whether a vendor has a batch of which nobody heard that it began.

    Attributes:
        batch: it; None where there is none.
        may_be: whether one of those that run may be it, which shows when they have ended.
    """

    batch: VendorBatch | None
    may_be: bool = False


class LineAnswer(Struct, frozen=True):
    """What became of one line.

    Attributes:
        custom_id: what it was called.
        status: HTTP status, or the one that stands for what is said; 0 where the vendor has never
            come to it: the batch was cancelled, or its time was over.
        body: the answer, or the error, in the words of a single request's.
        was_cancelled: whether that is why there is none.
    """

    custom_id: str
    status: int
    body: bytes = b""
    was_cancelled: bool = False


class VendorBatches(ABC):
    """A vendor's batch API.

    Args:
        provider: its id, for messages.
        upstream: the connections to it.

    Attributes:
        max_lines, max_bytes: of one input.
    """

    max_lines: int = 50_000
    max_bytes: int = 200_000_000

    def __init__(self, provider: str, upstream: Upstream) -> None:
        self.provider = provider
        self.upstream = upstream

    @abstractmethod
    def endpoint(self, unsent: Unsent) -> str | None:
        """What a request asks, as orders have it; None where no batch may ask that."""

    def headers(self, unsent: Unsent) -> Mapping[str, str]:
        """Those of a request that mean something, and that all lines of an order have in common."""
        return {}

    @abstractmethod
    def line(self, custom_id: str, endpoint: str, body: bytes) -> bytes:
        """A line of an input: `body` is one line of JSON."""

    @abstractmethod
    def envelope(self, order: Order) -> InputEnvelope:
        """What the lines are sent in."""

    async def upload(self, order: Order, body: memoryview) -> str:
        """Send an input that nobody is asked to work on yet; what the vendor calls it.

        Raises:
            APIError: it can't be sent.
        """
        return ""

    @abstractmethod
    async def create(self, order: Order, body: memoryview | None) -> VendorBatch:
        """Have a vendor begin, which is paid for.

        Raises:
            APIError: it did not, or nobody knows.
        """

    @abstractmethod
    async def find(self, order: Order) -> FoundBatch:
        """Whether the vendor has begun with an order, which it may have been told.

        Raises:
            APIError: it can't be asked.
        """

    @abstractmethod
    async def look(self, batch_id: str) -> VendorBatch:
        """A batch as it is now.

        Raises:
            APIError: 404, there is none; others, the vendor can't be asked.
        """

    @abstractmethod
    async def cancel(self, batch_id: str) -> None:
        """Have a batch end. What it has answered is there once it has.

        Raises:
            APIError: it does not, or the vendor can't be asked.
        """

    @abstractmethod
    def results(self, output: str) -> AsyncGenerator[bytes, None]:
        """The lines of one of a batch's outputs, in pieces as they come.

        Raises (from the generator):
            APIError: they can't be had.
        """

    @abstractmethod
    def answer(self, line: bytes) -> LineAnswer:
        """What a line of an output says.

        Raises:
            ValueError: nothing that makes sense.
        """

    async def clean(self, order: Order, batch: VendorBatch | None) -> None:  # noqa: B027
        """Remove what the vendor need not keep any more.

        Raises:
            APIError: it keeps some of it.
        """

    # For those that are one -----------------------------------------------------------------------

    async def said(self, path: str, kind: type[Said], *, base_url: str | None = None) -> Said:
        """What the vendor says at a path.

        Raises:
            APIError: 502, it is none of that.
        """
        async with self.upstream.get(path, base_url=base_url) as response:
            return self.decoded(await response.read(MAX_SAID_BYTES), kind)

    def decoded(self, body: bytes, kind: type[Said]) -> Said:
        """What the vendor has said.

        Raises:
            APIError: 502, it is none of that.
        """
        try:
            return msgspec.json.decode(body, type=kind, strict=False)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise no_json(self.provider, body, ValueError(str(error))) from None

    async def downloaded(
        self, path: str, *, base_url: str | None = None
    ) -> AsyncGenerator[bytes, None]:
        """What is at a path, as it comes.

        Raises (from the generator):
            APIError: it can't be had.
        """
        async with (
            self.upstream.get(path, base_url=base_url) as response,
            aclosing(response.chunks()) as chunks,
        ):
            async for chunk in chunks:
                yield chunk

    async def remove(self, paths: Iterable[str], *, base_url: str | None = None) -> None:
        """Have what is at each of these paths be there no more, whatever comes of the others.

        Raises:
            APIError: some of it stays.
        """
        stays: APIError | None = None
        for path in paths:
            try:
                async with self.upstream.delete(path, base_url=base_url) as response:
                    await response.read()
            except APIError as error:
                if not is_gone(error):
                    stays = stays or error
        if stays is not None:
            raise stays


def line_of(line: bytes, decoder: msgspec.json.Decoder[Said]) -> Said:
    """A line of an output, or a part of one; U+FFFD is in the place of half a character.

    Raises:
        ValueError: it is none of that.
    """
    try:
        try:
            return decoder.decode(line)
        except msgspec.MsgspecError:
            if b"\\ud" not in line.lower():
                raise
            # It is JSON all the same, as models have it that are cut off, and has been paid for.
            return decoder.decode(encode_json(unicode_from_raw(Raw(line))))
    except (msgspec.MsgspecError, RecursionError, OverflowError) as error:
        raise ValueError(str(error)) from None


def files_of(order: Order, batch: VendorBatch | None) -> list[str]:
    """What the vendor calls the files that an order has there, where it has any."""
    outputs = batch.outputs if batch is not None else ()
    return [each for each in (order.input_file, *outputs) if each]


def in_one_line(body: bytes) -> bytes:
    """JSON without the line breaks that may be between its members."""
    return body.replace(b"\n", b" ").replace(b"\r", b" ")


def is_gone(error: APIError) -> bool:
    """Whether a vendor says that there is nothing of this id."""
    return error.status in (404, 410)
