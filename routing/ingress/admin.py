"""`/admin/`: what whoever runs the server may see and do, with a key of its own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from fastapi import Request
from pydantic import BaseModel, ConfigDict, ValidationError

from llama_compat.distribution import BudgetSettings, KeyGrant, LimitSettings
from llama_compat.errors import APIError, invalid_parameter
from llama_compat.guardrails.settings import CheckSettings
from routing.access.keys.store import KeyChanged, KeyRefused, KeyStore, NoSuchKey
from routing.auth import ADMIN
from routing.ingress.if_match import IfMatch, version_in
from routing.page.audited import noted
from routing.runtime import runtime_of
from routing.storage.outage import unavailable
from routing.storage.storage import StorageError

if TYPE_CHECKING:
    from fastapi import APIRouter


class KeyChange(BaseModel):
    """What may be changed of a key; what is not there stays as it is, and null takes it away."""

    model_config = ConfigDict(extra="forbid")

    name: str | None = None
    team: str | None = None
    expires: str | None = None
    models: list[str] | None = None
    limits: LimitSettings | None = None
    budget: BudgetSettings | None = None
    metadata: dict[str, str] | None = None
    tools: list[str] | None = None
    guardrails: list[CheckSettings] | None = None


def add_admin_routes(router: APIRouter) -> None:
    """Add them to `router`."""

    async def list_keys(request: Request) -> dict[str, Any]:
        """All keys that are stored, those that are revoked too; never the keys themselves."""
        async with _changing(request) as store:
            return {"object": "list", "data": [key.shown() for key in await store.list()]}

    async def create_key(request: Request, grant: KeyGrant) -> dict[str, Any]:
        """Make a key. The answer has it in `key`; it is shown nowhere else."""
        async with _changing(request) as store:
            key, secret = await store.create(grant)
            await noted(request, "key.create", key.id, grant.name)
            return {**key.shown(), "key": secret}

    async def change_key(
        request: Request, name: str, change: KeyChange, if_match: IfMatch = None
    ) -> dict[str, Any]:
        """Change what a key, named by its id, prefix or name, opens. With the `version` that was
        read as `If-Match`, what somebody else has changed since is not written over: 412."""
        changes = change.model_dump(mode="json", exclude_unset=True)
        for member, nothing in (("models", []), ("metadata", {}), ("guardrails", [])):
            if member in changes and changes[member] is None:
                changes[member] = nothing
        async with _changing(request) as store:
            key = await store.change(name, changes, _version(if_match))
            await noted(request, "key.change", key.id, ", ".join(sorted(changes)))
            return key.shown()

    async def rotate_key(request: Request, name: str) -> dict[str, Any]:
        """Make a new key in the place of one, which opens nothing any more."""
        async with _changing(request) as store:
            key, secret = await store.rotate(name)
            await noted(request, "key.rotate", key.id, key.grant.name)
            return {**key.shown(), "key": secret}

    async def revoke_key(request: Request, name: str) -> dict[str, Any]:
        """Let nobody in with a key any more."""
        async with _changing(request) as store:
            key = await store.revoke(name)
            await noted(request, "key.revoke", key.id, key.grant.name)
            return key.shown()

    keys = f"{ADMIN}keys"
    routes: tuple[tuple[str, Callable[..., Any], str], ...] = (
        (keys, list_keys, "GET"),
        (keys, create_key, "POST"),
        (f"{keys}/{{name}}", change_key, "PATCH"),
        (f"{keys}/{{name}}", revoke_key, "DELETE"),
        (f"{keys}/{{name}}/rotate", rotate_key, "POST"),
    )
    for path, answer, method in routes:
        router.add_api_route(path, answer, methods=[method], tags=["admin"])


def _version(if_match: str | None) -> int | None:
    version = version_in(if_match)
    if version is None or version == "*":
        return None
    if not version.isdecimal():
        raise invalid_parameter(
            "If-Match", f"'If-Match' is the `version` of a key, a number, not '{version}'."
        )
    return int(version)


@asynccontextmanager
async def _changing(request: Request) -> AsyncGenerator[KeyStore, None]:
    """The stored keys, for a change that this process knows of at once."""
    runtime = runtime_of(request)
    access = runtime.access
    if access is None or access.keeper is None:
        raise APIError(
            409,
            "This server stores no keys: set `server.stored_keys: true` in its template.",
            code="no_key_store",
        )
    try:
        with unavailable("Stored keys"):
            yield access.keeper.store.of_teams(runtime.keys.teams)
    except NoSuchKey as error:
        raise APIError(404, str(error), code="key_not_found") from None
    except KeyChanged as error:
        raise APIError(412, str(error), code="key_changed") from None
    except KeyRefused as error:
        raise invalid_parameter(error.member, str(error)) from None
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise invalid_parameter(name, f"'{name}': {first['msg']}.") from None
    if request.method != "GET":
        # What was changed is kept; this process may know of it a little later.
        with suppress(StorageError):
            await access.keeper.refresh(at_once=True)
