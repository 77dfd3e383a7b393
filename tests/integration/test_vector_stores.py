"""Vector stores, by OpenAI's own client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.integration.server_process import ServerProcess, running, write_template
from tests.integration.vector_storing import (
    ANN,
    BOB,
    EmbeddingVendor,
    client_of,
    store_template,
    until,
    uploaded,
)

pytest.importorskip("numpy", reason="needs the extra 'vector-stores'")

pytestmark = pytest.mark.server

POLL = 50
"""Milliseconds between two looks of the client."""


@pytest.fixture(scope="module")
def vendor() -> Iterator[EmbeddingVendor]:
    with EmbeddingVendor() as vendor:
        yield vendor


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def server(
    request: pytest.FixtureRequest, vendor: EmbeddingVendor, tmp_path_factory: Any
) -> Iterator[ServerProcess]:
    storage = ""
    if request.param == "postgres":
        storage = request.getfixturevalue("postgres_server").new_database()
    template = store_template(tmp_path_factory.mktemp("stores"), vendor, storage)
    with running(template) as process:
        yield process


@pytest.fixture
def ann(server: ServerProcess) -> Iterator[openai.OpenAI]:
    with client_of(server) as client:
        yield client


@pytest.fixture
def bob(server: ServerProcess) -> Iterator[openai.OpenAI]:
    with client_of(server, BOB) as client:
        yield client


def filled(client: openai.OpenAI, **files: str) -> str:
    """A store with these files, which have been read."""
    store = client.vector_stores.create(name="filled")
    ids = [uploaded(client, f"{name}.txt", text) for name, text in files.items()]
    batch = client.vector_stores.file_batches.create_and_poll(
        store.id, file_ids=ids, poll_interval_ms=POLL
    )
    assert batch.file_counts.completed == len(files)
    return store.id


def test_a_store_from_its_making_to_its_end(ann: openai.OpenAI) -> None:
    store = ann.vector_stores.create(
        name="papers",
        description="of last year",
        metadata={"a": "b"},
        expires_after={"anchor": "last_active_at", "days": 7},
    )
    assert store.id.startswith("vs_")
    assert (store.name, store.object, store.status) == ("papers", "vector_store", "completed")
    assert store.metadata == {"a": "b"}
    assert store.file_counts.total == store.usage_bytes == 0
    assert store.last_active_at is not None
    assert store.expires_at == store.last_active_at + 7 * 86400
    assert ann.vector_stores.retrieve(store.id) == store
    changed = ann.vector_stores.update(
        store.id, name="other", metadata={"c": "d"}, expires_after=None
    )
    assert (changed.name, changed.metadata, changed.expires_at) == ("other", {"c": "d"}, None)
    assert store.id in [each.id for each in ann.vector_stores.list()]
    assert ann.vector_stores.delete(store.id).deleted
    with pytest.raises(openai.NotFoundError) as caught:
        ann.vector_stores.retrieve(store.id)
    assert caught.value.code == "vector_store_not_found"


def test_pages_in_both_directions(bob: openai.OpenAI) -> None:
    made = [bob.vector_stores.create(name=str(number)).id for number in range(5)]
    page = bob.vector_stores.list(limit=2, order="asc")
    assert [each.id for each in page] == made
    assert [each.id for each in page.data] == made[:2]
    assert page.has_more
    newest = bob.vector_stores.list(limit=2)
    assert [each.id for each in newest.data] == made[:2:-1]
    before = bob.vector_stores.list(limit=2, order="asc", before=made[4])
    assert [each.id for each in before.data] == made[2:4]
    for each in made:
        bob.vector_stores.delete(each)


def test_a_file_is_read_and_found(ann: openai.OpenAI, vendor: EmbeddingVendor) -> None:
    store = ann.vector_stores.create(name="s")
    file = ann.vector_stores.files.upload_and_poll(
        vector_store_id=store.id,
        file=("cars.md", b"# Cars\n\nAn automobile has four wheels."),
        poll_interval_ms=POLL,
    )
    assert (file.status, file.object, file.last_error) == ("completed", "vector_store.file", None)
    assert file.usage_bytes > 0
    strategy: Any = file.chunking_strategy
    assert strategy.static.max_chunk_size_tokens == 800
    assert strategy.static.chunk_overlap_tokens == 400
    content = ann.vector_stores.files.content(file.id, vector_store_id=store.id)
    assert [each.text for each in content] == ["# Cars\n\nAn automobile has four wheels."]
    now = ann.vector_stores.retrieve(store.id)
    assert (now.status, now.file_counts.completed) == ("completed", 1)
    assert now.usage_bytes == file.usage_bytes
    (found,) = ann.vector_stores.search(store.id, query="car")
    assert (found.file_id, found.filename) == (file.id, "cars.md")
    assert found.content[0].text.endswith("four wheels.")
    assert 0 < found.score <= 1
    assert [each.id for each in ann.vector_stores.files.list(store.id)] == [file.id]
    assert ann.vector_stores.files.delete(file.id, vector_store_id=store.id).deleted
    assert list(ann.vector_stores.search(store.id, query="car")) == []
    assert ann.files.retrieve(file.id).filename == "cars.md"
    with pytest.raises(openai.NotFoundError):
        ann.vector_stores.files.retrieve(file.id, vector_store_id=store.id)


def test_words_and_meaning_both_count(ann: openai.OpenAI) -> None:
    store = filled(
        ann,
        meaning="a kitten sleeps",
        word="xk7 is the code of a thing that purrs not",
        neither="the weather in spring was cold and wet and long",
    )

    def order(query: str, **options: Any) -> list[str]:
        found = ann.vector_stores.search(store, query=query, ranking_options=options or openai.omit)
        scores = [each.score for each in found]
        assert scores == sorted(scores, reverse=True)
        assert all(0 <= score <= 1 for score in scores)
        return [each.filename for each in found]

    assert order("feline")[0] == "meaning.txt"
    assert order("xk7")[0] == "word.txt"
    assert order("feline xk7", hybrid_search={"embedding_weight": 0, "text_weight": 1}) == [
        "word.txt"
    ]
    assert order("feline", ranker="none")[0] == "meaning.txt"
    assert order("feline", ranker="none", score_threshold=0.5) == ["meaning.txt"]
    assert order("feline", score_threshold=1.0) == ["meaning.txt"]
    several = ann.vector_stores.search(store, query=["feline", "xk7"], max_num_results=2)
    assert {each.filename for each in several} == {"meaning.txt", "word.txt"}


def test_filters_say_which_files(ann: openai.OpenAI) -> None:
    store = ann.vector_stores.create(name="s")
    years = {2020: uploaded(ann, "old.txt", "a report"), 2024: uploaded(ann, "new.txt", "a report")}
    for year, file in years.items():
        ann.vector_stores.files.create_and_poll(
            file, vector_store_id=store.id, attributes={"year": year}, poll_interval_ms=POLL
        )

    def found(filters: Any) -> set[str]:
        return {each.filename for each in ann.vector_stores.search(
            store.id, query="report", filters=filters
        )}  # fmt: skip

    newer: Any = {"type": "gt", "key": "year", "value": 2021}
    assert found(newer) == {"new.txt"}
    assert found({"type": "or", "filters": [newer, {"type": "eq", "key": "year", "value": 2020}]})
    assert found({"type": "in", "key": "year", "value": [1999]}) == set()
    changed = ann.vector_stores.files.update(
        years[2020], vector_store_id=store.id, attributes={"year": 2030, "ours": True}
    )
    assert changed.attributes == {"year": 2030, "ours": True}
    assert found(newer) == {"new.txt", "old.txt"}
    (one,) = ann.vector_stores.search(
        store.id, query="report", filters={"type": "eq", "key": "ours", "value": True}
    )
    assert one.attributes == {"year": 2030, "ours": True}


def test_files_with_settings_of_their_own(ann: openai.OpenAI) -> None:
    store = ann.vector_stores.create(name="s")
    static: Any = {
        "type": "static",
        "static": {"max_chunk_size_tokens": 100, "chunk_overlap_tokens": 20},
    }
    text = " ".join(f"word{number}" for number in range(150))
    first, second = uploaded(ann, "a.txt", text), uploaded(ann, "b.txt", "short")
    batch = ann.vector_stores.file_batches.create(
        store.id,
        files=[
            {"file_id": first, "chunking_strategy": static, "attributes": {"n": 1}},
            {"file_id": second},
        ],
    )
    batch = ann.vector_stores.file_batches.poll(
        batch.id, vector_store_id=store.id, poll_interval_ms=POLL
    )
    assert (batch.status, batch.file_counts.completed) == ("completed", 2)
    assert batch.object == "vector_store.files_batch"
    files = {
        each.id: each
        for each in ann.vector_stores.file_batches.list_files(batch.id, vector_store_id=store.id)
    }
    assert set(files) == {first, second}
    assert files[first].attributes == {"n": 1}
    content = list(ann.vector_stores.files.content(first, vector_store_id=store.id))
    assert len(content) > 2
    assert "".join(str(each.text) for each in content) == text


def test_files_are_uploaded_together(ann: openai.OpenAI) -> None:
    store = ann.vector_stores.create(name="s")
    batch = ann.vector_stores.file_batches.upload_and_poll(
        store.id,
        files=[(f"{number}.md", f"text {number}".encode()) for number in range(3)],
        poll_interval_ms=POLL,
    )
    assert (batch.status, batch.file_counts.completed) == ("completed", 3)
    found = ann.vector_stores.search(store.id, query="text 2", max_num_results=1)
    assert [each.filename for each in found] == ["2.md"]


def test_others_find_nothing(ann: openai.OpenAI, bob: openai.OpenAI) -> None:
    store = filled(ann, secret="the secret")
    (file,) = ann.vector_stores.files.list(store)
    own = bob.vector_stores.create(name="bob's").id
    attempts: list[Any] = [
        lambda: bob.vector_stores.retrieve(store),
        lambda: bob.vector_stores.update(store, name="mine"),
        lambda: bob.vector_stores.delete(store),
        lambda: bob.vector_stores.search(store, query="secret"),
        lambda: bob.vector_stores.files.list(store),
        lambda: bob.vector_stores.files.retrieve(file.id, vector_store_id=store),
        lambda: bob.vector_stores.files.content(file.id, vector_store_id=store),
        lambda: bob.vector_stores.files.delete(file.id, vector_store_id=store),
        lambda: bob.vector_stores.files.update(
            file.id, vector_store_id=store, attributes={"mine": True}
        ),
        lambda: bob.vector_stores.files.create(own, file_id=file.id),
        lambda: bob.vector_stores.files.create(store, file_id=uploaded(bob, "a", "x")),
        lambda: bob.vector_stores.file_batches.create(own, file_ids=[file.id]),
        lambda: bob.vector_stores.create(file_ids=[file.id]),
        lambda: bob.vector_stores.files.retrieve(file.id, vector_store_id=own),
    ]
    for attempt in attempts:
        with pytest.raises(openai.NotFoundError):
            attempt()
    assert store not in [each.id for each in bob.vector_stores.list()]
    assert len(list(ann.vector_stores.search(store, query="secret"))) == 1


def test_a_file_that_has_no_text_says_why(ann: openai.OpenAI) -> None:
    store = ann.vector_stores.create(name="s")
    picture = uploaded(ann, "a.png", b"\x89PNG\r\n\x1a\n\x00")
    file = ann.vector_stores.files.create_and_poll(
        picture, vector_store_id=store.id, poll_interval_ms=POLL
    )
    assert file.status == "failed"
    assert file.last_error is not None
    assert file.last_error.code == "unsupported_file"
    assert "UTF-8" in file.last_error.message
    batch = ann.vector_stores.file_batches.create_and_poll(
        store.id, file_ids=[picture], poll_interval_ms=POLL
    )
    assert (batch.status, batch.file_counts.failed) == ("failed", 1)
    with pytest.raises(openai.ConflictError):
        ann.vector_stores.files.content(picture, vector_store_id=store.id)
    failed = ann.vector_stores.files.list(store.id, filter="failed")
    assert [each.id for each in failed] == [picture]


def test_a_deleted_file_is_in_no_store(ann: openai.OpenAI, vendor: EmbeddingVendor) -> None:
    store = filled(ann, kept="one thing", gone="one other thing")
    (gone,) = [
        each.id
        for each in ann.vector_stores.files.list(store)
        if ann.files.retrieve(each.id).filename == "gone.txt"
    ]
    ann.files.delete(gone)
    found = ann.vector_stores.search(store, query="thing")
    assert [each.filename for each in found] == ["kept.txt"]
    assert ann.vector_stores.retrieve(store).file_counts.total == 1


def test_a_file_is_deleted_while_it_is_read(ann: openai.OpenAI, vendor: EmbeddingVendor) -> None:
    store = ann.vector_stores.create(name="s")
    file = uploaded(ann, "a.txt", "never found")
    vendor.open.clear()
    try:
        asked = vendor.asked
        ann.vector_stores.files.create(store.id, file_id=file)
        until(lambda: vendor.asked > asked)
        assert ann.vector_stores.retrieve(store.id).status == "in_progress"
        ann.files.delete(file)
        assert ann.vector_stores.retrieve(store.id).file_counts.total == 0
    finally:
        vendor.open.set()
    after = filled(ann, other="something else")  # by now it would have been written
    assert list(ann.vector_stores.search(store.id, query="never found")) == []
    assert len(list(ann.vector_stores.search(after, query="something"))) == 1


def test_a_batch_is_cancelled(ann: openai.OpenAI, vendor: EmbeddingVendor) -> None:
    store = ann.vector_stores.create(name="s")
    files = [uploaded(ann, f"{number}.txt", f"number {number}") for number in range(5)]
    vendor.open.clear()
    try:
        batch = ann.vector_stores.file_batches.create(store.id, file_ids=files)
        assert (batch.status, batch.file_counts.in_progress) == ("in_progress", 5)
        ended = ann.vector_stores.file_batches.cancel(batch.id, vector_store_id=store.id)
        assert (ended.status, ended.file_counts.cancelled) == ("cancelled", 5)
    finally:
        vendor.open.set()
    assert list(ann.vector_stores.search(store.id, query="number")) == []


def test_the_embedding_model_is_away_for_a_while(
    ann: openai.OpenAI, vendor: EmbeddingVendor
) -> None:
    store, full = ann.vector_stores.create(name="s"), filled(ann, something="is there")
    vendor.failing = 503
    try:
        asked = vendor.asked
        file = uploaded(ann, "a.txt", "patience")
        ann.vector_stores.files.create(store.id, file_id=file)
        until(lambda: vendor.asked > asked)
        assert ann.vector_stores.files.retrieve(file, vector_store_id=store.id).status == (
            "in_progress"
        )
        with pytest.raises(openai.APIStatusError) as caught:
            ann.vector_stores.search(full, query="x")
        assert caught.value.status_code >= 500
    finally:
        vendor.failing = 0
    done = ann.vector_stores.files.poll(file, vector_store_id=store.id, poll_interval_ms=POLL)
    assert done.status == "completed"


def test_who_gets_on_is_not_given_up(vendor: EmbeddingVendor, tmp_path: Path) -> None:
    template = store_template(tmp_path, vendor, vector_stores={"embed_together": 1, "attempts": 2})
    text = "word " * 800 * 2
    with running(template) as server, client_of(server) as ann:
        store = ann.vector_stores.create(name="s")
        vendor.busy = 2
        try:
            file = ann.vector_stores.files.upload_and_poll(
                vector_store_id=store.id, file=("a.txt", text.encode()), poll_interval_ms=POLL
            )
        finally:
            vendor.busy = 0
        assert (file.status, file.last_error) == ("completed", None)


def test_one_that_refuses_fails_the_file(ann: openai.OpenAI, vendor: EmbeddingVendor) -> None:
    store = ann.vector_stores.create(name="s")
    vendor.failing = 400
    try:
        file = ann.vector_stores.files.upload_and_poll(
            vector_store_id=store.id, file=("a.txt", b"too long"), poll_interval_ms=POLL
        )
    finally:
        vendor.failing = 0
    assert file.status == "failed"
    assert file.last_error is not None
    assert file.last_error.code == "server_error"
    assert "not now" in file.last_error.message


def nested(depth: int) -> Any:
    filter: Any = {"type": "eq", "key": "a", "value": 1}
    for _ in range(depth):
        filter = {"type": "and", "filters": [filter]}
    return filter


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/{store}/search", {"query": "x", "filters": nested(300)}, "filters"),
        ("/{store}/files", {"file_id": "x", "attributes": {"a": 10**30}}, "attributes.a"),
        ("", {"expires_after": {"anchor": "created_at", "days": 1}}, "expires_after.anchor"),
        ("", {"expires_after": {"anchor": "last_active_at"}}, "expires_after.days"),
        ("", {"metadata": {"a": 1}}, "metadata"),
        ("", {"name": 5}, "name"),
        ("/{store}/search", {}, "query"),
        ("/{store}/search", {"query": ""}, "query"),
        ("/{store}/search", {"query": "x", "max_num_results": 51}, "max_num_results"),
        ("/{store}/search", {"query": "x", "rewrite_query": True}, "rewrite_query"),
        ("/{store}/search", {"query": "x", "filters": {"type": "no"}}, "filters.type"),
        (
            "/{store}/search",
            {"query": "x", "ranking_options": {"score_threshold": 2}},
            "ranking_options.score_threshold",
        ),
        ("/{store}/files", {}, "file_id"),
        (
            "/{store}/files",
            {"file_id": "x", "chunking_strategy": {"type": "static", "static": {}}},
            "chunking_strategy.static.max_chunk_size_tokens",
        ),
        (
            "/{store}/files",
            {
                "file_id": "x",
                "chunking_strategy": {
                    "type": "static",
                    "static": {"max_chunk_size_tokens": 100, "chunk_overlap_tokens": 51},
                },
            },
            "chunking_strategy.static.chunk_overlap_tokens",
        ),
        ("/{store}/file_batches", {}, "file_ids"),
        ("/{store}/file_batches", {"file_ids": ["x"], "files": []}, "files"),
    ],
)
def test_what_is_wrong_is_named(
    ann: openai.OpenAI, path: str, body: dict[str, Any], param: str
) -> None:
    store = ann.vector_stores.create(name="s")
    url = f"{ann.base_url}vector_stores{path.replace('{store}', store.id)}"
    reply = ann._client.post(url, json=body, headers={"authorization": f"Bearer {ANN}"})
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"] == param


def test_a_server_without_stores_says_how_to_have_them(tmp_path: Path) -> None:
    template = write_template(
        tmp_path / "echo.yaml",
        providers=[{"id": "echo", "type": "local::echo"}],
        models=[{"id": "echo", "provider": "echo"}],
    )
    with running(template) as server, client_of(server) as client:
        with pytest.raises(openai.NotFoundError) as caught:
            client.vector_stores.list()
        assert caught.value.code == "vector_stores_disabled"
        assert "server.vector_stores" in caught.value.message


def test_a_key_has_bounds(vendor: EmbeddingVendor, tmp_path: Path) -> None:
    bounds = {"max_key_stores": 2, "max_key_chunks": 1, "max_file_bytes": 100}
    template = store_template(tmp_path, vendor, vector_stores=bounds)
    with running(template) as server, client_of(server) as ann:
        stores = [ann.vector_stores.create(name="s").id for _ in range(2)]
        with pytest.raises(openai.APIStatusError) as caught:
            ann.vector_stores.create(name="s")
        assert (caught.value.status_code, caught.value.code) == (413, "too_many_vector_stores")
        large = ann.vector_stores.files.upload_and_poll(
            vector_store_id=stores[0], file=("a.txt", b"x" * 101), poll_interval_ms=POLL
        )
        assert large.last_error is not None
        assert "101 bytes" in large.last_error.message
        ann.vector_stores.files.upload_and_poll(
            vector_store_id=stores[0], file=("b.txt", b"one"), poll_interval_ms=POLL
        )
        with pytest.raises(openai.APIStatusError) as caught:
            ann.vector_stores.files.create(stores[1], file_id=uploaded(ann, "c.txt", "two"))
        assert (caught.value.status_code, caught.value.code) == (413, "vector_stores_too_large")


@pytest.mark.parametrize("storage", ["sqlite", "postgres"])
def test_what_is_begun_survives_a_kill(
    vendor: EmbeddingVendor, tmp_path: Path, storage: str, request: pytest.FixtureRequest
) -> None:
    address = ""
    if storage == "postgres":
        address = request.getfixturevalue("postgres_database")
    template = store_template(tmp_path, vendor, address, vector_stores={"embed_together": 1})
    text = "\n\n".join(f"part {number} " + "word " * 790 for number in range(12))
    vendor.embedded.clear()
    server = ServerProcess(template)
    try:
        server.wait_until_ready()
        with client_of(server) as ann:
            store = ann.vector_stores.create(name="s")
            file = uploaded(ann, "a.txt", text)
            ann.vector_stores.files.create(store.id, file_id=file)
            until(lambda: len(vendor.embedded) > 3)
        server.kill()
        server = ServerProcess(template, port=server.port)
        server.wait_until_ready()
        with client_of(server) as ann:
            done = ann.vector_stores.files.poll(
                file, vector_store_id=store.id, poll_interval_ms=POLL
            )
            assert done.status == "completed"
            content = ann.vector_stores.files.content(file, vector_store_id=store.id)
            assert "".join(str(each.text) for each in content) == text
            (first, *_) = ann.vector_stores.search(store.id, query="part 7", max_num_results=1)
            assert "part 7" in first.content[0].text
    finally:
        server.kill()
    # What was written is not paid for again, but for the one that was on its way.
    assert len(vendor.embedded) <= len(set(vendor.embedded)) + 2


def test_servers_share_the_work(
    vendor: EmbeddingVendor, postgres_database: str, tmp_path: Path
) -> None:
    # Nobody dies here, however long one is busy.
    lasting = {"lease_seconds": 60}
    template = store_template(tmp_path, vendor, postgres_database, vector_stores=lasting)
    vendor.embedded.clear()
    with (
        running(template) as one,
        running(template) as two,
        client_of(one) as here,
        client_of(two) as there,
    ):
        store = here.vector_stores.create(name="shared")
        files = [uploaded(here, f"{n}.txt", f"shared text {n}") for n in range(12)]
        batch = here.vector_stores.file_batches.create_and_poll(
            store.id, file_ids=files, poll_interval_ms=POLL
        )
        assert batch.file_counts.completed == 12
        found = there.vector_stores.search(store.id, query="shared text 7", max_num_results=20)
        assert len(list(found)) == 12
    own = [text for text in vendor.embedded if text in {f"shared text {n}" for n in range(12)}]
    assert sorted(set(own)) == sorted(f"shared text {n}" for n in range(12))
    assert len(own) <= 13  # the query is one of them
