"""Keys, teams, limits and origins in a template, and what can be wrong with them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from llama_compat.distribution import Distribution, load_distribution
from llama_compat.distribution.problems import TemplateError
from providers.registry import config_model

HASH = f"sha256:{'0a' * 32}"


def load(folder: Path, **sections: Any) -> Distribution:
    path = folder / "t.yaml"
    template = {
        "providers": [{"id": "echo", "type": "local::echo"}],
        "models": [{"id": "echo", "provider": "echo"}],
        **sections,
    }
    path.write_text(yaml.safe_dump(template))
    return load_distribution(str(path), config_model)


def test_all_that_may_be_said(tmp_path: Path) -> None:
    limits = {"requests_per_minute": 1, "tokens_per_minute": 2, "concurrent": 3}
    found = load(
        tmp_path,
        server={"limits": "redis://:secret@host:6379/1", "cors": {"origins": ["http://a:80", "*"]}},
        keys=[
            {
                "name": "a",
                "hash": HASH,
                "team": "t",
                "expires": "2027-01-01",
                "models": ["gpt-*"],
                "limits": limits,
                "budget": {"amount": 0.5, "period": "week"},
                "metadata": {"mail": "x"},
            },
            {"name": "b", "key": "sk-b", "expires": "2027-01-01T00:00:00+01:00"},
        ],
        teams=[{"id": "t", "limits": limits, "budget": {"amount": 3}}],
    )
    first, second = found.keys
    assert first.expires == datetime(2027, 1, 1, tzinfo=UTC)
    assert second.expires == datetime(2026, 12, 31, 23, tzinfo=UTC)
    assert first.limits is not None
    assert first.limits.model_dump() == limits
    assert found.teams[0].budget is not None
    assert found.teams[0].budget.period == "month"
    assert found.server.limits.when_away == "open"
    assert "secret" not in repr(found)
    assert "sk-b" not in repr(found)
    assert found.has_limits
    assert found.has_budgets


def test_nothing_is_limited_unless_it_is_said(tmp_path: Path) -> None:
    found = load(tmp_path, keys=[{"name": "a", "hash": HASH}])
    assert not found.has_limits
    assert not found.has_budgets
    assert found.server.cors is None
    assert found.server.admin_key is None
    assert found.server.limits.store.get_secret_value() == "memory"


@pytest.mark.parametrize("where", ["keys", "teams", "models", "providers"])
def test_whatever_is_limited_is_seen(tmp_path: Path, where: str) -> None:
    limits = {"limits": {"concurrent": 1}}
    sections = {
        "keys": [{"name": "a", "hash": HASH, **limits}],
        "teams": [{"id": "a", **limits}],
        "models": [{"id": "echo", "provider": "echo", **limits}],
        "providers": [{"id": "echo", "type": "local::echo", **limits}],
    }
    found = load(tmp_path, **{where: sections[where]})
    assert (found.has_limits, found.has_budgets) == (True, False)


def test_budgets_are_seen(tmp_path: Path) -> None:
    assert load(tmp_path, teams=[{"id": "a", "budget": {"amount": 1}}]).has_budgets
    assert load(tmp_path, keys=[{"name": "a", "hash": HASH, "budget": {"amount": 1}}]).has_budgets


@pytest.mark.parametrize(
    ("sections", "place", "words"),
    [
        ({"keys": [{"name": "a"}]}, "keys[0]", "either 'key'"),
        ({"keys": [{"name": "a", "key": "x", "hash": HASH}]}, "keys[0]", "not both"),
        ({"keys": [{"name": "a", "key": " "}]}, "keys[0].key", "an empty one"),
        ({"server": {"admin_key": "short"}}, "server.admin_key", "at least 8 characters"),
        ({"keys": [{"name": "a", "hash": "abc"}]}, "keys[0].hash", "llama-compat keys hash"),
        ({"keys": [{"key": "x"}]}, "keys[0].name", "required"),
        ({"keys": [{"name": "a", "key": "x"}] * 2}, "keys[1].name", "taken by keys[0]"),
        (
            {"keys": [{"name": "a", "key": "x", "team": "teem"}], "teams": [{"id": "team"}]},
            "keys[0].team",
            "did you mean 'team'",
        ),
        ({"keys": [{"name": "a", "key": "x", "team": "b"}]}, "keys[0].team", "add it to 'teams'"),
        ({"teams": [{"id": "a"}, {"id": "a"}]}, "teams[1].id", "taken by teams[0]"),
        (
            {"teams": [{"id": "a", "limits": {"requests_per_minute": 0}}]},
            "teams[0].limits.requests_per_minute",
            "of at least 1",
        ),
        (
            {"teams": [{"id": "a", "limits": {"request_per_minute": 1}}]},
            "teams[0].limits.request_per_minute",
            "did you mean 'requests_per_minute'",
        ),
        (
            {"teams": [{"id": "a", "budget": {"amount": 0}}]},
            "teams[0].budget.amount",
            "above 0",
        ),
        (
            {"teams": [{"id": "a", "budget": {"amount": 1, "period": "year"}}]},
            "teams[0].budget.period",
            "'day', 'week', 'month' or 'ever'",
        ),
        ({"server": {"limits": "redis"}}, "server.limits", "redis://localhost:6379/0"),
        (
            {"server": {"limits": {"store": "memory", "when_away": "half"}}},
            "server.limits.when_away",
            "'open' or 'closed'",
        ),
        ({"server": {"cors": {"origins": []}}}, "server.cors.origins", "at least one"),
        (
            {"server": {"cors": {"origins": ["https://a/"]}}},
            "server.cors.origins[0]",
            "without a path",
        ),
        (
            {"server": {"cors": {"origins": ["example.com"]}}},
            "server.cors.origins[0]",
            "https://app.example.com",
        ),
    ],
)
def test_mistakes_have_their_place(
    tmp_path: Path, sections: dict[str, Any], place: str, words: str
) -> None:
    with pytest.raises(TemplateError) as raised:
        load(tmp_path, **sections)
    (problem,) = raised.value.problems
    assert problem.path == place
    assert words in problem.message
    assert problem.line
