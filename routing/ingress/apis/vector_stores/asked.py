"""What requests about vector stores ask for: wire -> what the stores know.

openai 3.52.0, types/vector_store_*_params.py and types/vector_stores/.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import Query, Request

from llama_compat.dialects.members import (
    as_list,
    as_object,
    optional_integer_in,
    text_in,
)
from llama_compat.distribution import VectorStoresSettings
from llama_compat.errors import (
    APIError,
    invalid_parameter,
    missing_parameter,
    nested_too_deeply,
)
from llama_compat.exchange import Principal
from llama_compat.hosted.asked.file_search import MAX_RESULTS, FileQuery, parse_ranking
from llama_compat.hosted.asked.filters import parse_attributes, parse_filter
from llama_compat.wire.json_depth import MAX_DEPTH, too_deep
from llama_compat.wire.json_fields import JSONFields, unicode_from_raw
from routing.batches.files import FileStore
from routing.ingress.apis.batches import parse_metadata
from routing.ingress.apis.json_body import body_of
from routing.runtime import runtime_of
from routing.tools.file_search import MAX_QUERY
from routing.vector_stores.entries.rows import AddedFile

if TYPE_CHECKING:
    from routing.vector_stores.service import VectorStores

HOW_TO_KEEP_STORES = (
    "This server keeps no vector stores: set `server.vector_stores: {embedding_model: ...}` in its"
    " template."
)

StoreLimit = Annotated[int, Query(ge=1, le=100)]

Order = Literal["asc", "desc"]

MAX_TOGETHER = 2000
"""Files of one batch; the most that a store is made with is as many."""

MAX_QUERIES = 16
"""Texts of one search."""

MAX_DAYS = 365

CHUNK_TOKENS = (100, 4096)
"""The least and the most that a piece may have."""

MAX_NAME = 256
MAX_DESCRIPTION = 512


def stores_of(request: Request) -> VectorStores:
    """The vector stores of the server.

    Raises:
        APIError: 404, it keeps none.
    """
    stores = runtime_of(request).vector_stores
    if stores is None:
        raise APIError(404, HOW_TO_KEEP_STORES, code="vector_stores_disabled")
    return stores


def owner_of(request: Request) -> str:
    """The id of the key that asks."""
    principal: Principal = request.scope["principal"]
    return principal.id


async def values_of(request: Request) -> dict[str, Any]:
    """The members of the JSON object that a request is.

    Raises:
        APIError: 400, 408, 413, 503: it is none, or can't be had.
        ClientGone: the client left.
    """
    fields: JSONFields = await body_of(request)
    name = too_deep(fields)
    if name is not None:
        raise nested_too_deeply(name, MAX_DEPTH)
    return {name: unicode_from_raw(raw) for name, raw in fields.items()}


def store_changes(values: Mapping[str, Any]) -> dict[str, Any]:
    """The `name`, `metadata` and `expires_days` of a store, as far as they are asked for.

    Raises:
        APIError: 400, they are wrong.
    """
    changes: dict[str, Any] = {}
    if values.get("name") is not None:
        changes["name"] = _bounded(values, "name", MAX_NAME)
    if "metadata" in values:
        changes["metadata"] = parse_metadata(values["metadata"]) or {}
    if "expires_after" in values:
        changes["expires_days"] = _expires_days(values["expires_after"])
    return changes


def description_of(values: Mapping[str, Any]) -> str | None:
    """The `description` of a store.

    Raises:
        APIError: 400, it is no text, or too long.
    """
    if values.get("description") is None:
        return None
    return _bounded(values, "description", MAX_DESCRIPTION)


def _bounded(values: Mapping[str, Any], name: str, most: int) -> str:
    text = text_in(values, name, "")
    if len(text) > most:
        raise invalid_parameter(name, f"'{name}' may have {most} characters.")
    return text.replace("\x00", "")


def _expires_days(value: Any) -> int | None:
    if value is None:
        return None
    policy = as_object(value, "expires_after")
    if policy.get("anchor") != "last_active_at":
        raise invalid_parameter(
            "expires_after.anchor", "'expires_after.anchor' has to be 'last_active_at'."
        )
    days = optional_integer_in(policy, "days", "expires_after", 1, MAX_DAYS)
    if days is None:
        raise missing_parameter("expires_after.days")
    return days


async def added_files(
    values: Mapping[str, Any],
    name: str,
    files: FileStore,
    owner: str,
    settings: VectorStoresSettings,
) -> list[AddedFile]:
    """The files that are to be put into a store: `file_ids` with what else `values` says of all of
    them, or `files`, each with its own.

    Args:
        values: what is asked.
        name: which of the two.
        files: those there are.
        owner: the id of the key that asks.
        settings: of the template.

    Raises:
        APIError: 400 with the path of what is malformed; 404, there is no such file; 503.
    """
    asked = as_list(values.get(name), name)
    if len(asked) > MAX_TOGETHER:
        raise invalid_parameter(name, f"'{name}' may have {MAX_TOGETHER} files.")
    added: dict[str, AddedFile] = {}
    for index, each in enumerate(asked):
        path = f"{name}[{index}]"
        if name == "file_ids":
            each, path = {**values, "file_id": each}, ""
        new = await added_file(as_object(each, path), path, files, owner, settings)
        added[new.file] = new
    return list(added.values())


async def added_file(
    values: Mapping[str, Any],
    path: str,
    files: FileStore,
    owner: str,
    settings: VectorStoresSettings,
) -> AddedFile:
    """A file that is to be put into a store.

    Args:
        values: what is said of it.
        path: where.
        files, owner, settings: as for `added_files`.

    Raises:
        APIError: as there.
    """
    file_id = text_in(values, "file_id", path)
    at = f"{path}." if path else ""
    size, overlap = _chunking(values.get("chunking_strategy"), f"{at}chunking_strategy", settings)
    attributes = parse_attributes(values.get("attributes"), f"{at}attributes")
    file = await files.get(owner, file_id)
    return AddedFile(file.id, file.filename, attributes, size, overlap)


def _chunking(value: Any, path: str, settings: VectorStoresSettings) -> tuple[int, int]:
    if value is None:
        return settings.chunk_tokens, settings.chunk_overlap_tokens
    strategy = as_object(value, path)
    match strategy.get("type"):
        case "auto":
            return settings.chunk_tokens, settings.chunk_overlap_tokens
        case "static":
            path = f"{path}.static"
            static = as_object(strategy.get("static"), path)
            size = optional_integer_in(static, "max_chunk_size_tokens", path, *CHUNK_TOKENS)
            overlap = optional_integer_in(static, "chunk_overlap_tokens", path, 0)
            if size is None:
                raise missing_parameter(f"{path}.max_chunk_size_tokens")
            if overlap is None:
                raise missing_parameter(f"{path}.chunk_overlap_tokens")
            if overlap * 2 > size:
                raise invalid_parameter(
                    f"{path}.chunk_overlap_tokens",
                    "'chunk_overlap_tokens' can be half of 'max_chunk_size_tokens' at most.",
                )
            return size, overlap
    raise invalid_parameter(f"{path}.type", f"'{path}.type' must be 'auto' or 'static'.")


def sought(values: Mapping[str, Any]) -> FileQuery:
    """What is looked for.

    Raises:
        APIError: 400 with the path of what is malformed, or not to be had.
    """
    if values.get("query") is None:
        raise missing_parameter("query")
    query = values["query"]
    queries = query if isinstance(query, list) else [query]
    if (
        not 0 < len(queries) <= MAX_QUERIES
        or not all(isinstance(each, str) for each in queries)
        or not all(each.strip() and len(each) <= MAX_QUERY for each in queries)
    ):
        raise invalid_parameter(
            "query",
            f"'query' must be a text of up to {MAX_QUERY} characters, or a list of up to"
            f" {MAX_QUERIES} of these.",
        )
    if values.get("rewrite_query") not in (None, False):
        raise invalid_parameter(
            "rewrite_query",
            "Queries are not rewritten here: send the words that are looked for, and leave"
            " 'rewrite_query' out.",
            "unsupported_parameter",
        )
    return FileQuery(
        _texts(queries),
        optional_integer_in(values, "max_num_results", "", 1, MAX_RESULTS) or 10,
        parse_filter(values.get("filters"), "filters"),
        parse_ranking(values.get("ranking_options"), "ranking_options"),
    )


def _texts(queries: Sequence[str]) -> list[str]:
    return [each.replace("\x00", " ") for each in queries]
