"""A YAML template -> validated, typed settings.

A distribution says what one server is: how it listens, which providers it has, and which models it
offers from them. `README.md` and the files in `templates/` describe the format.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)

from llama_compat.distribution.access import (
    CorsSettings,
    FleetOrStore,
    FleetSettings,
    KeySettings,
    LimitSettings,
    LimitStore,
    LimitStoreSettings,
    TeamSettings,
    counted_together,
)
from llama_compat.distribution.access import Name as _Name
from llama_compat.distribution.access import NothingIsEmpty as _NothingIsEmpty
from llama_compat.distribution.adapters import (
    AdapterOf,
    Adapters,
    adapter_names,
    adapter_problems,
)
from llama_compat.distribution.aliases import is_pattern, letters, overlap
from llama_compat.distribution.facts import FactsSettings
from llama_compat.distribution.observability import (
    BatchesSettings,
    CacheSettings,
    FilesSettings,
    HandOverSettings,
    PriceSettings,
    RecordsSettings,
    StorageAddress,
    TracesSettings,
    default_storage,
)
from llama_compat.distribution.problems import (
    KeyPath,
    Problem,
    TemplateError,
    UnknownProviderType,
    did_you_mean,
    dotted,
)
from llama_compat.distribution.reading.covers import CoveredText, cover
from llama_compat.distribution.reading.env_references import ResolvedDocument
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
from llama_compat.distribution.routing_checks import contradictions, reference_problems
from llama_compat.distribution.scaling import ReplicaSettings, ScaleSettings
from llama_compat.distribution.vector_stores import VectorStoresSettings
from llama_compat.guardrails.settings import CheckSettings
from llama_compat.hosted.settings import ToolsSettings

MAX_TEMPLATE_BYTES = 1024 * 1024

# A key whose items are all commented out holds nothing.
_Seconds = Annotated[float, Field(gt=0, le=86400)]


MIN_KEY_CHARACTERS = 8
"""A shorter key can be tried out; and an empty one would let in who sends none."""


def _check_key(key: SecretStr) -> SecretStr:
    text = key.get_secret_value().strip()
    if len(text) < MIN_KEY_CHARACTERS:
        raise ValueError(
            f"expected a key of at least {MIN_KEY_CHARACTERS} characters, got"
            f" {f'one of {len(text)}' if text else 'an empty one'}; `openssl rand -hex 24` makes"
            " a good one"
        )
    return SecretStr(text)


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


APIName = Literal["openai", "responses", "messages", "ollama", "gemini", "interactions"]


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class ResponsesStoreSettings(_Settings):
    """For how long responses, and Google's interactions, are kept, and how many."""

    path: _Name | None = None
    """An SQLite file of their own, as it was once; without it they are in `server.storage`."""

    ttl: Annotated[int, Field(ge=1)] = 30 * 24 * 3600
    """Seconds after which a response is forgotten."""

    max_bytes: Annotated[int, Field(ge=1)] = 1 << 30
    """Of responses and their input; the oldest make room for the newest."""


class ReasoningMemorySettings(_Settings):
    """How much is kept of what models thought when they called tools, in the process that answered.

    What bounds is met forgets what was not asked for for longest.
    """

    seconds: _Seconds = 3600
    """What no request has needed for so long is forgotten."""

    max_turns: Annotated[int, Field(ge=1)] = 10_000
    """Replies of which it is kept."""

    max_bytes: Annotated[int, Field(ge=1024)] = 64 * 1024 * 1024
    """What all of it may come to."""


class AdminSettings(_Settings):
    """What the page and `/admin/` may do besides."""

    can_edit: bool = False
    """Let who has the admin key check changed templates, and take one over. A template names
    programs to run and files to read: the admin key opens as much then as a shell of the server's
    user does."""


