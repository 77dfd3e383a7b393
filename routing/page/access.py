"""`/admin/access` and `/admin/usage`: every key and team, and what they have used."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import Query
from fastapi import Request as HTTPRequest
from fastapi.responses import JSONResponse, Response

from llama_compat.dialects.moments import utc_text
from llama_compat.errors import invalid_parameter
from llama_compat.exchange import Principal
from routing.access.keys.store import StoredKey
from routing.access.limits.memory import CountersAway
from routing.access.limits.requests import RequestLimits, rules_of_key
from routing.access.limits.rules import Charge, Resource, Rule, Rules, forecast, period_began
from routing.auth import ADMIN
from routing.observability.records.export import csv_lines
from routing.observability.records.reports import (
    USE_BY,
    UseBy,
    WrongFilter,
    last_uses,
    parse_span,
    usage_by,
    use_rows,
)
from routing.page.recorded import recorded, storage_of
from routing.runtime import Runtime, runtime_of
from routing.storage.outage import unavailable
from routing.storage.storage import StorageError

if TYPE_CHECKING:
    from fastapi import APIRouter

    from routing.access.keys.ring import Key

Format = Literal["json", "csv"]

LOOKED_AT_TOGETHER = 64
"""So many rules the counters are asked about at a time."""

CSV = "text/csv; charset=utf-8"

Standing = dict[str, Any]


def add_access_routes(router: APIRouter) -> None:
    """Add them to `router`."""
    routes: tuple[tuple[str, Callable[..., Any]], ...] = (
        ("access", tell_access),
        ("usage", tell_usage),
    )
    for name, answer in routes:
        # What they answer is JSON or CSV.
        router.add_api_route(
            f"{ADMIN}{name}", answer, methods=["GET"], tags=["admin"], response_model=None
        )


async def tell_access(request: HTTPRequest, format: Format = "json") -> Response:
    """Every key, those of the template (`source`) too, and every team: what each opens, what is
    used of its limits and budget now (`standing`), what a budget comes to at its end if it goes on
    so (`forecast`), and when it was used last. `format=csv` has the keys, one a line."""
    runtime = runtime_of(request)
    now = time.time()
    keys = await _keys(runtime, now)
    standing = await _standing(runtime, [each["principal"] for each in keys], now)
    used = await _last_uses(runtime)
    told = [
        {
            **each["shown"],
            "standing": standing.get(f"key:{each['principal'].id}"),
            "last_used": _iso(used.get(each["principal"].id)),
        }
        for each in keys
    ]
    if format == "csv":
        return _csv("keys.csv", list(map(_row, told)), _ROW)
    in_team = [each["team"] for each in told if each["state"] == "good"]
    teams = [
        {
            "id": each.id,
            "limits": _dump(each.limits),
            "budget": _dump(each.budget),
            "keys": in_team.count(each.id),
            "standing": standing.get(f"team:{each.id}"),
        }
        for each in runtime.distribution.teams
    ]
    return JSONResponse(
        {
            "object": "list",
            "data": told,
            "teams": teams,
            "stored_keys": runtime.settings.stored_keys,
            "records": storage_of(runtime) is not None,
            "is_open": runtime.keys.is_open,
        }
    )


async def tell_usage(
    request: HTTPRequest,
    by: Annotated[list[str], Query()] = ["model"],  # noqa: B006
    since: str = "7d",
    until: str | None = None,
    key: Annotated[list[str] | None, Query()] = None,
    team: str | None = None,
    format: Format = "json",
) -> Response:
    """What was used and what it cost, told apart by any of `key`, `team`, `model`, `provider` and
    `day` (`by=key&by=day`); `since` and `until` as in `llama-compat usage`. `key` (an id) and
    `team` choose whose."""
    names = [name for name in USE_BY if name in by]
    if not names or len(names) < len(set(by)):
        raise invalid_parameter("by", f"'by' is any of {', '.join(USE_BY)}.")
    ring = runtime_of(request).keys
    principals, team_of = ring.principals(), ring.team_of()
    try:
        since_then, until_then = parse_span(since, until)
    except WrongFilter as wrong:
        raise invalid_parameter(wrong.name, f"'{wrong.name}': {wrong}.") from None

    def name_of(key_id: str) -> str:
        known = principals.get(key_id)
        return "" if known is None else known.name

    chosen: list[str] | None = key
    if team is not None:
        of_team = [each for each in principals if team_of(each) == team]
        chosen = of_team if key is None else [each for each in key if each in of_team]
    uses = await recorded(
        request,
        lambda storage: usage_by(storage, names, since_then, until_then, chosen, team_of=team_of),
    )
    rows = use_rows(uses, names, name_of)
    for row in rows:
        if "day" in row:
            row["day"] = row["day"].isoformat()
    if format == "csv":
        return _csv("usage.csv", rows, tuple(rows[0]) if rows else names)
    return JSONResponse({"object": "list", "data": rows})


# Keys ---------------------------------------------------------------------------------------------


async def _keys(runtime: Runtime, now: float) -> list[dict[str, Any]]:
    """Each key as it is shown, and whose it is; those of the template first."""
    keys = [
        {"principal": key.principal, "shown": _shown_of_template(key, runtime, now)}
        for key in runtime.keys.given.values()
    ]
    if runtime.access is None or runtime.access.keeper is None or not runtime.settings.stored_keys:
        return keys
    with unavailable("Stored keys"):
        stored = await runtime.access.keeper.store.list()
    return keys + [
        {"principal": each.key().principal, "shown": _shown(each, runtime, now)} for each in stored
    ]


def _shown(stored: StoredKey, runtime: Runtime, now: float) -> dict[str, Any]:
    state = _state(stored.key(), runtime, now)
    if not stored.is_readable and stored.revoked is None:
        state = "unreadable"
    return {"source": "stored", "state": state, **stored.shown()}


def _shown_of_template(key: Key, runtime: Runtime, now: float) -> dict[str, Any]:
    who = key.principal
    return {
        "source": "template",
        "state": _state(key, runtime, now),
        "id": who.id,
        "prefix": None,
        "created": None,
        "revoked": None,
        "version": None,
        "name": who.name,
        "team": who.team,
        "expires": _iso(key.expires),
        "models": list(who.models),
        "limits": _dump(who.limits),
        "budget": _dump(who.budget),
    }


def _state(key: Key, runtime: Runtime, now: float) -> str:
    if key.is_revoked:
        return "revoked"
    if not key.is_good(now):
        return "expired"
    return "good" if runtime.keys.has_team(key.principal) else "team_gone"


async def _last_uses(runtime: Runtime) -> Mapping[str, float]:
    storage = storage_of(runtime)
    if storage is None:
        return {}
    try:
        return await last_uses(storage)
    except StorageError:
        return {}


# What is used of limits ---------------------------------------------------------------------------


async def _standing(
    runtime: Runtime, principals: Iterable[Principal], now: float
) -> dict[str, list[Standing] | None]:
    """How each subject's rules stand, by subject; None where nobody knows at the moment."""
    limits = runtime.limits
    if limits is None:
        return {}
    teams = (limits.rules_of_team(each.id) for each in runtime.distribution.teams)
    every = [rule for rules in (*map(rules_of_key, principals), *teams) for rule in rules]
    told: dict[str, list[Standing] | None] = {rule.subject: [] for rule in every}
    for some in _in_parts(every):
        try:
            levels = await _levels(limits, some)
        except CountersAway:
            return dict.fromkeys(told)
        for charge, used, reserved in levels:
            of_subject = told[charge.rule.subject]
            assert of_subject is not None
            of_subject.append(_stands(charge, used, reserved, now))
    return told


