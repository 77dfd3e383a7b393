"""What the targets of one model can't do, known from the catalogue before any of them is asked.

Where all of them can do the same, which is usual, a request pays a look into a table for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from llama_compat.fitting.fit import INPUTS, features, lacking
from llama_compat.wire.json_fields import from_raw

if TYPE_CHECKING:
    from llama_compat.dialects.base import Operation
    from llama_compat.exchange import Call
    from routing.policy.targets import LiveTarget

NOTHING: Mapping[str, str] = {}

_CONVERSATION = frozenset({"messages", "input", "contents", "system", "systemInstruction"})

# In a text of the conversation a quotation mark has a backslash before it.
_KINDS: Mapping[str, re.Pattern[bytes]] = {
    "image": re.compile(
        rb'"type"\s*:\s*"(?:image|image_url|input_image)"|"mime_?[tT]ype"\s*:\s*"image/'
    ),
    "audio": re.compile(rb'"type"\s*:\s*"input_audio"|"mime_?[tT]ype"\s*:\s*"audio/'),
    "document": re.compile(
        rb'"type"\s*:\s*"(?:document|file|input_file)"|"mime_?[tT]ype"\s*:\s*"application/pdf"'
    ),
}


class Abilities:
    """What differs between the targets of one model.

    Args:
        targets: all of them.
    """

    __slots__ = ("_by_operation", "_targets")

    def __init__(self, targets: Sequence[LiveTarget]) -> None:
        self._targets = targets
        self._by_operation: dict[str, Mapping[str, frozenset[str]] | None] = {}

    def lacking(self, call: Call) -> Mapping[str, str]:
        """The targets that would refuse `call`, by id, each with what it can't do; none where no
        other could."""
        operation = call.operation
        try:
            lacks = self._by_operation[operation.name]
        except KeyError:
            lacks = self._by_operation[operation.name] = self._lacks(operation)
        if lacks is None:
            return NOTHING
        wanted = _wanted(call, frozenset().union(*lacks.values()))
        found = {id: ", ".join(sorted(wanted & names)) for id, names in lacks.items()}
        unable = {id: what for id, what in found.items() if what}
        return unable if len(unable) < len(self._targets) else NOTHING

    def _lacks(self, operation: Operation) -> Mapping[str, frozenset[str]] | None:
        """What each target lacks that another has; None where there is nothing."""
        if operation.kind not in ("chat", "completion"):
            return None
        lacks = {each.id: _lacks(each, operation) for each in self._targets}
        common = frozenset.intersection(*lacks.values())
        differing = {id: names - common for id, names in lacks.items()}
        return differing if any(differing.values()) else None


def _lacks(target: LiveTarget, operation: Operation) -> frozenset[str]:
    fit, mode = target.target.fit, target.provider.config.unsupported
    if fit is None:
        return frozenset()
    if mode is None:
        mode = "refuse" if operation.name in target.provider.relays else "adapt"
    return lacking(fit, lenient=mode != "refuse", adapt=mode == "adapt")


def _wanted(call: Call, relevant: frozenset[str]) -> set[str]:
    """What of the `relevant` abilities a call wants."""
    fields = call.fields
    small = {name: from_raw(raw) for name, raw in fields.items() if name not in _CONVERSATION}
    wanted = features(small, call.operation.parameters(small)) & relevant
    for kind in relevant.intersection(INPUTS):
        pattern = _KINDS[kind]
        if any(pattern.search(fields[name]) for name in _CONVERSATION & fields.keys()):
            wanted.add(kind)
    return wanted
