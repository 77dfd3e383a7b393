"""Prompts with names: which one goes before a text, whoever asks in whose words."""

from __future__ import annotations

import pytest

from llama_compat.errors import APIError
from providers.local.torch_engine.texts.prompts import TextPrompts

QWEN = TextPrompts.of({"prompts": {"query": "Q: ", "document": ""}, "default_prompt_name": None})
GEMMA = TextPrompts.of(
    {
        "prompts": {"query": "q: ", "document": "d: ", "Clustering": "c: ", "STS": "s: "},
        "default_prompt_name": "STS",
    }
)
JINA = TextPrompts.of({"prompts": {"retrieval.query": "rq: ", "retrieval.passage": "rp: "}})
E5 = TextPrompts.of({"prompts": {"query": "query: ", "passage": "passage: "}})
PLAIN = TextPrompts.of({})


@pytest.mark.parametrize(
    ("prompts", "name", "kind", "text"),
    [
        (QWEN, None, None, ""),
        (QWEN, "query", None, "Q: "),
        (QWEN, None, "query", "Q: "),
        (QWEN, None, "search_query", "Q: "),
        (QWEN, None, "RETRIEVAL_QUERY", "Q: "),
        (QWEN, None, "search_document", ""),
        (GEMMA, None, None, "s: "),
        (GEMMA, "STS", "query", "s: "),
        (GEMMA, None, "passage", "d: "),
        (GEMMA, None, "clustering", "c: "),
        (JINA, None, "retrieval.passage", "rp: "),
        (E5, None, "document", "passage: "),
        (PLAIN, None, "query", ""),
        (PLAIN, None, "passage", ""),
        (PLAIN, None, None, ""),
    ],
)
def test_which_one(prompts: TextPrompts, name: str | None, kind: str | None, text: str) -> None:
    assert prompts.chosen("m", name, kind) == text


def test_a_default_that_is_not_there_is_none() -> None:
    assert TextPrompts.of({"prompts": {}, "default_prompt_name": "x"}).chosen("m", None, None) == ""


@pytest.mark.parametrize(
    ("prompts", "name", "kind", "param", "said"),
    [
        (
            GEMMA,
            "Query",
            None,
            "prompt_name",
            "no prompt 'Query'. It has: Clustering, STS, document",
        ),
        (PLAIN, "query", None, "prompt_name", "It has: none."),
        (QWEN, None, "classification", "input_type", "of the kind 'classification'"),
    ],
)
def test_there_is_no_such_prompt(
    prompts: TextPrompts, name: str | None, kind: str | None, param: str, said: str
) -> None:
    with pytest.raises(APIError) as raised:
        prompts.chosen("m", name, kind)
    assert (raised.value.status, raised.value.param) == (400, param)
    assert said in raised.value.message
