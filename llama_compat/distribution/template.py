"""A YAML template -> validated, typed settings.

A distribution says what one server is: how it listens, which providers it has, and which models it
offers from them. `README.md` and the files in `templates/` describe the format.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
)

from llama_compat.distribution.access import (
    KeySettings,
    LimitSettings,
    TeamSettings,
)
from llama_compat.distribution.adapters import (
    AdapterOf,
    Adapters,
)
from llama_compat.distribution.aliases import is_pattern
from llama_compat.distribution.checks.conflicts import conflicts
from llama_compat.distribution.checks.routes import contradictions, reference_problems
from llama_compat.distribution.checks.written import mappings
from llama_compat.distribution.facts import FactsSettings
from llama_compat.distribution.observability import (
    CacheSettings,
    HandOverSettings,
    PriceSettings,
)
from llama_compat.distribution.problems import (
    Problem,
    TemplateError,
    UnknownProviderType,
)
from llama_compat.distribution.reading.covers import CoveredText, cover
from llama_compat.distribution.reading.env_references import ResolvedDocument
from llama_compat.distribution.reading.files import read_template
from llama_compat.distribution.reading.validation_messages import explain
from llama_compat.distribution.reading.yaml_positions import read_yaml
from llama_compat.distribution.residency import (
    Keep,
    MemoryBounds,
    ModelStay,
    ResidencySettings,
)
from llama_compat.distribution.routing import (
    FlatTarget,
    RoutingSettings,
    TargetSettings,
    flat_targets,
)
from llama_compat.distribution.scaling import ReplicaSettings, ScaleSettings
from llama_compat.distribution.server import ServerSettings
from llama_compat.guardrails.settings import CheckSettings
from llama_compat.settings.fields import Name as _Name
from llama_compat.settings.fields import NothingIsEmpty as _NothingIsEmpty
from llama_compat.settings.model import TemplateSettings


@dataclass(frozen=True, slots=True)
class ConfigModel:
    """What the settings of a provider type have to be.

    Attributes:
        model: the class that checks them.
        defaults: what they are where a template says nothing, besides the class's own defaults.
    """

    model: type[BaseModel]
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def validate(self, given: Any) -> BaseModel:
        """The settings that a template gives.

        Raises:
            ValidationError: they are wrong.
        """
        settings = {**self.defaults, **given} if isinstance(given, Mapping) else given
        return self.model.model_validate(settings)


class ProviderSettings(TemplateSettings):
    """One source of answers."""

    id: _Name
    """What models, messages and metrics call it."""

    type: _Name
    """What it is: `local::torch`, `remote::openai` and so on; it decides what `config` takes."""

    config: Any = Field(default_factory=dict)
    """An object of the class that the provider's type asks for, once a template is loaded."""

    limits: LimitSettings | None = None
    """Of all requests to it; another target of the model, if there is one, answers what is over."""

    max_concurrent: Annotated[int, Field(ge=1)] | None = None
    """Requests that it gets at a time; None for as many as come."""

    max_waiting: Annotated[int, Field(ge=0)] = 100
    """Requests that wait beyond that; further ones go to another target, or get 429."""

    batches: HandOverSettings = HandOverSettings()
    """How batches of its models are worked on, unless the model says otherwise."""

    replicas: ReplicaSettings | None = None
    """Of a local provider: each of its models runs in processes of its own on a Ray cluster; None
    has it in the process of the server."""

    @property
    def discovers_models(self) -> bool:
        """Whether all models are offered that the vendor lists, whatever the template lists."""
        return bool(getattr(self.config, "models", None))


