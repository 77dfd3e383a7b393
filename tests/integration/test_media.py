"""Images, sound and moderation, relayed to vendors that take what the real ones take."""

from __future__ import annotations

import base64
import sqlite3
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.integration import wire
from tests.integration.media_vendor import KEY, MediaVendors
from tests.integration.server_process import ServerProcess, running, write_template

pytestmark = pytest.mark.ours

OUR_KEY = "sk-ours-and-nobody-elses"

MODELS = [
    "theirs", "down", "shy", "uncounted", "failing", "cut", "breaking-off", "endless", "by-seconds",
]  # fmt: skip
PREFIXES = pytest.mark.parametrize("prefix", ["/v1", "/v1/openai/v1"])


@pytest.fixture(scope="module")
def vendors() -> Iterator[MediaVendors]:
    with MediaVendors() as vendors:
        yield vendors


class Gateway:
    """The server, and what it has recorded."""

    def __init__(self, process: ServerProcess, path: Path) -> None:
        self.process = process
        self.path = path

    def client(self, prefix: str = "/v1", key: str = OUR_KEY) -> openai.OpenAI:
        url = self.process.url + prefix
        return openai.OpenAI(base_url=url, api_key=key, max_retries=0, timeout=30)

    def ask(self, call: str, body: Any, key: str = OUR_KEY, **headers: str) -> wire.Reply:
        sent = {"authorization": f"Bearer {key}", **headers}
        return wire.request("POST", f"{self.process.url}/v1/{call}", body, sent)

    def recorded(self, call: str, body: Any, **headers: str) -> tuple[wire.Reply, dict[str, Any]]:
        """Ask for something; the reply, and the record of it."""
        request_id = f"test-{uuid.uuid4().hex}"
        reply = self.ask(call, body, **headers, **{"x-request-id": request_id})
        return reply, self.record(request_id)

    def record(self, request_id: str) -> dict[str, Any]:
        """The record of a request, as soon as it is there."""
        found: list[dict[str, Any]] = []

        def there() -> bool:
            with sqlite3.connect(self.path) as connection:
                connection.row_factory = sqlite3.Row
                rows = connection.execute(
                    "SELECT * FROM records WHERE request_id = ?", (request_id,)
                )
                found[:] = [dict(row) for row in rows]
            connection.close()
            return bool(found)

        wire.eventually(there)
        return found[0]


