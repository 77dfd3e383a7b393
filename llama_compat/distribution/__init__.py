"""A YAML template -> validated, typed settings, every mistake with its place in the file."""

from llama_compat.distribution.routing import FlatTarget, RoutingSettings, TargetSettings
from llama_compat.distribution.template import (
    Distribution,
    ModelSettings,
    ProviderSettings,
    ResponsesStoreSettings,
    ServerSettings,
    list_templates,
    load_distribution,
    template_path,
)

__all__ = [
    "Distribution",
    "FlatTarget",
    "ModelSettings",
    "ProviderSettings",
    "ResponsesStoreSettings",
    "RoutingSettings",
    "ServerSettings",
    "TargetSettings",
    "list_templates",
    "load_distribution",
    "template_path",
]