class ModelSettings(TemplateSettings):
    """A model that clients can ask for."""

    id: _Name
    """What clients ask for."""

    provider: _Name | None = None
    """Where its requests go, if that is one place; otherwise there are `targets`."""

    provider_model: _Name | None = None
    """What the provider calls it; None if that is `id` too."""

    targets: Annotated[list[TargetSettings], _NothingIsEmpty] = []
    """Where its requests may go."""

    routing: RoutingSettings | None = None
    """Which of the targets gets a request, over what the whole template says."""

    context_length: Annotated[int, Field(ge=1)] | None = None
    """Tokens that it can hold, prompt and completion together; None leaves that to the provider."""

    aliases: Annotated[list[_Name], _NothingIsEmpty] = []
    """What else it is called; one with a `*` stands for whatever clients may call it."""

    limits: LimitSettings | None = None
    """Of all requests for it, whoever asks."""

    price: PriceSettings | None = None
    """What it costs; None leaves that to the list of known prices."""

    facts: FactsSettings | None = None
    """What it takes, over what the catalogue knows of it."""

    prompt_cache: Literal["auto"] | None = None
    """`auto` marks prompts for the vendor's cache where the client has not, for targets that speak
    Anthropic's API, and for Claude and Nova over Bedrock's Converse: the tools, the system prompt
    and the last turns. Others cache by themselves."""

    cache: CacheSettings | None = None
    """Which of its replies are kept, in the place of what the server says; `{}` for none."""

    batches: HandOverSettings | None = None
    """How batches of it are worked on, in the place of what its providers say."""

    guardrails: Annotated[list[CheckSettings], _NothingIsEmpty] = []
    """What is looked for in its requests and replies, besides what is looked for in all."""

    adapters: Adapters = {}
    """LoRA adapters of it, by name: each a path or `hf:ORG/NAME`. Clients ask for `ID:NAME`, which
    has the settings that this model has. For `local::torch` and `local::llama_cpp`."""

    keep: Keep | None = None
    """How long it stays in memory, where `memory` is shared: `always`, from the start on; `idle
    10m`, after the last request; `on_demand`, until another needs the room, as without a word."""

    preload: bool = False
    """Load it when the server starts, if there is room; what is kept `always` is anyway."""

    park: bool = False
    """When it makes room on a GPU, its weights go to the main memory, if that has room for them;
    from there it is back sooner. That needs `cpu` in `memory`. `local::torch` can do so with models
    that generate, and `local::echo` with `simulate`; on the CPU it would mean nothing, and is
    refused."""

    @property
    def stay(self) -> ModelStay:
        """How long it stays in memory."""
        keep = self.keep or "on_demand"
        return ModelStay(keep, self.preload or keep == "always", self.park)

    @property
    def adapter(self) -> AdapterOf | None:
        """What it is another model with, if it is that."""
        return None

    @property
    def names(self) -> tuple[str, ...]:
        """Its id, and the aliases that are names."""
        return (self.id, *(each for each in self.aliases if not is_pattern(each)))

    @property
    def patterns(self) -> tuple[str, ...]:
        """The aliases that stand for more than one name."""
        return tuple(each for each in self.aliases if is_pattern(each))


class AdaptedModelSettings(ModelSettings):
    """A model that is another one with an adapter; it has what that one has."""

    adapts: AdapterOf
    """Which, and with what."""

    @property
    def adapter(self) -> AdapterOf:
        """See `ModelSettings.adapter`."""
        return self.adapts

    @classmethod
    def of(cls, model: ModelSettings, name: str) -> Self:
        """`model` with its adapter `name`."""
        adapts = AdapterOf(model.id, name, model.adapters[name])
        own = {each: getattr(model, each) for each in ModelSettings.model_fields}
        own |= {"provider_model": model.provider_model or model.id, "id": adapts.id}
        return cls.model_construct(**own | {"aliases": [], "adapters": {}, "adapts": adapts})


def _with_adapters(models: list[ModelSettings]) -> list[ModelSettings]:
    """`models`, and behind them those that are one of them with an adapter."""
    adapted = [AdaptedModelSettings.of(each, name) for each in models for name in each.adapters]
    return [*models, *adapted]


class Distribution(TemplateSettings):
    """What one server is."""

    version: Literal[1] = 1
    """Of the format."""

    server: Annotated[
        ServerSettings, BeforeValidator(lambda value: {} if value is None else value)
    ] = ServerSettings()
    """How the server listens, and what it accepts."""

    providers: Annotated[list[ProviderSettings], Field(min_length=1), _NothingIsEmpty]
    """Where answers come from."""

    models: Annotated[list[ModelSettings], _NothingIsEmpty, AfterValidator(_with_adapters)] = []
    """What clients can ask for; without any, a provider has to discover its own."""

    keys: Annotated[list[KeySettings], _NothingIsEmpty] = []
    """Who is let in, each with limits and a budget of its own."""

    teams: Annotated[list[TeamSettings], _NothingIsEmpty] = []
    """Keys that share limits and a budget."""

    routing: RoutingSettings | None = None
    """What counts for every model, unless it says otherwise."""

    scale: ScaleSettings = ScaleSettings()
    """The Ray cluster of the providers that have `replicas`."""

    memory: MemoryBounds | None = None
    """What models of local providers may take of this machine's memory, by the device: `{cpu: 12GB,
    cuda:0: 70GB}`. They are loaded when they are asked for, and make room for each other; without
    it all are loaded at the start, and stay."""

    residency: ResidencySettings = ResidencySettings()
    """How models take turns in that memory."""

    @property
    def has_replicas(self) -> bool:
        """Whether any provider has replicas."""
        return any(each.replicas is not None for each in self.providers)

    guardrails: Annotated[list[CheckSettings], _NothingIsEmpty] = []
    """What is looked for in all requests and replies; models and keys may have more."""

    @property
    def has_guardrails(self) -> bool:
        """Whether anything is looked for in any request or reply."""
        return any(self.checks)

    @property
    def checks(self) -> Iterator[CheckSettings]:
        """Those checks, each as often as it stands there."""
        yield from self.guardrails
        for model in self.models:
            yield from model.guardrails
        for key in self.keys:
            yield from key.guardrails

    @property
    def has_limits(self) -> bool:
        """Whether anything in it is limited; keys that are stored may be limited too."""
        limits = [
            *(each.limits for each in self.keys),
            *(each.limits for each in self.teams),
            *(each.limits for each in self.models),
            *(each.limits for each in self.providers),
        ]
        return any(each is not None for each in limits)

    @property
    def has_budgets(self) -> bool:
        """Whether anybody in it has a budget; keys that are stored may have one too."""
        budgets = [*(each.budget for each in self.keys), *(each.budget for each in self.teams)]
        return any(each is not None for each in budgets)

    @property
    def caches(self) -> dict[str, CacheSettings | None]:
        """The cache of each model that has its own settings, or is to have none; and by an empty
        name that of all others."""
        caches = {"": self.server.cache, **{each.id: each.cache for each in self.models}}
        named = {each.id for each in self.models if each.cache is None}
        return {
            name: cache if cache is not None and cache.exact is not None else None
            for name, cache in caches.items()
            if name not in named
        }

    @property
    def hands_over(self) -> bool:
        """Whether any batches are handed to vendors."""
        named = [
            *(each.batches for each in self.providers),
            *(each.batches for each in self.models),
        ]
        return any(each is not None and each.via == "vendor" for each in named)

    def targets_of(self, model: ModelSettings) -> list[FlatTarget]:
        """Where requests for `model` may go, whatever other models lie between."""
        return flat_targets(model, self._by_name)

    @cached_property
    def _by_name(self) -> dict[str, ModelSettings]:
        return {name: each for each in self.models for name in each.names}


