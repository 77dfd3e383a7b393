"""OpenAI's list of models (https://platform.openai.com/docs/api-reference/models/list)."""

from __future__ import annotations

import json
from typing import Any


def parse_models(body: bytes, prefix: str = "") -> list[str]:
    """The ids in a vendor's answer to `GET /models`, without `prefix`, each once.

    The shape is `{"data": [{"id": ...}]}`; Together leaves out the object around the list
    (https://docs.together.ai/reference/models-1).

    Raises:
        ValueError: it is no such list.
    """
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        value = value.get("data")
    if not isinstance(value, list):
        raise ValueError("answered with something that is not a list of models")
    ids = [model.get("id") for model in value if isinstance(model, dict)]
    names = [id for id in ids if isinstance(id, str) and id and id.isprintable()]
    return list(dict.fromkeys(name.removeprefix(prefix) for name in names))
