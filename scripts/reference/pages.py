"""Which files are generated, and by what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from scripts.reference import (
    commands,
    error_codes,
    headers,
    metrics,
    parameters,
    python_api,
    routes,
    schema,
    settings,
    vendors,
)

ROOT = Path(__file__).parents[2]

SCHEMA = "templates/schema.json"

FILES: Mapping[str, Callable[[], str]] = {
    "docs/reference/settings.md": settings.page,
    "docs/reference/providers.md": settings.provider_page,
    "docs/reference/commands.md": commands.page,
    "docs/reference/routes.md": routes.page,
    "docs/reference/headers.md": headers.page,
    "docs/reference/errors.md": error_codes.page,
    "docs/reference/metrics.md": metrics.page,
    "docs/reference/vendors.md": vendors.page,
    "docs/reference/parameters.md": parameters.page,
    "docs/reference/python.md": python_api.page,
    SCHEMA: schema.text,
}


def generated() -> dict[str, str]:
    """The text of every file, by its path from the repository's root."""
    return {path: make() for path, make in FILES.items()}