class WebSocketSettings(_Settings):
    """How long a WebSocket is kept; all else that bounds a connection holds for it too."""

    max_seconds: Annotated[float, Field(gt=0, le=3600)] = 3600
    """From its handshake on; what runs then ends. OpenAI's Responses API has an hour."""

    idle_seconds: _Seconds = 600
    """How long it is kept while nothing is asked on it. A client's tools run meanwhile."""

    ping_seconds: _Seconds = 30
    """A client of which nothing was heard for so long is sent a ping."""

    pong_seconds: _Seconds = 120
    """How long a client may leave that without an answer."""


class ServerSettings(_Settings):
    """How the server listens, and what it accepts."""

    host: _Name = "127.0.0.1"
    """The address to listen on: this machine's own by default, 0.0.0.0 for every network."""

    port: Annotated[int, Field(ge=0, le=65535)] = 8321
    """0 takes a free one."""

    api_keys: Annotated[
        list[Annotated[SecretStr, AfterValidator(_check_key)]], _NothingIsEmpty
    ] = []
    """Clients send one of them; with none, everybody is let in."""

    admin_key: Annotated[SecretStr, AfterValidator(_check_key)] | None = None
    """Opens `/admin/`, and what `metrics_key` opens; without it there is no `/admin/`."""

    admin: AdminSettings = AdminSettings()
    """What may be done with the admin key besides."""

    metrics_key: Annotated[SecretStr, AfterValidator(_check_key)] | None = None
    """For who scrapes `/metrics`: opens that and the targets in `/health`, and no model. So do the
    admin key and `api_keys`; where there are no keys, everybody may, unless this is set."""

    stored_keys: bool = False
    """Let in who has a key that was made with `llama-compat keys create` or in `/admin/`; they are
    in `storage`."""

    limits: LimitStore = LimitStoreSettings()
    """Where the limits of keys, teams, models and providers are counted, if there is no `fleet`."""

    fleet: FleetOrStore | None = None
    """What this gateway shares with others that serve the same template."""

    cors: CorsSettings | None = None
    """Web pages that may use the server; none without it."""

    max_body_bytes: Annotated[int, Field(ge=1)] = 64 * 1024 * 1024
    """Larger requests are refused with 413."""

    max_bodies_bytes: Annotated[int, Field(ge=1)] = 512 * 1024 * 1024
    """What the bodies of all requests together may come to while they are answered; a request that
    would be over it is told to come again with 503."""

    max_header_bytes: Annotated[int, Field(ge=1024)] = 64 * 1024
    """Requests with longer headers, the target included, are refused with 431."""

    max_headers: Annotated[int, Field(ge=1)] = 200
    """Requests with more headers are refused with 431."""

    max_connections: Annotated[int, Field(ge=1)] = 4096
    """At a time. One more takes the place of the one that has been idle for longest, or is refused
    with 503."""

    header_seconds: _Seconds = 20
    """How long the headers of a request may take to come, or a new connection may be silent."""

    body_seconds: _Seconds = 30
    """How long a request's body may come without progress."""

    idle_seconds: _Seconds = 75
    """How long a connection is kept between two requests. Longer than the usual clients keep
    theirs, so that it is they who close it and never find it closed under a request."""

    write_seconds: _Seconds = 60
    """How long a client may leave its answer untaken before the connection is closed."""

    max_choices: Annotated[int, Field(ge=1)] = 128
    """Replies that one request may ask for: `n` of each of its prompts. More are refused."""

    apis: Annotated[list[APIName], _NothingIsEmpty] = list(get_args(APIName))
    """The client APIs that are open."""

    websockets: WebSocketSettings | None = WebSocketSettings()
    """The Responses API over WebSockets; `null` for none, which is answered 426."""

    responses_store: ResponsesStoreSettings | None = None
    """Keep responses and interactions: `store`, `previous_response_id`, `previous_interaction_id`,
    `background` and what comes with them."""

    reasoning_memory: ReasoningMemorySettings | None = ReasoningMemorySettings()
    """Keep what models thought when they called tools, where a provider has a vendor that wants it
    back, and put it back where a client lost it; `null` for nothing of it."""

    cache: CacheSettings | None = None
    """Keep replies, and give them again to who asks for the same; models may have another."""

    tools: ToolsSettings | None = None
    """Run tools for models whose vendors don't: web search, web fetch, search in files, and those
    of MCP servers."""

    files: FilesSettings | None = None
    """Keep files that clients upload; `{}` for the usual way."""

    batches: BatchesSettings | None = None
    """Work through batches of requests; `{}` for the usual way. Files are kept then, as `files`
    says, or in the usual way."""

    vector_stores: VectorStoresSettings | None = None
    """Keep vector stores, in which the texts of files are found. Files are kept then, too."""

    storage: StorageAddress = Field(default_factory=default_storage)
    """Where records, keys and the like are kept, if the template wants any: `sqlite:PATH` or
    `postgres://USER:PASSWORD@HOST/DATABASE`."""

    records: RecordsSettings | None = None
    """Keep a record of every request; `{}` for the usual way."""

    traces: TracesSettings | None = None
    """Send a span of every request, and of every attempt at a target; `{}` for the usual way."""

    metrics: bool = False
    """Tell Prometheus at `/metrics`."""

    log_usage: bool = False
    """Count the tokens of every request, for its line in the log; vendors that tell them only when
    asked are asked."""

    shutdown_grace_seconds: Annotated[int, Field(ge=0)] = 30
    """How long running requests may take to finish once the server is told to stop."""

    @property
    def counting(self) -> FleetSettings:
        """Where limits are counted, and what becomes of requests where that is away."""
        return counted_together(self.fleet, self.limits)

    @model_validator(mode="after")
    def _one_store(self) -> Self:
        if self.fleet is not None and "store" in self.limits.model_fields_set:
            raise ValueError(
                "'fleet' says where limits are counted too: leave out 'limits' beside it"
            )
        return self

    @model_validator(mode="after")
    def _searches_what_there_is(self) -> Self:
        wants = self.tools is not None and self.tools.file_search is not None
        if wants and self.vector_stores is None:
            raise ValueError(
                "'tools.file_search' searches vector stores: add 'vector_stores:"
                " {embedding_model: ...}' beside 'tools'"
            )
        return self


