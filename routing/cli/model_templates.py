"""A template of one model of this machine, so that it is served, or measured, without one."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from routing.cli.terminal import fail

_TEMPLATE = """\
# Serves {name}. Written by `llama-compat run`, which leaves a change of yours as it is.
version: 1
providers:
  - id: engine
    type: {engine}
models:
  - id: {id}
    provider: engine
    provider_model: {model}
"""


def template_of(name: str) -> str | None:
    """A template that serves `name`; None if that is neither a model's name nor a model's path."""
    if name.startswith(("hf:", "ollama:")) or name == "starter.gguf":
        return _written(name, name)
    path = Path(name).expanduser()
    is_model = path.suffix == ".gguf" if path.is_file() else (path / "config.json").is_file()
    return _written(name, str(path.absolute())) if is_model else None


def engine_of(name: str) -> str:
    """The type of the provider that runs a model of this machine."""
    is_gguf = name.endswith(".gguf") or name.startswith("ollama:")
    return "local::llama_cpp" if is_gguf else "local::torch"


def file_of(name: str) -> str:
    """Where the template lies that serves `name`, written if it is not there; what serves no model
    is given back as it is."""
    from llama_compat.distribution import template_path
    from providers.base import ProviderStartError
    from providers.local.models import store

    if template_path(name).is_file() and not name.endswith(".gguf"):
        return name
    text = template_of(name)
    if text is None:
        return name
    from platformdirs import user_state_path

    try:
        store.place_of(name)
        path = user_state_path("llama-compat") / "run" / _file_name(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text(text, encoding="utf-8")
    except ProviderStartError as error:
        fail(error)
    except OSError as error:
        fail(f"{path} can't be written: {error.strerror or error}. Write a template of your own.")
    return str(path)


def _file_name(name: str) -> str:
    readable = re.sub(r"[^A-Za-z0-9_.-]+", "--", name)[-80:].lstrip("-.")
    return f"{readable}-{hashlib.sha256(name.encode()).hexdigest()[:8]}.yaml"


def _written(name: str, model: str) -> str:
    short = re.split(r"[/:]", name.rstrip("/"))[-1] if not name.startswith("ollama:") else name[7:]
    return _TEMPLATE.format(
        name=" ".join(name.split()),
        engine=engine_of(name),
        id=json.dumps(short.removesuffix(".gguf") or name),
        model=json.dumps(model),
    )
