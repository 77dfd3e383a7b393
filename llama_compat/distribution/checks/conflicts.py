"""What is wrong between settings of a template that are right for themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from llama_compat.distribution.adapters import adapter_problems
from llama_compat.distribution.aliases import is_pattern, letters, overlap
from llama_compat.distribution.checks.written import listed, mappings, model_names, texts
from llama_compat.distribution.problems import KeyPath, Problem, did_you_mean, dotted
from llama_compat.distribution.reading.env_references import ResolvedDocument
from llama_compat.distribution.server import ServerSettings


def conflicts(document: ResolvedDocument) -> Iterator[Problem]:
    """What is wrong between settings that are right for themselves."""
    yield from _keys_that_are_not_set(document)
    yield from _bodies(document)
    yield from _replicas_of_remotes(document)
    yield from adapter_problems(document)
    provider_ids = list(texts(document, "providers", "id"))
    yield from _repeated(document, provider_ids)
    yield from _repeated(document, model_names(document))
    yield from _ids_like_patterns(document)
    yield from _ambiguous(document)
    yield from _repeated(document, texts(document, "keys", "name"))
    teams = list(texts(document, "teams", "id"))
    yield from _repeated(document, teams)
    yield from _unknown_teams(document, [team for _, team in teams])
    yield from _unknown_judges(document)
    yield from _stays_without_memory(document)


def _keys_that_are_not_set(document: ResolvedDocument) -> Iterator[Problem]:
    """Keys were meant, but none is left: that must not open the server to everybody."""
    server = document.value.get("server")
    keys = server.get("api_keys") if isinstance(server, dict) else None
    for path, variable in document.left_out.items():
        if path[:2] == ("server", "api_keys") and not keys:
            message = (
                f"the environment variable {variable} is not set, so there is no key, and everybody"
                " would be let in; set it, or take 'api_keys' out if that is meant"
            )
            yield document.problem(path, message)
        if path == ("server", "metrics_key") and not _lets_in_by_key(document.value):
            message = (
                f"the environment variable {variable} is not set, so there is no key, and everybody"
                " would see the metrics; set it, or take 'metrics_key' out if that is meant"
            )
            yield document.problem(path, message)


def _lets_in_by_key(template: Mapping[str, Any]) -> bool:
    server = template["server"]
    return any((template.get("keys"), server.get("api_keys"), server.get("stored_keys")))


def _bodies(document: ResolvedDocument) -> Iterator[Problem]:
    server = document.value.get("server")
    if not isinstance(server, dict):
        return
    fields = ServerSettings.model_fields
    one, together = (
        server.get(name, fields[name].default) for name in ("max_body_bytes", "max_bodies_bytes")
    )
    if isinstance(one, int) and isinstance(together, int) and 0 < together < one:
        key = "max_bodies_bytes" if "max_bodies_bytes" in server else "max_body_bytes"
        yield document.problem(
            ("server", key),
            f"all bodies together (max_bodies_bytes, {together}) can't have less than one alone"
            f" (max_body_bytes, {one})",
        )


def _replicas_of_remotes(document: ResolvedDocument) -> Iterator[Problem]:
    for path, provider in mappings(document, "providers"):
        type, replicas = provider.get("type"), provider.get("replicas")
        if replicas is not None and isinstance(type, str) and not type.startswith("local::"):
            at = (*path, "replicas")
            message = "only a local provider (`local::...`) has replicas; this one's models run"
            yield document.problem(at, f"{message} somewhere else")


def _ids_like_patterns(document: ResolvedDocument) -> Iterator[Problem]:
    for path, name in texts(document, "models", "id"):
        if is_pattern(name):
            message = "an id is one name, without '*'; patterns have their place in 'aliases'"
            yield document.problem(path, message)


def _ambiguous(document: ResolvedDocument) -> Iterator[Problem]:
    """Patterns of two models that stand for the same name, of which neither says more of it."""
    patterns = [each for each in model_names(document) if is_pattern(each[1])]
    for index, (path, pattern) in enumerate(patterns):
        for before, other in patterns[:index]:
            if before[:2] == path[:2] or letters(other) != letters(pattern) or other == pattern:
                continue
            if overlap(pattern, other):
                taken_by, line = dotted(before), document.places[before].line
                message = (
                    f"{document.shown(path, pattern)} and {document.shown(before, other)}"
                    f" ({taken_by}, line {line}) stand for some of the same names, and as many"
                    " letters are in both; make one of them longer"
                )
                yield document.problem(path, message)


def _unknown_teams(document: ResolvedDocument, teams: Sequence[str]) -> Iterator[Problem]:
    for path, team in texts(document, "keys", "team"):
        if team not in teams:
            near = "" if path in document.variables else did_you_mean(team, teams)
            hint = near or "; add it to 'teams', which may say no more than its id"
            message = f"no team has the id {document.shown(path, team)}{hint}"
            yield document.problem(path, message)


def _unknown_judges(document: ResolvedDocument) -> Iterator[Problem]:
    """Guardrails that ask a model that the template has not, where no vendor lists its own."""
    names = [name for _, name in model_names(document)]
    configs = (provider.get("config") for _, provider in mappings(document, "providers"))
    if any(getattr(each, "models", None) for each in configs):
        return
    rails = listed(document.value.get("guardrails"))
    places: list[tuple[KeyPath, Any]] = [(("guardrails",), rails)]
    for section in ("models", "keys"):
        for path, item in mappings(document, section):
            places.append(((*path, "guardrails"), listed(item.get("guardrails"))))
    for path, checks in places:
        for index, check in enumerate(checks):
            for kind in ("judge", "images", "moderations", "topics"):
                asked = check.get(kind) if isinstance(check, dict) else None
                model = asked.get("model") if isinstance(asked, dict) else None
                if isinstance(model, str) and model not in names:
                    at = (*path, index, kind, "model")
                    hint = did_you_mean(model, names) or "; add it to 'models'"
                    shown = document.shown(at, model)
                    yield document.problem(at, f"no model has the id {shown}{hint}")


def _stays_without_memory(document: ResolvedDocument) -> Iterator[Problem]:
    """How long models stay, where all of them stay for ever."""
    if document.value.get("memory") is not None:
        return
    for path, model in mappings(document, "models"):
        for key in ("keep", "preload", "park"):
            if model.get(key):
                message = (
                    "models take turns only where the template says how much memory there is, and"
                    " all stay without it: add 'memory: {cpu: 12GB}', or take this out"
                )
                yield document.problem((*path, key), message)


def _repeated(
    document: ResolvedDocument, names: Iterable[tuple[KeyPath, str]]
) -> Iterator[Problem]:
    first: dict[str, KeyPath] = {}
    for path, name in names:
        if name not in first:
            first[name] = path
            continue
        taken_by, line = dotted(first[name][:2]), document.places[first[name]].line
        message = f"{document.shown(path, name)} is taken by {taken_by} on line {line} already"
        yield document.problem(path, message)
