"""What the pages say in their own words, held against the code."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from bench import chaos
from llama_compat.distribution import RoutingSettings, list_templates, load_distribution
from llama_compat.mixins import ChatOnlyMixin
from providers.base import Provider
from providers.registry import CLASSES, config_model, provider_type
from providers.remote.openai.vendor import OPENAI_WIRES
from providers.remote.openai.vendors import VENDORS
from routing.cli import app
from tests.documents import DOCS, PAGES, Snippet, snippets

TRANSLATED = sorted(CLASSES)
OPERATIONS = ("chat", "completions", "embeddings", "responses", "messages")

PARAMETERS = (DOCS / "reference" / "parameters.md").read_text("utf-8")


def the_snippet(page: str, begins: str) -> Snippet:
    """The one template of a page that begins so."""
    (found,) = (each for each in snippets(page) if each.text.startswith(begins))
    return found


# Tables -------------------------------------------------------------------------------------------


def test_the_table_of_client_apis_is_the_code_s() -> None:
    """Which client APIs are relayed to which providers."""
    rows = [_vendor_row(type, set(VENDORS[type].wires)) for type in PARTICULAR]
    rows.append(_api_row("all other vendors", set(VENDORS["remote::passthrough"].wires), ""))
    for type in TRANSLATED:
        provider = provider_type(type).provider
        embeds = provider.embed is not Provider.embed
        rows.append(_api_row(f"`{type}`", set(provider.relays), "translated" if embeds else ""))
    assert "\n".join("| " + " | ".join(row) + " |" for row in rows) in PARAMETERS


PARTICULAR = sorted(
    type for type, vendor in VENDORS.items() if set(vendor.wires) != set(OPENAI_WIRES)
)
"""Vendors that have more or less than OpenAI's chat, completions and embeddings."""


def _vendor_row(type: str, relayed: set[str]) -> list[str]:
    row = _api_row(f"`{type}`", relayed, "")
    # It is its chat completions that all else is translated to.
    return row if "chat" in relayed else [cell.replace("translated", "") for cell in row]


def _api_row(name: str, relayed: set[str], embeddings: str) -> list[str]:
    cells = ["relayed" if operation in relayed else "translated" for operation in OPERATIONS]
    if "embeddings" not in relayed:
        cells[2] = embeddings
    natives = [
        "relayed" if set(operations) & relayed else "translated"
        for operations in (("ollama_chat",), ("gemini_generate",), ("interactions",))
    ]
    return [name, *cells, *natives]


@pytest.mark.parametrize("type", TRANSLATED)
def test_the_tables_of_what_providers_can_do_are_the_code_s(type: str) -> None:
    """Those that don't speak OpenAI."""
    provider = provider_type(type).provider
    completions = "as a chat" if issubclass(provider, ChatOnlyMixin) else "yes"
    embeddings = "yes" if provider.openai_embeddings is not Provider.openai_embeddings else ""
    assert f"| `{type}` | yes | {completions} | {embeddings} |" in PARAMETERS

    head, *rows = re.findall(r"^\| (?:parameter|`[a-z_]+`) \|.*", PARAMETERS, re.M)
    column = [each.strip() for each in head.split("|")].index(f"`{type.partition('::')[2]}`")
    cells = [[each.strip() for each in row.split("|")] for row in rows]
    said = {row[1].strip("`") for row in cells if row[column] == "yes"}
    for name in {row[1].strip("`") for row in cells}:
        assert (name in said) == (name in provider.parameters), name
    for name in ("tools", "tool_choice", "parallel_tool_calls", "response_format", "logprobs"):
        assert (name in said) == (name in provider.parameters), name
    for name in ("reasoning_effort", "seed", "frequency_penalty"):
        assert (name in said) == (name in provider.parameters), name


def test_every_vendor_is_named() -> None:
    named = re.findall(
        r"^\| `(remote::[a-z-]+)`", (DOCS / "reference/vendors.md").read_text(), re.M
    )
    assert set(VENDORS) <= set(named)


def test_the_table_of_failures_is_what_was_measured() -> None:
    results = json.loads((chaos.RESULTS / "chaos.json").read_text("utf-8"))
    text = chaos.PAGE.read_text("utf-8")
    assert text == chaos.into_page(text, results["gateways"]), "run: python -m bench.chaos --page"
    longer = json.loads((chaos.RESULTS / "chaos-500.json").read_text("utf-8"))["gateways"]
    for name in ("llama_compat", "LiteLLM"):
        assert f"{longer[name]['frozen']['p99_times_healthy']} times as long" in text


