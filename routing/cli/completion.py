"""What a shell offers when Tab is pressed: templates, and models.

Whatever goes wrong here, nothing is offered and nothing is said: the person is in mid-sentence.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import typer

ANSWER_SECONDS = 1.0
"""How long a server has to tell its models."""


def templates(incomplete: str) -> list[str]:
    """Templates that ship, YAML files, and the folders on the way to others."""
    found: list[str] = []
    with suppress(Exception):
        from llama_compat.distribution import list_templates

        found += [name for name, _ in list_templates() if name.startswith(incomplete)]
    with suppress(OSError):
        before, slash, beginning = incomplete.rpartition("/")
        for path in sorted(Path(before + slash or ".").iterdir()):
            if path.name.startswith(beginning) and (beginning or not path.name.startswith(".")):
                if path.is_dir():
                    found.append(f"{before}{slash}{path.name}/")
                elif path.suffix in (".yaml", ".yml"):
                    found.append(f"{before}{slash}{path.name}")
    return found


def pulled_models(incomplete: str) -> list[str]:
    """Models that can be pulled by a name of our own, and those that templates want."""
    found = {"starter"}
    with suppress(Exception):
        from llama_compat.distribution import list_templates, load_distribution
        from providers.registry import config_model
        from routing.cli.pulling import wanted_models

        for name, _ in list_templates():
            with suppress(Exception):
                found |= set(wanted_models(load_distribution(name, config_model)))
    return sorted(name for name in found if name.startswith(incomplete))


def served_models(context: typer.Context, incomplete: str) -> list[str]:
    """The models of the server that `--base-url` says."""
    with suppress(Exception):
        import openai

        client = openai.OpenAI(
            base_url=context.params.get("base_url") or "http://localhost:8321/v1",
            api_key=context.params.get("api_key") or "none",
            max_retries=0,
            timeout=ANSWER_SECONDS,
        )
        return [model.id for model in client.models.list() if model.id.startswith(incomplete)]
    return []
