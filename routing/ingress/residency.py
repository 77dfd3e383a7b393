"""`/admin/models/ID/load` and `/unload`: models of this machine, by hand."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fastapi import Request

from llama_compat.errors import APIError
from llama_compat.exchange import ANYBODY
from routing.auth import ADMIN
from routing.page.audited import noted
from routing.runtime import runtime_of

if TYPE_CHECKING:
    from fastapi import APIRouter

    from providers.local.residency.resident import Resident
    from routing.policy.targets import LiveTarget


def add_residency_routes(router: APIRouter) -> None:
    """Add them to `router`."""

    async def load_model(request: Request, model: str) -> dict[str, Any]:
        """Load a model that shares memory, or an adapter, on each of its targets here; answered
        when it is there.

        It waits for room as a request of a client does, and then stays for as long as the template
        says.
        """
        if adapted := await _adapted(request, model):
            await noted(request, "model.load", model)
            for target in adapted:
                await target.provider.load_adapter(target.target.model)
            return _shown_adapters(adapted, "ready")
        residents = await _residents(request, model)
        await noted(request, "model.load", model)
        for each in residents:
            await each.load()
        return _shown(residents)

    async def unload_model(request: Request, model: str) -> dict[str, Any]:
        """Unload a model that shares memory, once its requests have ended, even one that is always
        kept; or an adapter, which leaves the model that it adapts. The next request loads it again.
        """
        if adapted := await _adapted(request, model):
            await noted(request, "model.unload", model)
            for target in adapted:
                await target.provider.unload_adapter(target.target.model)
            return _shown_adapters(adapted, "out")
        residents = await _residents(request, model)
        await noted(request, "model.unload", model)
        for each in residents:
            each.dismiss()
        return _shown(residents)

    for path, answer in (("load", load_model), ("unload", unload_model)):
        router.add_api_route(
            f"{ADMIN}models/{{model:path}}/{path}", answer, methods=["POST"], tags=["admin"]
        )


async def _adapted(request: Request, model: str) -> list[LiveTarget]:
    """The targets of `model` that are models with adapters."""
    route = await runtime_of(request).models.seen(model, ANYBODY)
    return [each for each in route.targets if each.provider.is_adapted(each.target.model)]


def _shown_adapters(targets: list[LiveTarget], state: str) -> dict[str, Any]:
    shown = [
        {"provider": each.provider.id, "model": each.target.model, "state": state}
        for each in targets
    ]
    return {"object": "list", "data": shown}


async def _residents(request: Request, model: str) -> list[Resident]:
    runtime = runtime_of(request)
    route = await runtime.models.seen(model, ANYBODY)
    found = [each.provider.resident(each.target.model) for each in route.targets]
    residents = [each for each in found if each is not None]
    if not residents:
        raise APIError(
            409,
            f"The model '{model}' does not share memory here: it is another server's, or the"
            " template has no `memory`, and it stays loaded.",
            code="not_resident",
        )
    return list(dict.fromkeys(residents))


def _shown(residents: list[Resident]) -> dict[str, Any]:
    return {"object": "list", "data": [asdict(each.snapshot()) for each in residents]}