def _in_parts(rules: Sequence[Rule]) -> Iterator[Rules]:
    for begin in range(0, len(rules), LOOKED_AT_TOGETHER):
        yield Rules(rules[begin : begin + LOOKED_AT_TOGETHER])


async def _levels(limits: RequestLimits, rules: Rules) -> list[tuple[Charge, float, float]]:
    if limits.is_away:
        # Who only looks does not ask a store that nobody reaches.
        raise CountersAway
    return await limits.look(rules)


def _stands(charge: Charge, used: float, reserved: float, now: float) -> Standing:
    rule = charge.rule
    standing = {
        "resource": rule.resource.value,
        "limit": rule.limit,
        "used": used,
        "reserved": reserved,
    }
    if rule.resource is not Resource.budget:
        return standing
    foreseen = forecast(rule, used, now)
    return {
        **standing,
        "period": rule.period,
        "began": _iso(period_began(rule.period, now) or None),
        "ends": _iso(charge.ends or None),
        "forecast": None if foreseen is None else foreseen.amount,
        "spent_at": None if foreseen is None else _iso(foreseen.spent_at),
    }


# As text ------------------------------------------------------------------------------------------

_ROW = (
    "id",
    "name",
    "prefix",
    "source",
    "state",
    "team",
    "models",
    "requests_per_minute",
    "tokens_per_minute",
    "concurrent",
    "budget_usd",
    "budget_period",
    "spent_usd",
    "forecast_usd",
    "created",
    "expires",
    "revoked",
    "last_used",
)


def _row(key: Mapping[str, Any]) -> dict[str, Any]:
    limits, budget = key["limits"] or {}, key["budget"] or {}
    money: Mapping[str, Any] = next(
        (each for each in key["standing"] or () if each["resource"] == Resource.budget), {}
    )
    computed = {
        "models": " ".join(key["models"]),
        "budget_usd": budget.get("amount"),
        "budget_period": budget.get("period"),
        "spent_usd": money.get("used"),
        "forecast_usd": money.get("forecast"),
    }
    return {
        name: computed[name] if name in computed else key.get(name, limits.get(name))
        for name in _ROW
    }


def _csv(name: str, rows: Sequence[Mapping[str, Any]], columns: Sequence[str | UseBy]) -> Response:
    lines = csv_lines([columns, *([row[each] for each in columns] for row in rows)])
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(lines, media_type=CSV, headers=headers)


def _dump(settings: Any) -> Any:
    return None if settings is None else settings.model_dump(mode="json")


def _iso(seconds: float | None) -> str | None:
    return None if seconds is None else utc_text(seconds)
