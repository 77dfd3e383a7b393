"""Rerank by vendors that take what the real ones take, asked in the words of each of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration import wire
from tests.integration.media_vendor import KEY, MediaVendors
from tests.integration.server_process import ServerProcess, running, write_template
from tests.integration.test_media import Gateway

pytestmark = pytest.mark.ours

OUR_KEY = "sk-ours-and-nobody-elses"

VENDORS = {
    "cohere": "compatibility/v1",
    "jina": "v1",
    "together": "v1",
    "voyage": "v1",
    "vllm": "v1",
}
ASKED = {
    "query": "the quick fox",
    "documents": ["a slow dog", "the quick brown fox", "a quick cat"],
}
PLACES = [1, 2, 0]
VENDOR = pytest.mark.parametrize("vendor", VENDORS)
PATHS = pytest.mark.parametrize("path", ["/v1/rerank", "/v1/openai/v1/rerank", "/v2/rerank"])


@pytest.fixture(scope="module")
def vendors() -> Iterator[MediaVendors]:
    with MediaVendors() as vendors:
        yield vendors


@pytest.fixture(scope="module")
def gateway(vendors: MediaVendors, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("rerank")
    template = write_template(
        folder / "rerank.yaml",
        server={
            "api_keys": [OUR_KEY],
            "storage": f"sqlite:{folder / 'operations.sqlite'}",
            "records": {},
        },
        providers=[
            *(
                {
                    "id": name,
                    "type": f"remote::{name}",
                    "config": {"base_url": f"{vendors.url}/{name}/{path}", "api_key": KEY},
                }
                for name, path in VENDORS.items()
            ),
            {"id": "claude", "type": "remote::anthropic", "config": {"api_key": KEY}},
        ],
        models=[
            *(
                {
                    "id": name,
                    "provider": name,
                    "provider_model": "theirs",
                    "price": {"input": 100, "output": 0, "thousand_searches": 2},
                }
                for name in VENDORS
            ),
            {"id": "claude", "provider": "claude"},
            {
                "id": "second",
                "targets": [
                    {"provider": "voyage", "model": "down"},
                    {"provider": "cohere", "model": "theirs", "priority": 1},
                ],
            },
            {
                "id": "tight",
                "provider": "jina",
                "provider_model": "theirs",
                "limits": {"tokens_per_minute": 60},
            },
        ],
    )
    with running(template) as process:
        yield Gateway(process, folder / "operations.sqlite")


def ask(server: ServerProcess, path: str, **body: Any) -> wire.Reply:
    headers = {"authorization": f"Bearer {OUR_KEY}"}
    return wire.request("POST", server.url + path, {**ASKED, **body}, headers)


@VENDOR
@PATHS
def test_in_coheres_words(gateway: Gateway, vendor: str, path: str) -> None:
    reply = ask(gateway.process, path, model=vendor, top_n=2)
    assert reply.status == 200, reply.body
    body = reply.json()
    assert [each["index"] for each in body["results"]] == PLACES[:2]
    assert body["results"][0]["relevance_score"] == 1.0
    assert body.get("model", vendor) == vendor


@VENDOR
@pytest.mark.parametrize("more", [{"truncation": True, "top_k": None}, {"top_k": 2}])
def test_in_voyages_words(gateway: Gateway, vendor: str, more: dict[str, Any]) -> None:
    reply = ask(gateway.process, "/v1/rerank", model=vendor, **more)
    assert reply.status == 200, reply.body
    body = reply.json()
    assert [each["index"] for each in body["data"]] == PLACES[: more["top_k"]]
    assert body["model"] == vendor
    assert body["usage"]["total_tokens"] >= 0


@pytest.mark.parametrize(
    ("vendor", "path", "asked"),
    [
        ("cohere", "/v1/rerank", "v1/rerank"),
        ("cohere", "/v2/rerank", "v2/rerank"),
        ("jina", "/v2/rerank", "jina/v1/rerank"),
        ("voyage", "/v2/rerank", "voyage/v1/rerank"),
        ("vllm", "/v1/rerank", "vllm/v1/rerank"),
    ],
)
def test_where_a_vendor_is_asked(
    gateway: Gateway, vendors: MediaVendors, vendor: str, path: str, asked: str
) -> None:
    assert ask(gateway.process, path, model=vendor).status == 200
    assert vendors.asked[-1].path == asked


def test_what_only_one_vendor_knows_travels_there(gateway: Gateway, vendors: MediaVendors) -> None:
    more = {"max_tokens_per_doc": 50, "priority": 3}
    assert ask(gateway.process, "/v2/rerank", model="cohere", **more).status == 200
    assert vendors.asked[-1].fields == {**ASKED, "model": "theirs", **more}


def test_what_has_no_word_at_another_vendor_is_refused(gateway: Gateway) -> None:
    reply = ask(gateway.process, "/v2/rerank", model="voyage", max_tokens_per_doc=50)
    assert reply.status == 400
    assert reply.error()["param"] == "max_tokens_per_doc"


def test_documents_are_objects_too(gateway: Gateway, vendors: MediaVendors) -> None:
    documents = [{"text": "a quick fox", "title": "one"}, {"text": "none", "title": "the quick"}]
    reply = ask(
        gateway.process, "/v1/rerank", model="voyage", documents=documents, rank_fields=["title"]
    )
    assert [each["index"] for each in reply.json()["results"]] == [1, 0]
    assert vendors.asked[-1].fields["documents"] == ["title: one", "title: the quick"]


@pytest.mark.parametrize("vendor", ["cohere", "jina", "voyage"])
def test_documents_are_given_back(gateway: Gateway, vendor: str) -> None:
    reply = ask(gateway.process, "/v1/rerank", model=vendor, return_documents=True, top_n=1)
    (found,) = reply.json()["results"]
    assert found["document"] == {"text": "the quick brown fox"}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"query": None}, "query"),
        ({"query": ["x"]}, "query"),
        ({"documents": "x"}, "documents"),
        ({"documents": []}, "documents"),
        ({"documents": [1]}, "documents"),
        ({"top_n": 0}, "top_n"),
        ({"top_n": "2"}, "top_n"),
        ({"model": None}, "model"),
    ],
)
def test_a_request_that_makes_no_sense(gateway: Gateway, body: dict[str, Any], param: str) -> None:
    reply = ask(gateway.process, "/v1/rerank", **{"model": "voyage", **body})
    assert reply.status == 400
    assert reply.error()["param"] == param


def test_a_provider_that_has_none_is_named(gateway: Gateway) -> None:
    reply = ask(gateway.process, "/v1/rerank", model="claude")
    assert reply.status == 400
    assert reply.error()["code"] == "unsupported_capability"
    assert "'claude' does not support rerank" in reply.error()["message"]


def test_a_vendors_error_keeps_its_words_and_no_key(gateway: Gateway) -> None:
    reply = ask(gateway.process, "/v1/rerank", model="cohere", unknown=1)
    assert reply.status == 422
    assert "unknown field: unknown" in reply.error()["message"]
    assert KEY.encode() not in reply.body


def test_another_vendor_answers_in_the_clients_words(gateway: Gateway) -> None:
    reply = ask(gateway.process, "/v1/rerank", model="second")
    assert reply.status == 200
    assert [each["index"] for each in reply.json()["results"]] == PLACES


def test_searches_are_what_cohere_is_paid_by(gateway: Gateway) -> None:
    _, record = gateway.recorded("rerank", {"model": "cohere", **ASKED})
    assert (record["operation"], record["served"]) == ("rerank", "theirs")
    tokens = record["input_tokens"]
    assert record["estimated"] == 1
    assert record["cost"] == round(tokens * 100 * 1000 + 2e-3 * 1e9)


def test_tokens_are_what_the_others_are_paid_by(gateway: Gateway) -> None:
    for vendor in ("jina", "voyage", "together"):
        _, record = gateway.recorded("rerank", {"model": vendor, **ASKED})
        assert (record["input_tokens"], record["estimated"]) == (10, 0), vendor


def test_what_is_to_be_read_is_limited(gateway: Gateway) -> None:
    documents = ["one word " * 500]  # of which the vendor counts a thousand
    assert ask(gateway.process, "/v1/rerank", model="tight", documents=documents).status == 200
    assert ask(gateway.process, "/v1/rerank", model="tight").status == 429
