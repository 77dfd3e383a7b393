"""What the layers are given, by what a template asks for."""

from __future__ import annotations

from typing import Any

import pytest

from llama_compat.distribution import Distribution
from routing.parts.layered import tools_of

LISTED = {"name": "a", "key": "sk-of-somebody"}
STORED = {"server": {"storage": "sqlite:x.sqlite", "stored_keys": True}}


@pytest.mark.parametrize(
    ("template", "is_there"),
    [
        ({}, False),
        ({"keys": [LISTED]}, False),
        ({"keys": [{**LISTED, "tools": []}]}, True),
        (STORED, True),
    ],
)
def test_tools_of_vendors_are_watched_over_where_a_key_may_not_have_all(
    template: dict[str, Any], is_there: bool
) -> None:
    provider = {"id": "p", "type": "local::echo"}
    model = {"id": "m", "provider": "p"}
    told = {"version": 1, "providers": [provider], "models": [model], **template}
    tools = tools_of(Distribution.model_validate(told), None, None)
    assert (tools is not None) is is_there
    assert tools is None or tools.value.known == frozenset()
