"""What the README says, held against the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from llama_compat.distribution import RoutingSettings, list_templates, load_distribution
from llama_compat.mixins import ChatOnlyMixin
from providers.base import Provider
from providers.registry import CLASSES, config_model, provider_type
from providers.remote.openai.vendors import OPENAI_WIRES, VENDORS
from routing.cli import app

README = Path(__file__).parents[2].joinpath("README.md").read_text("utf-8")

TRANSLATED = sorted(CLASSES)

PARAMETER_COLUMNS = {
    "tools": "tools",
    "`tool_choice`": "tool_choice",
    "`parallel_tool_calls`": "parallel_tool_calls",
    "`response_format`": "response_format",
    "logprobs": "logprobs",
    "`reasoning_effort`": "reasoning_effort",
    "seed": "seed",
    "penalties": "frequency_penalty",
}


def capability_table() -> str:
    """The table in the README: what providers that don't speak OpenAI can do."""
    head = ["provider", "chat", "completions", "embeddings", *PARAMETER_COLUMNS]
    rows = [head, ["---"] * len(head), *(_row(type) for type in TRANSLATED)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _row(type: str) -> list[str]:
    provider = provider_type(type).provider
    completions = "as a chat" if issubclass(provider, ChatOnlyMixin) else "yes"
    embeddings = provider.openai_embeddings is not Provider.openai_embeddings
    has = [name in provider.parameters for name in PARAMETER_COLUMNS.values()]
    cells = ["yes" if each else "" for each in (embeddings, *has)]
    return [f"`{type}`", "yes", completions, *cells]


def test_the_table_of_capabilities_is_the_code_s() -> None:
    assert capability_table() in README


OPERATIONS = ("chat", "completions", "embeddings", "responses", "messages")


def api_table() -> str:
    """The table in the README: which client APIs are relayed to which providers."""
    rows = [_api_row(f"`{type}`", set(VENDORS[type].wires), "yes") for type in PARTICULAR]
    rows.append(_api_row("all other vendors", set(VENDORS["remote::passthrough"].wires), "yes"))
    for type in TRANSLATED:
        provider = provider_type(type).provider
        embeds = provider.embed is not Provider.embed
        rows.append(_api_row(f"`{type}`", set(provider.relays), "translated" if embeds else ""))
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


PARTICULAR = sorted(
    type for type, vendor in VENDORS.items() if set(vendor.wires) - set(OPENAI_WIRES)
)
"""Vendors that have more than OpenAI's chat, completions and embeddings."""


def _api_row(name: str, relayed: set[str], embeddings: str) -> list[str]:
    cells = ["relayed" if operation in relayed else "translated" for operation in OPERATIONS]
    if "embeddings" not in relayed:
        cells[2] = embeddings
    natives = [
        "relayed" if set(operations) & relayed else "translated"
        for operations in (("ollama_chat",), ("gemini_generate",), ("interactions",))
    ]
    return [name, *cells, *natives]


def test_the_table_of_client_apis_is_the_code_s() -> None:
    assert api_table() in README


def test_every_vendor_is_named() -> None:
    named = re.findall(r"`([a-z-]+)`", README[README.index("The types are `remote::`") :])
    assert {type.removeprefix("remote::") for type in VENDORS} <= set(named)


def test_every_template_ships_that_is_spoken_of() -> None:
    names = {name for name, _ in list_templates()}
    assert {
        "starter",
        "echo",
        "openai",
        "vllm",
        "passthrough",
        "vendors",
        "native",
        "resilient",
    } <= names
    for name in re.findall(r"llama-compat run ([a-z-]+)", README):
        assert name in names


def test_the_template_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = re.findall(r"```yaml\n(version: .*?)```", README, re.DOTALL)
    template = tmp_path / "readme.yaml"
    template.write_text(text)
    monkeypatch.setenv("MY_KEY", "sk-readme")
    monkeypatch.setenv("ADMIN_KEY", "sk-admin")
    monkeypatch.setenv("METRICS_KEY", "sk-metrics")
    monkeypatch.setenv("GROQ_API_KEY", "sk-groq")
    distribution = load_distribution(str(template), config_model)
    assert [model.id for model in distribution.models] == ["SmolLM2-135M-Instruct", "llama"]


def test_the_template_for_agents_is_right(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(providers:\n  - id: gpu-box\n.*?)```", README, re.DOTALL)
    template = tmp_path / "agents.yaml"
    template.write_text(text)
    (model,) = load_distribution(str(template), config_model).models
    assert (model.names, model.patterns) == (("llama",), ("claude-*", "gemini-*"))


def test_the_keys_and_teams_are_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = re.findall(r"```yaml\n(server:\n  stored_keys: .*?)```", README, re.DOTALL)
    template = tmp_path / "keys.yaml"
    template.write_text(f"{text}providers: [{{id: e, type: local::echo, config: {{}}}}]\n{ECHO}")
    monkeypatch.setenv("CI_KEY", "sk-ci")
    distribution = load_distribution(str(template), config_model)
    assert distribution.has_limits
    assert distribution.has_budgets
    assert [key.team for key in distribution.keys] == [team.id for team in distribution.teams]


ECHO = "models: [{id: m, provider: e}]\n"


def test_the_model_with_several_targets_is_right_and_shows_the_defaults(tmp_path: Path) -> None:
    (models,) = re.findall(r"```yaml\n(models:.*?)```", README, re.DOTALL)
    template = tmp_path / "targets.yaml"
    providers = "".join(
        f"  - {{id: {name}, type: 'local::echo', max_concurrent: 8, max_waiting: 100}}\n"
        for name in ("openai", "azure-eu", "anthropic")
    )
    others = "".join(f"  - {{id: {name}, provider: openai}}\n" for name in ("local", "candidate"))
    template.write_text(f"providers:\n{providers}{models}{others}")
    smart = load_distribution(str(template), config_model).models[0]
    assert smart.routing is not None
    assert smart.routing.model_copy(update={"mirror": None, "hedge_after": None}) == (
        RoutingSettings()
    )


def test_every_command_is_there() -> None:
    commands = "run|check|list|pull|chat|status|init|keys"
    for command in set(re.findall(rf"`(?:llama-compat )?({commands})\b", README)):
        result = CliRunner().invoke(app, [command, "--help"])
        assert result.exit_code == 0, command
