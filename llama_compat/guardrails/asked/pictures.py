"""The pictures of one request and of its reply: each is judged once, and what was judged of a
request is what is sent."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Iterable, Sequence
from hashlib import blake2b

from llama_compat.guardrails.asked.said import Said
from llama_compat.guardrails.settings import CheckSettings, Place
from llama_compat.media.encoded import EncodedFile
from llama_compat.media.images import is_data_url, media_type_of
from llama_compat.types import (
    ChatCompletionRequest,
    ImageContent,
    Message,
    TextContent,
    ToolResponseMessage,
)
from llama_compat.wire.forms import Form

Fetch = Callable[[CheckSettings, str], Awaitable[str | None]]
"""What is at a URL, as a `data:` URL; None where it can't be had, and goes by unseen."""

Judge = Callable[[CheckSettings, Said], Awaitable[bool]]
"""Asks a check about a picture, in the time that it has; whether it found anything."""


class Pictures:
    """What became of the pictures of one request.

    Args:
        judge: may raise what ends the request.
        fetch: gets what a URL names.
        hide: the word that is there in place of a picture.
    """

    def __init__(self, judge: Judge, fetch: Fetch, hide: Callable[[str], str]) -> None:
        self._judge = judge
        self._fetch = fetch
        self._hide = hide
        self._instead: dict[str, ImageContent | TextContent] = {}
        self._verdicts: dict[tuple[str, bytes], bool] = {}
        self._counted: dict[tuple[str, Place], set[bytes]] = {}

    @property
    def changes(self) -> bool:
        """Whether anything else is sent than came."""
        return bool(self._instead)

    def shown(self, image: ImageContent) -> ImageContent | TextContent:
        """What is sent in the place of a picture."""
        return self._instead.get(image.url, image)

    def count(self, check: CheckSettings, place: Place, urls: Sequence[str]) -> None:
        """Count the pictures in `place`, of which a stream brings one after another.

        Raises:
            ValueError: they are more than are judged.
        """
        assert check.images is not None
        most = check.images.max_count
        counted = self._counted.setdefault((check.name, place), set())
        counted.update(map(_digest, urls))
        if len(counted) > most:
            raise ValueError(f"there are more than {most} pictures")

    async def look(self, check: CheckSettings, place: Place, urls: Sequence[str]) -> None:
        """Have a check asked about pictures that it was not asked about before.

        Args:
            check: that.
            place: where they stand.
            urls: theirs, which may be the pictures themselves.

        Raises:
            whatever ends the request.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for url in dict.fromkeys(urls):
                    group.create_task(self._look(check, place, url))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def _look(self, check: CheckSettings, place: Place, url: str) -> None:
        instead = self._instead.get(url)
        if isinstance(instead, TextContent):
            return
        data = url if instead is None else instead.url
        if not is_data_url(data):
            fetched = await self._fetch(check, data)
            if fetched is None:
                return
            data = fetched
            # Its server may have another one for who asks next.
            self._instead[url] = ImageContent(data)
        digest = _digest(data)
        found = self._verdicts.get((check.name, digest))
        if found is None:
            found = await self._judge(check, Said(place, (), picture=data))
            self._verdicts[check.name, digest] = found
        if found and check.mode == "redact":
            self._instead[url] = TextContent(self._hide(digest.hex()))


def _digest(url: str) -> bytes:
    """What a picture is known by: its URL may be megabytes of it."""
    return blake2b(url.encode(errors="surrogatepass"), digest_size=16).digest()


def pictures_of(request: ChatCompletionRequest) -> dict[Place, list[str]]:
    """The URLs of the pictures that a model is shown, by where they stand."""
    found: dict[Place, list[str]] = {}
    for message in request.messages:
        place: Place = "tool_results" if isinstance(message, ToolResponseMessage) else "input"
        for part in _parts(message):
            if isinstance(part, ImageContent):
                found.setdefault(place, []).append(part.url)
    return found


def _parts(message: Message) -> Iterable[object]:
    content = message.content
    parts = getattr(message, "parts", ())
    return parts or (() if isinstance(content, str) or content is None else content)


def pictures_in(form: Form) -> list[str]:
    """The files of a form that are pictures, or are called such, as `data:` URLs."""
    found = []
    for part in form.parts:
        if part.file is None:
            continue
        data = form.body[part.begin : part.end]
        kind = media_type_of(data)
        if kind is None and part.type is not None and part.type.lower().startswith("image/"):
            kind = part.type.lower()
        if kind is not None:
            found.append(EncodedFile(kind, base64.b64encode(data).decode()).data_url)
    return found
