"""Personal data that Presidio finds, in every client's API, whole and streamed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("presidio_analyzer", reason="needs the extra 'presidio'")

from tests.integration.matrix.clients import CLIENTS, Client
from tests.integration.matrix.said import Ask, Refused
from tests.integration.server_process import ServerProcess, running, write_template

TEXT = "Write to alice@example.com, and pay with 4111 1111 1111 1111."
HIDDEN = "Write to <EMAIL_ADDRESS_1>, and pay with <CREDIT_CARD_1>."

RAILS: dict[str, dict[str, Any]] = {
    "hide": {"scan": "output", "mode": "redact"},
    "restore": {"scan": "input", "mode": "redact", "restore": True},
    "refuse": {"scan": "input"},
    "end": {"scan": "output"},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    template = write_template(
        tmp_path_factory.mktemp("presidio") / "presidio.yaml",
        providers=[{"id": "echo", "type": "local::echo"}],
        models=[
            {
                "id": name,
                "provider": "echo",
                "guardrails": [{"name": name, "presidio": {}, **settings}],
            }
            for name, settings in RAILS.items()
        ],
    )
    with running(template) as process:
        yield process


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", [name for name in CLIENTS if name != "completions"])
def test_what_is_found_is_hidden_or_blocked(server: ServerProcess, name: str, stream: bool) -> None:
    client: Client = CLIENTS[name](server.url)  # type: ignore[call-arg]
    assert client.ask(Ask("hide", text=TEXT), stream=stream).text == HIDDEN
    assert client.ask(Ask("restore", text=TEXT), stream=stream).text == TEXT
    with pytest.raises(Refused):
        client.ask(Ask("refuse", text=TEXT), stream=stream)
    said = client.ask(Ask("end", text=TEXT), stream=stream)
    assert said.stop == "filter"
    assert "alice" not in said.text


def test_a_template_that_wants_what_is_not_there_is_refused(tmp_path: Path) -> None:
    template = write_template(
        tmp_path / "presidio.yaml",
        providers=[{"id": "echo", "type": "local::echo"}],
        models=[{"id": "m", "provider": "echo"}],
        guardrails=[{"name": "names", "presidio": {"entities": ["PERSON"]}}],
    )
    with (
        pytest.raises(Exception, match="guardrail 'names': Presidio finds no PERSON"),
        running(template),
    ):
        pass
