"""A YAML template -> validated, typed settings, every mistake with its place in the file."""

from llama_compat.distribution.access import (
    BudgetSettings,
    CorsSettings,
    FleetSettings,
    KeyGrant,
    KeySettings,
    LimitSettings,
    LimitStoreSettings,
    OnOutage,
    Period,
    TeamSettings,
)
from llama_compat.distribution.observability import (
    BatchesSettings,
    CacheSettings,
    ExactCacheSettings,
    FilesSettings,
    PriceSettings,
    RecordsSettings,
    SemanticCacheSettings,
    TracesSettings,
    default_storage,
)
from llama_compat.distribution.reading.files import (
    list_templates,
    read_template,
    schema_path,
    template_path,
)
from llama_compat.distribution.residency import ModelStay, ResidencySettings
from llama_compat.distribution.routing import FlatTarget, RoutingSettings, TargetSettings
from llama_compat.distribution.scaling import ReplicaSettings, ScaleSettings
from llama_compat.distribution.server import (
    AdminSettings,
    ResponsesStoreSettings,
    ServerSettings,
)
from llama_compat.distribution.template import (
    ConfigModel,
    Distribution,
    ModelSettings,
    ProviderSettings,
    covered_template,
    distribution_of,
    load_distribution,
)
from llama_compat.distribution.vector_stores import VectorStoresSettings

__all__ = [
    "AdminSettings",
    "BatchesSettings",
    "BudgetSettings",
    "CacheSettings",
    "ConfigModel",
    "CorsSettings",
    "Distribution",
    "ExactCacheSettings",
    "FilesSettings",
    "FlatTarget",
    "FleetSettings",
    "KeyGrant",
    "KeySettings",
    "LimitSettings",
    "LimitStoreSettings",
    "ModelSettings",
    "ModelStay",
    "OnOutage",
    "Period",
    "PriceSettings",
    "ProviderSettings",
    "RecordsSettings",
    "ReplicaSettings",
    "ResidencySettings",
    "ResponsesStoreSettings",
    "RoutingSettings",
    "ScaleSettings",
    "SemanticCacheSettings",
    "ServerSettings",
    "TargetSettings",
    "TeamSettings",
    "TracesSettings",
    "VectorStoresSettings",
    "covered_template",
    "default_storage",
    "distribution_of",
    "list_templates",
    "load_distribution",
    "read_template",
    "schema_path",
    "template_path",
]
