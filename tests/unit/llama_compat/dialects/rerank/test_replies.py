"""What vendors say of documents, and what clients are told."""

from __future__ import annotations

from typing import Any

import pytest

from llama_compat.dialects.base import Labels
from llama_compat.dialects.rerank.replies import parse_reply, parse_rerank_usage, render_reply
from llama_compat.dialects.rerank.shapes import COHERES, VOYAGES
from llama_compat.types import RankedDocument, RerankResponse, Units, Usage

FOUND = [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 1}]


@pytest.mark.parametrize("shape", [COHERES, VOYAGES])
def test_what_is_rendered_is_what_is_parsed(shape: Any) -> None:
    response = RerankResponse((RankedDocument(1, 0.5), RankedDocument(0, 0.25)), Usage(7))
    rendered = render_reply(response, shape, Labels("m"), ["zero", "one"])
    assert parse_reply(rendered, shape, 2) == response
    document = rendered[shape.results][0]["document"]
    assert document == ("one" if shape.document_is_text else {"text": "one"})


@pytest.mark.parametrize(
    "results",
    [
        None,
        {},
        [{"index": 2, "relevance_score": 1}],
        [{"index": -1, "relevance_score": 1}],
        [{"index": 0}],
        [{"index": "0", "relevance_score": 1}],
        [{"index": 0, "relevance_score": 1}, {"index": 0, "relevance_score": 0.5}],
        [{"index": 0, "relevance_score": float("nan")}],
    ],
)
def test_what_makes_no_sense(results: Any) -> None:
    with pytest.raises(ValueError, match=r"documents|document"):
        parse_reply({"results": results}, COHERES, 2)


@pytest.mark.parametrize(
    ("body", "usage"),
    [
        ({}, None),
        ({"usage": {"total_tokens": 9}}, Usage(9)),
        ({"usage": {"prompt_tokens": 8, "total_tokens": 9}}, Usage(8)),
        (
            {"usage": {"search_units": 2, "total_tokens": 9}},
            Usage(9, units=Units(searches=2)),
        ),
        ({"meta": {"billed_units": {"search_units": 1}}}, Usage(units=Units(searches=1))),
        (
            {"meta": {"billed_units": {"search_units": 1}, "tokens": {"input_tokens": 5}}},
            Usage(5, units=Units(searches=1)),
        ),
        ({"meta": 3, "usage": "much"}, None),
        ({"usage": {"total_tokens": -1, "search_units": float("inf")}}, None),
    ],
)
def test_what_it_has_cost(body: Any, usage: Usage | None) -> None:
    assert parse_rerank_usage(body) == usage
