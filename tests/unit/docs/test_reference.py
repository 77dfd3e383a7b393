"""The reference pages: as the code has it, and with nothing left out."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest
import yaml
from typer.testing import CliRunner

from llama_compat.distribution import list_templates, template_path
from routing.cli import app
from scripts.reference import error_codes, headers, routes, settings
from scripts.reference.__main__ import main
from scripts.reference.pages import FILES, ROOT, SCHEMA

CODE = ("llama_compat", "providers", "routing")


READ = ("fastapi", "prometheus-client", "pydantic", "typer")
"""What the pages are read through, and so depend on."""


def other_versions() -> list[str]:
    """Those of `READ` that are not as constraints.txt has them: `make floors` takes the oldest."""
    pinned = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    here = [f"{name}=={version(name)}" for name in READ]
    return [each for each in here if each not in pinned]


made_with_these = pytest.mark.skipif(
    bool(other_versions()), reason=f"the pages are made with others than {other_versions()}"
)


@made_with_these
@pytest.mark.parametrize("path", FILES)
def test_no_page_is_stale(path: str) -> None:
    assert (ROOT / path).read_text("utf-8") == FILES[path](), "run: make reference"


def test_the_command_names_what_is_stale(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = {"docs/reference/vendors.md": "other\n"}
    monkeypatch.setattr("scripts.reference.__main__.generated", lambda: page)
    assert main(["--check"]) == 1
    assert "docs/reference/vendors.md" in capsys.readouterr().out


def test_every_setting_is_described() -> None:
    assert settings.undescribed() == []


@made_with_these
def test_every_route_is_described_and_has_its_place() -> None:
    found = routes.found()
    assert {each.api for each in found} == set(routes.HEADINGS)
    assert all(each.summary for each in found)


# Errors and headers, which the code has in many places -------------------------------------------


class Said(NamedTuple):
    """What the code says, gathered in one walk: to take all of it apart takes seconds.

    Attributes:
        texts: every literal text.
        calls: what is given a code, or refuses a parameter, and the module in which it does.
    """

    texts: set[str]
    calls: list[tuple[Path, ast.Call]]


@cache
def said() -> Said:
    found = Said(set(), [])
    paths = [path for room in CODE for path in sorted((ROOT / room).rglob("*.py"))]
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            found.texts.update(text_of(node))
            if isinstance(node, ast.Call) and (code_of(node) or refuses_a_parameter(node)):
                found.calls.append((path, node))
    return found


def code_of(call: ast.Call) -> ast.expr | None:
    return next((each.value for each in call.keywords if each.arg == "code"), None)


def refuses_a_parameter(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id.endswith("invalid_parameter")


def text_of(node: ast.AST) -> Iterator[str]:
    """That of a literal."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
        yield node.value if isinstance(node.value, str) else node.value.decode("latin-1")


def texts(node: ast.AST | None) -> Iterator[str]:
    for each in ast.walk(node) if node is not None else ():
        yield from text_of(each)


def codes_of_calls() -> Iterator[str]:
    """What stands where a code does: `code=`, or the third of `invalid_parameter`."""
    for path, call in said().calls:
        if path.name == "error_schemas.py":
            continue  # says of which type a code is
        code = code_of(call)
        if isinstance(code, ast.Constant):
            yield from texts(code)
        if refuses_a_parameter(call):
            yield from texts(call.args[2] if len(call.args) > 2 else None)


def codes_of_tables() -> Iterator[str]:
    from llama_compat.dialects.fastchat import REQUEST_ERRORS, UPSTREAM_ERRORS
    from llama_compat.error_classes import OPENAI_CODES
    from providers.local.media.medium import WORDS
    from providers.remote.upstream.connection_errors import _BROKEN_OFF
    from routing.storage.kept import INTERACTIONS_KEPT, RESPONSES_KEPT

    yield from OPENAI_CODES.values()
    yield from (code for _, code in (REQUEST_ERRORS | UPSTREAM_ERRORS).values())
    yield from (code for _, (_, code) in _BROKEN_OFF)
    for api in (RESPONSES_KEPT, INTERACTIONS_KEPT):
        yield from (api.code, api.previous_code)
    for each in WORDS.values():
        yield from (each.invalid, each.too_large, each.too_many)


