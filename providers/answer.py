"""Relay or translate: the seam that every call passes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from llama_compat.dialects.base import Kind
from llama_compat.errors import told_by_name, unsupported_capability
from llama_compat.exchange import JSON_HEADERS, Call, Reply, Target
from llama_compat.fitting.fit import Fit
from llama_compat.fitting.honoured import check
from llama_compat.fitting.relayed import fit_fields
from llama_compat.fitting.stops import all_told
from llama_compat.off_loop import off_loop
from llama_compat.reasoning.recollection import Recollection
from llama_compat.reasoning.relayed import watched
from providers.base import Provider

if TYPE_CHECKING:
    from providers.local.residency.resident import Resident

METHODS: Mapping[Kind, str] = {
    "chat": "openai_chat_completion",
    "completion": "openai_completion",
    "embedding": "openai_embeddings",
    "token_count": "openai_token_count",
    "rerank": "openai_rerank",
}
"""The method of a provider that answers a call, by what the call comes down to; without one it can
only be relayed."""


def answer(provider: Provider, call: Call, target: Target) -> Awaitable[Reply]:
    """Have `provider` answer `call` from its model `target`.

    A wire that it speaks itself is relayed; for all others the call is put into the vocabulary.
    What goes wrong with a model of this machine is said of it by the name that the client has.

    Raises:
        APIError: the call can't be answered, or was not.
    """
    if provider.loads_models:
        return _by_the_clients_name(provider, call, target)
    return _with_what_was_thought(provider, call, target)


async def _by_the_clients_name(provider: Provider, call: Call, target: Target) -> Reply:
    with told_by_name(call.model):
        return await _with_what_was_thought(provider, call, target)


def _with_what_was_thought(provider: Provider, call: Call, target: Target) -> Awaitable[Reply]:
    if call.recollection is not None:
        return _recollecting(provider, call, target, call.recollection)
    return _answer(provider, call, target)


def _answer(provider: Provider, call: Call, target: Target) -> Awaitable[Reply]:
    operation = call.operation
    if relays(provider, call, target):
        relayed = call if call.relayed is None else replace(call, fields=call.relayed)
        if target.fit is not None and target.fit.adapts_relayed:
            return _relay_fitted(provider, relayed, target, target.fit)
        return provider.relay(relayed, target)
    nothing = operation.nothing(call.fields, call.model)
    resident = provider.resident(target.model)
    if nothing is not None:
        return _said(nothing) if resident is None else _told(resident, call, nothing)
    if operation.capability:
        raise unsupported_capability(provider.id, operation.capability)
    method: Callable[[Call, Target], Awaitable[Reply]] = getattr(provider, METHODS[operation.kind])
    if resident is not None:
        return _leasing(resident, provider, method, call, target)
    return method(call, target)


def relays(provider: Provider, call: Call, target: Target) -> bool:
    """Whether `provider` gets `call` as it came, rather than put into the vocabulary."""
    wire = call.operation.name
    if not call.may_be_relayed or wire not in provider.relays:
        return False
    if provider.searches_elsewhere(call, target.model) or provider.calls_elsewhere(call, target):
        return False
    if provider.is_seen_to_here(call):
        return False
    if not all_told(provider, call, target.model):
        return False
    # What the vendor does not run itself, or can't as it has not the files, is run here.
    toolbox = call.toolbox
    if toolbox is None:
        return True
    return not toolbox.stays_here and toolbox.kinds <= provider.hosted_tools(wire)


async def _recollecting(
    provider: Provider, call: Call, target: Target, recollection: Recollection
) -> Reply:
    """Answer a call whose turns called tools, or may: with what they lost, and what is thought now
    is kept. What is translated sees to that in the vocabulary.

    Raises:
        APIError: the call can't be answered, or was not.
    """
    form = None if target.fit is None else target.fit.form
    rule = provider.reasoning_rule(target.model)
    recollection = recollection.at(rule, bound=form is not None and form.bound)
    turns, replies = call.operation.turns, call.operation.replies
    if not relays(provider, call, target) or turns is None or replies is None:
        return await _answer(provider, replace(call, recollection=recollection), target)
    restored = await off_loop(call.size, turns.restore, call.fields, recollection)
    headers = dict(call.headers)
    for name, words in restored.headers.items():
        headers[name] = ",".join(filter(None, (headers.get(name), words)))
    call = replace(call, fields=restored.fields, headers=headers, recollection=recollection)
    reply = await _answer(provider, call, target)
    reply.adapted = (*reply.adapted, *restored.adapted)
    if reply.translation is not None:
        return reply
    return await watched(reply, turns, replies.said, recollection, restored.place)


async def _relay_fitted(provider: Provider, call: Call, target: Target, fit: Fit) -> Reply:
    """Relay `call` as the model takes it; one whose reply has to be rendered anew is translated.

    Raises:
        APIError: the call can't be answered, or was not.
    """
    fitted = await off_loop(call.size, fit_fields, fit, call)
    if fitted is None:
        return await _answer(provider, replace(call, may_be_relayed=False), target)
    reply = await provider.relay(replace(call, fields=fitted.fields), target)
    reply.dropped = (*reply.dropped, *fitted.dropped)
    reply.adapted = (*reply.adapted, *fitted.adapted)
    return reply


async def _said(nothing: bytes) -> Reply:
    return Reply(nothing, headers=JSON_HEADERS)


async def _told(resident: Resident, call: Call, nothing: bytes) -> Reply:
    """Load the model, or let it go, as a call wants that asks for nothing else.

    Raises:
        APIError: it can't be loaded.
    """
    keep_alive = call.operation.keep_alive(call.fields)
    if keep_alive == 0:
        resident.stays_for(0)
    else:
        (await resident.lease(keep_alive)).release()
    return await _said(nothing)


async def _leasing(
    resident: Resident,
    provider: Provider,
    method: Callable[[Call, Target], Awaitable[Reply]],
    call: Call,
    target: Target,
) -> Reply:
    """Have the model there while it answers. What will be refused loads none, and sends none away.

    Raises:
        APIError: it can't be loaded, or the call can't be answered.
    """
    if not resident.is_open:
        await off_loop(call.size, check, provider, call, target)
    lease = await resident.lease(call.operation.keep_alive(call.fields))
    try:
        reply = await method(replace(call, loading=lease.waited), target)
    except BaseException:
        lease.release()
        raise

    def give_back(_: Reply) -> None:
        lease.release()

    reply.loading = lease.waited
    if isinstance(reply.body, bytes):
        lease.release()  # the model has said all of it, however slowly the client takes it
    else:
        reply.when_closed(give_back)
    return reply
