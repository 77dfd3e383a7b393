"""Requests made from `/openapi.json`, right ones and wrong ones: never a 500, never an answer that
the document does not know."""
# ruff: noqa: E402 (what follows needs a package that may not be there)

from __future__ import annotations

import os
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

schemathesis = pytest.importorskip("schemathesis", reason="needs the extra 'abuse'")

from schemathesis import APIOperation, Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.integration.documented import document
from tests.integration.server_process import ServerProcess

EXAMPLES, EXAMPLES_OF_ABUSE = 3, 50
"""Requests of each call and kind."""

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


def calls() -> list[str]:
    """All of them once: those below OpenAI's other prefix are the same."""
    return [
        f"{method.upper()} {path}"
        for path, methods in document()["paths"].items()
        if not path.startswith("/v1/openai/v1")
        for method in methods
    ]


@cache
def operations() -> dict[str, APIOperation[Any, Any, Any]]:
    found = (each.ok() for each in schemathesis.openapi.from_dict(document()).get_all_operations())
    return {f"{each.method.upper()} {each.path}": each for each in found}


def of_the_model(case: Case) -> Case:
    """`case`, for a model that there is."""
    for name in ("model", "model_id"):
        if name in (case.path_parameters or {}):
            case.path_parameters[name] = "echo"
    if isinstance(case.body, dict) and "model" in case.body:
        case.body["model"] = "echo"
    return case


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("call", calls())
def test_whatever_is_asked_the_answer_is_documented(
    server: ServerProcess, pytestconfig: pytest.Config, call: str, mode: GenerationMode
) -> None:
    operation = operations()[call]
    if mode is GenerationMode.NEGATIVE and not (operation.body or operation.query):
        pytest.skip("there is nothing to get wrong")

    @seed(int(os.environ.get("ABUSE_SEED", "1")))
    @settings(
        max_examples=EXAMPLES_OF_ABUSE if pytestconfig.getoption("--abuse") else EXAMPLES,
        phases=[Phase.generate],
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Case) -> None:
        case = of_the_model(case)
        response = case.call(base_url=server.url, timeout=60)
        case.validate_response(response, checks=CHECKS)

    ask()
