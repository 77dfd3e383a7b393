"""What a model folder is for, told by its files, before anything heavy is imported."""

from __future__ import annotations

import json
from pathlib import Path

_HEAD = "ForSequenceClassification"


def is_embedder(folder: Path) -> bool:
    """Whether `folder` is one of sentence-transformers, which makes vectors of texts."""
    return (folder / "modules.json").is_file()


def is_reranker(folder: Path) -> bool:
    """Whether `folder` is a cross-encoder, which ranks documents."""
    path = folder / "config.json"
    if not path.is_file():
        return False
    try:
        config = json.loads(path.read_text("utf-8"))
    except ValueError:
        return False  # who loads it says what is wrong with it
    kinds = config.get("architectures") or [""]
    labels = config.get("num_labels", len(config.get("id2label") or (0, 1)))
    return str(kinds[0]).endswith(_HEAD) and labels == 1
