"""A YAML template -> validated, typed settings, every mistake with its place in the file."""

from llama_compat.distribution.access import (
    BudgetSettings,
    CorsSettings,
    KeyGrant,
    KeySettings,
    LimitSettings,
    LimitStoreSettings,
    Period,
    TeamSettings,
)
from llama_compat.distribution.observability import (
    CacheSettings,
    ExactCacheSettings,
    PriceSettings,
    RecordsSettings,
    TracesSettings,
    default_storage,
)
from llama_compat.distribution.routing import FlatTarget, RoutingSettings, TargetSettings
from llama_compat.distribution.template import (
    ConfigModel,
    Distribution,
    ModelSettings,
    ProviderSettings,
    ResponsesStoreSettings,
    ServerSettings,
    list_templates,
    load_distribution,
    schema_path,
    template_path,
)

__all__ = [
    "BudgetSettings",
    "CacheSettings",
    "ConfigModel",
    "CorsSettings",
    "Distribution",
    "ExactCacheSettings",
    "FlatTarget",
    "KeyGrant",
    "KeySettings",
    "LimitSettings",
    "LimitStoreSettings",
    "ModelSettings",
    "Period",
    "PriceSettings",
    "ProviderSettings",
    "RecordsSettings",
    "ResponsesStoreSettings",
    "RoutingSettings",
    "ServerSettings",
    "TargetSettings",
    "TeamSettings",
    "TracesSettings",
    "default_storage",
    "list_templates",
    "load_distribution",
    "schema_path",
    "template_path",
]
