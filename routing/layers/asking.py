"""Guardrails that are asked about a text as a whole: models of the template, and services."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import urlsplit

from msgspec import Raw
from pydantic import SecretStr

from llama_compat.dialects.base import Operation
from llama_compat.dialects.openai.media.operations import MODERATIONS
from llama_compat.dialects.openai.operations import CHAT, EMBEDDINGS
from llama_compat.exchange import Principal
from llama_compat.guardrails.asked.judges import (
    JUDGES,
    PICTURE_JUDGES,
    JudgeFormat,
    Messages,
    PictureFormat,
)
from llama_compat.guardrails.asked.languages import is_outside
from llama_compat.guardrails.asked.said import Said
from llama_compat.guardrails.settings import (
    CheckSettings,
    HookSettings,
    JudgeSettings,
    ModerationSettings,
    PictureSettings,
    Place,
    TopicSettings,
)
from llama_compat.media.images import images_in
from llama_compat.types import ImageContent, UserMessage
from llama_compat.wire.json_fields import encode_json, from_raw, parse_fields
from llama_compat.wire.malformed import MALFORMED
from providers.remote.config import RemoteConfig
from providers.remote.upstream.deferred import DEFERRED
from providers.remote.upstream.exchanges import Upstream
from providers.remote.upstream.images import ImageDownloader, ImageLimits
from routing.ingress.own_requests import lasting, read_through
from routing.request import Handler, Request

GUARDRAIL = Principal("guardrail")
"""Who asks where a guardrail asks a model: what that costs is nobody's doing but the template's."""

_FOUND = frozenset({"BLOCKED", "GUARDRAIL_INTERVENED"})
_NOTHING = "NONE"


class NoVerdict(Exception):
    """What was asked gave no answer that can be read."""


class Asking:
    """Asks checks about texts, until `stop`."""

    def __init__(self) -> None:
        self._hooks: dict[tuple[str, tuple[tuple[str, SecretStr], ...]], Upstream] = {}
        self._downloaders: dict[str, ImageDownloader] = {}
        self._open = AsyncExitStack()
        self._connecting = asyncio.Lock()
        self._next: Handler | None = None
        self._begin: Callable[[Request], None] = lambda request: None
        self._route: Callable[[Request], None] = lambda request: None
        self._numbers = itertools.count()
        self._denied: dict[TopicSettings, list[list[float]]] = {}

    def through(
        self,
        next: Handler,
        begin: Callable[[Request], None],
        route: Callable[[Request], None],
    ) -> None:
        """Models are asked through `next`, which has no guardrails before it.

        Args:
            next: answers requests.
            begin: begins one that came from no client.
            route: looks up where one goes.
        """
        self._next, self._begin, self._route = next, begin, route

    async def stop(self) -> None:
        """Close the connections to services, and to where pictures are."""
        for each in self._hooks.values():
            await each.stop()
        await self._open.aclose()

    async def ask(self, check: CheckSettings, said: Said) -> bool:
        """Whether `check` finds anything in what is said.

        Raises:
            APIError: what was asked failed.
            NoVerdict: it gave no answer that can be read.
        """
        place, text = said.place, said.text
        if check.max_characters is not None:
            return len(text) > check.max_characters
        if check.valid_json:
            return not _is_json(text if said.answer is None else said.answer)
        if check.language is not None:
            return await is_outside(said.texts, check.language)
        if check.judge is not None:
            form = JUDGES[check.judge.format]
            messages = form.messages(check.judge.policy or "", place, text)
            return await self._judged(check.judge, form, messages)
        if check.images is not None:
            assert said.picture is not None
            shows = PICTURE_JUDGES[check.images.format]
            messages = shows.messages(check.images.policy or "", said.picture)
            return await self._judged(check.images, shows, messages)
        if check.moderations is not None:
            return await self._moderations(check.moderations, text)
        if check.topics is not None:
            return await self._topics(check.topics, text)
        assert check.http is not None
        return await self._hook(check.name, check.http, place, text)

    async def fetch(self, check: CheckSettings, url: str) -> str:
        """The picture at `url`, for `check`, as a `data:` URL.

        Raises:
            APIError: it can't be had, or may not.
        """
        settings = check.images
        assert settings is not None
        limits = ImageLimits(
            max_bytes=settings.max_bytes,
            timeout=check.seconds,
            allow_private_addresses=settings.allow_private_addresses,
        )
        pictures = await self._downloader(limits)
        sent = DEFERRED.set(None)  # whatever becomes of the request that is looked through
        try:
            (message,) = await pictures.inline([UserMessage((ImageContent(url),))])
        finally:
            DEFERRED.reset(sent)
        (image,) = images_in(message.content)
        return image.url

    async def _downloader(self, limits: ImageLimits) -> ImageDownloader:
        async with self._connecting:
            which = limits.model_dump_json()
            pictures = self._downloaders.get(which)
            if pictures is None:
                pictures = await self._open.enter_async_context(ImageDownloader(limits))
                self._downloaders[which] = pictures
        return pictures

    async def _judged(
        self,
        judge: JudgeSettings | PictureSettings,
        form: JudgeFormat | PictureFormat,
        messages: Messages,
    ) -> bool:
        answer = await self._model(
            CHAT,
            {
                "model": judge.model,
                "messages": messages,
                "max_tokens": form.max_tokens,
                "temperature": 0,
            },
        )
        try:
            said = answer["choices"][0]["message"]["content"]
            found = form.finds(said)
        except MALFORMED:
            raise NoVerdict(f"model '{judge.model}' did not answer") from None
        if found is None:
            raise NoVerdict(f"model '{judge.model}' answered otherwise than '{judge.format}' does")
        return found

    async def _moderations(self, settings: ModerationSettings, text: str) -> bool:
        answer = await self._model(MODERATIONS, {"model": settings.model, "input": text})
        try:
            results = answer["results"]
            if not results:
                raise KeyError("results")
            if not settings.categories:
                return any(each["flagged"] for each in results)
            return any(
                each["categories"].get(name) for each in results for name in settings.categories
            )
        except MALFORMED:
            raise NoVerdict(f"model '{settings.model}' gave no moderation") from None

    async def _topics(self, topics: TopicSettings, text: str) -> bool:
        denied = self._denied.get(topics)
        if denied is None:
            denied = self._denied[topics] = await self._vectors(topics.model, topics.deny)
        (vector,) = await self._vectors(topics.model, [text])
        if any(len(vector) != len(each) for each in denied):
            raise NoVerdict(f"model '{topics.model}' gave vectors of several lengths")
        return any(_cosine(vector, each) >= topics.threshold for each in denied)

    async def _vectors(self, model: str, texts: Sequence[str]) -> list[list[float]]:
        answer = await self._model(EMBEDDINGS, {"model": model, "input": list(texts)})
        try:
            vectors = [[float(each) for each in row["embedding"]] for row in answer["data"]]
        except (*MALFORMED, ValueError):
            raise NoVerdict(f"model '{model}' gave no vectors") from None
        if len(vectors) != len(texts):
            raise NoVerdict(f"model '{model}' gave {len(vectors)} vectors for {len(texts)} texts")
        for each in vectors:
            if not (any(each) and all(map(math.isfinite, each))):
                raise NoVerdict(f"model '{model}' gave a vector that is near to nothing")
        return vectors

    async def _service(self, name: str, hook: HookSettings) -> Upstream:
        """The connections to a service, which begin with the first question."""
        which = hook.url, tuple(hook.headers.items())
        async with self._connecting:
            service = self._hooks.get(which)
            if service is None:
                service = _upstream(name, hook)
                await service.start()
                self._hooks[which] = service
        return service

    async def _hook(self, name: str, hook: HookSettings, place: Place, text: str) -> bool:
        is_reply = place in ("output", "tool_arguments")
        body = encode_json({"texts": [text], "input_type": "response" if is_reply else "request"})
        parts = urlsplit(hook.url)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        service = await self._service(name, hook)
        async with service.post(path, body) as response:
            answer = _decoded(await response.read())
        action = answer.get("action") if isinstance(answer, dict) else None
        if action in _FOUND:
            return True
        if action != _NOTHING:
            raise NoVerdict(f"{parts.netloc} answered without an 'action' that is known")
        return False

    async def _model(self, operation: Operation, body: dict[str, Any]) -> Any:
        """What a model of the template answers."""
        assert self._next is not None
        fields = parse_fields(encode_json(body))
        request = Request(operation, f"guardrail-{next(self._numbers)}", GUARDRAIL)
        request.asks(fields, operation.look(fields, {}), counts_usage=True)
        sent = DEFERRED.set(None)  # whatever becomes of the request that is looked through
        try:
            with lasting(request, self._begin):
                self._route(request)
                content = await read_through(request, await self._next(request))
        finally:
            DEFERRED.reset(sent)
        return _decoded(content)


def _upstream(name: str, hook: HookSettings) -> Upstream:
    parts = urlsplit(hook.url)
    config = RemoteConfig(base_url=f"{parts.scheme}://{parts.netloc}", headers=hook.headers)
    return Upstream(name, config, {})


def _decoded(body: bytes) -> Any:
    try:
        return from_raw(Raw(body))
    except ValueError as error:
        raise NoVerdict(f"the answer is no JSON: {error}") from None


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    product = sum(map(float.__mul__, one, other))
    return product / (math.hypot(*one) * math.hypot(*other))
