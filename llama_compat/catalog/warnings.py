"""What the catalogue has against a template that is right for itself: models that end, ..."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import TYPE_CHECKING

from llama_compat.catalog.catalog import Catalog
from llama_compat.catalog.prices import known_rates

if TYPE_CHECKING:
    from llama_compat.distribution import Distribution, FlatTarget

DAYS = 90
"""So long before its end a model is warned of."""


def warnings_of(distribution: Distribution, catalog: Catalog, today: date) -> Iterator[str]:
    """One sentence for each thing that a person should know of a template's models.

    Args:
        distribution: the template.
        catalog: has the facts of its vendors' models.
        today: the day that counts.
    """
    said = set()
    for model in distribution.models:
        for target in distribution.targets_of(model):
            facts = catalog.target_facts(target.provider, target.model, target.facts)
            name = f"{target.provider}/{target.model}"
            found = []
            if facts.shutdown is not None and facts.ends_within(DAYS, today):
                ended = facts.shutdown <= today
                when = f"{'was shut down' if ended else 'ends'} on {facts.shutdown}"
                instead = f"; its vendor names {facts.successor} instead" * bool(facts.successor)
                found.append(f"{name} {when}{instead}")
            length = target.context_length
            if length is not None and facts.context is not None and length > facts.context:
                found.append(f"{name} holds {facts.context} tokens, and the template says {length}")
            if distribution.has_budgets and not _has_price(distribution, catalog, target):
                found.append(
                    f"{name} has no known price, so it counts for nothing in a budget; give it a"
                    " 'price'"
                )
            yield from (each for each in found if each not in said)
            said.update(found)


def _has_price(distribution: Distribution, catalog: Catalog, target: FlatTarget) -> bool:
    types = {each.id: each.type for each in distribution.providers}
    if target.price is not None or types[target.provider].startswith("local::"):
        return True
    vendor, model = catalog.listed_as(target.provider, target.model, target.facts)
    if vendor is None:
        return False
    return known_rates(vendor, model, catalog.facts(vendor, model).price) is not None
