"""Dictation, recordings and replies read aloud, with a microphone that the browser makes up."""

from __future__ import annotations

import hashlib
import io
import json
import wave
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.media_vendor import KEY, WORDS, Asked, MediaVendors
from tests.integration.native_vendor import Answer, NativeVendor
from tests.integration.page.chromium import needs_chromium
from tests.integration.page.conftest import watched
from tests.integration.page.test_access import look
from tests.integration.page.test_playground import expect
from tests.integration.server_process import ServerProcess, running, write_template

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Locator, Page

pytestmark = needs_chromium

HEARS = {"input": ["text", "audio"], "makes": ["text"]}
REPLY = {"choices": [{"index": 0, "delta": {"content": "I heard you."}, "finish_reason": "stop"}]}


@pytest.fixture(scope="module")
def vendors() -> Iterator[MediaVendors]:
    with MediaVendors() as vendors:
        yield vendors


@pytest.fixture(scope="module")
def server(
    vendors: MediaVendors, vendor: NativeVendor, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """One with models that write down, hear and speak, and one that does none of that."""
    remote = {"id": "openai", "type": "remote::openai"}
    config = {"base_url": f"{vendors.url}/openai/v1", "api_key": KEY}
    passes = {"id": "vendor", "type": "remote::passthrough"}
    template = write_template(
        tmp_path_factory.mktemp("voice") / "voice.yaml",
        providers=[
            {"id": "echo", "type": "local::echo"},
            {**remote, "config": config},
            {**passes, "config": {"base_url": f"{vendor.url}/v1"}},
        ],
        models=[
            {"id": "echo", "provider": "echo"},
            {"id": "writes", "provider": "openai", "provider_model": "whisper-1"},
            {"id": "broken", "provider": "openai", "provider_model": "down",
             "facts": {"input": ["audio"], "makes": ["text"]}},
            {"id": "hears", "provider": "vendor", "facts": HEARS},
            {"id": "speaks", "provider": "openai", "provider_model": "a-tone",
             "facts": {"input": ["text"], "makes": ["audio"]}},
            {"id": "mumbles", "provider": "openai", "provider_model": "tts-1"},
        ],
    )  # fmt: skip
    with running(template) as process:
        yield process


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A browser whose user lets the page listen."""
    made = browser.new_context(viewport={"width": 1440, "height": 900}, permissions=["microphone"])
    yield made
    made.close()


@pytest.fixture
def talk(page: Page, server: ServerProcess) -> Page:
    page.goto(server.url)
    page.get_by_label("Model").select_option("echo")
    return page


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def asked_last(vendors: MediaVendors, call: str) -> Asked:
    return next(each for each in reversed(vendors.asked) if each.path.endswith(call))


def dictate(page: Page) -> None:
    press(page, "Dictate")
    ending = page.get_by_role("button", name="End dictation")
    expect(ending).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("status")).to_have_text("Listening")
    # It beeps once a second.
    page.wait_for_timeout(1300)
    ending.click()


def sound_of(content: bytes) -> tuple[int, int, int]:
    """Channels, samples a second, and bytes a sample of a WAV file that has sound in it."""
    with wave.open(io.BytesIO(content)) as file:
        assert file.getnframes() > file.getframerate() / 10
        assert any(file.readframes(file.getnframes()))
        return file.getnchannels(), file.getframerate(), file.getsampwidth()


def test_what_is_dictated_goes_where_the_caret_is(talk: Page, vendors: MediaVendors) -> None:
    text = talk.get_by_label("Message")
    text.fill("Before after")
    text.evaluate("field => field.setSelectionRange(6, 6)")
    dictate(talk)
    expect(text).not_to_have_value("Before after")
    expect(text).to_have_value(f"Before {words_of(vendors)} after")
    expect(text).to_be_focused()
    expect(talk.get_by_role("button", name="Dictate", exact=True)).to_have_attribute(
        "aria-pressed", "false"
    )
    asked = asked_last(vendors, "audio/transcriptions")
    name, kind, content = asked.files["file"]
    assert (asked.fields["model"], name, kind) == ("whisper-1", "dictation.wav", "audio/wav")
    assert sound_of(content) == (1, 16000, 2)
    # Nothing was sent by itself.
    expect(talk.locator(".message")).to_have_count(0)


def words_of(vendors: MediaVendors) -> Any:
    """What the vendor wrote down: its words, and of which file."""
    name, kind, content = asked_last(vendors, "audio/transcriptions").files["file"]
    return f"{WORDS} {name} {kind} {hashlib.sha256(content).hexdigest()}"


def test_a_writer_that_is_down_is_told_and_another_can_be_chosen(talk: Page) -> None:
    talk.get_by_label("Dictation is written by").select_option("broken")
    dictate(talk)
    expect(talk.locator(".composer .problem")).to_contain_text("Overloaded")
    talk.get_by_label("Dictation is written by").select_option("writes")
    dictate(talk)
    expect(talk.get_by_label("Message")).not_to_have_value("")
    expect(talk.locator(".composer .problem")).to_have_text("")


def test_a_recording_goes_to_a_model_that_hears(talk: Page, vendor: NativeVendor) -> None:
    recording = talk.get_by_role("button", name="Record", exact=True)
    expect(recording).to_be_hidden()
    talk.get_by_label("Model").select_option("hears")
    recording.click()
    talk.wait_for_timeout(300)
    press(talk, "End recording")
    expect(talk.get_by_text("Recording.wav")).to_be_visible()
    pieces = [f"data: {json.dumps(REPLY)}\n\n".encode(), b"data: [DONE]\n\n"]
    vendor.will_answer(Answer(pieces, content_type="text/event-stream"))
    talk.get_by_label("Message").fill("What do I say?")
    press(talk, "Send")
    expect(talk.locator(".message.assistant .text")).to_have_text("I heard you.")
    content = vendor.last.body["messages"][0]["content"]
    assert content[0] == {"type": "text", "text": "What do I say?"}
    assert content[1]["input_audio"]["format"] == "wav"
    player = talk.locator(".message.user audio")
    expect(player).to_have_attribute("aria-label", "Sound 1")
    assert player.evaluate("sound => new Promise((done, fail) => {"
                           "sound.onloadedmetadata = () => done(sound.duration);"
                           "sound.onerror = () => fail(new Error('not played')); sound.load(); })"
                           ) > 0.1  # fmt: skip


def said(page: Page, text: str) -> Locator:
    page.get_by_label("Message").fill(text)
    press(page, "Send")
    reply = page.locator(".message.assistant").last
    expect(reply.locator(".text")).to_have_text(text)
    return reply


def test_a_reply_is_read_aloud_and_ended(talk: Page, vendors: MediaVendors) -> None:
    talk.get_by_label("Replies are read by").select_option("speaks")
    talk.get_by_label("Voice").fill("nova")
    reply = said(talk, "Read me")
    reply.get_by_role("button", name="Read aloud").click()
    expect(reply.get_by_role("button", name="Stop reading")).to_have_attribute(
        "aria-pressed", "true"
    )
    # It ends by itself.
    expect(reply.get_by_role("button", name="Read aloud")).to_be_visible()
    fields = asked_last(vendors, "audio/speech").fields
    assert fields == {"model": "a-tone", "input": "Read me", "voice": "nova"}


def test_what_cannot_be_played_is_said(talk: Page) -> None:
    talk.get_by_label("Replies are read by").select_option("mumbles")
    reply = said(talk, "Read me")
    reply.get_by_role("button", name="Read aloud").click()
    expect(talk.locator(".composer .problem")).to_contain_text("can't play")
    expect(reply.get_by_role("button", name="Read aloud")).to_be_visible()


def test_who_refuses_the_microphone_is_told_where_to_allow_it(
    browser: Browser, server: ServerProcess
) -> None:
    refusing = browser.new_context()
    try:
        with watched(refusing.new_page()) as tab:
            tab.goto(server.url)
            refusing.clear_permissions()
            tab.evaluate(
                "() => { navigator.mediaDevices.getUserMedia = async () => {"
                " throw new DOMException('', 'NotAllowedError'); }; }"
            )
            press(tab, "Dictate")
            expect(tab.locator(".composer .problem")).to_contain_text("not allowed for this page")
            expect(tab.get_by_role("button", name="Dictate")).to_be_enabled()
    finally:
        refusing.close()


def test_the_buttons_fit_a_phone(talk: Page) -> None:
    talk.set_viewport_size({"width": 390, "height": 800})
    talk.get_by_label("Model").select_option("hears")
    expect(talk.get_by_role("button", name="Record", exact=True)).to_be_visible()
    look(talk, "voice", [390], ["light"])


def test_who_leaves_is_no_longer_listened_to(talk: Page) -> None:
    talk.evaluate(
        "() => { const ask = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);"
        " navigator.mediaDevices.getUserMedia = async (wish) => (window.heard = await ask(wish)); }"
    )
    press(talk, "Dictate")
    expect(talk.get_by_role("button", name="End dictation")).to_be_visible()
    talk.get_by_role("link", name="Models and targets").click()
    talk.wait_for_function(
        "window.heard.getTracks().every((track) => track.readyState === 'ended')"
    )


def test_without_such_models_nothing_is_offered(
    page: Page, vendor: NativeVendor, tmp_path_factory: pytest.TempPathFactory
) -> None:
    template = write_template(
        tmp_path_factory.mktemp("mute") / "mute.yaml",
        providers=[{"id": "echo", "type": "local::echo"}],
        models=[{"id": "echo", "provider": "echo"}],
    )
    with running(template) as process:
        page.goto(process.url)
        reply = said(page, "Hello")
        for name in ("Dictate", "Record", "Read aloud"):
            expect(page.get_by_role("button", name=name, exact=True)).to_be_hidden()
        expect(reply.get_by_role("button", name="Regenerate")).to_be_visible()
        expect(page.get_by_label("Voice")).to_have_count(0)


ASKS_FIRST = """() => {
  const listen = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
  navigator.mediaDevices.getUserMedia = (asked) => new Promise((resolve) => {
    window.allow = async () => resolve((window.stream = await listen(asked)));
  });
}"""


def test_who_leaves_the_room_leaves_nothing_behind_that_listens_or_asks(talk: Page) -> None:
    talk.evaluate(ASKS_FIRST)
    press(talk, "Dictate")
    talk.wait_for_function("() => window.allow !== undefined")
    talk.evaluate("() => { location.hash = '#/overview'; }")
    expect(talk.get_by_role("heading", name="Overview")).to_be_visible()
    talk.evaluate("() => allow()")
    talk.wait_for_function(
        "() => stream.getTracks().every(({ readyState }) => readyState === 'ended')"
    )
    # A room that is still coming.
    talk.route("**/v1/models", lambda _: None)
    with talk.expect_request("**/v1/models"):
        talk.evaluate("() => { location.hash = '#/playground'; }")
    with talk.expect_event("requestfailed") as failed:
        talk.evaluate("() => { location.hash = '#/overview'; }")
    assert failed.value.failure == "net::ERR_ABORTED"