def test_every_error_code_has_its_cause_and_its_cure() -> None:
    used = {*codes_of_calls(), *codes_of_tables()} - {""}
    assert len(used) > 50
    assert used - error_codes.CODES.keys() == set(), "say them in scripts/reference/error_codes.py"
    assert error_codes.CODES.keys() - used == set(), "nothing in the code gives these"


def test_an_error_has_the_status_that_is_said_of_its_code() -> None:
    told = {code: row.status.split(", ") for code, row in error_codes.CODES.items()}
    seen = 0
    for path, call in said().calls:
        status = call.args[0] if call.args else None
        if isinstance(status, ast.Constant):
            for code in texts(code_of(call)):
                assert str(status.value) in told[code], (path, call.lineno, code)
                seen += 1
    assert seen > 30


HEADER = re.compile(
    r"x-[a-z-]+[a-z]|retry-after(-ms)?|traceparent|authorization|request-id|www-authenticate"
    r"|anthropic-(version|beta)|openai-[a-z-]+-ms|ap[a-z]+-request-id"
)
NO_HEADERS = {"x-ai", "x-gzip", "x-guidance"}
"""What looks like one: a vendor's name, a coding, a member of a grammar."""


def test_every_header_is_told_of() -> None:
    used = {text for text in said().texts if HEADER.fullmatch(text)}
    told = {*headers.UNDERSTOOD, *headers.SENT, *headers.FORWARDED, *headers.OF_VENDORS}
    assert used - NO_HEADERS - told == set(), "say them in scripts/reference/headers.py"


def test_no_header_is_told_of_that_the_code_does_not_know() -> None:
    used = {text.lower() for text in said().texts}
    limits = {"x-ratelimit-", "limit", "remaining", "reset"}
    told = {*headers.UNDERSTOOD, *headers.SENT, *headers.FORWARDED, *headers.OF_VENDORS}
    unknown = {
        each
        for each in told - {"anthropic-ratelimit-*"}
        if each not in used and not (each.startswith("x-ratelimit-") and limits <= used)
    }
    assert unknown == set()


# The schema ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = json.loads((ROOT / SCHEMA).read_text("utf-8"))
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema)


@pytest.mark.parametrize("name", [name for name, _ in list_templates()])
def test_the_schema_takes_every_template_that_ships(validator: Any, name: str) -> None:
    template = yaml.safe_load(template_path(name).read_text("utf-8"))
    assert [each.message for each in validator.iter_errors(template)] == []


def test_the_command_prints_the_schema() -> None:
    result = CliRunner().invoke(app, ["schema"])
    assert (result.exit_code, result.stdout) == (0, (ROOT / SCHEMA).read_text("utf-8"))


GOOD = """
server: {port: "${env.PORT:8321}", limits: memory, apis: }
providers:
  - {id: a, type: "local::echo", config: {delay_ms: 5}}
  - {id: b, type: "remote::groq", config: {api_key: "${env.KEY}", unsupported: "${env.U:drop}"}}
models:
  - {id: m, targets: [{provider: a, weight: 0.5}, {provider: b, model: n}]}
keys:
"""


@pytest.mark.parametrize(
    ("before", "after", "path"),
    [
        ("port:", "prot:", "server"),
        ('"${env.PORT:8321}"', "70000", "server.port"),
        ('"${env.PORT:8321}"', "'8321'", "server.port"),
        ("delay_ms: 5", "delay_ms: -1", "providers.0.config.delay_ms"),
        ("delay_ms: 5", "base_url: x", "providers.0.config"),
        ("local::echo", "local::ecco", "providers.0.type"),
        ("unsupported:", "unsuported:", "providers.1.config"),
        ("weight: 0.5", "weight: 0", "models.0.targets.0.weight"),
        ("{id: m, ", "{", "models.0"),
    ],
)
def test_the_schema_finds_mistakes(validator: Any, before: str, after: str, path: str) -> None:
    assert list(validator.iter_errors(yaml.safe_load(GOOD))) == []
    assert before in GOOD
    errors = validator.iter_errors(yaml.safe_load(GOOD.replace(before, after, 1)))
    assert path in {place for error in errors for place in places(error)}


def places(error: Any) -> Iterator[str]:
    """Where an error is, and those of which it is made."""
    yield ".".join(map(str, error.absolute_path))
    for each in error.context:
        yield from places(each)
