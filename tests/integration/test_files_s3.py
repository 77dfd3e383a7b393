"""Files and batches whose contents are in S3, by OpenAI's own client."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.integration.batching import (
    batch_template,
    counting_vendor,
    line,
    ordered,
    results,
    said,
    waited_for,
)
from tests.integration.s3 import BUCKET, S3Server, needs_s3, s3_server
from tests.integration.server_process import ServerProcess, running
from tests.integration.test_batches_killed import client_of
from tests.integration.test_files import resident

pytestmark = [pytest.mark.server, needs_s3]

URL = f"s3://{BUCKET}/files"

LARGE = 64 << 20


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as one:
        yield one


def template(folder: Path, vendor: str = "", **files: Any) -> Path:
    return batch_template(folder, vendor, files={"url": URL, **files})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, s3: S3Server) -> Iterator[ServerProcess]:
    path = template(tmp_path_factory.mktemp("s3"), max_bytes=LARGE, max_key_bytes=2 * LARGE)
    with running(path, env=s3.environment) as process:
        yield process


@pytest.fixture
def client(server: ServerProcess) -> Iterator[openai.OpenAI]:
    with client_of(server) as one:
        yield one


def listed(s3: S3Server) -> str:
    with urllib.request.urlopen(f"{s3.url}/{BUCKET}?list-type=2", timeout=20) as reply:
        return str(reply.read().decode())


def test_a_file_from_upload_to_deletion(client: openai.OpenAI, s3: S3Server) -> None:
    for content in (b"one\ntwo\n", b"", b"x" * (11 << 20)):
        file = client.files.create(file=("a.jsonl", content), purpose="user_data")
        assert file.bytes == len(content)
        assert f"files/{file.id}" in listed(s3)
        assert client.files.content(file.id).content == content
        client.files.delete(file.id)
        assert file.id not in listed(s3)


def test_a_batch_from_first_to_last(client: openai.OpenAI) -> None:
    names = [f"r{n}" for n in range(300)]
    batch = waited_for(client, ordered(client, [line(name) for name in names]))
    assert batch.status == "completed"
    good = results(client, batch.output_file_id)
    assert {name: said(each) for name, each in good.items()} == {n: f"say {n}" for n in names}


def test_a_large_file_is_never_whole_in_memory(
    tmp_path: Path, server: ServerProcess, client: openai.OpenAI
) -> None:
    path = tmp_path / "large"
    path.write_bytes(b"x" * (LARGE - 100))
    client.files.delete(client.files.create(file=("a", b"warm"), purpose="user_data").id)
    before = resident(server)
    with path.open("rb") as content:
        file = client.files.create(file=("large", content), purpose="user_data")
    with client.files.with_streaming_response.content(file.id) as reply:
        assert sum(map(len, reply.iter_bytes())) == LARGE - 100
    client.files.delete(file.id)
    assert resident(server) - before < LARGE // 2


def test_what_is_too_much_is_kept_nowhere(client: openai.OpenAI, s3: S3Server) -> None:
    before = listed(s3)
    with pytest.raises(openai.APIStatusError) as refused:
        client.files.create(file=("large", b"x" * (LARGE + 1)), purpose="user_data")
    assert (refused.value.status_code, refused.value.code) == (413, "file_too_large")
    assert listed(s3) == before
    uploads = urllib.request.urlopen(f"{s3.url}/{BUCKET}?uploads", timeout=20).read()
    assert b"<Upload>" not in uploads


def test_nothing_is_lost_when_a_process_is_killed(tmp_path: Path, s3: S3Server) -> None:
    with counting_vendor() as (counting, url):
        path = template(tmp_path, url)
        counting.hold.clear()
        process = ServerProcess(path, env=s3.environment)
        try:
            process.wait_until_ready()
            with client_of(process) as client:
                batch = ordered(client, [line(f"r{n}", "free") for n in range(40)])
                waited_for(client, batch, lambda _: counting.most >= 4)
            process.kill()
            counting.hold.set()
            process = ServerProcess(path, env=s3.environment, port=process.port)
            process.wait_until_ready()
            with client_of(process) as client:
                batch = waited_for(client, batch)
                assert len(results(client, batch.output_file_id)) == 40
                assert results(client, batch.error_file_id) == {}
        finally:
            process.kill()


def test_a_storage_that_is_gone_is_a_503_and_the_server_lives_on(tmp_path: Path) -> None:
    with (
        s3_server() as gone,
        running(template(tmp_path), env=gone.environment) as process,
        client_of(process) as client,
    ):
        file = client.files.create(file=("a", b"one"), purpose="user_data")
        gone.stop()
        with pytest.raises(openai.APIStatusError) as unread:
            client.files.content(file.id)
        with pytest.raises(openai.APIStatusError) as unwritten:
            client.files.create(file=("a", b"one"), purpose="user_data")
        codes = [unread.value.status_code, unwritten.value.status_code]
        assert codes == [503, 503]
        chat = client.chat.completions.create(
            model="echo", messages=[{"role": "user", "content": "Hi"}]
        )
        assert chat.choices[0].message.content == "Hi"


def test_a_bucket_that_can_t_be_used_is_said_at_the_start(tmp_path: Path) -> None:
    nowhere = {"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1", "AWS_MAX_ATTEMPTS": "1"}
    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
    process = ServerProcess(template(tmp_path), env={**keys, **nowhere})
    try:
        assert process.wait() == 1
        assert "server.files" in process.log
    finally:
        process.kill()
