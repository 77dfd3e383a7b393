"""Files, by Anthropic's own client: the same that OpenAI's has, and named in messages."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from tests.integration import wire
from tests.integration.server_process import ServerProcess, running
from tests.integration.test_files import ANN, BOB, LARGE, template

pytestmark = pytest.mark.server

PNG = b"\x89PNG\r\n\x1a\n and more"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running(template(tmp_path_factory.mktemp("files"), batches={})) as process:
        yield process


@pytest.fixture
def ann(server: ServerProcess) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key=ANN, max_retries=0) as client:
        yield client


@pytest.fixture
def bob(server: ServerProcess) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key=BOB, max_retries=0) as client:
        yield client


def text_of(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def test_a_file_from_upload_to_deletion(ann: anthropic.Anthropic) -> None:
    file = ann.beta.files.upload(file=("a.txt", b"one\ntwo\n", "text/plain"))
    assert (file.type, file.filename, file.mime_type) == ("file", "a.txt", "text/plain")
    assert (file.size_bytes, file.downloadable, file.expires_at) == (8, True, None)
    assert file._request_id
    assert ann.beta.files.retrieve_metadata(file.id) == file
    assert ann.beta.files.download(file.id).read() == b"one\ntwo\n"
    assert file.id in [each.id for each in ann.beta.files.list()]
    gone = ann.beta.files.delete(file.id)
    assert (gone.id, gone.type) == (file.id, "file_deleted")
    with pytest.raises(anthropic.NotFoundError) as caught:
        ann.beta.files.download(file.id)
    body: Any = caught.value.body
    assert (body["type"], body["error"]["type"]) == ("error", "not_found_error")
    assert file.id in body["error"]["message"]


def test_the_way_that_is_no_beta_any_more(ann: anthropic.Anthropic) -> None:
    file = ann.files.upload(file=("a.md", b"# A"), expires_in_seconds=7200)
    assert file.mime_type == "text/markdown"
    assert file.expires_at is not None
    assert (file.expires_at - file.created_at).total_seconds() == pytest.approx(7200)
    ann.files.delete(file.id)


@pytest.mark.parametrize("seconds", [3599, 90 * 86400 + 1])
def test_it_does_not_expire_at_any_time(ann: anthropic.Anthropic, seconds: int) -> None:
    with pytest.raises(anthropic.BadRequestError, match="expires_in_seconds"):
        ann.files.upload(file=b"x", expires_in_seconds=seconds)


def test_a_file_may_have_no_name(ann: anthropic.Anthropic) -> None:
    file = ann.files.upload(file=b"x")
    assert (file.filename, file.mime_type) == ("unnamed", "application/octet-stream")
    ann.files.delete(file.id)


def test_pages_go_on_until_all_are_there(ann: anthropic.Anthropic) -> None:
    made = [ann.beta.files.upload(file=(f"{n}.txt", b"x")).id for n in range(5)]
    assert [each.id for each in ann.beta.files.list(limit=2)] == made[::-1]
    page = ann.beta.files.list(limit=2)
    assert page.next_page == f"page_{made[3]}"
    # As clients turn pages that know of no `next_page`.
    older = ann.get(f"/v1/files?limit=2&after_id={made[3]}", cast_to=dict[str, Any])
    assert [each["id"] for each in older["data"]] == made[1:3][::-1]
    assert (older["has_more"], older["last_id"]) == (True, made[1])
    named = ann.beta.files.list(ids=[made[0], "file-none", made[4], made[0]])
    assert [each.id for each in named.data] == [made[0], made[4]]
    assert named.next_page is None
    for wrong in ({"page": "x"}, {"ids": [f"f{n}" for n in range(101)]}):
        with pytest.raises(anthropic.BadRequestError, match=f"'{next(iter(wrong))}'"):
            ann.beta.files.list(**wrong)  # type: ignore[arg-type]
    for each in made:
        ann.beta.files.delete(each)


def test_a_file_is_its_keys_alone_whose_client_ever_it_came_by(
    server: ServerProcess, ann: anthropic.Anthropic, bob: anthropic.Anthropic
) -> None:
    file = ann.beta.files.upload(file=("a.txt", b"secret", "text/plain"))
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=ANN, max_retries=0) as other:
        seen = other.files.retrieve(file.id)
        assert (seen.filename, seen.purpose, seen.bytes) == ("a.txt", "user_data", 6)
        uploaded = other.files.create(file=("b.txt", b"mine"), purpose="user_data")
        assert ann.beta.files.retrieve_metadata(uploaded.id).size_bytes == 4
        other.files.delete(uploaded.id)
    for attempt in (
        bob.beta.files.retrieve_metadata,
        bob.beta.files.download,
        bob.beta.files.delete,
    ):
        with pytest.raises(anthropic.NotFoundError):
            attempt(file.id)
    assert list(bob.beta.files.list()) == []
    with pytest.raises(anthropic.NotFoundError, match=file.id):
        ask(bob, file.id)
    ann.beta.files.delete(file.id)


def ask(client: anthropic.Anthropic, *ids: str) -> Any:
    blocks: list[Any] = [
        {"type": "document", "source": {"type": "file", "file_id": each}} for each in ids
    ]
    return client.beta.messages.create(
        model="echo",
        max_tokens=100,
        messages=[{"role": "user", "content": [{"type": "text", "text": "Read: "}, *blocks]}],
        betas=["files-api-2025-04-14"],
    )


def test_what_was_uploaded_is_read_in_messages(ann: anthropic.Anthropic) -> None:
    file = ann.beta.files.upload(file=("a.txt", b"the moon is far", "text/plain"))
    said = ask(ann, file.id)
    assert "the moon is far" in text_of(said)
    counted = ann.beta.messages.count_tokens(
        model="echo",
        messages=[
            {
                "role": "user",
                "content": [{"type": "document", "source": {"type": "file", "file_id": file.id}}],
            }
        ],
    )
    assert counted.input_tokens >= 4
    ann.beta.files.delete(file.id)
    with pytest.raises(anthropic.NotFoundError, match=file.id):
        ask(ann, file.id)


def test_a_file_of_no_use_there_is_refused(ann: anthropic.Anthropic) -> None:
    file = ann.beta.files.upload(file=("a.zip", b"PK\xff\xfe"))
    with pytest.raises(anthropic.BadRequestError, match="application/zip"):
        ask(ann, file.id)
    ann.beta.files.delete(file.id)


def test_larger_than_a_request_may_be_is_told(ann: anthropic.Anthropic) -> None:
    file = ann.beta.files.upload(file=("a.txt", b"x" * ((1 << 20) + 1), "text/plain"))
    with pytest.raises(anthropic.RequestTooLargeError, match="bytes together"):
        ask(ann, file.id)
    ann.beta.files.delete(file.id)


def test_a_file_that_is_too_large_is_refused_while_it_comes(ann: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.RequestTooLargeError):
        ann.beta.files.upload(file=("a.bin", bytes(LARGE + 1)))


def test_batches_of_messages_read_them_too(ann: anthropic.Anthropic) -> None:
    file = ann.beta.files.upload(file=("a.txt", b"the sun is near", "text/plain"))
    source = {"type": "file", "file_id": file.id}
    content: Any = [{"type": "document", "source": source}]
    params: Any = {
        "model": "echo",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": content}],
    }
    batch = ann.messages.batches.create(requests=[{"custom_id": "a", "params": params}])
    wire.eventually(
        lambda: ann.messages.batches.retrieve(batch.id).processing_status == "ended",
        seconds=60,
    )
    (result,) = ann.messages.batches.results(batch.id)
    assert result.result.type == "succeeded"
    assert "the sun is near" in text_of(result.result.message)
    ann.beta.files.delete(file.id)


def test_a_picture_goes_to_a_model_as_one(ann: anthropic.Anthropic) -> None:
    file = ann.beta.files.upload(file=("a.png", PNG, "image/png"))
    inline = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PNG).decode()}
    told = []
    for source in ({"type": "file", "file_id": file.id}, inline):
        content: Any = [{"type": "image", "source": source}, {"type": "text", "text": "Hm"}]
        try:
            said = ann.beta.messages.create(
                model="echo", max_tokens=9, messages=[{"role": "user", "content": content}]
            )
            told.append(text_of(said))
        except anthropic.BadRequestError as error:
            body: Any = error.body
            told.append(body["error"]["message"])
    # The echo sees no pictures: what it says of one is the same, whichever way it came.
    assert told[0] == told[1]
    ann.beta.files.delete(file.id)
