"""What is asked of a search in files, in the words of OpenAI's tool and of its search of a store,
and in those of Google's tool.

openai 3.52.0, types/responses/file_search_tool.py and types/vector_store_search_params.py;
google-genai 3.4.0, types/interactions/filesearch.py and `FileSearch` in types.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from llama_compat.dialects.gemini.members import member
from llama_compat.dialects.members import (
    as_object,
    optional_integer_in,
    optional_number_in,
    optional_text_in,
)
from llama_compat.errors import invalid_parameter
from llama_compat.hosted.asked.common import googles_spelling, parse_texts
from llama_compat.hosted.asked.filter_expressions import parse_expression
from llama_compat.hosted.asked.filters import parse_filter
from llama_compat.hosted.vocabulary import (
    GOOGLES_STORES,
    AttributeFilter,
    FileSearchTool,
    Ranking,
    free_name,
)

MAX_RESULTS = 50
"""Of one search, as at OpenAI."""

MAX_STORES = 32
"""That one tool may name."""

_STORES = "vector_store_ids"
_GOOGLES_STORES = "fileSearchStoreNames"

RANKERS = ("auto", "none", "default-2024-11-15", "default_2024_08_21")


class FileQuery(Struct, frozen=True):
    """What is looked for.

    Attributes:
        queries: the texts, of which any may be met.
        limit: how many pieces are wanted.
        filter: only those of files that pass it.
        ranking: how they are put into an order.
    """

    queries: Sequence[str]
    limit: int
    filter: AttributeFilter | None = None
    ranking: Ranking = Ranking()


def parse_file_search(tool: Mapping[str, Any], path: str, taken: set[str]) -> FileSearchTool:
    """A tool of the type `file_search`.

    Args:
        tool: it.
        path: where it is.
        taken: the names of other tools; that of this one is among them afterwards.

    Raises:
        APIError: 400 with the path of what is malformed.
    """
    return FileSearchTool(
        free_name("file_search", taken),
        _parse_stores(tool, f"{path}.{_STORES}"),
        optional_integer_in(tool, "max_num_results", path, 1, MAX_RESULTS),
        parse_filter(tool.get("filters"), f"{path}.filters"),
        parse_ranking(tool.get("ranking_options"), f"{path}.ranking_options"),
    )


def parse_googles_file_search(
    tool: Mapping[str, Any], path: str, taken: set[str]
) -> FileSearchTool:
    """The same in the words of Google's tool.

    Raises:
        APIError: 400 with the path of what is malformed.
    """
    filter = googles_spelling(tool, "metadataFilter")
    return FileSearchTool(
        free_name("file_search", taken),
        _parse_stores(tool, f"{path}.{googles_spelling(tool, _GOOGLES_STORES)}"),
        optional_integer_in(tool, googles_spelling(tool, "topK"), path, 1, MAX_RESULTS),
        parse_expression(optional_text_in(tool, filter, path), f"{path}.{filter}"),
    )


def named_stores(tool: Mapping[str, Any]) -> Any:
    """The ids of the vector stores that a tool names, by OpenAI's member or by Google's, where
    their names begin in a way of their own; whatever that is."""
    named = tool.get(_STORES) if _STORES in tool else member(tool, _GOOGLES_STORES)
    if not isinstance(named, list):
        return named
    return [each.removeprefix(GOOGLES_STORES) if isinstance(each, str) else each for each in named]


def _parse_stores(tool: Mapping[str, Any], at: str) -> tuple[str, ...]:
    stores = parse_texts(named_stores(tool), at)
    if not 0 < len(stores) <= MAX_STORES:
        raise invalid_parameter(at, f"'{at}' must be a list of 1 to {MAX_STORES} ids.")
    return tuple(dict.fromkeys(stores))


def parse_ranking(value: Any, path: str) -> Ranking:
    """`ranking_options`, which may be missing.

    Raises:
        APIError: 400 with the path of what is malformed.
    """
    if value is None:
        return Ranking()
    options = as_object(value, path)
    ranker = optional_text_in(options, "ranker", path)
    if ranker is not None and ranker not in RANKERS:
        raise invalid_parameter(
            f"{path}.ranker", f"'{path}.ranker' must be one of {', '.join(RANKERS)}."
        )
    threshold = optional_number_in(options, "score_threshold", path, 0, 1)
    embedding, text = 1.0, 1.0
    if options.get("hybrid_search") is not None:
        at = f"{path}.hybrid_search"
        weights = as_object(options["hybrid_search"], at)
        embedding = _weight(weights, "embedding_weight", at)
        text = _weight(weights, "text_weight", at)
        if not embedding + text:
            raise invalid_parameter(at, f"One of the weights in '{at}' must be more than 0.")
    return Ranking(ranker != "none", threshold or 0.0, embedding, text)


def _weight(weights: Mapping[str, Any], name: str, path: str) -> float:
    weight = optional_number_in(weights, name, path, 0, 1_000_000)
    return 1.0 if weight is None else float(weight)
