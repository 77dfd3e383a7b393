"""Aliases that stand for many names."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_compat.distribution import load_distribution
from llama_compat.distribution.aliases import letters, matches, overlap
from llama_compat.distribution.problems import TemplateError
from providers.registry import config_model

PATTERNS = st.text("ab*", min_size=1, max_size=6)
NAMES = ["".join(each) for size in range(8) for each in itertools.product("ab", repeat=size)]


def in_regex(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))))


@given(PATTERNS.filter(lambda pattern: "*" in pattern))
def test_a_star_is_any_text_and_nothing_else_means_anything(pattern: str) -> None:
    expected = [name for name in NAMES if in_regex(pattern).fullmatch(name)]
    assert [name for name in NAMES if matches(pattern, name)] == expected


@given(PATTERNS, PATTERNS)
def test_two_patterns_overlap_where_a_name_is_both(one: str, other: str) -> None:
    # Two of six characters, if they do, already do so in twelve; mostly in far fewer.
    both = [name for name in NAMES if in_regex(one).fullmatch(name)]
    if any(in_regex(other).fullmatch(name) for name in both):
        assert overlap(one, other)
    if not overlap(one, other):
        assert not any(in_regex(other).fullmatch(name) for name in both)
    assert overlap(one, other) == overlap(other, one)
    assert overlap(one, one)


def test_what_overlaps_and_what_does_not() -> None:
    assert overlap("claude-*", "*-opus")
    assert not overlap("claude-*", "gemini-*")
    assert not overlap("*a", "*b")
    assert (letters("claude-*"), letters("*")) == (7, 0)


def problems(tmp_path: Path, *models: str) -> str:
    path = tmp_path / "t.yaml"
    lines = ["providers:", "  - {id: p, type: local::echo}", "models:", *models]
    path.write_text("\n".join(lines) + "\n")
    try:
        load_distribution(str(path), config_model)
    except TemplateError as error:
        return "\n".join(line.removeprefix(f"{path}:") for line in str(error).splitlines())
    return ""


@pytest.mark.parametrize(
    "models",
    [
        ('  - {id: m, provider: p, aliases: ["claude-*", "*-claude", "gemini-*"]}',),
        (
            '  - {id: m, provider: p, aliases: ["claude-*"]}',
            '  - {id: n, provider: p, aliases: ["claude-opus-*", "gemini-*", "claude-"]}',
        ),
    ],
)
def test_patterns_that_say_what_is_meant(tmp_path: Path, models: tuple[str, ...]) -> None:
    assert problems(tmp_path, *models) == ""


def test_patterns_that_do_not_are_told_with_their_lines(tmp_path: Path) -> None:
    told = problems(
        tmp_path,
        '  - {id: m, provider: p, aliases: ["a-*", "xx-*"]}',
        '  - {id: n, provider: p, aliases: ["*-a", "xx-*"]}',
    )
    assert told.splitlines() == [
        "5: models[1].aliases[0]: '*-a' and 'a-*' (models[0].aliases[0], line 4) stand for some of"
        " the same names, and as many letters are in both; make one of them longer",
        "5: models[1].aliases[1]: 'xx-*' is taken by models[0] on line 4 already",
    ]


def test_a_pattern_is_no_id_and_no_target(tmp_path: Path) -> None:
    told = problems(
        tmp_path,
        '  - {id: "m*", provider: p}',
        '  - {id: n, provider: p, aliases: ["claude-*"]}',
        '  - {id: t, targets: [{model: "claude-*"}]}',
    )
    assert "4: models[0].id: an id is one name, without '*'" in told
    assert "6: models[2].targets[0].model: no model has the id 'claude-*'" in told


@pytest.mark.parametrize(
    ("server", "is_refused"),
    [
        ("metrics_key: '${env.NO_SUCH_KEY:}'", True),
        ("metrics_key: '${env.NO_SUCH_KEY:}', api_keys: [a-key-of-the-server]", False),
        ("metrics_key: '${env.NO_SUCH_KEY:}', stored_keys: true", False),
    ],
)
def test_a_metrics_key_that_is_not_set_opens_nothing(
    tmp_path: Path, server: str, is_refused: bool
) -> None:
    told = problems(tmp_path, "  - {id: m, provider: p}", f"server: {{{server}}}")
    assert ("everybody would see the metrics" in told) == is_refused
