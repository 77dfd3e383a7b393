"""What is looked at before a server starts."""

from __future__ import annotations

from typing import Any

import pytest

from llama_compat.distribution import Distribution
from routing.process.server import has_limits_apart

ECHO = {"id": "echo", "type": "local::echo"}
LIMITED = {"limits": {"requests_per_minute": 3}}


@pytest.mark.parametrize(
    ("template", "apart"),
    [
        ({}, False),
        ({"keys": [{"name": "a", "key": "sk-12345678"}]}, False),
        ({"keys": [{"name": "a", "key": "sk-12345678", **LIMITED}]}, True),
        ({"models": [{"id": "m", "provider": "echo", **LIMITED}]}, True),
        ({"server": {"stored_keys": True}}, True),
        ({"server": {"stored_keys": True, "limits": "redis://localhost"}}, False),
        ({"providers": [{**ECHO, **LIMITED}], "server": {"limits": "redis://localhost"}}, False),
    ],
)
def test_limits_that_each_process_counts_for_itself(template: dict[str, Any], apart: bool) -> None:
    usual = {"providers": [ECHO], "models": [{"id": "m", "provider": "echo"}]}
    assert has_limits_apart(Distribution.model_validate({**usual, **template})) is apart
