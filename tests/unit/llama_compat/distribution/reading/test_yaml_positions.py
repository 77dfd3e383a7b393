from __future__ import annotations

from typing import Any

import pytest

from llama_compat.distribution.reading.yaml_positions import (
    MAX_DEPTH,
    MAX_VALUES,
    Position,
    read_yaml,
)


def only_problem(text: str) -> tuple[int | None, str, str]:
    (problem,) = read_yaml(text).problems
    return problem.line, problem.path, problem.message


def test_values_and_their_places() -> None:
    document = read_yaml("server:\n  port: 8321\nmodels:\n  - id: a\n    aliases: [b, c]\n")
    assert document.value == {
        "server": {"port": 8321},
        "models": [{"id": "a", "aliases": ["b", "c"]}],
    }
    assert document.problems == []
    assert document.places[("server", "port")] == Position(2, 9, 2, 3)
    assert document.places[("models", 0)] == Position(4, 5, 4, 5)
    assert document.places[("models", 0, "aliases", 1)] == Position(5, 18, 5, 18)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("text", "text"),
        ("'8321'", "8321"),
        ("8321", 8321),
        ("1.5", 1.5),
        ("yes", True),
        ("null", None),
        ("2026-01-31", "2026-01-31"),
        ("${env.PORT:8321}", "${env.PORT:8321}"),
        ("=", "="),
    ],
)
def test_scalars(text: str, value: Any) -> None:
    document = read_yaml(f"key: {text}")
    assert document.problems == []
    assert document.value == {"key": value}
    assert type(document.value["key"]) is type(value)


def test_an_alias_is_its_anchor_again() -> None:
    document = read_yaml("a: &x {b: 1}\nc: *x\n")
    assert document.value == {"a": {"b": 1}, "c": {"b": 1}}
    assert document.problems == []


@pytest.mark.parametrize("text", ["", "# nothing but a comment\n", "---\n"])
def test_nothing_is_none(text: str) -> None:
    document = read_yaml(text)
    assert document.value is None
    assert document.problems == []


@pytest.mark.parametrize(
    ("text", "line", "hint"),
    [
        ("a:\n\tb: 1\n", 2, "indent with spaces, not with tabs"),
        ("a: 1\nb: 'open\nc: 2\n", 2, "this quote is not closed"),
        ("a: 1\nb: [1, 2\nc: 2\n", 2, "a bracket '[' is not closed, or a ',' is missing"),
        ("a: {b: 1\n", 1, "a brace '{' is not closed, or a ',' is missing"),
        ("a: b: c\n", 1, "put a value that holds ': ' in quotes, or mend the indentation"),
        ("a: 1\n  b: 2\n", 2, "put a value that holds ': ' in quotes, or mend the indentation"),
        (
            "a:\n    b: 1\n  c: 2\n",
            3,
            "lines of one mapping or list must be indented alike, and quotes must match",
        ),
        ("a: 1\nb\nc: 2\n", 3, "a key needs a ': ' after it"),
        ("a: 1\n---\nb: 1\n", 2, "write one document; leave out the line '---'"),
        ("a: *b\n", 1, "an alias (*name) needs an anchor (&name) above it"),
        ("a: @b\n", 1, "put a value that begins with this character in quotes"),
        ("a: [${env.B}]\n", 1, "put a value that holds ${env.NAME} in quotes"),
    ],
)
def test_what_is_not_yaml_gets_a_line_and_a_hint(text: str, line: int, hint: str) -> None:
    found_line, path, message = only_problem(text)
    assert (found_line, path) == (line, "")
    assert message.startswith(f"not valid YAML: {hint} (")


@pytest.mark.parametrize(
    ("text", "line", "path", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "a", "the key 'a' is here twice; line 1 has it too"),
        ("a:\n  8: 1\n", 2, "a", "a key must be text; put it in quotes"),
        ("on: 1\n", 1, "", "a key must be text; put it in quotes"),
        ("? [a]\n: 1\n", 1, "", "a key must be text; put it in quotes"),
        (
            "a: &x {b: 1}\nc:\n  <<: *x\n",
            3,
            "c",
            "merge keys (<<) are not supported; write the settings out",
        ),
        ("a: !!set {b}\n", 1, "a", "the YAML tag '!!set' is not supported"),
        (
            "a: !!python/object/apply:os.system [id]\n",
            1,
            "a",
            "the YAML tag '!!python/object/apply:os.system' is not supported",
        ),
        ("a: !own b\n", 1, "a", "the YAML tag '!own' is not supported"),
        ("a: !!int x\n", 1, "a", "'x' is not a value of the type that it claims"),
        *(
            (f"a: {number}\n", 1, "a", f"'{number}' is not a value of the type that it claims")
            for number in ("0x" + "f" * 20_000, "9" * 5000)  # Python can't write the first
        ),
        ("a: 1\nb: \x01\n", 2, "", "not valid YAML: the character U+0001 is not allowed"),
    ],
)
def test_yaml_that_settings_do_not_use(text: str, line: int, path: str, message: str) -> None:
    assert only_problem(text) == (line, path, message)


def test_the_first_of_two_equal_keys_counts() -> None:
    assert read_yaml("a: 1\na: 2\n").value == {"a": 1}


def test_aliases_that_multiply_are_stopped() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    assert only_problem("\n".join(lines)) == (
        1,
        "",
        f"too large: more than {MAX_VALUES} values, aliases written out",
    )


def test_what_is_too_large_is_not_read_to_its_end() -> None:
    values = "- {a: 1, b: 2}\n" * MAX_VALUES
    problem = only_problem(values + "'never closed")
    assert problem == (1, "", f"too large: more than {MAX_VALUES} values, aliases written out")


@pytest.mark.parametrize("text", ["a: &a [*a]\n", "[" * 40 + "]" * 40])
def test_depth_is_limited(text: str) -> None:
    message = only_problem(text)[2]
    assert message.startswith(f"nested too deeply: more than {MAX_DEPTH} levels at ")


def test_depth_beyond_the_parsers_own_is_a_problem_too() -> None:
    assert only_problem("[" * 800) == (1, "", "nested too deeply")
