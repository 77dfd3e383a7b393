"""The models that Bedrock lists: those that can be asked by their own name, and by a profile's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_compat.dialects.model_names import model_names
from llama_compat.wire.malformed import malformed_as

MODELS_PATH = "/foundation-models?byInferenceType=ON_DEMAND&byOutputModality=TEXT"
PROFILES_PATH = "/inference-profiles?maxResults=1000"


def parse_models(body: Mapping[str, Any]) -> list[str]:
    """The ids in the answer to `ListFoundationModels`.

    Raises:
        ValueError: it is none.
    """
    with malformed_as("the answer is no list of models"):
        return model_names(
            model["modelId"]
            for model in body["modelSummaries"]
            if (model.get("modelLifecycle") or {}).get("status") != "LEGACY"
        )


def parse_profiles(body: Mapping[str, Any]) -> list[str]:
    """The ids in the answer to `ListInferenceProfiles`, by which newer models are asked.

    Raises:
        ValueError: it is none.
    """
    with malformed_as("the answer is no list of profiles"):
        return model_names(
            profile["inferenceProfileId"] for profile in body["inferenceProfileSummaries"]
        )
