"""Whose records are meant, and which statuses."""

from __future__ import annotations

import pytest

from llama_compat.exchange import Principal
from routing.observability.records.search import key_ids, parse_status

KNOWN = {
    "key-aaaa": Principal("key-aaaa", name="ci", team="research"),
    "key-bbbb": Principal("key-bbbb", name="ci"),
    "key-cccc": Principal("key-cccc", name="web", team="sales"),
}


@pytest.mark.parametrize(
    ("keys", "teams", "ids"),
    [
        (None, None, None),
        ([], [], None),
        (["ci"], None, ["key-aaaa", "key-bbbb"]),
        (["key-cccc"], None, ["key-cccc"]),
        (["sk-lc-cccc"], None, ["key-cccc"]),
        (["gone"], None, ["gone"]),
        (None, ["research", "sales"], ["key-aaaa", "key-cccc"]),
        (["ci"], ["research"], ["key-aaaa"]),
        (None, ["nobody"], []),
    ],
)
def test_keys_by_id_prefix_name_and_team(
    keys: list[str] | None, teams: list[str] | None, ids: list[str] | None
) -> None:
    assert key_ids(KNOWN, keys, teams) == ids


@pytest.mark.parametrize(("text", "status"), [("429", 429), ("4xx", 4), ("5XX", 5)])
def test_statuses(text: str, status: int) -> None:
    assert parse_status(text) == status


@pytest.mark.parametrize("text", ["", "42", "4x", "often", "4294", "²²²"])
def test_what_is_no_status(text: str) -> None:
    with pytest.raises(ValueError, match="is no status such as 429"):
        parse_status(text)
