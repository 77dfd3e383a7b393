"""At which lengths of a sequence its rotary embeddings turn by other frequencies."""

from __future__ import annotations

from typing import Any, NamedTuple


class LongRope(NamedTuple):
    """What a sequence that outgrows the context of a model's first training turns by.

    Attributes:
        after: the most tokens of a sequence that has not.
        row: of the tables of rotations, where those of longer sequences begin.
    """

    after: int
    row: int


def rope_parameters(config: Any) -> dict[str, dict[str, Any]]:
    """The parameters for each kind of layer; under the name `""` if all have the same."""
    parameters = getattr(config, "rope_parameters", None)
    if not parameters:
        return {}
    if "rope_type" in parameters:
        return {"": parameters}
    return {kind: each for kind, each in parameters.items() if each}


def rope_lengths(config: Any) -> tuple[int, ...]:
    """The most tokens that a sequence has before each change, in order; LongRoPE has one.

    What was computed of a sequence up to there does not hold for a longer one.
    """
    return tuple(
        sorted(
            {
                int(rope["original_max_position_embeddings"])
                for rope in rope_parameters(config).values()
                if rope["rope_type"] == "longrope"
            }
        )
    )
