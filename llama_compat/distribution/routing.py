"""How a model's requests are spread over its targets, and what becomes of them when one fails."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field

from llama_compat.distribution.adapters import AdapterOf
from llama_compat.distribution.facts import FactsSettings
from llama_compat.distribution.observability import PriceSettings
from llama_compat.settings.fields import Name as _Name
from llama_compat.settings.fields import NothingIsEmpty as _NothingIsEmpty
from llama_compat.settings.model import TemplateSettings

if TYPE_CHECKING:
    from llama_compat.distribution.template import ModelSettings

_Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=1)]

Balance = Literal["weighted", "least_busy", "fastest", "sticky", "round_robin", "prefix"]

FallBackOn = Literal[
    "context_length",
    "content_filter",
    "quota",
    "rate_limit",
    "authentication",
    "overloaded",
    "timeout",
    "connection",
    "not_found",
    "server_error",
]
"""The classes of errors after which another target may be asked (`llama_compat.error_classes`)."""

_STICKY_ON = ("user", "prompt_cache_key", "first_message")
_HEADER = re.compile(r"header:[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


def _check_sticky(source: str) -> str:
    if source in _STICKY_ON or _HEADER.fullmatch(source):
        return source
    raise ValueError(f"expected one of {', '.join(_STICKY_ON)}, or header:NAME")


class BackoffSettings(TemplateSettings):
    """How long a retry of the same target waits, in seconds: twice as long each time."""

    first: _Seconds = 0.25
    """Before the first retry."""

    most: _Seconds = 8.0
    """Before any; a vendor's `Retry-After` may ask for more."""


class RetrySettings(TemplateSettings):
    """How often a request is sent again."""

    same_target: Annotated[int, Field(ge=0)] = 1
    """To a target that has failed; another of the same priority goes first."""

    attempts: _Count = 4
    """In all, the first among them."""

    budget: Annotated[float, Field(ge=0, le=1)] = 0.2
    """Retries that a provider gets, as a share of its recent requests; and hedges, as a share of
    the model's."""

    backoff: BackoffSettings = BackoffSettings()
    """How long a retry waits."""


class CooldownSettings(TemplateSettings):
    """After so many failures in a row within so many seconds a target is left alone."""

    failures: _Count = 3
    """How many in a row."""

    within: _Seconds = 30
    """In how many seconds."""

    seconds: _Seconds = 15
    """How long it is left alone, before one request probes it."""


class MirrorSettings(TemplateSettings):
    """Another model that gets a share of the requests too; what it says is thrown away."""

    model: _Name
    """The id of that model in the template."""

    sample: Annotated[float, Field(gt=0, le=1)] = 0.05
    """The share of the requests."""


class PrefixSettings(TemplateSettings):
    """What `balance: prefix` takes a target to have in its cache, and when it is too busy to be
    asked for that."""

    cache_tokens: _Count = 500_000
    """Tokens that the KV cache of each target holds, as its engine says at its start (vLLM: `GPU KV
    cache size`). What was sent there before so many others is taken for gone."""

    keep: _Seconds = 3600
    """Seconds after which a prompt is taken for gone that nobody has sent again."""

    busier_by: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 64
    """A target is too busy when it has so many requests in flight more than the least busy one has,
    for its weight, and"""

    busier_times: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.5
    """so many times as many. It is not asked then, whatever it has."""


class RoutingSettings(TemplateSettings):
    """The policies of a model with several targets."""

    balance: Balance = "weighted"
    """Which target of the first priority is asked first: by weight, the less busy of two, the one
    with the fastest first content, the same for what belongs together, each in turn, or the one
    that has most of the prompt already."""

    sticky_on: Annotated[
        tuple[Annotated[_Name, AfterValidator(_check_sticky)], ...], _NothingIsEmpty
    ] = (
        "header:x-session-id",
        "user",
        "prompt_cache_key",
        "first_message",
    )
    """For `balance: sticky`: what requests have in common that go to the same target; the first
    that a request has."""

    prefix: PrefixSettings = PrefixSettings()
    """For `balance: prefix`: what a target is taken to have, and when it is too busy for it."""

    retries: RetrySettings = RetrySettings()
    """How often a request is sent again."""

    fall_back_on: Annotated[tuple[FallBackOn, ...], _NothingIsEmpty] = (
        "rate_limit",
        "overloaded",
        "timeout",
        "connection",
        "server_error",
        "authentication",
        "quota",
        "context_length",
    )
    """The classes of errors after which another target is asked."""

    cooldown: CooldownSettings = CooldownSettings()
    """When a target that fails is left alone, and for how long."""

    deadline: _Seconds | None = 60
    """Seconds until a stream's first content, whatever it takes; no attempt begins after it."""

    hedge_after: _Seconds | None = None
    """After so many seconds without content a second target is asked too."""

    mirror: MirrorSettings | None = None
    """Sends a share of the requests to another model too."""

    pin: bool = False
    """Whether a client may name its target in the header `x-llama-compat-target`."""