class ProviderSettings(_Settings):
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


class ModelSettings(_Settings):
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
    from there it is back sooner. `local::echo` with `simulate` can do so, no other engine yet; on
    the CPU it would mean nothing, and is refused."""

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


class Distribution(_Settings):
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
    problems.extend(_conflicts(document))
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


def template_path(source: str) -> Path:
    """Where the template `source` is looked for: the name of one that ships, or a path."""
    names = [name for name, _ in list_templates()]
    return _template_folder() / f"{source}.yaml" if source in names else Path(source)


def schema_path() -> Path:
    """Where the JSON Schema of templates is, which `make reference` writes."""
    return _template_folder() / "schema.json"


def list_templates() -> list[tuple[str, str]]:
    """The templates that ship: name, and description from the comment that they begin with."""
    return sorted((path.stem, _description(path)) for path in _template_folder().glob("*.yaml"))


# --------------------------------------------------------------------------------------------------
# Files
# --------------------------------------------------------------------------------------------------


def _template_folder() -> Path:
    """In an installed package inside `llama_compat`, in a checkout beside it."""
    package = Path(__file__).parents[1]
    installed = package / "templates"
    return installed if installed.is_dir() else package.parent / "templates"


def _description(path: Path) -> str:
    first_line = path.read_text("utf-8").partition("\n")[0]
    return first_line.removeprefix("#").strip() if first_line.startswith("#") else ""


def read_template(source: str) -> tuple[str, str]:
    """The path of the template `source`, and its text.

    Raises:
        TemplateError: there is none, or it is not text.
    """
    path = template_path(source)
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_TEMPLATE_BYTES + 1)
        if len(raw) > MAX_TEMPLATE_BYTES:
            raise _unreadable(path, f"larger than {MAX_TEMPLATE_BYTES} bytes, so not a template")
        return str(path), raw.decode("utf-8-sig")
    except FileNotFoundError:
        names = [name for name, _ in list_templates()]
        problem = f"no such file, and not one of the templates {', '.join(names)}"
        raise _unreadable(path, problem + did_you_mean(path.stem, names)) from None
    except IsADirectoryError:
        raise _unreadable(path, "is a folder; name a template or a YAML file") from None
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise _unreadable(path, "not UTF-8 text; save the file as UTF-8", line) from None
    except OSError as error:
        raise _unreadable(path, f"can't be read: {error.strerror or error}") from None


def _unreadable(path: Path, message: str, line: int | None = None) -> TemplateError:
    return TemplateError(str(path), [Problem(message, line=line)])


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
    for path, provider in _mappings(document, "providers"):
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


def _conflicts(document: ResolvedDocument) -> Iterator[Problem]:
    """What is wrong between settings that are right for themselves."""
    yield from _keys_that_are_not_set(document)
    yield from _bodies(document)
    yield from _replicas_of_remotes(document)
    yield from adapter_problems(document)
    provider_ids = list(_texts(document, "providers", "id"))
    yield from _repeated(document, provider_ids)
    yield from _repeated(document, _model_names(document))
    yield from _ids_like_patterns(document)
    yield from _ambiguous(document)
    yield from _repeated(document, _texts(document, "keys", "name"))
    teams = list(_texts(document, "teams", "id"))
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
    for path, provider in _mappings(document, "providers"):
        type, replicas = provider.get("type"), provider.get("replicas")
        if replicas is not None and isinstance(type, str) and not type.startswith("local::"):
            at = (*path, "replicas")
            message = "only a local provider (`local::...`) has replicas; this one's models run"
            yield document.problem(at, f"{message} somewhere else")


def _model_names(document: ResolvedDocument) -> Iterator[tuple[KeyPath, str]]:
    for path, model in _mappings(document, "models"):
        aliases = enumerate(_list(model.get("aliases")))
        names = [((*path, "id"), model.get("id"))]
        names += [((*path, "aliases", index), alias) for index, alias in aliases]
        yield from ((at, name) for at, name in names if isinstance(name, str))
        yield from adapter_names(model, path)


def _ids_like_patterns(document: ResolvedDocument) -> Iterator[Problem]:
    for path, name in _texts(document, "models", "id"):
        if is_pattern(name):
            message = "an id is one name, without '*'; patterns have their place in 'aliases'"
            yield document.problem(path, message)


def _ambiguous(document: ResolvedDocument) -> Iterator[Problem]:
    """Patterns of two models that stand for the same name, of which neither says more of it."""
    patterns = [each for each in _model_names(document) if is_pattern(each[1])]
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
    for path, team in _texts(document, "keys", "team"):
        if team not in teams:
            near = "" if path in document.variables else did_you_mean(team, teams)
            hint = near or "; add it to 'teams', which may say no more than its id"
            message = f"no team has the id {document.shown(path, team)}{hint}"
            yield document.problem(path, message)


def _unknown_judges(document: ResolvedDocument) -> Iterator[Problem]:
    """Guardrails that ask a model that the template has not, where no vendor lists its own."""
    names = [name for _, name in _model_names(document)]
    configs = (provider.get("config") for _, provider in _mappings(document, "providers"))
    if any(getattr(each, "models", None) for each in configs):
        return
    rails = _list(document.value.get("guardrails"))
    places: list[tuple[KeyPath, Any]] = [(("guardrails",), rails)]
    for section in ("models", "keys"):
        for path, item in _mappings(document, section):
            places.append(((*path, "guardrails"), _list(item.get("guardrails"))))
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
    for path, model in _mappings(document, "models"):
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


def _texts(document: ResolvedDocument, section: str, key: str) -> Iterator[tuple[KeyPath, str]]:
    for path, item in _mappings(document, section):
        text = item.get(key)
        if text and isinstance(text, str):
            yield (*path, key), text


def _mappings(document: ResolvedDocument, section: str) -> Iterator[tuple[KeyPath, dict[str, Any]]]:
    for index, item in enumerate(_list(document.value.get(section))):
        if isinstance(item, dict):
            yield (section, index), item


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _offers_models(distribution: Distribution) -> bool:
    return bool(distribution.models) or any(
        provider.discovers_models for provider in distribution.providers
    )
