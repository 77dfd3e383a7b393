"""Images, sound and moderation, relayed to vendors that take what the real ones take."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import sqlite3
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.integration import wire
from tests.integration.media_vendor import KEY, NO_REPLIES, SOUND, WORDS, MediaVendors
from tests.integration.server_process import ServerProcess, running, write_template

pytestmark = pytest.mark.ours

OUR_KEY = "sk-ours-and-nobody-elses"

MODELS = [
    "theirs", "down", "shy", "uncounted", "failing", "cut", "breaking-off", "endless", "by-seconds",
    "shouting", *NO_REPLIES,
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


# Speech -------------------------------------------------------------------------------------------


@PREFIXES
def test_speech_is_the_vendors_bytes(gateway: Gateway, vendors: MediaVendors, prefix: str) -> None:
    body: Any = {"model": "theirs", "input": "Hello", "voice": "alloy", "response_format": "mp3"}
    said = gateway.client(prefix).audio.speech.create(**body)
    assert said.content == SOUND
    assert said.response.headers["content-type"] == "audio/mpeg"
    assert vendors.asked[-1].fields == body


def test_speech_comes_as_it_is_made_and_stops_when_nobody_listens(
    gateway: Gateway, vendors: MediaVendors
) -> None:
    vendors.deserted.clear()
    speech = gateway.client().audio.speech.with_streaming_response
    with speech.create(model="endless", input="Hello", voice="alloy") as said:
        heard = b""
        for piece in said.iter_bytes():
            heard += piece
            if len(heard) > 3 * len(SOUND):
                break
    assert heard.startswith(SOUND)
    assert vendors.deserted.wait(10)


def test_speech_that_breaks_off_is_not_passed_off_as_whole(gateway: Gateway) -> None:
    request_id = f"test-{uuid.uuid4().hex}"
    body = {"model": "cut", "input": "Hello", "voice": "alloy"}
    headers = {"authorization": f"Bearer {OUR_KEY}", "x-request-id": request_id}
    url = f"{gateway.process.url}/v1/audio/speech"
    with wire.open_reply("POST", url, body, headers) as reply:
        assert reply.status == 200
        with pytest.raises(http.client.IncompleteRead) as raised:
            reply.read()
    assert SOUND.startswith(raised.value.partial)
    assert gateway.record(request_id)["error"]


def test_speech_as_events(gateway: Gateway) -> None:
    for model in ("theirs", "shy"):
        body = {"model": model, "input": "Hello", "voice": "alloy", "stream_format": "sse"}
        reply = gateway.ask("audio/speech", body)
        assert reply.headers["content-type"].startswith("text/event-stream")
        lines = reply.body.splitlines()
        events = [json.loads(line[6:]) for line in lines if line.startswith(b"data: ")]
        *deltas, done = events
        assert b"".join(base64.b64decode(each["audio"]) for each in deltas) == SOUND
        assert done["type"] == "speech.audio.done"


def test_speech_is_paid_by_the_character(gateway: Gateway) -> None:
    body = {"model": "by-unit", "input": "x" * 1000, "voice": "alloy"}
    _, record = gateway.recorded("audio/speech", body)
    assert record["cost"] == round(1000 * 15e-6 * 1e9)


# Forms --------------------------------------------------------------------------------------------

FILE = ("gr\u00fc\u00dfe 1.mp3", bytes(range(256)) * 999 + b"\r\n--", "audio/mpeg")
DIGEST = hashlib.sha256(FILE[1]).hexdigest()


@PREFIXES
def test_a_transcription(gateway: Gateway, vendors: MediaVendors, prefix: str) -> None:
    made = gateway.client(prefix).audio.transcriptions.create(
        model="theirs", file=FILE, language="en", timestamp_granularities=["word"]
    )
    assert made.text.startswith(WORDS)
    assert made.text.endswith(DIGEST)
    asked = vendors.asked[-1]
    assert asked.fields == {
        "model": "theirs",
        "language": "en",
        "timestamp_granularities[]": "word",
    }
    assert asked.files["file"] == (FILE[0], FILE[2], FILE[1])


def test_a_translation(gateway: Gateway) -> None:
    made = gateway.client().audio.translations.create(model="theirs", file=FILE)
    assert made.text.endswith(DIGEST)


@pytest.mark.parametrize("kind", ["srt", "vtt", "text"])
def test_a_transcription_that_is_text(gateway: Gateway, kind: Any) -> None:
    made = gateway.client().audio.transcriptions.create(
        model="theirs", file=FILE, response_format=kind
    )
    assert str(made).startswith("1\n00:00:00,000")


@pytest.mark.parametrize("model", ["theirs", "shy"])
def test_a_transcription_is_streamed(gateway: Gateway, model: str) -> None:
    stream = gateway.client().audio.transcriptions.create(model=model, file=FILE, stream=True)
    *deltas, done = list(stream)
    assert {each.type for each in deltas} == {"transcript.text.delta"}
    assert done.type == "transcript.text.done"
    assert done.text.endswith(DIGEST)
    assert "".join(each.delta for each in deltas).strip() == done.text  # type: ignore[union-attr]


@pytest.mark.parametrize("model", ["failing", "cut", "breaking-off"])
def test_a_transcript_that_breaks_off_says_so(gateway: Gateway, model: str) -> None:
    stream = gateway.client().audio.transcriptions.create(model=model, file=FILE, stream=True)
    with pytest.raises(openai.APIError) as raised:
        list(stream)
    assert KEY not in str(raised.value)


def test_an_edit_of_several_images(gateway: Gateway, vendors: MediaVendors) -> None:
    images = [("a.png", b"\x89PNG-a", "image/png"), ("b.png", b"\x89PNG-b", "image/png")]
    made = gateway.client().images.edit(model="theirs", image=images, prompt="a hat", n=2)
    assert made.data is not None
    assert len(made.data) == 2
    assert vendors.asked[-1].files["image[]"] == ("b.png", "image/png", b"\x89PNG-b")


def test_another_target_gets_the_same_file(gateway: Gateway, vendors: MediaVendors) -> None:
    made = gateway.client().audio.transcriptions.create(model="second", file=FILE)
    assert made.text.endswith(DIGEST)
    assert [each.fields["model"] for each in vendors.asked[-2:]] == ["down", "theirs"]


def test_what_is_left_out_of_a_form(gateway: Gateway, vendors: MediaVendors) -> None:
    transcriptions = gateway.client().audio.transcriptions
    with pytest.raises(openai.BadRequestError, match="language"):
        transcriptions.create(model="fussy", file=FILE, language="en")
    made = transcriptions.create(model="dropping", file=FILE, language="en")
    assert made.text.endswith(DIGEST)
    assert vendors.asked[-1].fields == {"model": "theirs"}


def test_what_a_transcription_costs(gateway: Gateway) -> None:
    def record(model: str, **more: Any) -> dict[str, Any]:
        request_id = f"test-{uuid.uuid4().hex}"
        gateway.client().audio.transcriptions.create(
            model=model, file=FILE, extra_headers={"x-request-id": request_id}, **more
        )
        return gateway.record(request_id)

    counted = record("priced")
    assert (counted["input_tokens"], counted["output_tokens"]) == (14, 6)
    assert counted["cost"] == (14 * 1 + 6 * 10) * 1000
    assert record("by-hour")["cost"] == round(36 / 3600 * 0.36 * 1e9)
    spoken = record("by-unit", response_format="verbose_json")
    assert spoken["cost"] == round(90.5 / 3600 * 0.36 * 1e9)
    # Subtitles say nothing of how long it took.
    assert record("by-unit", response_format="srt")["cost"] is None


def form(*parts: tuple[str, bytes], boundary: bytes = b"XX", end: bytes = b"--XX--\r\n") -> bytes:
    body = b""
    for disposition, content in parts:
        body += b"--" + boundary + b"\r\nContent-Disposition: form-data; "
        body += disposition.encode() + b"\r\n\r\n" + content + b"\r\n"
    return body + end


MODEL = ('name="model"', b"theirs")
A_FILE = ('name="file"; filename="a.mp3"', b"sound")
FORM = {"content-type": "multipart/form-data; boundary=XX"}
PADDED = form(MODEL, A_FILE).replace(b"--XX\r", b"--XX" + b" " * 200 + b"\r")


@pytest.mark.parametrize(
    ("body", "headers", "code", "param"),
    [
        (form(A_FILE), FORM, "missing_required_parameter", "model"),
        (form(MODEL), FORM, "missing_required_parameter", "file"),
        (form(MODEL, A_FILE), {"content-type": "multipart/form-data"}, "invalid_form", None),
        (form(MODEL, A_FILE, end=b""), FORM, "invalid_form", None),
        (form(MODEL, A_FILE)[:-30], FORM, "invalid_form", None),
        (form(MODEL, ("filename=x", b"y")), FORM, "invalid_form", None),
        (form(('name="model"', b"\xff\xfe"), A_FILE), FORM, "invalid_form", "model"),
        (form(MODEL, A_FILE, boundary=b"YY"), FORM, "invalid_form", None),
        (b"", FORM, "invalid_form", None),
        (b"sound", {"content-type": "audio/mpeg"}, "invalid_json", None),
        (form(MODEL, *[("name=x", b"")] * 300), FORM, "invalid_form", None),
        (PADDED, FORM, "invalid_form", None),
    ],
)
def test_a_form_that_is_none(
    gateway: Gateway, body: bytes, headers: dict[str, str], code: str, param: str | None
) -> None:
    reply = gateway.ask("audio/transcriptions", body, **headers)
    assert reply.status == 400, reply.body
    assert (reply.error()["code"], reply.error()["param"]) == (code, param)


def test_a_model_is_named_in_one_way_alone(gateway: Gateway, vendors: MediaVendors) -> None:
    """Whoever reads a form otherwise than it was read here finds no other model in it."""
    other = ('name="x"; name="prompt"', b"y")
    assert gateway.ask("audio/transcriptions", form(MODEL, other, A_FILE), **FORM).status == 200
    assert vendors.asked[-1].fields == {"model": "theirs", "prompt": "y"}
    asked = len(vendors.asked)
    two = form(('name="model"', b"uncounted"), MODEL, A_FILE)
    reply = gateway.ask("audio/transcriptions", two, **FORM)
    assert (reply.status, reply.error()["param"]) == (400, "model")
    numbers = [('name="n"', b"128"), ('name="n"', b"1"), ('name="prompt"', b"a hat")]
    picture = ('name="image"; filename="a.png"', b"")
    reply = gateway.ask("images/edits", form(MODEL, picture, *numbers), **FORM)
    assert (reply.status, reply.error()["param"]) == (400, "n")
    assert len(vendors.asked) == asked


def test_a_file_that_is_too_large(gateway: Gateway) -> None:
    large = form(MODEL, ('name="file"; filename="a"', bytes(65 << 20)))
    reply = gateway.ask("audio/transcriptions", large, **FORM)
    assert reply.status == 413


# Vendors that answer with something else ----------------------------------------------------------

IMAGE = {"prompt": "a fox"}
SPEECH = {"input": "Hello", "voice": "alloy"}


@pytest.mark.parametrize(
    ("call", "body"),
    [
        ("moderations", {"input": "kill"}),
        ("images/generations", IMAGE),
        ("images/generations", {**IMAGE, "stream": True}),
        ("audio/speech", SPEECH),
        ("audio/speech", {**SPEECH, "stream_format": "sse"}),
        ("audio/transcriptions", {}),
        ("audio/transcriptions", {"stream": "true"}),
    ],
)
@pytest.mark.parametrize("model", NO_REPLIES)
def test_what_is_no_reply_is_none(
    gateway: Gateway, model: str, call: str, body: dict[str, Any]
) -> None:
    if call == "audio/transcriptions":
        parts = [(f'name="{name}"', value.encode()) for name, value in body.items()]
        sent = form(('name="model"', model.encode()), *parts, A_FILE)
        reply = gateway.ask(call, sent, **FORM)
    else:
        reply = gateway.ask(call, {"model": model, **body})
    assert reply.status == 502
    assert reply.error()["message"]


def test_types_are_the_same_in_capitals(gateway: Gateway) -> None:
    reply = gateway.ask("images/generations", {"model": "shouting", **IMAGE})
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    speech = gateway.ask("audio/speech", {"model": "shouting", **SPEECH})
    assert (speech.status, speech.body) == (200, SOUND)
    streamed = gateway.ask("audio/speech", {"model": "shouting", **SPEECH, "stream_format": "sse"})
    assert b"speech.audio.done" in streamed.body
