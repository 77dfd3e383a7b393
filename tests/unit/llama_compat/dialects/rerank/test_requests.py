"""Requests to rank documents, as they come."""

from __future__ import annotations

from llama_compat.dialects.rerank.operations import RERANK
from llama_compat.dialects.rerank.requests import parse_request
from llama_compat.dialects.rerank.shapes import COHERES
from llama_compat.wire.json_fields import parse_fields


def test_a_member_to_rank_by_counts_once() -> None:
    """Or a request of a few kilobytes would be gigabytes of text."""
    document = {"title": "x" * 1000, "text": "y"}
    body = {"query": "q", "documents": [document], "rank_fields": ["title", "text"] * 10_000}
    (text,) = parse_request(body, "m", COHERES).request.documents
    assert text == "title: " + "x" * 1000 + "\ntext: y"


def test_half_a_character_is_text_too() -> None:
    body = b'{"model": "m", "query": "q", "documents": ["\\ud800", "b"]}'
    assert RERANK.look(parse_fields(body), {}).model == "m"