class TargetSettings(TemplateSettings):
    """One place that a model's requests may go to."""

    provider: _Name | None = None
    """The id of the provider; without it, `model` is another model of the template."""

    model: _Name | None = None
    """What the provider calls it; the public id, if that is the same. Without a `provider`, the id
    of another model of the template, whose targets stand in this one's place."""

    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """Its share, beside the others of its priority."""

    priority: Annotated[int, Field(ge=0)] = 0
    """0 is asked first; higher ones only when none before them can answer."""

    context_length: _Count | None = None
    """Tokens that it can hold; None leaves that to the model and the provider."""

    price: PriceSettings | None = None
    """What it costs; None leaves that to the model and the list of known prices."""

    facts: FactsSettings | None = None
    """What it takes, over what the catalogue knows of it; None leaves that to the model."""


@dataclass(frozen=True, slots=True)
class FlatTarget:
    """One place that a model's requests may go to, whatever other models lie between.

    With an `adapter` it is what the provider calls its model with that, and not a model by itself.
    """

    provider: str
    model: str
    context_length: int | None = None
    weight: float = 1.0
    priority: int = 0
    price: PriceSettings | None = None
    facts: FactsSettings | None = None
    prompt_cache: bool = False
    adapter: AdapterOf | None = None


def merged(defaults: RoutingSettings | None, own: RoutingSettings | None) -> RoutingSettings | None:
    """A model's own settings over those of the whole file; None where there are neither."""
    if defaults is None or own is None:
        return own or defaults
    result: RoutingSettings = _merge(defaults, own)
    return result


def routing_of(model: ModelSettings, defaults: RoutingSettings | None) -> RoutingSettings | None:
    """The policies of `model`; None for one whose requests go to its only target as they are."""
    found = merged(defaults, model.routing)
    return RoutingSettings() if found is None and model.targets else found


def _merge(defaults: Any, own: Any) -> Any:
    changes = {}
    for name in own.model_fields_set:
        value, default = getattr(own, name), getattr(defaults, name)
        both = isinstance(value, BaseModel) and isinstance(default, BaseModel)
        changes[name] = _merge(default, value) if both else value
    return defaults.model_copy(update=changes)


def flat_targets(model: ModelSettings, models: Mapping[str, ModelSettings]) -> list[FlatTarget]:
    """Where requests for `model` go, in the order of the file.

    A target that is another model gives its place to that model's targets: those that are asked
    first there stand beside the others of its priority and share its weight, those of each later
    priority come after them and before the next priority here. One that can be reached twice
    counts once.

    Args:
        model: whose targets.
        models: all of them, by id and alias; no model leads back to itself.
    """
    found: dict[tuple[str, str], FlatTarget] = {}
    for target in _in_order(model, models):
        first = found.setdefault((target.provider, target.model), target)
        if first is not target and first.priority == target.priority:
            found[target.provider, target.model] = replace(
                first, weight=first.weight + target.weight
            )
    return list(found.values())


def _in_order(model: ModelSettings, models: Mapping[str, ModelSettings]) -> Sequence[FlatTarget]:
    """The targets as they are asked, with priorities from 0 on without a gap."""
    if model.provider is not None:
        name = model.provider_model or model.id
        length, price, facts = model.context_length, model.price, model.facts
        marks = model.prompt_cache == "auto"
        adapter = None
        if model.adapter is not None:
            adapter = model.adapter._replace(base=name)
            name = adapter.id
        return [
            FlatTarget(
                model.provider,
                name,
                length,
                price=price,
                facts=facts,
                prompt_cache=marks,
                adapter=adapter,
            )
        ]
    # The rank of a target is its own priority, and then that within the model whose place it has.
    ranked: list[tuple[tuple[int, int], FlatTarget]] = []
    for target in model.targets:
        if target.provider is not None:
            length = _least(target.context_length, model.context_length)
            flat = FlatTarget(
                target.provider,
                target.model or model.id,
                length,
                target.weight,
                price=target.price or model.price,
                facts=target.facts or model.facts,
                prompt_cache=model.prompt_cache == "auto",
            )
            ranked.append(((target.priority, 0), flat))
            continue
        assert target.model is not None
        inner = _in_order(models[target.model], models)
        for flat in inner:
            beside = sum(each.weight for each in inner if each.priority == flat.priority)
            in_place = replace(
                flat,
                weight=target.weight * flat.weight / beside,
                context_length=_least(flat.context_length, model.context_length),
                prompt_cache=flat.prompt_cache or model.prompt_cache == "auto",
            )
            ranked.append(((target.priority, flat.priority), in_place))
    ranked.sort(key=lambda each: each[0])
    priorities = {rank: place for place, rank in enumerate(dict.fromkeys(r for r, _ in ranked))}
    return [replace(flat, priority=priorities[rank]) for rank, flat in ranked]


def _least(*lengths: int | None) -> int | None:
    return min((length for length in lengths if length is not None), default=None)
