"""Every setting of a template, and of each provider's `config`."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping

from pydantic import BaseModel

from llama_compat.distribution import Distribution
from providers.base import ProviderConfig
from providers.registry import CLASSES, config_model
from providers.remote.config import RemoteConfig
from providers.remote.openai.settings import RemoteOpenAIConfig
from scripts.reference import annotations
from scripts.reference.docstrings import as_markdown, of_fields
from scripts.reference.examples import PROVIDERS, TEMPLATE
from scripts.reference.markdown import code, codes, sentence, table
from scripts.reference.markdown import page as page_of

HEAD = ("setting", "type", "default", "what it is")

INTRODUCTION = """\
A template is one YAML file. This page has every setting in it, made from the classes that check it;
what a provider takes in its `config` is on [the page of providers](providers.md).

`${env.NAME}` and `${env.NAME:default}` stand for environment variables in any value, and `$${` for
a plain `${`. A value whose variable is not set and whose default is empty is left out.

`llama-compat check FILE` says what is wrong with a template, each mistake with its line. In an
editor, the [JSON schema](#in-an-editor) does so while you type."""

EDITORS = """\
## In an editor

`llama-compat schema` prints a JSON Schema of all this. Editors with the YAML language server (VS
Code's YAML extension, Neovim, Emacs, JetBrains' IDEs) take it from the template's first lines:

```console
$ llama-compat schema > llama-compat.schema.json
```

```yaml
# yaml-language-server: $schema=llama-compat.schema.json
version: 1
providers:
  - id: echo
    type: local::echo
models:
  - id: parrot
    provider: echo
```

It is made by the same command as this page, and lies in the wheel as
`llama_compat/templates/schema.json`."""


def page() -> str:
    """The settings of a template."""
    places = _places()
    sections = [
        _section(model, TEMPLATE.get(model.__name__, ""), f"In a template: {codes(paths)}.")
        for model, paths in places.items()
    ]
    return page_of("Settings of a template", INTRODUCTION, EDITORS, *sections)


def _places() -> dict[type[BaseModel], list[str]]:
    """Every class of settings, and where a template has it."""
    found: dict[type[BaseModel], list[str]] = {Distribution: ["the whole file"]}
    waiting: list[tuple[type[BaseModel], str]] = [(Distribution, "")]
    while waiting:
        model, path = waiting.pop(0)
        for name, field in model.model_fields.items():
            described = annotations.described(field)
            many = "[]" if described.type.startswith("list") else ""
            for inner in described.models:
                place = f"{path}.{name}{many}".removeprefix(".")
                if inner not in found:
                    waiting.append((inner, place))
                found.setdefault(inner, []).append(place)
    return found


def _section(model: type[BaseModel], example: str, where: str = "") -> str:
    pieces = [
        f"## {annotations.title(model)}",
        as_markdown(inspect.cleandoc(model.__doc__ or "")),
        where,
    ]
    pieces += [_fenced(example), table(HEAD, rows(model, model.model_fields))]
    return "\n\n".join(each for each in pieces if each)


def _fenced(yaml: str) -> str:
    return f"```yaml\n{yaml.strip()}\n```" if yaml else ""


def rows(model: type[BaseModel], names: Iterable[str]) -> list[tuple[str, ...]]:
    """A row for each of these settings."""
    told = of_fields(model)
    found = []
    for name in names:
        field = model.model_fields[name]
        described = annotations.described(field)
        kind = ", ".join(each for each in (described.type, described.bounds) if each)
        found.append((code(name), kind, annotations.default(field), sentence(told.get(name, ""))))
    return found


def undescribed() -> list[str]:
    """Settings of which nothing is said."""
    models = [*_places(), *_configs()]
    return [
        f"{model.__name__}.{name}"
        for model in models
        for name in model.model_fields
        if not of_fields(model).get(name)
    ]


# What a provider takes ----------------------------------------------------------------------------

PROVIDER_INTRODUCTION = """\
What a provider's `config` takes depends on its `type`. The settings of [every provider](#provider)
and of [every remote one](#remote) come first; a type's own are below them. Which vendors there are,
and what each of them is reached with, is in [the table of vendors](vendors.md). `base_url` need not
be given where a vendor has one address for all.

| type | settings |
| --- | --- |
"""


def provider_page() -> str:
    """The settings of each provider."""
    classes = _configs()
    index = "\n".join(
        f"| {name} | {' '.join(_link(each) for each in _chain(model))} |"
        for name, model in _types().items()
    )
    inner = [each for model in classes for each in _inner(model) if each not in classes]
    sections = [_section_of_config(each, classes) for each in dict.fromkeys([*classes, *inner])]
    return page_of("Settings of providers", PROVIDER_INTRODUCTION + index, *sections)


_PARTICULAR = ("azure", "bedrock", "vllm")
"""Vendors that speak OpenAI and have settings of their own."""


def _types() -> Mapping[str, type[BaseModel]]:
    """The class of each type's settings; that of all vendors without one of their own once."""
    found: dict[str, type[BaseModel]] = {
        "all [vendors](vendors.md) but those": RemoteOpenAIConfig,
        **{code(f"remote::{name}"): config_model(f"remote::{name}").model for name in _PARTICULAR},
    }
    return found | {code(name): config_model(name).model for name in CLASSES}


def _chain(model: type[BaseModel]) -> list[type[BaseModel]]:
    """A class and those that it has its settings from, the most general first."""
    return [each for each in reversed(model.__mro__) if _has_own(each)]


def _has_own(model: type) -> bool:
    return (
        issubclass(model, ProviderConfig)
        and any(name in model.__annotations__ for name in model.model_fields)
        and not model.__module__.startswith("pydantic")
    )


def _configs() -> list[type[BaseModel]]:
    first = [ProviderConfig, RemoteConfig]
    return list(dict.fromkeys([*first, *(e for m in _types().values() for e in _chain(m))]))


def _inner(model: type[BaseModel]) -> list[type[BaseModel]]:
    return [
        each
        for field in model.model_fields.values()
        for each in annotations.described(field).models
    ]


def _link(model: type[BaseModel]) -> str:
    return f"[{annotations.title(model)}](#{annotations.anchor(model)})"


def _section_of_config(model: type[BaseModel], classes: Iterable[type[BaseModel]]) -> str:
    if model not in classes:
        return _section(model, "")
    above = [_link(each) for each in _chain(model)[:-1]]
    own = [name for name in model.model_fields if name in model.__annotations__]
    pieces = [
        f"## {annotations.title(model)}",
        as_markdown(inspect.cleandoc(model.__doc__ or "")),
        f"Besides those of {', '.join(above)}:" if above else "",
        _fenced(PROVIDERS.get(model.__name__, "")),
        table(HEAD, rows(model, own)),
    ]
    return "\n\n".join(each for each in pieces if each)
