"""The events of an interaction's stream (https://ai.google.dev/gemini-api/docs/streaming)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from llama_compat.wire.json_fields import encode_json

DONE = b"event: done\ndata: [DONE]\n\n"
"""What ends every stream."""


def encode_event(kind: str, members: Mapping[str, Any]) -> bytes:
    """The event `kind`."""
    return b"event: %b\ndata: %b\n\n" % (
        kind.encode(),
        encode_json({**members, "event_type": kind}),
    )


def interaction_events(interaction: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A whole interaction as the events of a stream that would have led to it, every step whole
    where it begins.

    Raises:
        ValueError: it is none.
    """
    steps = interaction.get("steps") or []
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise ValueError("the steps of an interaction are no array of objects")
    shown = {name: value for name, value in interaction.items() if name != "steps"}
    begun = {name: value for name, value in shown.items() if name not in ("usage", "errors")}
    yield {
        "event_type": "interaction.created",
        "interaction": {**begun, "status": "in_progress"},
    }
    for index, step in enumerate(steps):
        yield {"event_type": "step.start", "index": index, "step": step}
        yield {"event_type": "step.stop", "index": index}
    yield {"event_type": "interaction.completed", "interaction": shown}
