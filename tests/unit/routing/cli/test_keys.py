"""Keys that are changed by command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from routing.cli import app


@pytest.fixture
def template(tmp_path: Path) -> str:
    path = tmp_path / "t.yaml"
    path.write_text(
        "version: 1\n"
        f"server: {{storage: 'sqlite:{tmp_path / 'operations.sqlite'}', stored_keys: true}}\n"
        "providers: [{id: echo, type: 'local::echo'}]\n"
        "models: [{id: echo, provider: echo}]\n"
        "teams: [{id: builds}]\n"
    )
    return str(path)


def keys(*arguments: str) -> Result:
    return CliRunner().invoke(app, ("keys", *arguments), env={"COLUMNS": "120"})


def key(template: str, *options: str) -> str:
    """The id of a key, made with these options."""
    made = keys("create", "ci", *options, "--template", template, "--json")
    assert made.exit_code == 0, made.output
    found: str = json.loads(made.stdout)["id"]
    return found


def changed(template: str, name: str, *options: str) -> dict[str, Any]:
    result = keys("change", name, *options, "--template", template, "--json")
    assert result.exit_code == 0, result.output
    [listed] = json.loads(keys("list", "--template", template, "--json").stdout)
    found: dict[str, Any] = json.loads(result.stdout)
    assert found == listed
    return found


FULL = (
    *("--team", "builds", "--expires", "2999-01-01", "--model", "a", "--model", "b"),
    *("--budget", "10/day", "--requests-per-minute", "5", "--tokens-per-minute", "6"),
    *("--concurrent", "7", "--metadata", "who=me", "--metadata", "why=so"),
)


def test_what_is_not_named_stays(template: str) -> None:
    made = key(template, *FULL)
    before = json.loads(keys("list", "--template", template, "--json").stdout)[0]
    after = changed(template, made, "--budget", "20/week")
    budget = {"amount": 20.0, "period": "week"}
    assert after == {**before, "version": before["version"] + 1, "budget": budget}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--name", "other"], {"name": "other"}),
        (["--team", "none"], {"team": None}),
        (["--expires", "none"], {"expires": None}),
        (["--model", "c"], {"models": ["c"]}),
        (["--model", "none"], {"models": []}),
        (["--budget", "none"], {"budget": None}),
        (["--metadata", "who=you"], {"metadata": {"who": "you", "why": "so"}}),
        (["--metadata", "none"], {"metadata": {}}),
    ],
)
def test_each_can_be_changed_and_taken_away(
    template: str, options: list[str], expected: dict[str, Any]
) -> None:
    key(template, *FULL)
    assert changed(template, "ci", *options).items() >= expected.items()


def test_each_limit_stands_by_itself(template: str) -> None:
    made = key(template, *FULL)
    limits = changed(template, made, "--requests-per-minute", "50", "--concurrent", "none")
    assert limits["limits"] == {
        "requests_per_minute": 50,
        "tokens_per_minute": 6,
        "concurrent": None,
    }
    none = ("--requests-per-minute", "none", "--tokens-per-minute", "none")
    assert changed(template, made, *none)["limits"] is None
    assert changed(template, made, "--concurrent", "2")["limits"]["concurrent"] == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "Nothing to change: name what is to be other"),
        (["--concurrent", "0"], "--concurrent: '0' is no number from 1 on, and not 'none'."),
        (["--concurrent", "many"], "--concurrent: 'many' is no number"),
        (["--team", "nobody"], "The template has no team 'nobody'"),
        (["--expires", "2001-01-01"], "'expires' is in the past"),
        (["--budget", "-1/day"], "--budget at amount: Input should be greater than 0"),
        (["--name", ""], "--name: "),
    ],
)
def test_what_can_t_be_leaves_the_key_as_it_is(
    template: str, options: list[str], message: str
) -> None:
    made = key(template, *FULL)
    before = keys("list", "--template", template, "--json").stdout
    result = keys("change", made, *options, "--template", template)
    assert result.exit_code == 1
    assert result.stderr.startswith(message)
    assert keys("list", "--template", template, "--json").stdout == before


def test_there_is_no_such_key(template: str) -> None:
    key(template)
    result = keys("change", "nobody", "--name", "x", "--template", template)
    assert (result.exit_code, result.stderr) == (
        1,
        "There is no key 'nobody' that is not revoked.\n",
    )
