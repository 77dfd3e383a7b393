"""Files, by OpenAI's own client."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.integration import wire
from tests.integration.server_process import ServerProcess, running, write_template

pytestmark = pytest.mark.server

ANN, BOB = "sk-ann-12345678", "sk-bob-12345678"

LARGE = 24 << 20
"""More than a form that is read whole, or anything in this template, may have."""


def template(folder: Path, **server: Any) -> Path:
    return write_template(
        folder / "echo.yaml",
        server={
            "storage": f"sqlite:{folder / 'operations.sqlite'}",
            "files": {"path": str(folder / "files"), "max_bytes": LARGE},
            "max_body_bytes": 1 << 20,
            "max_bodies_bytes": 1 << 20,
            **server,
        },
        teams=[{"id": "one"}],
        keys=[
            {"name": "ann", "key": ANN, "team": "one"},
            {"name": "bob", "key": BOB, "team": "one"},
        ],
        providers=[{"id": "echo", "type": "local::echo"}],
        models=[{"id": "echo", "provider": "echo"}],
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running(template(tmp_path_factory.mktemp("files"))) as process:
        yield process


@pytest.fixture(params=["/v1", "/v1/openai/v1"])
def ann(server: ServerProcess, request: pytest.FixtureRequest) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.url + request.param, api_key=ANN, max_retries=0) as client:
        yield client


def test_a_file_from_upload_to_deletion(ann: openai.OpenAI) -> None:
    file = ann.files.create(file=("a.jsonl", b"one\ntwo\n"), purpose="batch")
    assert file.id.startswith("file-")
    assert (file.bytes, file.filename, file.purpose, file.status) == (
        8,
        "a.jsonl",
        "batch",
        "processed",
    )
    assert file.expires_at == file.created_at + 30 * 86400
    assert ann.files.retrieve(file.id) == file
    assert ann.files.content(file.id).read() == b"one\ntwo\n"
    assert file.id in [each.id for each in ann.files.list(purpose="batch")]
    assert file.id not in [each.id for each in ann.files.list(purpose="vision")]
    assert ann.files.delete(file.id).deleted
    with pytest.raises(openai.NotFoundError):
        ann.files.content(file.id)


def test_it_expires_when_its_upload_says(ann: openai.OpenAI) -> None:
    file = ann.files.create(
        file=b"x", purpose="user_data", expires_after={"anchor": "created_at", "seconds": 3600}
    )
    assert file.expires_at == file.created_at + 3600
    ann.files.delete(file.id)


def test_others_find_nothing_not_even_of_the_same_team(
    server: ServerProcess, ann: openai.OpenAI
) -> None:
    file = ann.files.create(file=b"secret", purpose="user_data")
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=BOB, max_retries=0) as bob:
        for attempt in (bob.files.retrieve, bob.files.content, bob.files.delete):
            with pytest.raises(openai.NotFoundError) as caught:
                attempt(file.id)
            assert caught.value.code == "file_not_found"
        assert list(bob.files.list()) == []
    assert ann.files.content(file.id).read() == b"secret"
    ann.files.delete(file.id)


def test_pages_hold_what_is_asked_for(ann: openai.OpenAI) -> None:
    made = [ann.files.create(file=b"x", purpose="evals").id for _ in range(5)]
    page = ann.files.list(purpose="evals", limit=2, order="asc")
    assert page.has_more
    assert [each.id for each in page] == sorted(made, key=made.index)
    for each in made:
        ann.files.delete(each)


def resident(server: ServerProcess) -> int:
    """The most bytes of memory that the server has had."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    (line,) = (each for each in status.splitlines() if each.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="looks into /proc")
def test_a_large_file_is_never_whole_in_memory(tmp_path: Path, server: ServerProcess) -> None:
    content = os.urandom(1 << 20) * (LARGE >> 20)
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=ANN, max_retries=0) as ann:
        ann.files.delete(ann.files.create(file=content[: 8 << 20], purpose="user_data").id)
        before = resident(server)
        file = ann.files.create(file=content, purpose="user_data")
        with ann.files.with_streaming_response.content(file.id) as reply:
            reply.stream_to_file(tmp_path / "back")
        assert resident(server) - before < LARGE // 2
        assert (tmp_path / "back").read_bytes() == content
        ann.files.delete(file.id)
        with pytest.raises(openai.APIStatusError) as caught:
            ann.files.create(file=content + b"x", purpose="user_data")
        assert (caught.value.status_code, caught.value.code) == (413, "file_too_large")


@pytest.mark.parametrize(
    ("fields", "param"),
    [({}, "purpose"), ({"purpose": "nonsense"}, "purpose"), ({"purpose": "batch", "x": "y"}, None)],
)
def test_what_is_wrong_is_said_and_kept_nowhere(
    ann: openai.OpenAI, fields: dict[str, str], param: str | None
) -> None:
    parts = [("file", ("a", b"x"))] if param else []
    reply = ann._client.post(
        f"{ann.base_url}files",
        data=fields,
        files=parts or {"other": ("a", b"x")},
        headers={"authorization": f"Bearer {ANN}"},
    )
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == (param or "file")
    assert list(ann.files.list()) == []


def test_a_server_without_files_says_how_to_have_them(tmp_path: Path) -> None:
    path = template(tmp_path, files=None)
    with running(path) as process:
        reply = wire.request(
            "GET", f"{process.url}/v1/files", headers={"authorization": f"Bearer {ANN}"}
        )
        assert reply.status == 404
        assert "server.files" in reply.json()["error"]["message"]
