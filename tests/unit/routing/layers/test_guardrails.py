"""Each verdict is told of its request, relayed or translated, streamed or not."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from llama_compat.dialects.anthropic_messages.operations import MESSAGES
from llama_compat.dialects.base import Operation
from llama_compat.dialects.openai.media.operations import SPEECH, TRANSCRIPTIONS
from llama_compat.dialects.openai.operations import CHAT
from llama_compat.dialects.rerank.operations import RERANK
from llama_compat.distribution import load_distribution
from llama_compat.errors import APIError
from llama_compat.exchange import GUARDRAILS_HEADER, Call
from llama_compat.guardrails.checks import Checks
from llama_compat.guardrails.guard import Blocked, Guard
from llama_compat.guardrails.settings import CheckSettings, Mode
from llama_compat.wire.forms import Form, parse_form
from llama_compat.wire.json_fields import JSONFields, parse_fields
from providers.registry import config_model
from routing.layers.guardrails import _asked
from routing.request import Request
from routing.runtime import Runtime
from tests.integration.server_process import write_template
from tests.local_server import Handler, send, serving

CARD = "4111 1111 1111 1111"
MODES = ("block", "redact", "monitor")
PLACES = ("input", "output")


HEARD = b"".join(
    b"data: %b\n\n" % json.dumps(each).encode()
    for each in (
        *(
            {"type": "transcript.text.delta", "delta": text, "logprobs": [{"token": text}]}
            for text in ("It is ", CARD[:9], f"{CARD[9:]}.")
        ),
        {"type": "transcript.text.done", "text": f"It is {CARD}."},
    )
)
"""A transcription, as it is heard."""


SPOKEN = b"".join(
    b"data: %b\n\n" % json.dumps(each).encode()
    for each in (
        {"type": "speech.audio.delta", "audio": "UklGRg=="},
        {"type": "speech.audio.done", "usage": {}},
    )
)
"""Sound, in which there is nothing to be read."""


@pytest.fixture(scope="module")
def vendor() -> Iterator[str]:
    """Says a number in two pieces, whatever it is asked."""

    def answer(handler: Handler) -> None:
        body = handler.rfile.read(int(handler.headers["content-length"]))
        if handler.path.endswith("/transcriptions"):
            send(handler, 200, HEARD, "text/event-stream")
            return
        if handler.path.endswith("/speech"):
            send(handler, 200, SPOKEN, "text/event-stream")
            return
        asked = json.loads(body)
        if "documents" in asked:
            found = {"index": 0, "relevance_score": 0.5, "document": {"text": f"It is {CARD}."}}
            send(handler, 200, json.dumps({"id": "1", "results": [found]}).encode())
            return
        failure = json.dumps({"error": {"message": f"No {CARD}, please.", "type": "odd"}})
        if asked["messages"][0]["content"] == "fail":
            send(handler, 422, failure.encode())
            return
        usual = {"id": "c", "object": "chat.completion", "created": 1, "model": "theirs"}
        if not asked.get("stream"):
            choice = {"index": 0, "message": {"role": "assistant", "content": f"It is {CARD}."}}
            choice["finish_reason"] = "stop"
            send(handler, 200, json.dumps({**usual, "choices": [choice]}).encode())
            return
        events: list[Any] = []
        for piece in (f"It is {CARD[:9]}", f"{CARD[9:]}.", None):
            delta = {} if piece is None else {"content": piece}
            ended = "stop" if piece is None else None
            choice = {"index": 0, "delta": delta, "finish_reason": ended}
            events.append({**usual, "object": "chat.completion.chunk", "choices": [choice]})
        if asked["messages"][0]["content"] == "break":
            events = [{**events[0], "choices": [{"index": 0, "delta": {"content": "It is "}}]}]
            events.append(json.loads(failure))
        said = "".join(f"data: {json.dumps(each)}\n\n" for each in events) + "data: [DONE]\n\n"
        send(handler, 200, said.encode(), "text/event-stream")

    with serving(answer) as url:
        yield url


@pytest.fixture
async def runtime(vendor: str, tmp_path: Path) -> AsyncIterator[Runtime]:
    def rails(place: str, mode: str) -> list[dict[str, Any]]:
        return [{"name": f"cards-{mode}", "scan": place, "patterns": ["cards"], "mode": mode}]

    template = write_template(
        tmp_path / "template.yaml",
        providers=[
            {"id": "v", "type": "remote::passthrough", "config": {"base_url": f"{vendor}/v1"}}
        ],
        models=[
            {
                "id": f"{place}-{mode}",
                "provider": "v",
                "provider_model": "theirs",
                "guardrails": rails(place, mode),
            }
            for place in PLACES
            for mode in MODES
        ],
    )
    one = Runtime(load_distribution(str(template), config_model))
    await one.start()
    yield one
    await one.stop()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("operation", [CHAT, MESSAGES], ids=["relayed", "translated"])
async def test_every_verdict_is_told(runtime: Runtime, operation: Operation, stream: bool) -> None:
    for place in PLACES:
        for mode in MODES:
            request = asked(runtime, operation, f"{place}-{mode}", f"{CARD}!", stream=stream)
            headers, said = await answered(runtime, request)
            assert request.told_verdicts == f"cards-{mode}:{mode}"
            assert (said is None) == (place == "input" and mode == "block")
            if place == "output" and said is not None:
                assert (CARD[9:] in said) == (mode == "monitor")
            if mode == "redact" and place == "input":
                assert headers[GUARDRAILS_HEADER] == "redacted=cards-redact"
            request.end()


@pytest.mark.parametrize(("how", "stream"), [("fail", False), ("fail", True), ("break", True)])
@pytest.mark.parametrize("operation", [CHAT, MESSAGES], ids=["relayed", "translated"])
async def test_what_a_vendor_s_errors_say_is_looked_through(
    runtime: Runtime, operation: Operation, how: str, stream: bool
) -> None:
    for mode in MODES:
        request = asked(runtime, operation, f"output-{mode}", how, stream=stream)
        with pytest.raises(APIError) as caught:
            await answered(runtime, request, raises=True)
        error = caught.value
        told = str((error.message, error.vendor_body))
        assert (CARD in told) == (mode == "monitor")
        assert ("<CARD_1>" in told) == (mode == "redact")
        assert request.told_verdicts == f"cards-{mode}:{mode}"
        assert how == "break" or error.status == 422
        request.end()


async def test_documents_of_a_reranked_list_are_looked_through(runtime: Runtime) -> None:
    for mode in MODES:
        body = {"model": f"output-{mode}", "query": "?", "documents": ["a"]}
        fields = parse_fields(json.dumps({**body, "return_documents": True}).encode())
        _, said = await answered(runtime, begun(runtime, RERANK, fields))
        assert (said is None) == (mode == "block")
        if said is not None:
            assert (CARD in said) == (mode == "monitor")
            assert ("<CARD_1>" in said) == (mode == "redact")


def asked(
    runtime: Runtime, operation: Operation, model: str, text: str, *, stream: bool
) -> Request:
    body = {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 50}
    fields = parse_fields(json.dumps({**body, "stream": stream}).encode())
    return begun(runtime, operation, fields)


def begun(
    runtime: Runtime, operation: Operation, fields: JSONFields, form: Form | None = None
) -> Request:
    request = Request(operation, "req-1", None)
    request.asks(fields, operation.look(fields, {}), form=form)
    runtime.begin(request)
    runtime.route(request)
    return request


async def answered(
    runtime: Runtime, request: Request, *, raises: bool = False
) -> tuple[dict[str, str], str | None]:
    """The headers and the body of the reply; no body where it is refused."""
    try:
        reply = await runtime.answer(request)
    except APIError as refused:
        if raises:
            raise
        return {}, None if refused.code == "content_filter" else refused.message
    if isinstance(reply.body, bytes):
        said = reply.body
    else:
        said = reply.first + b"".join([chunk async for chunk in reply.body])
    await reply.aclose()
    request.was_read(reply)
    return dict(reply.headers), said.decode()


TRACK = b"RIFF\x00\xff\r\n 4111 1111 1111 1111"


@pytest.mark.parametrize("files", [["a.wav"], [f"{CARD}.wav"], [f"{CARD}.wav", "b.wav"]])
def test_files_of_a_form_stay_and_their_names_are_looked_through(files: list[str]) -> None:
    boundary = b"--X\r\nContent-Disposition: form-data; name="
    parts = [b'"file"; filename="%b"\r\n\r\n%b' % (each.encode(), TRACK) for each in files]
    parts.append(b'"prompt"\r\n\r\nNot %b.' % CARD.encode())
    body = b"".join(boundary + part + b"\r\n" for part in parts) + b"--X--\r\n"
    form = parse_form(body, "multipart/form-data; boundary=X")
    guard = Guard(Checks([CheckSettings(name="c", patterns=("cards",), mode="redact")]))
    call = Call(TRANSCRIPTIONS, form.fields(), "m", False, "req-1", form=form)
    sent = _asked(call, guard).form
    assert sent is not None
    assert bytes(sent.fields()["prompt"]) == b'"Not <CARD_1>."'
    shown = [each.replace(CARD, "<CARD_1>") for each in files]
    assert [part.file for part in sent.parts[:-1]] == shown
    assert [sent.body[part.begin : part.end] for part in sent.parts[:-1]] == [TRACK] * len(files)


async def test_sound_that_is_streamed_goes_by(runtime: Runtime) -> None:
    body = {"model": "output-block", "input": "Hi.", "voice": "v", "stream_format": "sse"}
    fields = parse_fields(json.dumps(body).encode())
    _, said = await answered(runtime, begun(runtime, SPEECH, fields))
    assert said == SPOKEN.decode()


async def test_transcriptions_that_are_streamed_are_looked_through(runtime: Runtime) -> None:
    boundary = b"--X\r\nContent-Disposition: form-data; name="
    for mode in MODES:
        parts = [
            b'"model"\r\n\r\noutput-' + mode.encode(),
            b'"stream"\r\n\r\ntrue',
            b'"file"; filename="a.wav"\r\n\r\nRIFF',
        ]
        body = b"".join(boundary + part + b"\r\n" for part in parts) + b"--X--\r\n"
        form = parse_form(body, "multipart/form-data; boundary=X")
        request = begun(runtime, TRANSCRIPTIONS, form.fields(), form)
        if mode == "block":
            # It has no words of its own for that.
            with pytest.raises(APIError) as caught:
                await answered(runtime, request, raises=True)
            assert caught.value.code == "content_filter"
        else:
            _, said = await answered(runtime, request)
            assert said is not None
            assert (CARD[9:] in said) == (mode == "monitor")
            assert said.count("<CARD_1>") == (2 if mode == "redact" else 0)
        assert request.told_verdicts == f"cards-{mode}:{mode}"
        request.end()


TYPED = (
    b'--X\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n'
    b"Content-Type: audio/wav\r\n\r\nRIFF\r\n"
    b'--X\r\nContent-Disposition: form-data; name="file"; filename="b.wav"\r\n'
    b"Content-Type: audio/wav; x=%b\r\n\r\nRIFF\r\n--X--\r\n"
)


@pytest.mark.parametrize("mode", MODES)
def test_the_types_of_a_forms_parts_are_looked_through(mode: Mode) -> None:
    form = parse_form(TYPED % CARD.encode(), "multipart/form-data; boundary=X")
    guard = Guard(Checks([CheckSettings(name="c", patterns=("cards",), mode=mode)]))
    call = Call(TRANSCRIPTIONS, form.fields(), "m", False, "req-1", form=form)
    if mode == "block":
        with pytest.raises(Blocked):
            _asked(call, guard)
        return
    sent = _asked(call, guard).form
    assert sent is not None
    kept = f"audio/wav; x={CARD}" if mode == "monitor" else None
    assert [part.type for part in sent.parts] == ["audio/wav", kept]
    assert (CARD.encode() in sent.render({})) == (mode == "monitor")
    assert guard.verdicts == {("c", mode): 1}


@pytest.mark.parametrize("name", ["prompt", "input"])
def test_a_check_of_pictures_has_nothing_to_do_with_ids_of_tokens(name: str) -> None:
    images = {"model": "j", "format": "policy", "policy": "None."}
    look = CheckSettings.model_validate({"name": "look", "images": images})
    guard = Guard(Checks([look]))
    fields = parse_fields(json.dumps({"model": "m", name: [1, 2, 3]}).encode())
    assert guard.fields(fields) == fields
    assert guard.verdicts == {}
    text = CheckSettings.model_validate({"name": "cards", "patterns": ["cards"]})
    with pytest.raises(Blocked, match="cards"):
        Guard(Checks([look, text])).fields(fields)


def test_names_that_nobody_knows_are_looked_through() -> None:
    fields = parse_fields(json.dumps({"model": "m", CARD: 1, "messages": []}).encode())
    modes: tuple[Mode, ...] = ("redact", "block")
    for mode in modes:
        guard = Guard(Checks([CheckSettings(name="c", patterns=("cards",), mode=mode)]))
        if mode == "redact":
            assert list(guard.fields(fields)) == ["model", "<CARD_1>", "messages"]
        else:
            with pytest.raises(Blocked):
                guard.fields(fields)
