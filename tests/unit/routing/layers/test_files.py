"""Files that requests name: whose they are, how large they may be, and what goes on instead."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace

from llama_compat.dialects.anthropic_messages.operations import COUNT_TOKENS, MESSAGES
from llama_compat.dialects.base import Operation
from llama_compat.dialects.openai.operations import CHAT
from llama_compat.dialects.openai_responses.operations import RESPONSES
from llama_compat.errors import APIError
from llama_compat.exchange import Call, Principal, Reply
from llama_compat.off_loop import LARGE_BYTES
from llama_compat.wire.json_fields import from_raw
from routing.batches.files import HIDDEN, FileStore
from routing.layers.files import FilesLayer
from routing.request import Request
from tests.unit.calls import call_of
from tests.unit.routing.batches.test_files import opened, put

PDF = "data:application/pdf;base64,JVBERi0xLjc="

GONE = f"file-{'0' * 24}"


@pytest_asyncio.fixture
async def files(tmp_path: Path) -> AsyncIterator[FileStore]:
    async with opened(tmp_path, f"sqlite:{tmp_path / 'a.sqlite'}") as store:
        yield store


def naming(*ids: str, text: str = "Hi") -> dict[str, Any]:
    blocks = [{"type": "document", "source": {"type": "file", "file_id": each}} for each in ids]
    content = [{"type": "text", "text": text}, *blocks]
    return {"max_tokens": 1, "messages": [{"role": "user", "content": content}]}


async def passed(
    files: FileStore,
    body: dict[str, Any],
    operation: Operation = MESSAGES,
    *,
    key: str = "ann",
    most: int = 1000,
) -> tuple[Call, Call]:
    """The call before and behind the layer."""
    seen: list[Call] = []

    async def next_layer(request: Request) -> Reply:
        assert request.call is not None
        seen.append(request.call)
        return Reply(b"{}")

    call = replace(call_of(body, operation), principal=Principal(key))
    request = Request(operation, "req", call=call)
    await FilesLayer(next_layer, files, most)(request)
    return call, seen[0]


def sources(call: Call) -> list[Any]:
    (message,) = from_raw(call.fields["messages"])
    return [block["source"] for block in message["content"] if "source" in block]


@pytest.mark.parametrize("operation", [MESSAGES, COUNT_TOKENS])
@pytest.mark.parametrize("text", ["Hi", "x" * LARGE_BYTES])
async def test_what_is_in_a_file_goes_on_in_its_place(
    files: FileStore, operation: Operation, text: str
) -> None:
    one, other = await put(files, "ann", b"one"), await put(files, "ann", b"other")
    before, after = await passed(files, naming(one.id, other.id, text=text), operation)
    assert [each["data"] for each in sources(after)] == ["one", "other"]
    # The call that came is what it was: records have it, and what was read of it is remembered.
    assert [each["file_id"] for each in sources(before)] == [one.id, other.id]
    assert before.fields.keys() == after.fields.keys()


@pytest.mark.parametrize(
    ("operation", "member", "part", "expected"),
    [
        (
            CHAT,
            "messages",
            lambda file_id: {"type": "file", "file": {"file_id": file_id}},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": PDF}},
        ),
        (
            RESPONSES,
            "input",
            lambda file_id: {"type": "input_file", "file_id": file_id},
            {"type": "input_file", "filename": "a.pdf", "file_data": PDF},
        ),
    ],
)
async def test_openais_clients_name_files_too(
    files: FileStore,
    operation: Operation,
    member: str,
    part: Callable[[str], dict[str, Any]],
    expected: dict[str, Any],
) -> None:
    file = await put(files, "ann", b"%PDF-1.7", name="a.pdf")
    body = {member: [{"role": "user", "content": [part(file.id)]}]}
    _, after = await passed(files, body, operation)
    assert from_raw(after.fields[member])[0]["content"] == [expected]


@pytest.mark.parametrize(
    ("body", "operation"),
    [
        (naming(), MESSAGES),
        (naming("file_011CNha8iCJcU1wXNR6q4V8w"), MESSAGES),
        (naming(text="what is a file_id?"), MESSAGES),
        (naming(text="file_id" + "x" * LARGE_BYTES), MESSAGES),
        ({"max_tokens": 1, "messages": ["file_id", None]}, MESSAGES),
        (naming(GONE), CHAT),
    ],
)
async def test_what_names_none_of_this_servers_is_not_touched(
    files: FileStore, body: dict[str, Any], operation: Operation
) -> None:
    before, after = await passed(files, body, operation)
    assert after is before


async def test_a_file_of_another_key_a_hidden_and_a_deleted_one_are_not_found(
    files: FileStore,
) -> None:
    own, hidden = await put(files, "ann"), await put(files, "ann", purpose=HIDDEN)
    for key, file_id in (("bob", own.id), ("ann", hidden.id), ("ann", GONE)):
        with pytest.raises(APIError, match=file_id) as caught:
            await passed(files, naming(file_id), key=key)
        assert (caught.value.status, caught.value.code) == (404, "file_not_found")


async def test_the_files_of_a_request_have_a_bound_together(files: FileStore) -> None:
    one = await put(files, "ann", b"x" * 60)
    _, after = await passed(files, naming(one.id), most=100)
    assert len(sources(after)) == 1
    with pytest.raises(APIError, match="100 bytes together") as caught:
        await passed(files, naming(one.id, one.id), most=100)
    assert (caught.value.status, caught.value.code) == (413, "file_too_large")