@pytest.fixture(scope="module")
def gateway(vendors: MediaVendors, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("media")
    config = {"base_url": f"{vendors.url}/openai/v1", "api_key": KEY}
    priced = {"image": 0.04, "million_characters": 15, "hour": 0.36}
    template = write_template(
        folder / "media.yaml",
        server={
            "api_keys": [OUR_KEY],
            "storage": f"sqlite:{folder / 'operations.sqlite'}",
            "records": {},
        },
        providers=[
            {"id": "openai", "type": "remote::openai", "config": config},
            {
                "id": "fussy",
                "type": "remote::openai",
                "config": {**config, "unsupported_parameters": ["quality", "language"]},
            },
            {
                "id": "dropping",
                "type": "remote::openai",
                "config": {
                    **config,
                    "unsupported_parameters": ["quality", "language"],
                    "unsupported": "drop",
                },
            },
            {"id": "anthropic", "type": "remote::anthropic", "config": config},
            {"id": "echo", "type": "local::echo"},
        ],
        models=[
            *({"id": name, "provider": "openai", "provider_model": name} for name in MODELS),
            {"id": "fussy", "provider": "fussy", "provider_model": "theirs"},
            {"id": "dropping", "provider": "dropping", "provider_model": "theirs"},
            {"id": "claude", "provider": "anthropic", "provider_model": "theirs"},
            {"id": "echo", "provider": "echo"},
            {
                "id": "priced",
                "provider": "openai",
                "provider_model": "theirs",
                "price": {"input": 1, "output": 10, **priced},
            },
            {
                "id": "by-unit",
                "provider": "openai",
                "provider_model": "uncounted",
                "price": {"input": 0, "output": 0, **priced},
            },
            {
                "id": "by-hour",
                "provider": "openai",
                "provider_model": "by-seconds",
                "price": {"input": 0, "output": 0, **priced},
            },
            {
                "id": "limited",
                "provider": "openai",
                "provider_model": "theirs",
                "limits": {"requests_per_minute": 2},
            },
            {
                "id": "second",
                "targets": [
                    {"provider": "openai", "model": "down"},
                    {"provider": "openai", "model": "theirs", "priority": 1},
                ],
            },
            {
                "id": "elsewhere",
                "targets": [
                    {"provider": "echo", "model": "echo"},
                    {"provider": "openai", "model": "theirs", "priority": 1},
                ],
            },
        ],
    )
    with running(template) as process:
        yield Gateway(process, folder / "operations.sqlite")


# Moderation and images ----------------------------------------------------------------------------


@PREFIXES
def test_a_moderation(gateway: Gateway, vendors: MediaVendors, prefix: str) -> None:
    made = gateway.client(prefix).moderations.create(model="theirs", input=["be nice", "kill"])
    assert [each.flagged for each in made.results] == [False, True]
    assert made.model == "theirs"
    assert vendors.asked[-1].path == "openai/v1/moderations"


@PREFIXES
def test_an_image(gateway: Gateway, vendors: MediaVendors, prefix: str) -> None:
    made = gateway.client(prefix).images.generate(
        model="theirs", prompt="a fox", n=2, size="1024x1024"
    )
    assert made.data is not None
    assert [base64.b64decode(each.b64_json or "") for each in made.data] == [b"a fox-0", b"a fox-1"]
    assert made.usage is not None
    assert made.usage.output_tokens == 200
    asked = vendors.asked[-1]
    assert asked.path == "openai/v1/images/generations"
    assert asked.fields == {"model": "theirs", "prompt": "a fox", "n": 2, "size": "1024x1024"}


def test_an_image_is_streamed(gateway: Gateway) -> None:
    stream = gateway.client().images.generate(
        model="theirs", prompt="a fox", stream=True, partial_images=1
    )
    events = list(stream)
    assert [event.type for event in events] == [
        "image_generation.partial_image",
        "image_generation.completed",
    ]
    assert events[-1].usage.total_tokens == 250  # type: ignore[union-attr]


def test_a_vendor_that_ignores_that_a_stream_was_asked_for(gateway: Gateway) -> None:
    stream = gateway.client().images.generate(model="shy", prompt="a fox", stream=True)
    (event,) = stream
    assert event.type == "image_generation.completed"
    assert base64.b64decode(event.b64_json) == b"a fox-0"


@pytest.mark.parametrize("model", ["failing", "cut", "breaking-off"])
def test_a_stream_that_fails_says_so(gateway: Gateway, model: str) -> None:
    stream = gateway.client().images.generate(model=model, prompt="a fox", stream=True)
    seen = []
    with pytest.raises(openai.APIError) as raised:
        seen.extend(iter(stream))
    assert [event.type for event in seen] == ["image_generation.partial_image"]
    assert KEY not in str(raised.value)


def test_what_a_vendor_does_not_know_is_its_own_400(gateway: Gateway) -> None:
    reply = gateway.ask("images/generations", {"model": "theirs", "prompt": "x", "seed": 3})
    assert reply.status == 400
    assert reply.error()["code"] == "unknown_parameter"


def test_what_the_template_says_that_a_vendor_does_not_take(gateway: Gateway) -> None:
    body = {"prompt": "x", "quality": "low"}
    reply = gateway.ask("images/generations", {"model": "fussy", **body})
    assert reply.status == 400
    assert reply.error()["param"] == "quality"
    reply = gateway.ask("images/generations", {"model": "dropping", **body})
    assert reply.status == 200
    assert reply.headers["x-llama-compat-dropped"] == "quality"


@pytest.mark.parametrize(
    ("call", "body", "param"),
    [
        ("moderations", {"input": "x"}, "model"),
        ("moderations", {"model": "theirs"}, "input"),
        ("images/generations", {"model": "theirs"}, "prompt"),
        ("images/generations", {"model": "theirs", "prompt": "x", "n": 0}, "n"),
        ("images/generations", {"model": "theirs", "prompt": "x", "n": "two"}, "n"),
    ],
)
def test_a_request_that_lacks_something(
    gateway: Gateway, call: str, body: dict[str, Any], param: str
) -> None:
    reply = gateway.ask(call, body)
    assert reply.status == 400
    assert reply.error()["param"] == param


@pytest.mark.parametrize("model", ["claude", "echo"])
def test_a_provider_that_has_none_is_named(gateway: Gateway, model: str) -> None:
    reply = gateway.ask("images/generations", {"model": model, "prompt": "x"})
    assert reply.status == 400
    error = reply.error()
    assert error["code"] == "unsupported_capability"
    assert "making images" in error["message"]
    assert {"claude": "'anthropic'", "echo": "'echo'"}[model] in error["message"]


@pytest.mark.parametrize("model", ["second", "elsewhere"])
def test_another_target_answers(gateway: Gateway, model: str) -> None:
    reply, record = gateway.recorded("images/generations", {"model": model, "prompt": "x"})
    assert reply.status == 200
    assert record["served"] == "theirs"
    # What a provider does not have it is not asked for.
    assert (record["attempts"] > 1) == (model == "second")


def test_who_has_no_key_is_told_so(gateway: Gateway) -> None:
    reply = gateway.ask("images/generations", {"model": "theirs", "prompt": "x"}, key="wrong")
    assert reply.status == 401


def test_a_models_limit_holds(gateway: Gateway) -> None:
    body = {"model": "limited", "input": "x"}
    statuses = [gateway.ask("moderations", body).status for _ in range(3)]
    assert statuses == [200, 200, 429]


def test_an_image_is_recorded(gateway: Gateway) -> None:
    _, record = gateway.recorded("images/generations", {"model": "priced", "prompt": "x", "n": 2})
    assert (record["operation"], record["status"]) == ("images", 200)
    assert (record["input_tokens"], record["output_tokens"]) == (50, 200)
    assert record["estimated"] == 0
    assert record["cost"] == round((50 * 1 + 200 * 10) * 1000 + 2 * 0.04 * 1e9)


def test_what_is_paid_by_the_image_alone(gateway: Gateway) -> None:
    _, record = gateway.recorded("images/generations", {"model": "by-unit", "prompt": "x", "n": 3})
    assert record["cost"] == round(3 * 0.04 * 1e9)


def test_a_moderation_has_the_tokens_that_it_read(gateway: Gateway) -> None:
    _, record = gateway.recorded("moderations", {"model": "theirs", "input": "x" * 400})
    assert 90 < record["input_tokens"] < 110
    assert (record["output_tokens"], record["estimated"]) == (0, 1)


def test_what_has_another_price_is_not_free(gateway: Gateway) -> None:
    """A model that is paid by the hour, and an answer that does not say how long it took."""
    _, record = gateway.recorded("moderations", {"model": "by-hour", "input": "x"})
    assert record["cost"] is None
