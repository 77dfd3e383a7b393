"""Every YAML snippet of the documentation and README is what `llama-compat check` takes."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import jsonschema
import pytest
import yaml

from llama_compat.catalog.catalog import Catalog
from llama_compat.catalog.warnings import warnings_of
from llama_compat.distribution import load_distribution
from providers.registry import config_model
from scripts.reference.pages import ROOT, SCHEMA
from tests.documents import (
    OF_OTHER_PROGRAMS,
    TESTED_APART,
    WITH_README,
    Snippet,
    snippets,
    variables,
    whole_template,
)

TEMPLATES = [
    pytest.param(snippet, id=f"{page}:{snippet.line}")
    for page in WITH_README
    if page not in TESTED_APART
    for snippet in snippets(page)
    if snippet.is_template
]

ENDED = "old.yaml"
"""The title of the template that shows what `check` says of a model that was shut down."""

SOME_DAY = date.max
"""After the end of all models that are to end, so that no test depends on when it runs."""


@pytest.mark.parametrize("snippet", TEMPLATES)
def test_a_template_is_right(
    snippet: Snippet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables(snippet.text).items():
        monkeypatch.setenv(name, value)
    template = tmp_path / "template.yaml"
    template.write_text(yaml.safe_dump(whole_template(snippet.text), sort_keys=False))
    distribution = load_distribution(str(template), config_model)
    if snippet.title != ENDED:
        # Who copies one that is to end is told so by `check`, and one day by the vendor.
        assert list(warnings_of(distribution, Catalog.of(distribution), SOME_DAY)) == []


@pytest.mark.parametrize("snippet", TEMPLATES)
def test_the_schema_takes_it(snippet: Snippet) -> None:
    schema = json.loads((ROOT / SCHEMA).read_text("utf-8"))
    template = whole_template(snippet.text)
    errors = jsonschema.Draft7Validator(schema).iter_errors(template)
    assert [(list(each.absolute_path), each.message) for each in errors] == []


@pytest.mark.parametrize("page", WITH_README)
def test_what_is_no_template_is_yaml_all_the_same(page: str) -> None:
    for snippet in snippets(page):
        if snippet.title in OF_OTHER_PROGRAMS:
            assert yaml.safe_load(snippet.text)


NOT_RUN = {
    ".venv/bin/pytest": "asks a server for minutes",
    "ANTHROPIC_BASE_URL=http://localhost:8321": "Claude Code",
    "CODEX_OSS_BASE_URL=http://localhost:8321/v1": "tests.clients.codex does it",
    "GOOGLE_GEMINI_BASE_URL=http://localhost:8321": "Gemini CLI",
    "RAY_SERVE_THROUGHPUT_OPTIMIZED=1": "a cluster of several machines",
    "curl": "tests/integration/page drains a target so",
    "codex": "tests.clients.codex does it",
    "docker": "there is none",
    "kill": "tests/integration/test_reload.py does it",
    "kubectl": "there is no Kubernetes",
    "llama-compat": "of a model that is not pulled",
    "make": "makes an environment",
    "pip": "changes the environment",
    "serve": "tests/integration/test_ray.py does it",
}
"""The commands that the pages show and no test of theirs runs, and why."""


@pytest.mark.parametrize("page", WITH_README)
def test_only_what_can_t_be_run_is_not_run(page: str) -> None:
    for snippet in snippets(page):
        if snippet.language == "sh":
            commands = snippet.text.replace("\\\n", " ").splitlines()
            assert {each.split()[0] for each in commands} <= NOT_RUN.keys()


def test_languages_are_those_that_are_known() -> None:
    known = {"yaml", "console", "python", "sh", "json", "text", "toml", "dockerfile"}
    assert {snippet.language for page in WITH_README for snippet in snippets(page)} <= known
