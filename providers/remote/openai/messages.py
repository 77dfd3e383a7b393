"""The messages of chats as a vendor takes them, whoever wrote them: a client whose call is relayed,
or this server, which has translated it."""

from __future__ import annotations

from collections.abc import Callable, Set
from functools import partial

from msgspec import Raw

from llama_compat.dialects.openai.chat.call_ids import have_long_ids, with_fitting_ids
from llama_compat.dialects.openai.chat.files import (
    addresses_in,
    have_files,
    path_of_file,
    with_document_urls,
    with_file_data,
)
from llama_compat.dialects.openai.chat.own_members.refusals import with_refusals_said
from llama_compat.dialects.openai.chat.own_members.speakers import without_speakers
from llama_compat.dialects.openai.chat.reasoning_fields import (
    have_calls,
    have_reasoning,
    with_reasoning_in,
)
from llama_compat.dialects.openai.chat.role_order import FAMILY as ORDERED
from llama_compat.dialects.openai.chat.role_order import with_role_order
from llama_compat.fitting.placeless import SPEAKERS
from llama_compat.media.audio import not_taken
from llama_compat.off_loop import off_loop
from llama_compat.tools.call_ids import alphanumeric_id
from llama_compat.tools.calls import bounded_call_id
from llama_compat.wire.json_fields import JSONFields
from providers.remote.openai.vendor import Vendor
from providers.remote.upstream.images import ImageDownloader


class MessageForm:
    """How one vendor takes messages.

    Args:
        vendor: it.
        reasoning_fields: in which members it takes back what models thought; None for any.
        downloader: fetches what messages have the address of, and the vendor wants the bytes of.

    Attributes:
        takes_thoughts: whether there is any.
        stand_ins: what is put into those members where there is nothing, and it wants something.
    """

    def __init__(
        self, vendor: Vendor, reasoning_fields: Set[str] | None, downloader: ImageDownloader
    ) -> None:
        self._vendor = vendor
        self._reasoning_fields = reasoning_fields
        self._downloader = downloader
        self.takes_thoughts = reasoning_fields is None or bool(reasoning_fields)
        taken = reasoning_fields or frozenset()
        self.stand_ins = {name: value for name, value in vendor.stand_ins.items() if name in taken}

    async def fit(self, fields: JSONFields, family: str) -> tuple[str, ...]:
        """See that the messages of a request are in the vendor's form, and what the models of
        others said in them.

        Args:
            fields: the request's; changed.
            family: whose model is asked.

        Returns:
            The names of what had to be left out although it says something.

        Raises:
            APIError: 400, there is a file in them that the vendor does not take, or that can't be
                fetched for it.
        """
        messages = fields.get("messages")
        if messages is None:
            return ()
        left_out: tuple[str, ...] = ()
        if not self._vendor.takes_speakers:
            named = await _changed(without_speakers, messages)
            left_out = () if named is messages else (SPEAKERS,)
            messages = named
        if not self._vendor.takes_refusals:
            messages = await _changed(with_refusals_said, messages)
        messages = await self._with_reasoning(messages)
        messages = await self._with_ids(messages)
        if have_files(messages):
            messages = await self._with_files(messages)
        if family == ORDERED:
            ordered = partial(with_role_order, marks_prefix=self._vendor.marks_prefix)
            messages = await _changed(ordered, messages)
        fields["messages"] = messages
        return left_out

    async def _with_reasoning(self, messages: Raw) -> Raw:
        """Leave in what the vendor takes of what models thought, and put something in where there
        is nothing and it wants something."""
        taken = self._reasoning_fields
        if taken is None:
            return messages
        if have_reasoning(messages) or (self.stand_ins and have_calls(messages)):
            fitted = partial(with_reasoning_in, taken=taken, stand_ins=self.stand_ins)
            return await _changed(fitted, messages)
        return messages

    async def _with_ids(self, messages: Raw) -> Raw:
        length, limit = self._vendor.call_id_length, self._vendor.call_id_limit
        if length is not None and have_calls(messages):
            fit = partial(alphanumeric_id, length=length)
        elif limit is not None and have_calls(messages) and have_long_ids(messages, limit):
            fit = partial(bounded_call_id, limit=limit)
        else:
            return messages
        return await _changed(partial(with_fitting_ids, fit=fit), messages)

    async def _with_files(self, messages: Raw) -> Raw:
        size = memoryview(messages).nbytes
        if self._vendor.documents is None:
            path = await off_loop(size, path_of_file, messages)
            if path is None:
                return messages
            raise not_taken("a document", path, f"{self._vendor.name}'s OpenAI API")
        addresses = await off_loop(size, addresses_in, messages)
        if addresses:
            data = dict(zip(addresses, addresses, strict=True))
            if not self._vendor.fetches_documents:
                data = dict(await self._downloader.documents(addresses))
            size += sum(map(len, data.values()))
            messages = await off_loop(size, with_file_data, messages, data)
        if self._vendor.documents == "document_url":
            return await _changed(with_document_urls, messages)
        return messages


async def _changed(change: Callable[[Raw], Raw], messages: Raw) -> Raw:
    """The messages after a change, made where it does not block the loop if they are large."""
    return await off_loop(memoryview(messages).nbytes, change, messages)
