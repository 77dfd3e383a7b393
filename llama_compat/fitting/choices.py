"""The requests of a call's choices, each as it is asked of the provider."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

from msgspec import structs

from llama_compat.dialects.base import Translation
from llama_compat.exchange import Call, Target
from llama_compat.fitting.fit import Fitted
from llama_compat.fitting.honoured import GenerationRequest, VocabularyProvider
from llama_compat.once import Once
from llama_compat.prefixes.marks import marks_of
from llama_compat.types import CAN_WAIT, ChatCompletionRequest


def choices_of(
    provider: VocabularyProvider,
    translation: Translation,
    call: Call,
    target: Target,
    fitted: Fitted,
) -> list[GenerationRequest]:
    """The request of each choice, as the target takes it; those of one prompt, in a row, share what
    is made of it."""
    requests: list[GenerationRequest] = []
    prepared = Once()
    has_one_prompt = len(translation.requests) == translation.choices_per_prompt
    mark = partial(marks_of, call) if has_one_prompt else None
    for index, request in enumerate(translation.requests):
        if index % translation.choices_per_prompt == 0:
            prepared = Once()
        own = structs.replace(
            _without_what_is_unknown(provider, cast(GenerationRequest, request)),
            request_id=call.request_id,
            context_length=target.context_length,
            prepared=prepared,
            mark=mark,
            **_changes(request, fitted),
        )
        if call.can_wait and "priority" in provider.parameters:
            own = structs.replace(own, sampling=structs.replace(own.sampling, priority=CAN_WAIT))
        if target.prompt_cache and isinstance(own, ChatCompletionRequest):
            own = structs.replace(own, marks_prompt=True)
        requests.append(own)
    return requests


def _changes(request: Any, fitted: Fitted) -> dict[str, Any]:
    """What is different in one choice's request: the seed is its own."""
    changes = fitted.changes
    if "sampling" not in changes:
        return changes
    stated = changes["sampling"].stated
    return {**changes, "sampling": structs.replace(request.sampling, stated=stated)}


def _without_what_is_unknown(
    provider: VocabularyProvider, request: GenerationRequest
) -> GenerationRequest:
    """`request` without the wish not to think, which a provider that knows of no thinking fulfils
    without a word, and would not know the word for."""
    effort = getattr(request, "reasoning_effort", None)
    if effort == "none" and "reasoning_effort" not in provider.parameters:
        return structs.replace(request, reasoning_effort=None)
    return request