def load_distribution(source: str, provider_config: Callable[[str], ConfigModel]) -> Distribution:
    """Read the template `source`, its references to the environment replaced, and check it.

    Args:
        source: the name of a template that ships, or the path of a YAML file.
        provider_config: says what a provider type's settings have to be; raises
            `UnknownProviderType`.

    Raises:
        TemplateError: with everything that is wrong, each with its place.
    """
    return distribution_of(*read_template(source), provider_config)


def distribution_of(
    path: str,
    text: str,
    provider_config: Callable[[str], ConfigModel],
    covered: Mapping[str, str] | None = None,
) -> Distribution:
    """As `load_distribution`, of a template's text.

    Args:
        path: of its file, for messages.
        text: what is in it.
        provider_config: as there.
        covered: what stands for secrets in it, and the secrets.

    Raises:
        TemplateError: with everything that is wrong, each with its place.
    """
    document = ResolvedDocument(read_yaml(text), os.environ, covered)
    if not isinstance(document.value, dict):
        raise TemplateError(path, document.problems or [_not_a_template(document)])
    problems = list(_configure_providers(document, provider_config))
    distribution = None
    try:
        distribution = Distribution.model_validate(document.value)
    except ValidationError as error:
        problems.extend(explain(error, Distribution, document))
    problems.extend(conflicts(document))
    references = list(reference_problems(document))
    problems.extend(references)
    if distribution is not None and not references:
        problems.extend(contradictions(distribution, document))
    # A value that could not be read is not also of a wrong type.
    unread = {(problem.path, problem.line) for problem in document.problems}
    problems = [each for each in problems if (each.path, each.line) not in unread]
    problems.extend(document.problems)
    if distribution is None or problems:
        raise TemplateError(path, problems)
    if not _offers_models(distribution):
        message = "no models; list one, or set 'models: discover' for a provider"
        raise TemplateError(path, [document.problem(("models",), message)])
    return distribution


def covered_template(text: str, provider_config: Callable[[str], ConfigModel]) -> CoveredText:
    """The text of a template with its secrets covered.

    Args:
        text: what is in its file.
        provider_config: as in `load_distribution`.

    Raises:
        TemplateError: it is no YAML, so that nobody can tell what in it is secret.
    """

    def kind_of(owner: type[BaseModel], name: str, beside: Mapping[str, str]) -> Any:
        if owner is not ProviderSettings or name != "config":
            return None
        try:
            return provider_config(beside.get("type", "")).model
        except UnknownProviderType:
            return None

    return cover(text, Distribution, kind_of)


# --------------------------------------------------------------------------------------------------
# Checks
# --------------------------------------------------------------------------------------------------


def _not_a_template(document: ResolvedDocument) -> Problem:
    if document.value is None:
        return Problem("empty; a template has at least the keys 'providers' and 'models'", line=1)
    keys = ", ".join(Distribution.model_fields)
    got = "a list" if isinstance(document.value, list) else "a single value"
    return document.problem((), f"expected a mapping with the keys {keys}, got {got}")


def _configure_providers(
    document: ResolvedDocument, provider_config: Callable[[str], ConfigModel]
) -> Iterator[Problem]:
    """Replace each provider's `config` by an object of its class."""
    for path, provider in mappings(document, "providers"):
        type = provider.get("type")
        if not isinstance(type, str):
            continue
        try:
            wanted = provider_config(type)
        except UnknownProviderType as error:
            at = (*path, "type")
            yield document.problem(at, document.redact(at, str(error)))
            continue
        config = provider.get("config")
        try:
            provider["config"] = wanted.validate({} if config is None else config)
        except ValidationError as error:
            yield from explain(error, wanted.model, document, (*path, "config"))


def _offers_models(distribution: Distribution) -> bool:
    return bool(distribution.models) or any(
        provider.discovers_models for provider in distribution.providers
    )
