"""How many examples a property is tried with: fewer for `make check`, run while one works."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

LIGHT = "light"
"""The profile of `--light`."""

SHARE = 4
"""One of how many is tried with it. Each run has others, and `make test` tries them all."""

EXAMPLES = 40
"""Where a test says nothing else."""


def examples(many: int) -> int:
    """`many`, or with `--light` a share of them."""
    return -(-many // SHARE) if settings.get_current_profile_name() == LIGHT else many


def register_profiles() -> None:
    """`long` for `--abuse`, `light`, and `suite` for all else, which is loaded.

    No test depends on how fast the machine is, nor on how busy.
    """
    settings.register_profile("long", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    long = settings.get_profile("long")
    # Each run has other examples, so that many runs with fewer find what one with many does.
    settings.register_profile("suite", long, max_examples=EXAMPLES)
    settings.register_profile(LIGHT, long, max_examples=EXAMPLES // SHARE)
    settings.load_profile("suite")
