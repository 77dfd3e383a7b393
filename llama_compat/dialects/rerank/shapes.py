"""What the APIs for rerank call the same things.

Sources: cohere 7.3.1 (`cohere/v2/raw_client.py`, `cohere/base_client.py`), voyageai 0.5.0,
together 3.1.1, and https://openrouter.ai/docs/api/api-reference/rerank/create-rerank; 2026-11-23.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RerankShape:
    """One API.

    Attributes:
        top: the member that says how many documents are given back.
        results: the member of a reply that has them.
        document_is_text: whether a document that is given back is its text, and not an object.
    """

    top: str
    results: str
    document_is_text: bool = False


COHERES = RerankShape("top_n", "results")
VOYAGES = RerankShape("top_k", "data", document_is_text=True)
