"""Models that search files of vector stores, by the official SDKs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from google import genai
from google.genai import errors
from google.genai import types as google

from tests.clients.scripted_models import Asked, Said
from tests.integration.server_process import ServerProcess, running
from tests.integration.vector_storing import (
    ANN,
    BOB,
    NOBODY,
    EmbeddingVendor,
    client_of,
    store_template,
    uploaded,
)

pytest.importorskip("numpy", reason="needs the extra 'vector-stores'")

pytestmark = pytest.mark.server

RESULTS = "file_search_call.results"


def model(asked: Asked) -> Said:
    """One that searches what it is told to, and then names the first file that it got."""
    told = asked.texts[-1]
    if told.startswith("search ") and "file_search" in asked.tools and not asked.outputs:
        return Said("Let me see. ", [("file_search", {"query": told.removeprefix("search ")})])
    if told.startswith("forever"):
        return Said("", [("file_search", {"query": "car"})] if asked.tools else [])
    if asked.outputs and "ID: " in asked.outputs[-1]:
        file_id = asked.outputs[-1].split("ID: ")[1].split()[0]
        return Said(f"Four wheels [cars.txt]({file_id}), it says.")
    return Said(" | ".join(asked.outputs) or "Nothing to say.")


@pytest.fixture(scope="module")
def vendor() -> Iterator[EmbeddingVendor]:
    with EmbeddingVendor(model) as vendor:
        yield vendor


@pytest.fixture(scope="module")
def server(vendor: EmbeddingVendor, tmp_path_factory: Any) -> Iterator[ServerProcess]:
    template = store_template(
        tmp_path_factory.mktemp("search"),
        vendor,
        tools={"file_search": {"max_uses": 2}},
        records={},
        cache={"exact": {"share": "all", "tools": True, "sampled": True}},
    )
    with running(template) as process:
        yield process


@pytest.fixture(scope="module")
def store(server: ServerProcess) -> str:
    with client_of(server) as ann:
        store = ann.vector_stores.create(name="cars")
        for name, text in (
            ("cars", "An automobile has four wheels."),
            ("cats", "A kitten sleeps all day."),
        ):
            file = ann.vector_stores.files.create_and_poll(
                uploaded(ann, f"{name}.txt", text),
                vector_store_id=store.id,
                attributes={"about": name},
                poll_interval_ms=50,
            )
            assert file.status == "completed"
        return store.id


@pytest.fixture
def ann(server: ServerProcess) -> Iterator[openai.OpenAI]:
    with client_of(server) as client:
        yield client


def tool_for(store: str, **more: Any) -> Any:
    return {"type": "file_search", "vector_store_ids": [store], **more}


def test_a_response_shows_the_search_and_cites(ann: openai.OpenAI, store: str) -> None:
    response = ann.responses.create(
        model="m", input="search car", tools=[tool_for(store)], include=[RESULTS]
    )
    assert [item.type for item in response.output] == ["message", "file_search_call", "message"]
    call: Any = response.output[1]
    assert (call.status, call.queries) == ("completed", ["car"])
    assert call.id.startswith("fs_")
    best = call.results[0]
    assert (best.filename, best.text) == ("cars.txt", "An automobile has four wheels.")
    assert best.attributes == {"about": "cars"}
    assert 0 < best.score <= 1
    said: Any = response.output[2]
    text, (cited,) = said.content[0].text, said.content[0].annotations
    assert (cited.type, cited.filename, cited.file_id) == (
        "file_citation",
        "cars.txt",
        best.file_id,
    )
    assert text[: cited.index].endswith(f"[cars.txt]({best.file_id})")
    assert [tool.type for tool in response.tools] == ["file_search"]


def test_results_are_shown_to_who_wants_them(ann: openai.OpenAI, store: str) -> None:
    response = ann.responses.create(model="m", input="search car", tools=[tool_for(store)])
    call: Any = response.output[1]
    assert call.results is None


def test_a_streamed_response_is_the_same_as_a_whole_one(ann: openai.OpenAI, store: str) -> None:
    asked: Any = {
        "model": "m",
        "input": "search car",
        "tools": [tool_for(store)],
        "include": [RESULTS],
    }
    with ann.responses.stream(**asked) as stream:
        events = list(stream)
        streamed = stream.get_final_response()
    types: list[str] = [event.type for event in events]
    order = [
        "response.file_search_call.in_progress",
        "response.file_search_call.searching",
        "response.file_search_call.completed",
        "response.output_text.annotation.added",
        "response.completed",
    ]
    assert [types.index(each) for each in order] == sorted(types.index(each) for each in order)
    whole = ann.responses.create(**asked)
    assert [_without_ids(item) for item in streamed.output] == [
        _without_ids(item) for item in whole.output
    ]


def _without_ids(item: Any) -> Any:
    told = item.model_dump()
    for part in told.get("content") or ():
        part.pop("parsed", None)
    return {name: value for name, value in told.items() if name != "id"}


def test_what_the_request_says_of_the_search_holds(ann: openai.OpenAI, store: str) -> None:
    def found(**more: Any) -> list[str]:
        response = ann.responses.create(
            model="m", input="search car", tools=[tool_for(store, **more)], include=[RESULTS]
        )
        call: Any = next(item for item in response.output if item.type == "file_search_call")
        return [each.filename for each in call.results]

    assert len(found()) == 2
    assert found(max_num_results=1) == ["cars.txt"]
    assert found(filters={"type": "eq", "key": "about", "value": "cats"}) == ["cats.txt"]
    assert found(filters={"type": "eq", "key": "about", "value": "dogs"}) == []
    assert found(ranking_options={"score_threshold": 1.0}) == ["cars.txt"]


def test_what_was_shown_comes_back_in_the_next_request(ann: openai.OpenAI, store: str) -> None:
    first = ann.responses.create(
        model="m", input="search car", tools=[tool_for(store)], include=[RESULTS]
    )
    items: Any = [{"role": "user", "content": "search car"}, *first.output]
    again = ann.responses.create(
        model="m", input=[*items, {"role": "user", "content": "well"}], tools=[tool_for(store)]
    )
    assert again.output_text == "Nothing to say."


def test_no_more_searches_than_the_template_lets(ann: openai.OpenAI, store: str) -> None:
    response = ann.responses.create(model="m", input="forever", tools=[tool_for(store)])
    calls: list[Any] = [item for item in response.output if item.type == "file_search_call"]
    assert [each.status for each in calls[:3]] == ["completed", "completed", "failed"]


def test_others_stores_are_not_searched(server: ServerProcess, store: str) -> None:
    with client_of(server, BOB) as bob:
        asked: Any = {"model": "m", "input": "search car", "tools": [tool_for(store)]}
        with pytest.raises(openai.NotFoundError) as caught:
            bob.responses.create(**asked)
        assert caught.value.code == "vector_store_not_found"
        own = bob.vector_stores.create(name="bob's").id
        both = [{"type": "file_search", "vector_store_ids": [own, store]}]
        with pytest.raises(openai.NotFoundError):
            bob.responses.create(**{**asked, "tools": both})
        with pytest.raises(openai.NotFoundError):
            bob.chat.completions.create(
                model="m",
                messages=[{"role": "user", "content": "search car"}],
                tools=[tool_for(store)],
            )


def test_a_cache_that_all_share_has_nothing_of_it(server: ServerProcess, store: str) -> None:
    asked: Any = {"model": "m", "input": "search car", "tools": [tool_for(store)]}
    with client_of(server) as ann, client_of(server, BOB) as bob:
        for _ in range(2):
            reply = ann.responses.with_raw_response.create(**asked)
            assert reply.headers["x-llama-compat-cache"] == "bypass"
        with pytest.raises(openai.NotFoundError):
            bob.responses.create(**asked)


def test_a_key_without_the_tool_may_not(server: ServerProcess) -> None:
    with client_of(server, NOBODY) as nobody:
        store = nobody.vector_stores.create(name="s").id
        with pytest.raises(openai.PermissionDeniedError) as caught:
            nobody.responses.create(model="m", input="search car", tools=[tool_for(store)])
        assert caught.value.code == "tool_not_allowed"


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({"type": "file_search"}, "tools[0].vector_store_ids"),
        ({"type": "file_search", "vector_store_ids": ["a", 5]}, "tools[0].vector_store_ids[1]"),
        (
            {"type": "file_search", "vector_store_ids": ["a"], "max_num_results": 0},
            "tools[0].max_num_results",
        ),
        (
            {"type": "file_search", "vector_store_ids": ["a"], "filters": {"type": "x"}},
            "tools[0].filters.type",
        ),
        (
            {
                "type": "file_search",
                "vector_store_ids": ["a"],
                "ranking_options": {"hybrid_search": {"embedding_weight": 0, "text_weight": 0}},
            },
            "tools[0].ranking_options.hybrid_search",
        ),
    ],
)
def test_what_is_wrong_is_named(ann: openai.OpenAI, tool: Any, param: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ann.responses.create(model="m", input="search boat", tools=[tool])
    assert caught.value.param == param


def test_the_embedding_model_is_away(
    ann: openai.OpenAI, vendor: EmbeddingVendor, store: str
) -> None:
    vendor.failing = 400
    try:  # it has made no vector of this, or the cache would have it
        response = ann.responses.create(model="m", input="search boat", tools=[tool_for(store)])
    finally:
        vendor.failing = 0
    call: Any = next(item for item in response.output if item.type == "file_search_call")
    assert call.status == "failed"
    assert "can't be searched" in response.output_text


def test_each_embedding_is_a_request_of_the_key(
    server: ServerProcess, ann: openai.OpenAI, vendor: EmbeddingVendor, store: str
) -> None:
    before = len(vendor.embedded)
    ann.responses.create(model="m", input="search some words", tools=[tool_for(store)])
    assert vendor.embedded[before:] == ["some words"]


# Chat completions and Messages --------------------------------------------------------------------


def test_a_chat_gets_the_answer_with_annotations(ann: openai.OpenAI, store: str) -> None:
    asked: Any = {
        "model": "m",
        "messages": [{"role": "user", "content": "search car"}],
        "tools": [tool_for(store)],
    }
    message: Any = ann.chat.completions.create(**asked).choices[0].message
    assert message.tool_calls is None
    (cited,) = message.annotations
    assert cited.type == "file_citation"
    assert cited.file_citation["filename"] == "cars.txt"
    text, annotations = "", []
    for chunk in ann.chat.completions.create(**asked, stream=True):
        for choice in chunk.choices:
            text += choice.delta.content or ""
            annotations += getattr(choice.delta, "annotations", None) or []
    assert text == message.content
    assert annotations[0]["file_citation"] == cited.file_citation


def test_a_message_shows_the_search_and_cites(server: ServerProcess, store: str) -> None:
    claude = anthropic.Anthropic(base_url=server.url, api_key=ANN, max_retries=0)
    user: Any = {"role": "user", "content": "search car"}
    asked: Any = {"model": "m", "max_tokens": 500, "tools": [tool_for(store)]}
    whole: Any = claude.messages.create(**asked, messages=[user])
    assert [block.type for block in whole.content] == [
        "text",
        "server_tool_use",
        "file_search_tool_result",
        "text",
    ]
    _, use, result, said = whole.content
    assert (use.name, use.input) == ("file_search", {"query": "car"})
    assert result.tool_use_id == use.id
    assert result.content[0]["title"] == "cars.txt"
    (cited,) = said.citations
    assert (cited.type, cited.title) == ("search_result_location", "cars.txt")
    with claude.messages.stream(**asked, messages=[user]) as stream:
        streamed = stream.get_final_message()
    assert [block.type for block in streamed.content] == [block.type for block in whole.content]
    answer: Any = {"role": "assistant", "content": [each.model_dump() for each in whole.content]}
    again = claude.messages.create(
        **asked, messages=[user, answer, {"role": "user", "content": "well"}]
    )
    assert again.stop_reason == "end_turn"


# The vendor's own ---------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_googles_clients_search_files_too(server: ServerProcess, store: str, stream: bool) -> None:
    options = google.HttpOptions(
        base_url=server.url, retry_options=google.HttpRetryOptions(attempts=1)
    )

    def said(filter: str) -> google.Candidate:
        search = google.FileSearch(
            file_search_store_names=[f"fileSearchStores/{store}"], top_k=1, metadata_filter=filter
        )
        config = google.GenerateContentConfig(tools=[google.Tool(file_search=search)])
        asked: Any = {"model": "m", "contents": "search car", "config": config}
        if stream:
            *_, last = client.models.generate_content_stream(**asked)
        else:
            last = client.models.generate_content(**asked)
        assert last.candidates
        return last.candidates[0]

    with genai.Client(api_key=ANN, http_options=options) as client:
        grounding = said('about = "cars" OR about = "dogs"').grounding_metadata
        assert grounding is not None
        (chunk,) = grounding.grounding_chunks or []
        (support,) = grounding.grounding_supports or []
        found = chunk.retrieved_context
        assert found is not None
        assert (found.title, found.text) == ("cars.txt", "An automobile has four wheels.")
        assert found.file_search_store == f"fileSearchStores/{store}"
        (own,) = found.custom_metadata or []
        assert (own.key, own.string_value) == ("about", "cars")
        assert support.grounding_chunk_indices == [0]
        assert support.segment is not None
        assert support.segment.text == f"[cars.txt]({found.uri})"
        assert said('NOT about = "cats" AND about != "cars"').grounding_metadata is None
        with pytest.raises(errors.ClientError) as refused:
            said("about:cars")
    assert refused.value.code == 400
    assert "metadata_filter' has ':' at character 6" in str(refused.value)


def test_a_store_of_the_vendors_is_searched_there(tmp_path: Path) -> None:
    def at_vendor(asked: Asked) -> Said:
        return Said("The vendor has searched.")

    with EmbeddingVendor(at_vendor, responses=True) as vendor:
        template = store_template(tmp_path, vendor, tools={"file_search": {}}, has_files=True)
        with running(template) as server, client_of(server) as ann:
            asked: Any = {"model": "m", "input": "search car"}
            theirs = ann.responses.create(**asked, tools=[tool_for("vs_of_the_vendor")])
            assert theirs.output_text == "The vendor has searched."
            path, body = vendor.received[-1]
            assert path == "/v1/responses"
            assert body["tools"] == [tool_for("vs_of_the_vendor")]
            own = ann.vector_stores.create(name="own").id
            ann.responses.create(**asked, tools=[tool_for(own)])
            path, body = vendor.received[-1]
            assert path == "/v1/chat/completions"
            assert [each["function"]["name"] for each in body["tools"]] == ["file_search"]
