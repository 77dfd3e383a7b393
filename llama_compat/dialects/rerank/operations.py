"""Rerank as a way in: its calls, and what is looked at before one of them goes anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import msgspec
from msgspec import Raw

from llama_compat.dialects.base import Asked, Operation
from llama_compat.dialects.openai.operations import OPENAI, required_model
from llama_compat.dialects.rerank.requests import begins, number_of, parameters, parse_request
from llama_compat.dialects.rerank.shapes import COHERES, VOYAGES
from llama_compat.errors import invalid_parameter, missing_parameter
from llama_compat.extent import Extent, Prompt
from llama_compat.types import Units
from llama_compat.wire.json_fields import JSONFields, from_raw

SEARCH_DOCUMENTS = 100
"""As many documents are one search (https://cohere.com/pricing, 2026-11); of long ones there are
more, which only the vendor can tell."""

_documents = msgspec.json.Decoder(list[Raw])


def _look(fields: JSONFields, path: Mapping[str, str]) -> Asked:
    model = required_model(fields)
    for name, beginning, expected in (
        ("query", b'"', "a text"),
        ("documents", b"[", "an array of texts"),
    ):
        if begins(fields.get(name)) in (b"", b"n"):
            raise missing_parameter(name)
        if begins(fields[name]) != beginning:
            raise invalid_parameter(name, f"'{name}' must be {expected}.", "invalid_type")
    documents = _number_of_documents(fields["documents"])
    if not documents:
        raise invalid_parameter("documents", "'documents' is an empty array.", "empty_array")
    shape = VOYAGES if _is_voyages(fields) else COHERES
    if shape.top in fields:
        number_of({shape.top: from_raw(fields[shape.top])}, shape.top)
    extent = Extent(
        Prompt(fields, "query", "documents"),
        choices=0,
        units=Units(searches=-(-documents // SEARCH_DOCUMENTS)),
    )
    # The same path is asked in Voyage's words too.
    return Asked(model, extent=extent, operation=VOYAGE_RERANK if shape is VOYAGES else None)


def _number_of_documents(documents: Raw) -> int:
    try:
        return len(_documents.decode(documents))
    except msgspec.DecodeError:
        return len(from_raw(documents))  # half a character, which only Python's own JSON reads


def _is_voyages(fields: JSONFields) -> bool:
    """Whether a request is in Voyage's words, whose client says `truncation` each time."""
    return "top_k" in fields or ("truncation" in fields and "top_n" not in fields)


RERANK = Operation(
    dialect=OPENAI,
    name="rerank",
    kind="rerank",
    look=_look,
    parameters=parameters,
    parse=partial(parse_request, shape=COHERES),
)
RERANK_V2 = Operation(
    dialect=OPENAI,
    name="rerank_v2",
    kind="rerank",
    look=_look,
    parameters=parameters,
    parse=partial(parse_request, shape=COHERES),
)
VOYAGE_RERANK = Operation(
    dialect=OPENAI,
    name="voyage_rerank",
    kind="rerank",
    look=_look,
    parameters=parameters,
    parse=partial(parse_request, shape=VOYAGES),
)
