"""What a model folder is for, told by its files, before anything heavy is imported."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_HEAD = "ForSequenceClassification"
_LANGUAGE_MODEL = "ForCausalLM"
_SCORES = "LogitScore"

_QWEN3_RERANKER = re.compile(r"qwen3-?reranker", re.IGNORECASE)
"""Qwen's folders are told by their names alone: they are those of a language model."""


def is_embedder(folder: Path) -> bool:
    """Whether `folder` is one of sentence-transformers, which makes vectors of texts."""
    return (folder / "modules.json").is_file() and not is_reranker(folder)


def is_reranker(folder: Path) -> bool:
    """Whether `folder` ranks documents: a cross-encoder, or a language model that says yes."""
    config = _settings_in(folder / "config.json")
    if is_language_model(folder):
        return logit_score_folder(folder) is not None or is_qwen3_reranker(folder)
    kinds = config.get("architectures") or [""]
    labels = config.get("num_labels", len(config.get("id2label") or (0, 1)))
    return str(kinds[0]).endswith(_HEAD) and labels == 1


def is_language_model(folder: Path) -> bool:
    """Whether the model in `folder` has a head that says how likely each token is."""
    kinds = _settings_in(folder / "config.json").get("architectures") or [""]
    return str(kinds[0]).endswith(_LANGUAGE_MODEL)


def is_qwen3_reranker(folder: Path) -> bool:
    """Whether `folder` is a Qwen3-Reranker, by its name, or by what vLLM is told of one."""
    config = _settings_in(folder / "config.json")
    if config.get("model_type") != "qwen3":
        return False
    names = (folder.name, str(config.get("_name_or_path", "")))
    return bool(config.get("is_original_qwen3_reranker")) or any(
        _QWEN3_RERANKER.search(name.replace("_", "-")) for name in names
    )


def reads_messages(folder: Path) -> bool:
    """Whether sentence-transformers gives the model in `folder` a pair as two messages."""
    if not (folder / "modules.json").is_file():
        return False
    settings = _settings_in(folder / "sentence_bert_config.json")
    return "message" in (settings.get("modality_config") or {})


def logit_score_folder(folder: Path) -> Path | None:
    """Where it stands which tokens are scored, as sentence-transformers keeps it."""
    listed = _read(folder / "modules.json")
    for step in listed if isinstance(listed, list) else ():
        path = Path(str(step.get("path", "")))
        is_inside = not path.is_absolute() and ".." not in path.parts
        if str(step.get("type", "")).rpartition(".")[2] == _SCORES and is_inside:
            return folder / path
    return None


def _settings_in(path: Path) -> Mapping[str, Any]:
    found = _read(path)
    return found if isinstance(found, dict) else {}


def _read(path: Path) -> Any:
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_text("utf-8"))
    except ValueError:
        return None  # who loads it says what is wrong with it
