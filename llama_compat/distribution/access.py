"""Who may ask, how much, and from which web pages: a template's keys, teams, limits and origins."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    model_validator,
)

from llama_compat.guardrails.settings import CheckSettings
from llama_compat.settings.fields import Name, NothingIsEmpty, Positive
from llama_compat.settings.model import TemplateSettings
from llama_compat.settings.secret_kinds import ADDRESS

Period = Literal["day", "week", "month", "ever"]
"""What a budget is for; days, weeks and months are UTC's."""


class AccessSettings(TemplateSettings):
    """What the settings in this module have in common."""


class LimitSettings(AccessSettings):
    """How much may be asked at most; what is not set is not limited.

    What is used of a limit a minute drains steadily. Who has been idle may use all of it at once,
    and what drains meanwhile besides: of 10 requests a minute up to 19 in the first minute.
    """

    requests_per_minute: Positive | None = None
    """They drain steadily: there is no full minute to wait for."""

    tokens_per_minute: Positive | None = None
    """Of prompts and completions together."""

    concurrent: Positive | None = None
    """Requests at a time."""


class BudgetSettings(AccessSettings):
    """What requests may cost."""

    amount: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    """In US dollars."""

    period: Period = "month"
    """After which it begins anew; days, weeks and months are UTC's."""


def _in_utc(time: datetime) -> datetime:
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time


_HASH = re.compile(r"sha256:[0-9a-f]{64}")


def _check_hash(text: str) -> str:
    if not _HASH.fullmatch(text):
        raise ValueError(
            "expected 'sha256:' and 64 hexadecimal digits, as `llama-compat keys hash` prints them"
        )
    return text


class KeyGrant(AccessSettings):
    """What a key opens, for whom and for how long, wherever the key itself is."""

    name: Name
    """For people: in lists, messages and logs."""

    team: Name | None = None
    """The id of the team whose limits and budget hold too."""

    expires: Annotated[datetime, AfterValidator(_in_utc)] | None = None
    """Without a time zone it is UTC."""

    models: Annotated[list[Name], NothingIsEmpty] = []
    """Patterns of models that it opens, as in `gpt-*`; with none, all."""

    limits: LimitSettings | None = None
    """How much may be asked with it."""

    budget: BudgetSettings | None = None
    """What its requests may cost."""

    metadata: dict[str, str] = {}
    """Anything to note of it."""

    tools: list[Name] | None = None
    """Patterns of the tools that the server, or a vendor, may run for it: `web_search`,
    `web_fetch`, `file_search`, `mcp.LABEL.TOOL` for those of the template's MCP servers, and
    `mcp_url` for servers that a request names by URL, and connectors. Without it all, and with an
    empty list none."""

    guardrails: Annotated[list[CheckSettings], NothingIsEmpty] = []
    """What is looked for in its requests and their replies, besides what the template looks for in
    all."""


def _check_not_empty(key: SecretStr) -> SecretStr:
    if not key.get_secret_value().strip():
        raise ValueError(
            "expected a key, got an empty one; `openssl rand -hex 24` makes a good one"
        )
    return key


class KeySettings(KeyGrant):
    """A key that stands in the template, by reference to the environment or as a hash."""

    key: Annotated[SecretStr, AfterValidator(_check_not_empty)] | None = None
    """The key itself, as `${env.NAME}`; this or `hash`."""

    hash: Annotated[str, AfterValidator(_check_hash)] | None = None
    """`sha256:` and its hash, which `llama-compat keys hash` prints."""

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if (self.key is None) == (self.hash is None):
            raise ValueError("give either 'key' (${env.NAME}) or 'hash' (sha256:...), not both")
        return self


class TeamSettings(AccessSettings):
    """What the keys of a team may use together."""

    id: Name
    """What its keys name as their `team`."""

    limits: LimitSettings | None = None
    """How much its keys may ask together."""

    budget: BudgetSettings | None = None
    """What the requests of its keys may cost together."""


def _store_alone(value: Any) -> Any:
    return {"store": value} if isinstance(value, str) else value


def _check_store(store: SecretStr) -> SecretStr:
    url = store.get_secret_value()
    if url != "memory" and not url.startswith(("redis://", "rediss://", "unix://")):
        raise ValueError("expected 'memory' or the URL of a Redis, as in redis://localhost:6379/0")
    return store


class LimitStoreSettings(AccessSettings):
    """Where limits are counted, and nothing else is shared; `fleet` says it for all that gateways
    share."""

    store: Annotated[SecretStr, AfterValidator(_check_store), ADDRESS] = SecretStr("memory")
    """`memory`, each process for itself, or `redis://...`, all together."""

    when_away: Literal["open", "closed"] = "open"
    """While Redis can't be asked: let everything in uncounted, or nothing."""

    timeout: Annotated[float, Field(gt=0)] = 0.05
    """Seconds that Redis may take to answer; after that it is away, and nobody waits for it."""


LimitStore = Annotated[LimitStoreSettings, BeforeValidator(_store_alone)]

OnOutage = Literal["refuse", "local_share", "allow"]
"""What becomes of requests that have limits while nobody can count them for all gateways."""


def _check_fleet_store(store: SecretStr) -> SecretStr:
    stores = ("redis://", "rediss://", "unix://", "postgres://", "postgresql://")
    if not store.get_secret_value().startswith(stores):
        raise ValueError(
            "expected the URL of a Redis, as in redis://localhost:6379/0, or of a PostgreSQL"
        )
    return store


class FleetSettings(AccessSettings):
    """What gateways share that serve one template: limits and budgets, which targets are left alone
    and who probes them, what each target has in flight and which prompts it has, and reloads."""

    store: Annotated[SecretStr, AfterValidator(_check_fleet_store), ADDRESS]
    """What all of them name: a Redis (`redis://...`, `rediss://...` or `unix://...`) or, for some
    hundred requests a second with limits, a PostgreSQL (`postgres://...`)."""

    on_outage: OnOutage = "local_share"
    """What becomes of requests that have limits while the store is away: `refuse` answers 503,
    `local_share` has each gateway let in the limit divided by the gateways that were seen last,
    `allow` lets them in uncounted. All else goes on with what each gateway knows itself."""

    timeout: Annotated[float, Field(gt=0)] = 0.05
    """Seconds that a request waits for its limits at most; after that the store is away. Nothing
    else of a request waits for the store."""


FleetOrStore = Annotated[FleetSettings, BeforeValidator(_store_alone)]

_ON_OUTAGE: dict[str, OnOutage] = {"open": "allow", "closed": "refuse"}


def counted_together(fleet: FleetSettings | None, limits: LimitStoreSettings) -> FleetSettings:
    """Where limits are counted, whichever of the two settings says so, and what then.

    Without a fleet the store may be `memory`: each process counts for itself.
    """
    if fleet is not None:
        return fleet
    return FleetSettings.model_construct(
        store=limits.store, on_outage=_ON_OUTAGE[limits.when_away], timeout=limits.timeout
    )


_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s?#@*]+")


def _check_origin(origin: str) -> str:
    if origin != "*" and not _ORIGIN.fullmatch(origin):
        raise ValueError(
            "expected '*', or an origin as browsers send it, in lower case and without a path:"
            " https://app.example.com"
        )
    return origin


class CorsSettings(AccessSettings):
    """Web pages of other origins whose scripts may use the server."""

    origins: Annotated[list[Annotated[str, AfterValidator(_check_origin)]], Field(min_length=1)]
    """As in `https://app.example.com`; `*` for every page that there is."""

    max_age_seconds: Annotated[int, Field(ge=0)] = 600
    """How long a browser may remember the answer."""