# Templates and commands ---------------------------------------------------------------------------


def test_every_template_ships_that_is_spoken_of() -> None:
    names = {name for name, _ in list_templates()}
    text = "\n".join((DOCS / page).read_text("utf-8") for page in PAGES)
    spoken_of = set(re.findall(r"`llama-compat run ([a-z-]+)`", text))
    assert spoken_of >= {"starter-llama-cpp", "vendors", "native", "resilient"}
    assert spoken_of <= names
    assert names >= {"starter", "echo", "openai", "vllm", "passthrough"}


def test_every_command_is_there_that_is_spoken_of() -> None:
    text = "\n".join((DOCS / page).read_text("utf-8") for page in PAGES)
    spoken_of = set(re.findall(r"^\$ llama-compat ([a-z]+)|`llama-compat ([a-z]+)", text, re.M))
    commands = {first or second for first, second in spoken_of}
    assert commands >= {"run", "check", "list", "pull", "chat", "status", "init", "keys", "usage"}
    for command in commands:
        assert CliRunner().invoke(app, [command, "--help"]).exit_code == 0, command


def test_every_option_that_is_spoken_of_is_in_the_reference() -> None:
    reference = (DOCS / "reference" / "commands.md").read_text("utf-8")
    sections = dict(
        re.findall(r"^## llama-compat ([a-z ]+)\n(.*?)(?=^## |\Z)", reference, re.M | re.S)
    )
    text = "\n".join((DOCS / page).read_text("utf-8") for page in PAGES if "reference" not in page)
    text = text.replace("\\\n", " ")
    spoken_of = {
        (" ".join(words) if " ".join(words) in sections else words[0], option)
        for *words, said in re.findall(r"llama-compat ([a-z]+)(?: ([a-z]+))?([^`\n|]*)", text)
        for option in re.findall(r"(?<= )--[a-z][a-z-]+", said)
    }
    assert spoken_of >= {("check", "--live"), ("keys create", "--team"), ("requests", "--status")}
    for command, option in spoken_of:
        assert option in sections[command], (command, option)


def test_the_template_with_most_of_it_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = tmp_path / "most.yaml"
    (snippet,) = (each for each in snippets("start/vendors.md") if each.title == "most.yaml")
    template.write_text(snippet.text)
    for name in ("MY_KEY", "ADMIN_KEY", "METRICS_KEY", "GROQ_API_KEY"):
        monkeypatch.setenv(name, f"sk-of-{name}")
    distribution = load_distribution(str(template), config_model)
    assert [model.id for model in distribution.models] == ["SmolLM2-135M-Instruct", "llama"]


def test_one_pattern_stands_for_all_names_of_an_agent(tmp_path: Path) -> None:
    template = tmp_path / "agents.yaml"
    (text,) = (each.text for each in snippets("guides/agents.md") if '"claude-*"' in each.text)
    template.write_text(text)
    (model,) = load_distribution(str(template), config_model).models
    assert (model.names, model.patterns) == (("llama",), ("claude-*", "gemini-*"))


def test_the_keys_and_teams_are_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    template = tmp_path / "keys.yaml"
    text = the_snippet("guides/keys.md", "keys:\n").text
    template.write_text(f"{text}providers: [{{id: e, type: local::echo}}]\n{ECHO}")
    monkeypatch.setenv("CI_KEY", "sk-of-ci")
    distribution = load_distribution(str(template), config_model)
    assert distribution.has_limits
    assert distribution.has_budgets
    assert [key.team for key in distribution.keys] == [team.id for team in distribution.teams]


ECHO = "models: [{id: m, provider: e}]\n"


@pytest.mark.parametrize("page", ["concepts/targets.md", "guides/fallback.md"])
def test_what_is_called_the_defaults_of_routing_are(page: str) -> None:
    shown = [
        yaml.safe_load(each.text)["routing"]
        for each in snippets(page)
        if each.text.startswith("routing:\n") and "fall_back_on" in each.text
    ]
    (routing,) = shown
    assert {"retries", "fall_back_on", "cooldown", "deadline"} <= routing.keys()
    assert RoutingSettings(**routing) == RoutingSettings()


def test_the_default_of_sticky_on_is_told() -> None:
    text = (DOCS / "concepts/targets.md").read_text("utf-8")
    assert f"`[{', '.join(RoutingSettings().sticky_on)}]`" in text
