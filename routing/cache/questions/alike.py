"""Questions that are alike are looked for: by a vector, and by a model that compares the two.

Both are asked of the template's own models, in requests of the cache's own.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from llama_compat.dialects.base import Operation
from llama_compat.dialects.openai.operations import CHAT, EMBEDDINGS
from llama_compat.errors import APIError
from llama_compat.exchange import Call, Principal
from llama_compat.off_loop import off_loop
from llama_compat.wire.json_fields import encode_json, parse_fields
from routing.cache.asked import CacheableCall
from routing.cache.embeddings import first_vector
from routing.cache.exact import ExactCache
from routing.cache.replies.store import Entry
from routing.ingress.own_requests import lasting, read_through, within
from routing.request import Handler, Request

if TYPE_CHECKING:
    from routing.cache.questions.semantic import AskedQuestion
    from routing.layers.chain import Owner
    from routing.layers.guardrails import Guardrails

log = logging.getLogger(__name__)

CACHE = Principal("cache", "cache")
"""Who asks what the cache needs to know."""


class AlikeQuestions:
    """Looks for questions that are alike. What goes wrong is none that is.

    Args:
        next: answers the cache's own requests.
        owner: whose chain it is.
        guardrails: what requests have to pass; None for nothing.
    """

    def __init__(self, next: Handler, owner: Owner, guardrails: Guardrails | None) -> None:
        self._next = next
        self._guardrails = guardrails
        self._owner = owner

    async def compared(
        self, request: Request, call: Call, asked: CacheableCall, cache: ExactCache
    ) -> AskedQuestion | None:
        """What the user asks last, with its vector; None where nothing is to be compared."""
        from routing.cache.questions.semantic import Question

        settings, questions = cache.semantic, cache.questions
        assert settings is not None
        assert questions is not None
        await asked.read(cache.settings)
        meant = asked.meaning
        if meant is None or call.operation.kind != "chat":
            return None
        question = await off_loop(call.size, Question.of, meant, asked.where)
        if question is None:
            return None
        body = {"model": settings.model, "input": question.text}
        told = await self._ask(request, EMBEDDINGS, body, settings.timeout)
        numbers = () if told is None else await off_loop(len(told), first_vector, told)
        return questions.with_vector(question, numbers)

    async def found(
        self,
        request: Request,
        cache: ExactCache,
        compared: AskedQuestion,
        max_age: float | None,
    ) -> AsyncGenerator[tuple[Entry, float], None]:
        """The entries of questions that are so much alike that their replies may be given, the most
        alike first, each with how much it is."""
        from routing.cache.questions.semantic import says_yes, verifying

        settings, questions = cache.semantic, cache.questions
        assert settings is not None
        assert questions is not None
        for each in await questions.alike(compared, settings.threshold):
            entry = await cache.store.find((each.key,), max_age)
            if entry is None:
                if max_age is None and not cache.store.is_away:
                    questions.forget(each.number)
                continue
            if settings.verify is not None:
                body = verifying(settings.verify, each.text, compared.question.text)
                told = await self._ask(request, CHAT, body, settings.timeout)
                if told is None or not says_yes(told):
                    continue
            yield entry, each.similarity

    def _who(self, request: Request) -> Principal:
        """Who asks for the cache: whatever the request has to pass, so has what it asks."""
        call, route = request.call, request.route
        if self._guardrails is None or call is None or route is None:
            return CACHE
        return dataclasses.replace(CACHE, guardrails=tuple(self._guardrails.own(call, route)))

    async def _ask(
        self, request: Request, operation: Operation, body: dict[str, Any], seconds: float
    ) -> bytes | None:
        """What a model of the template answers the cache itself, in a request of its own; None
        where it does not."""
        fields = parse_fields(encode_json(body))
        own = Request(operation, f"{request.request_id}-cache", self._who(request))
        own.asks(fields, operation.look(fields, {}), counts_usage=True)
        try:
            with lasting(own, self._owner.begin):
                return await within(seconds, self._answered(own))
        except APIError as error:
            log.warning("%s: the semantic cache is passed by: %s", own.request_id, error.message)
        return None

    async def _answered(self, own: Request) -> bytes:
        self._owner.route(own)
        return await read_through(own, await self._next(own))
