"""Models that run on transformers' own code, one sequence after the other: how they go on, which is
tried, and what they keep of a sequence."""

from providers.local.torch_engine.model.unbatched.runner import (
    UnbatchedModel,
    UnbatchedRunner,
    Way,
    find_way,
)

__all__ = ["UnbatchedModel", "UnbatchedRunner", "Way", "find_way"]
