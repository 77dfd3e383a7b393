"""LoRA adapters of a model, each offered as a model of its own: what a template may say of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, StringConstraints

from llama_compat.distribution.problems import KeyPath, Problem
from llama_compat.distribution.reading.env_references import ResolvedDocument
from llama_compat.settings.fields import Name

ADAPTABLE = ("local::torch", "local::llama_cpp")
"""The types of providers whose models can be adapted while they run."""


def _check_name(name: str) -> str:
    if name == "latest":
        raise ValueError("'latest' is what Ollama calls the model itself; give it another name")
    return name


AdapterName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$"), AfterValidator(_check_name)
]
"""What stands behind the colon: letters, digits, `.`, `_` and `-`."""

Adapters = dict[AdapterName, Name]
"""By name, where each is from: a path, or `hf:ORG/NAME`."""


class AdapterOf(NamedTuple):
    """What a model is that is another one with an adapter.

    Attributes:
        base: what that other one is called: by clients, or by its provider.
        name: of the adapter.
        source: where it is from.
    """

    base: str
    name: str
    source: str

    @property
    def id(self) -> str:
        """What it is called there itself."""
        return adapted_name(self.base, self.name)


def adapted_name(base: str, adapter: str) -> str:
    """What a model is called with an adapter."""
    return f"{base}:{adapter}"


def adapters_of(model: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The names and sources of a model's adapters in a template that was not checked yet."""
    adapters = model.get("adapters")
    if isinstance(adapters, dict):
        yield from ((name, source) for name, source in adapters.items() if isinstance(name, str))


def adapter_names(model: dict[str, Any], path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """What its models with adapters are called, and where that stands."""
    if isinstance(model.get("id"), str):
        for name, _ in adapters_of(model):
            yield (*path, "adapters", name), adapted_name(model["id"], name)


def adapter_problems(document: ResolvedDocument) -> Iterator[Problem]:
    """Adapters of models that can't have any, and of one name that are two."""
    providers = {
        each["id"]: each
        for each in _mappings(document.value.get("providers"))
        if isinstance(each.get("id"), str)
    }
    known: dict[tuple[str, str, str], Any] = {}
    models = document.value.get("models")
    for index, model in enumerate(models if isinstance(models, list) else []):
        if not isinstance(model, dict) or not model.get("adapters"):
            continue
        path: KeyPath = ("models", index, "adapters")
        provider = model.get("provider")
        if not isinstance(provider, str):
            message = (
                "a model with 'targets' has no adapters of its own: give them to a model with a"
                " 'provider', and name 'MODEL:ADAPTER' as a target"
            )
            yield document.problem(path, message, at_key=True)
            continue
        settings = providers.get(provider, {})
        if settings.get("type") not in (*ADAPTABLE, None):
            message = f"only models of {' and '.join(ADAPTABLE)} can have adapters"
            yield document.problem(path, message, at_key=True)
        if settings.get("replicas") is not None:
            message = "models that run as replicas have no adapters; take 'replicas' out"
            yield document.problem(path, message, at_key=True)
        own = model.get("provider_model") or model.get("id")
        for name, source in adapters_of(model):
            first = known.setdefault((provider, str(own), name), source)
            if first != source:
                message = "another model has an adapter of this name for the same provider's model"
                yield document.problem((*path, name), f"{message}; give it another name")


def _mappings(items: Any) -> Iterator[dict[str, Any]]:
    yield from (
        each for each in (items if isinstance(items, list) else []) if isinstance(each, dict)
    )
