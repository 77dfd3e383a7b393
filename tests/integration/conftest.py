"""The servers that the tests talk to, each a process of its own, and the clients for them."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import AsyncIterator, Generator, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.integration import conformance, documented
from tests.integration.relay import Gateway, gateway_template
from tests.integration.scripted_upstream import ScriptedUpstream
from tests.integration.server_process import ServerProcess, running

TIMEOUT_SECONDS = 300
"""A small machine may take its time over a tool call."""

# --------------------------------------------------------------------------------------------------
# With --base-url: only what talks to that server, and a table of what it can do
# --------------------------------------------------------------------------------------------------


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        capability = conformance.capability_of(item)
        if capability is not None:
            item.user_properties.append(("capability", capability))
    if config.getoption("--base-url"):
        others = [item for item in items if not conformance.talks_to_the_server(item)]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if conformance.talks_to_the_server(item)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[Any],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    conformance.note_refusal(report, call)
    return report


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if config.getoption("--base-url"):
        found = conformance.found(terminalreporter.stats)
        terminalreporter.section("what the server can do")
        for line in conformance.table(found):
            terminalreporter.line(line)
        if file := config.getoption("--capabilities"):
            written = {capability: asdict(each) for capability, each in found.items()}
            Path(file).write_text(json.dumps(written, indent=2) + "\n", "utf-8")


# --------------------------------------------------------------------------------------------------
# Any model: the server of --template, or the one at --base-url
# --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def model(pytestconfig: pytest.Config) -> str:
    """The model that text is asked of."""
    name = pytestconfig.getoption("--text-model")
    assert isinstance(name, str)
    return name


@pytest.fixture(scope="session")
def server(pytestconfig: pytest.Config) -> Iterator[ServerProcess | None]:
    """The server of `--template`; None where `--base-url` names one that runs already."""
    if pytestconfig.getoption("--base-url"):
        yield None
        return
    with running(pytestconfig.getoption("--template")) as process:
        yield process


@pytest.fixture(scope="session")
def base_url(pytestconfig: pytest.Config, server: ServerProcess | None) -> str:
    """Where the OpenAI routes are."""
    return server.base_url if server else pytestconfig.getoption("--base-url").rstrip("/")


@pytest.fixture(scope="session")
def client(base_url: str) -> Iterator[openai.OpenAI]:
    """A client that shows every error at once instead of trying again."""
    key = os.environ.get("OPENAI_API_KEY", "none")
    with openai.OpenAI(
        base_url=base_url, api_key=key, max_retries=0, timeout=TIMEOUT_SECONDS
    ) as one:
        yield one


@pytest.fixture
async def async_client(base_url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    key = os.environ.get("OPENAI_API_KEY", "none")
    async with openai.AsyncOpenAI(
        base_url=base_url, api_key=key, max_retries=0, timeout=TIMEOUT_SECONDS
    ) as one:
        yield one


@pytest.fixture(scope="session")
def repeats(client: openai.OpenAI, model: str) -> bool:
    """Whether the model says the same again at temperature 0; not all do, and none has to."""
    question: list[Any] = [{"role": "user", "content": "Count to three."}]
    said = {
        client.chat.completions.create(model=model, messages=question, max_tokens=12, temperature=0)
        .choices[0]
        .message.content
        for _ in range(3)
    }
    return len(said) == 1


# --------------------------------------------------------------------------------------------------
# What servers answer is what their document says
# --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def watch() -> Iterator[documented.Watch]:
    watch = documented.Watch()
    with watch.watching():
        yield watch


@pytest.fixture(autouse=True)
def as_documented(request: pytest.FixtureRequest) -> Iterator[None]:
    """All whole answers that a test gets are such as `/openapi.json` says.

    But for what a vendor's own answers hold, which are passed on as they are: a test of that is
    marked `undocumented`.
    """
    if request.config.getoption("--base-url"):
        yield
        return
    watch: documented.Watch = request.getfixturevalue("watch")
    watch.wrong.clear()
    yield
    if not request.node.get_closest_marker("undocumented"):
        assert not watch.wrong, "\n".join(watch.wrong)


# --------------------------------------------------------------------------------------------------
# The echo template: what the router does by itself
# --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def echo_server() -> Iterator[ServerProcess]:
    with running("echo") as process:
        yield process


# --------------------------------------------------------------------------------------------------
# The relay: a server between the client and the scripted upstream
# --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def upstream() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream() as one:
        yield one


@pytest.fixture(scope="session")
def gateway(
    upstream: ScriptedUpstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    template = gateway_template(tmp_path_factory.mktemp("relay") / "relay.yaml", upstream)
    with running(template, env=Gateway.ENVIRONMENT) as process:
        gateway = Gateway(process, upstream)
        yield gateway
        gateway.close()


@pytest.fixture
def request_id() -> str:
    """An `x-request-id` of the test's own, by which it finds its requests upstream."""
    return f"test-{uuid.uuid4().hex}"


@pytest.fixture
async def relay_client(gateway: Gateway, request_id: str) -> AsyncIterator[openai.AsyncOpenAI]:
    """An asynchronous client of the gateway; its requests carry `request_id`."""
    options: dict[str, Any] = {"default_headers": {"x-request-id": request_id}}
    async with openai.AsyncOpenAI(
        base_url=gateway.base_url, api_key="none", max_retries=0, timeout=60, **options
    ) as one:
        yield one
