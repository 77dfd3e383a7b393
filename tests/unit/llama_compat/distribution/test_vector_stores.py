"""Settings of vector stores that are right for themselves, and together with others."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from llama_compat.distribution import ServerSettings, VectorStoresSettings
from llama_compat.distribution.problems import TemplateError
from llama_compat.distribution.template import load_distribution
from providers.registry import config_model
from tests.integration.server_process import write_template


def test_the_defaults_are_openais() -> None:
    settings = VectorStoresSettings(embedding_model="m")
    assert (settings.chunk_tokens, settings.chunk_overlap_tokens) == (800, 400)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"embedding_model": ""},
        {"embedding_model": "m", "chunk_overlap_tokens": 401},
        {"embedding_model": "m", "chunk_tokens": 99},
    ],
)
def test_what_is_wrong_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        VectorStoresSettings(**wrong)


def test_file_search_needs_stores() -> None:
    with pytest.raises(ValidationError, match="add 'vector_stores"):
        ServerSettings.model_validate({"tools": {"file_search": {}}})


def test_the_embedding_model_is_one_of_the_template(tmp_path: Any) -> None:
    template = write_template(
        tmp_path / "t.yaml",
        server={"vector_stores": {"embedding_model": "embd"}},
        providers=[{"id": "echo", "type": "local::echo"}],
        models=[{"id": "embed", "provider": "echo"}],
    )
    with pytest.raises(TemplateError, match="no model has the id 'embd'; did you mean 'embed'"):
        load_distribution(str(template), config_model)
