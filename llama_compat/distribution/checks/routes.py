"""What is wrong with where a template's models lead to, and between their policies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from llama_compat.distribution.aliases import is_pattern
from llama_compat.distribution.checks.written import items, listed, mappings, model_names, texts
from llama_compat.distribution.problems import KeyPath, Problem, did_you_mean
from llama_compat.distribution.reading.env_references import ResolvedDocument
from llama_compat.distribution.routing import RoutingSettings, flat_targets, merged

if TYPE_CHECKING:
    from llama_compat.distribution.template import Distribution

# --------------------------------------------------------------------------------------------------
# Where models lead to
# --------------------------------------------------------------------------------------------------


def reference_problems(document: ResolvedDocument) -> Iterator[Problem]:
    """Models that lead nowhere, to what is not there, or in a circle."""
    providers = _Known(document, "provider", texts(document, "providers", "id"))
    names = (each for each in model_names(document) if not is_pattern(each[1]))
    models = _Known(document, "model", names)
    leads_to: dict[str, list[tuple[KeyPath, str]]] = {}
    for path, model in mappings(document, "models"):
        yield from _ways_out(document, path, model)
        yield from providers.problem((*path, "provider"), model.get("provider"))
        for at, target in items(model.get("targets"), (*path, "targets")):
            yield from providers.problem((*at, "provider"), target.get("provider"))
            named = target.get("model")
            if target.get("provider") is not None:
                continue
            if named is None:
                message = "a target has a 'provider', or is another 'model' of this template"
                yield document.problem(at, message)
            elif isinstance(named, str):
                yield from models.problem((*at, "model"), named)
                for name in _names(model):
                    leads_to.setdefault(name, []).append(((*at, "model"), named))
        for at, routing in _routing(model, path):
            yield from _mirror(models, at, routing, list(_names(model)))
        yield from _semantic(models, path, model)
    for at, routing in _routing(document.value, ()):
        yield from _mirror(models, at, routing, [])
    server = document.value.get("server")
    if isinstance(server, Mapping):
        yield from _semantic(models, ("server",), server)
        stores = server.get("vector_stores")
        if isinstance(stores, Mapping):
            path = ("server", "vector_stores", "embedding_model")
            yield from models.problem(path, stores.get("embedding_model"))
    yield from _circles(document, leads_to)


def _ways_out(
    document: ResolvedDocument, path: KeyPath, model: Mapping[str, Any]
) -> Iterator[Problem]:
    has_targets = model.get("targets") is not None
    if model.get("provider") is None and not has_targets:
        variable = document.left_out.get((*path, "provider"))
        how = f": set the environment variable {variable}" if variable else ", but missing"
        yield document.problem((*path, "provider"), f"required{how}; or list 'targets'")
    if has_targets and model.get("targets") == []:
        yield document.problem((*path, "targets"), "expected at least one, got none")
    for key in ("provider", "provider_model"):
        if has_targets and model.get(key) is not None:
            message = f"a model with 'targets' has no '{key}': put it into one of them"
            yield document.problem((*path, key), message, at_key=True)


def _semantic(models: _Known, path: KeyPath, owner: Mapping[str, Any]) -> Iterator[Problem]:
    """Models that a semantic cache asks, and that are not there."""
    cache = owner.get("cache")
    semantic = cache.get("semantic") if isinstance(cache, Mapping) else None
    if isinstance(semantic, Mapping):
        for key in ("model", "verify"):
            yield from models.problem((*path, "cache", "semantic", key), semantic.get(key))


def _mirror(
    models: _Known, path: KeyPath, routing: Mapping[str, Any], names: list[str]
) -> Iterator[Problem]:
    mirror = routing.get("mirror")
    if isinstance(mirror, dict) and isinstance(mirror.get("model"), str):
        at = (*path, "mirror", "model")
        yield from models.problem(at, mirror["model"])
        if mirror["model"] in names:
            yield models.document.problem(at, "a model can't be its own mirror")


def _circles(
    document: ResolvedDocument, leads_to: Mapping[str, list[tuple[KeyPath, str]]]
) -> Iterator[Problem]:
    done: set[str] = set()

    def walk(way: tuple[str, ...]) -> Iterator[Problem]:
        for path, following in leads_to.get(way[-1], ()):
            if following in way:
                circle = " -> ".join((*way[way.index(following) :], following))
                yield document.problem(path, f"goes round in a circle: {circle}")
            elif following not in done:
                yield from walk((*way, following))
        done.add(way[-1])

    for name in leads_to:
        if name not in done:
            yield from walk((name,))


class _Known:
    """The ids that may be named, and what is said of one that is none."""

    def __init__(
        self, document: ResolvedDocument, what: str, ids: Iterable[tuple[KeyPath, str]]
    ) -> None:
        self.document = document
        self._what = what
        self._shown: dict[str, str] = {}
        self._written = []
        for path, name in ids:
            self._shown.setdefault(name, document.shown(path, name))
            if path not in document.variables:
                self._written.append(name)

    def problem(self, path: KeyPath, name: Any) -> Iterator[Problem]:
        """What is wrong with `name` at `path`, if anything is."""
        if not self._shown or not name or not isinstance(name, str) or name in self._shown:
            return
        near = "" if path in self.document.variables else did_you_mean(name, self._written)
        shown = list(self._shown.values())
        listed = ", ".join(shown[:12]) + (", ..." if len(shown) > 12 else "")
        hint = near or f"; the ids are {listed}"
        message = f"no {self._what} has the id {self.document.shown(path, name)}{hint}"
        yield self.document.problem(path, message)


def _names(model: Mapping[str, Any]) -> Iterator[str]:
    names = [model.get("id"), *listed(model.get("aliases"))]
    yield from (name for name in names if isinstance(name, str) and not is_pattern(name))


def _routing(owner: Mapping[str, Any], path: KeyPath) -> Iterator[tuple[KeyPath, dict[str, Any]]]:
    routing = owner.get("routing")
    if isinstance(routing, dict):
        yield (*path, "routing"), routing


# --------------------------------------------------------------------------------------------------
# Policies
# --------------------------------------------------------------------------------------------------


def contradictions(distribution: Distribution, document: ResolvedDocument) -> Iterator[Problem]:
    """Settings that are right for themselves, but not together.

    Args:
        distribution: the settings; each target is there, and no model leads in a circle.
        document: where they stand.
    """
    if distribution.routing is not None:
        yield from _between(document, ("routing",), distribution.routing, distribution.routing)
    by_name = {name: each for each in distribution.models for name in each.names}
    # Each replica is a target by itself.
    replicated = {each.id for each in distribution.providers if each.replicas is not None}
    written = [each for each in distribution.models if each.adapter is None]
    for index, model in enumerate(written):
        path: KeyPath = ("models", index)
        yield from _twice(document, path, model)
        if model.routing is not None:
            effective = merged(distribution.routing, model.routing)
            assert effective is not None
            at = (*path, "routing")
            yield from _between(document, at, model.routing, effective)
            flats = flat_targets(model, by_name)
            if len(flats) == 1 and flats[0].provider not in replicated:
                yield from _for_one(document, at, model.routing)


def _twice(document: ResolvedDocument, path: KeyPath, model: Any) -> Iterator[Problem]:
    seen: set[tuple[str | None, str]] = set()
    for index, target in enumerate(model.targets):
        at = (*path, "targets", index)
        key = (target.provider, target.model or model.id)
        if key in seen:
            message = "is listed twice; give it the weight that it should have once"
            yield document.problem(at, message)
        seen.add(key)
        if target.provider is None and target.context_length is not None:
            message = f"'{target.model}' is another model: its own targets say what they hold"
            yield document.problem((*at, "context_length"), message, at_key=True)


def _for_one(
    document: ResolvedDocument, path: KeyPath, routing: RoutingSettings
) -> Iterator[Problem]:
    for key, unset in (("balance", "weighted"), ("hedge_after", None)):
        if key in routing.model_fields_set and getattr(routing, key) != unset:
            message = f"'{key}' needs a second target"
            yield document.problem((*path, key), message, at_key=True)


def _between(
    document: ResolvedDocument, path: KeyPath, own: RoutingSettings, effective: RoutingSettings
) -> Iterator[Problem]:
    """What is wrong between `own`, the settings at `path`, and what they go with."""
    said, retries = own.model_fields_set, effective.retries
    if "sticky_on" in said and effective.balance != "sticky":
        message = f"counts with 'balance: sticky' alone, and it is '{effective.balance}' here"
        yield document.problem((*path, "sticky_on"), message, at_key=True)
    if effective.balance == "sticky" and not effective.sticky_on:
        message = "'balance: sticky' needs at least one thing to go by"
        yield document.problem((*path, "sticky_on"), message)
    if "prefix" in said and effective.balance != "prefix":
        message = f"counts with 'balance: prefix' alone, and it is '{effective.balance}' here"
        yield document.problem((*path, "prefix"), message, at_key=True)
    if retries.backoff.first > retries.backoff.most and "retries" in said:
        message = (
            f"the first wait ({retries.backoff.first:g} s) is longer than the longest"
            f" ({retries.backoff.most:g} s)"
        )
        yield document.problem((*path, "retries", "backoff"), message)
    if (
        "same_target" in own.retries.model_fields_set
        and 0 < retries.attempts <= retries.same_target
    ):
        message = (
            f"{retries.attempts} attempts in all leave no room for {retries.same_target} retries"
            " of the same target"
        )
        yield document.problem((*path, "retries", "same_target"), message)
    if effective.hedge_after is not None and "hedge_after" in said:
        if effective.deadline is not None and effective.hedge_after >= effective.deadline:
            message = f"comes no sooner than the deadline of {effective.deadline:g} s"
            yield document.problem((*path, "hedge_after"), message)
        if retries.attempts == 1:
            message = "needs a second attempt, and 'retries.attempts' is 1"
            yield document.problem((*path, "hedge_after"), message)
        if retries.budget == 0:
            message = "counts against 'retries.budget', and that is 0"
            yield document.problem((*path, "hedge_after"), message)
