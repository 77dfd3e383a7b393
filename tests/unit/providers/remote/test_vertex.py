"""Where Vertex AI is, and with what it is asked."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from pydantic import ValidationError

from providers.registry import config_model
from providers.remote.upstream.google_tokens import GoogleCredentials


def settings(**given: Any) -> Any:
    return config_model("remote::vertex").validate({"project": "mine", **given})


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ({}, "https://aiplatform.googleapis.com/v1/projects/mine/locations/global"),
        (
            {"location": "europe-west4"},
            "https://europe-west4-aiplatform.googleapis.com/v1/projects/mine/locations/europe-west4",
        ),
        (
            {"location": "eu"},
            "https://aiplatform.eu.rep.googleapis.com/v1/projects/mine/locations/eu",
        ),
        (
            {"base_url": "http://localhost:1"},
            "http://localhost:1/v1/projects/mine/locations/global",
        ),
        (
            {"base_url": "http://localhost:1/v1beta1"},
            "http://localhost:1/v1beta1/projects/mine/locations/global",
        ),
    ],
)
def test_where_it_is(given: dict[str, Any], url: str) -> None:
    assert settings(**given).base_url == f"{url}/publishers/google"


def test_with_what_it_is_asked() -> None:
    assert isinstance(settings().request_credentials("p"), GoogleCredentials)
    assert settings(api_key="x").request_credentials("p") is None


@pytest.mark.parametrize(
    "given",
    [{"project": "a/b"}, {"location": "x/y"}, {"project": None}, {"apis": ["interactions"]}],
)
def test_what_is_wrong_is_found(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        settings(**given)


def test_without_the_library_the_template_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "requests", None)
    with pytest.raises(ValidationError, match=r"pip install 'llama-compat\[google\]'"):
        settings()
    settings(api_key="x")
