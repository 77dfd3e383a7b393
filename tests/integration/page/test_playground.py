"""The playground: everything that can be done with a model there, once, in a real browser."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.chat_vendor import will_break_off, will_say
from tests.integration.native_vendor import Answer, NativeVendor
from tests.integration.page.chromium import needs_chromium
from tests.integration.server_process import ServerProcess

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Locator, Page

pytestmark = needs_chromium

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000 1f15c4890000000d49444154"
    "789c636060f80f0001040100 5fe5c34b0000000049454e44ae426082".replace(" ", "")
)
"""A PNG of one pixel."""

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}

Shot = Callable[[str], None]


def expect(locator: Locator) -> Any:
    """Playwright's, which waits longer than the page does between two looks (five seconds, which
    is what Playwright waits too)."""
    from playwright.sync_api import expect

    expect.set_options(timeout=30_000)
    return expect(locator)


def opened(page: Page, server: ServerProcess, model: str = "vendor") -> Page:
    page.goto(server.url)
    page.get_by_label("Model").select_option(model)
    return page


def say(page: Page, text: str = "Hello") -> None:
    page.get_by_label("Message").fill(text)
    page.get_by_role("button", name="Send", exact=True).click()


def answer(page: Page, place: int = -1) -> Locator:
    """A message of a model, when it has ended."""
    found = page.locator(".message.assistant").nth(place)
    found.locator(".figures span").first.wait_for()
    return found


def test_an_answer_is_streamed_and_timed(page: Page, server: ServerProcess, shot: Shot) -> None:
    opened(page, server, "echo")
    # So many that a busy machine sees some before the last.
    words = " ".join(["one", *["and"] * 58, "ten"])
    say(page, words)
    # Part of it is there before the rest, while the log is said to be busy.
    page.wait_for_function(
        "() => { const text = document.querySelector('.message.assistant .text');"
        " const said = text?.textContent ?? '';"
        " const busy = document.querySelector('.log')?.getAttribute('aria-busy');"
        " return said.startsWith('one ') && !said.endsWith('ten') && busy === 'true'; }",
        polling="raf",
    )
    ended = answer(page)
    expect(ended.locator(".text")).to_have_text(words)
    figures = ended.locator(".figures")
    expect(figures).to_contain_text(re.compile(r"first token after [\d.]+ m?s"))
    expect(figures).to_contain_text(re.compile(r"\d[\d.,]* tokens/s"))
    expect(figures).to_contain_text("60 tokens")
    expect(figures).to_contain_text("finish reason stop")
    expect(page.locator(".log")).to_have_attribute("aria-busy", "false")
    expect(page.get_by_role("status")).to_have_text("echo has answered")
    shot("playground-answer")


def test_what_is_asked_travels(page: Page, server: ServerProcess, vendor: NativeVendor) -> None:
    will_say(vendor, "Yes.")
    opened(page, server)
    say(page, "First")
    answer(page)
    plain = {"model", "messages", "stream", "stream_options"}
    assert set(vendor.last.body) == plain
    page.get_by_label("System prompt").fill("Be brief.")
    page.get_by_label("temperature").fill("0.3")
    page.get_by_label("max_tokens").fill("77")
    page.get_by_label("Stop strings").fill("END\nSTOP")
    page.get_by_label("Reasoning effort").select_option("low")
    page.get_by_label("More parameters").fill('{"top_k": 4}')
    say(page, "Second")
    expect(page.locator(".message.assistant")).to_have_count(2)
    answer(page)
    body = vendor.last.body
    assert {name: body[name] for name in set(body) - plain} == {
        "temperature": 0.3,
        "max_tokens": 77,
        "stop": ["END", "STOP"],
        "reasoning_effort": "low",
        "top_k": 4,
    }
    assert [(each["role"], each["content"]) for each in body["messages"]] == [
        ("system", "Be brief."),
        ("user", "First"),
        ("assistant", "Yes."),
        ("user", "Second"),
    ]


def test_reasoning_is_folded(page: Page, server: ServerProcess, vendor: NativeVendor) -> None:
    will_say(vendor, "Paris.", thoughts="Let me think of France.")
    opened(page, server)
    say(page)
    ended = answer(page)
    thoughts = ended.get_by_text("Let me think of France.")
    expect(ended.get_by_text("Paris.")).to_be_visible()
    expect(thoughts).to_be_hidden()
    ended.get_by_text("Reasoning").click()
    expect(thoughts).to_be_visible()


def test_calls_are_shown_and_answered(
    page: Page, server: ServerProcess, vendor: NativeVendor, shot: Shot
) -> None:
    will_say(vendor, calls=[("get_weather", {"city": "Oslo"}), ("get_weather", {"city": "Rome"})])
    opened(page, server)
    page.get_by_label("Tools (JSON)").fill(json.dumps(TOOLS))
    say(page, "How is the weather?")
    cards = page.get_by_role("group", name="Call of get_weather")
    expect(cards).to_have_count(2)
    expect(cards.first).to_contain_text('"city": "Oslo"')
    assert vendor.last.body["tools"] == TOOLS
    shot("playground-calls")
    # Nothing else can be said meanwhile.
    say(page, "And?")
    expect(page.get_by_role("alert")).to_have_text("Answer the calls first.")
    will_say(vendor, "Cold there, warm here.")
    page.get_by_label("Result of get_weather").first.fill("-5")
    page.get_by_label("Result of get_weather").last.fill("20")
    page.get_by_role("button", name="Send results").click()
    expect(page.get_by_text("Cold there, warm here.")).to_be_visible()
    question, calls, first, second = vendor.last.body["messages"]
    assert question["role"] == "user"
    ids = [each["id"] for each in calls["tool_calls"]]
    assert [(each["role"], each["tool_call_id"], each["content"]) for each in (first, second)] == [
        ("tool", ids[0], "-5"),
        ("tool", ids[1], "20"),
    ]


def test_a_reply_after_a_schema(page: Page, server: ServerProcess, vendor: NativeVendor) -> None:
    will_say(vendor, '{"city": "Oslo"}')
    opened(page, server)
    expect(page.get_by_label("JSON schema")).to_be_hidden()
    page.get_by_label("Reply as").select_option("json_schema")
    page.get_by_label("JSON schema").fill("{no")
    vendor.received.clear()
    say(page, "Where?")
    expect(page.locator(".problem")).to_contain_text("JSON schema: this is no JSON")
    assert not vendor.received
    page.get_by_label("JSON schema").fill(json.dumps(SCHEMA))
    say(page, "Where?")
    expect(answer(page).locator(".figures")).to_contain_text("valid JSON")
    asked = vendor.last.body["response_format"]
    assert (asked["type"], asked["json_schema"]["schema"]) == ("json_schema", SCHEMA)
    will_say(vendor, "In Oslo")
    say(page, "Where?")
    expect(page.locator(".message.assistant")).to_have_count(2)
    expect(answer(page).locator(".figures")).to_contain_text("no valid JSON")


def test_images_go_along(
    page: Page, server: ServerProcess, vendor: NativeVendor, tmp_path: Path
) -> None:
    will_say(vendor, "A pixel.")
    files = [tmp_path / "one.png", tmp_path / "two.png"]
    for each in files:
        each.write_bytes(PIXEL)
    opened(page, server)
    page.get_by_label("Files").set_input_files(files)
    page.get_by_role("button", name="Remove one.png").click()
    expect(page.locator(".attached img")).to_have_count(1)
    say(page, "What is this?")
    answer(page)
    text, image = vendor.last.body["messages"][0]["content"]
    assert text == {"type": "text", "text": "What is this?"}
    assert image["image_url"]["url"].startswith("data:image/png;base64,")
    assert page.locator(".message.user img").evaluate("image => image.naturalWidth") == 1
    expect(page.locator(".attached img")).to_have_count(0)


def test_stop_ends_it_at_the_source(
    page: Page, server: ServerProcess, vendor: NativeVendor
) -> None:
    will_break_off(vendor, hold=True)
    opened(page, server)
    say(page)
    expect(page.get_by_text("It is", exact=True)).to_be_visible()
    assert not vendor.hung_up.is_set()
    page.get_by_role("button", name="Stop", exact=True).click()
    assert vendor.hung_up.wait(20)
    expect(answer(page).locator(".figures")).to_contain_text("stopped")
    expect(answer(page).locator(".text")).to_have_text("It is")
    expect(page.get_by_role("button", name="Stop", exact=True)).to_be_hidden()
    expect(page.get_by_role("button", name="Send", exact=True)).to_be_enabled()


def test_what_is_stopped_before_it_begins_leaves_nothing(
    page: Page, server: ServerProcess, vendor: NativeVendor
) -> None:
    go = threading.Event()
    will_say(vendor, "Late.", after=go)
    opened(page, server)
    say(page)
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.locator(".failure")).to_contain_text("Stopped before the first token.")
    expect(page.locator(".message.assistant")).to_have_count(0)
    go.set()
    page.get_by_role("button", name="Try again").click()
    expect(answer(page).locator(".text")).to_have_text("Late.")
    assert [each["role"] for each in vendor.last.body["messages"]] == ["user"]


def test_logprobs_are_colours_and_words(
    page: Page, server: ServerProcess, vendor: NativeVendor, shot: Shot
) -> None:
    tokens = [("Oslo", 0.95), (" is", 0.8), (" cold", 0.5), (" and", 0.2), (" far", 0.05)]
    vendor.will_answer(Answer([b"{}"]), streamed=with_logprobs(tokens))
    opened(page, server)
    page.get_by_label("Logprobs as colours").check()
    say(page)
    answer(page)
    assert (vendor.last.body["logprobs"], vendor.last.body["top_logprobs"]) == (True, 5)
    shown = page.locator(".token")
    expect(shown).to_have_text([text for text, _ in tokens])
    colours = shown.evaluate_all("all => all.map(each => getComputedStyle(each).backgroundColor)")
    assert len(set(colours)) == len(tokens)
    shot("playground-logprobs")
    page.get_by_role("group", name=re.compile("Tokens")).focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    told = page.locator(".chosen")
    expect(told).to_have_text('" is" 80 %; else "other" 1 %')
    expect(page.get_by_role("status")).to_have_text('" is" 80 %; else "other" 1 %')
    page.keyboard.press("ArrowLeft")
    expect(told).to_contain_text('"Oslo" 95 %')
    shown.last.hover()
    expect(told).to_contain_text('" far" 5 %')


def with_logprobs(tokens: list[tuple[str, float]]) -> Answer:
    """A stream of these tokens with these probabilities."""
    frame = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "own"}
    other = {"token": "other", "logprob": math.log(0.01), "bytes": None}
    events = []
    for text, share in tokens:
        token = {"token": text, "logprob": math.log(share), "bytes": None}
        logprobs = {"content": [{**token, "top_logprobs": [token, other]}]}
        choice = {"index": 0, "delta": {"content": text}, "logprobs": logprobs}
        events.append({**frame, "choices": [{**choice, "finish_reason": None}]})
    events.append({**frame, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    pieces = [b"data: " + json.dumps(each).encode() + b"\n\n" for each in events]
    return Answer([*pieces, b"data: [DONE]\n\n"], content_type="text/event-stream")


def test_two_models_side_by_side(
    page: Page, server: ServerProcess, vendor: NativeVendor, shot: Shot
) -> None:
    will_say(vendor, "I am the other.")
    opened(page, server, "echo")
    page.get_by_role("button", name="Compare with another model").click()
    expect(page.get_by_label("Model").nth(1)).to_have_value("vendor")
    say(page, "Who are you?")
    sides = page.locator(".column")
    expect(sides.nth(0).locator(".message.assistant .text")).to_have_text("Who are you?")
    expect(sides.nth(1).locator(".message.assistant .text")).to_have_text("I am the other.")
    boxes = [sides.nth(place).bounding_box() for place in (0, 1)]
    assert boxes[0] is not None
    assert boxes[1] is not None
    assert boxes[0]["y"] == boxes[1]["y"]
    assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]
    shot("playground-two-models")
    # Each goes on with its own history.
    say(page, "And now?")
    again = sides.nth(1).locator(".message.assistant .text").nth(1)
    expect(again).to_have_text("I am the other.")
    assert [each["content"] for each in vendor.last.body["messages"]] == [
        "Who are you?",
        "I am the other.",
        "And now?",
    ]
    page.get_by_role("button", name="Remove this model").click()
    expect(sides).to_have_count(1)


@pytest.mark.parametrize("language", ["curl", "Python", "JavaScript"])
def test_copied_code_does_the_same(
    page: Page,
    context: BrowserContext,
    server: ServerProcess,
    vendor: NativeVendor,
    language: str,
    tmp_path: Path,
) -> None:
    will_say(vendor, "Done.")
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened(page, server)
    page.get_by_label("System prompt").fill('It\'s "here"\\')
    page.get_by_label("temperature").fill("0.5")
    page.get_by_label("More parameters").fill('{"top_k": 4, "null": [null, true, {}]}')
    page.get_by_label("Message").fill("Ünd?\nSo.")
    page.get_by_role("button", name="Copy as code").click()
    if language != "curl":
        page.get_by_text(language, exact=True).click()
    page.get_by_role("button", name=f"Copy as {language}").click()
    expect(page.get_by_role("status")).to_have_text("Copied")
    code = page.evaluate("() => navigator.clipboard.readText()")
    page.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="Send", exact=True).click()
    answer(page)
    from_page = vendor.last.body
    vendor.received.clear()
    run_code(language, code, tmp_path)
    assert vendor.last.body == from_page


def run_code(language: str, code: str, folder: Path) -> None:
    commands = {"curl": ["sh"], "Python": [sys.executable], "JavaScript": ["node"]}
    needed = {"curl": "curl", "Python": sys.executable, "JavaScript": "node"}[language]
    if shutil.which(needed) is None:
        pytest.skip(f"there is no {needed} here")
    file = folder / ("code.mjs" if language == "JavaScript" else "code")
    file.write_text(code)
    if language == "JavaScript":
        # In place of OpenAI's package for Node: what its `create` sends is what it is given.
        package = folder / "node_modules" / "openai"
        package.mkdir(parents=True)
        (package / "package.json").write_text('{"type": "module", "main": "index.js"}')
        (package / "index.js").write_text(FETCHING)
    done = subprocess.run(
        [*commands[language], str(file)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "OPENAI_API_KEY": "none"},
    )
    assert done.returncode == 0, done.stderr
    assert "Done." in done.stdout.replace("\n", "") or language == "curl"


FETCHING = """
export default class {
  constructor({ baseURL }) {
    this.chat = { completions: { async *create(body) {
      const reply = await fetch(`${baseURL}/chat/completions`, {
        method: "POST", headers: { "content-type": "application/json" },
        body: JSON.stringify(body) });
      for (const line of (await reply.text()).split("\\n")) {
        if (line.startsWith("data: {")) yield JSON.parse(line.slice(6));
      }
    } } };
  }
}
"""


def test_conversations_stay_in_the_browser(
    page: Page, server: ServerProcess, vendor: NativeVendor
) -> None:
    will_say(vendor, "Kept.")
    opened(page, server)
    say(page, "Remember this")
    answer(page)
    page.get_by_label("temperature").fill("0.4")
    remembered = page.get_by_role("button", name="Remember this", exact=True)
    expect(remembered).to_be_visible()
    page.get_by_role("button", name="New conversation").click()
    expect(page.locator(".message")).to_have_count(0)
    say(page, "Another")
    answer(page)
    expect(page.get_by_role("button", name="Another", exact=True)).to_be_visible()
    page.reload()
    expect(page.locator(".message.user")).to_have_text(re.compile("Another"))
    remembered.click()
    expect(page.locator(".message.user")).to_have_text(re.compile("Remember this"))
    expect(page.locator(".message.assistant .text")).to_have_text("Kept.")
    expect(page.get_by_label("temperature")).to_have_value("0.4")
    expect(page.get_by_label("Model")).to_have_value("vendor")
    page.get_by_role("button", name="Delete Remember this").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(remembered).to_be_visible()
    page.get_by_role("button", name="Delete Remember this").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(remembered).to_have_count(0)
    page.reload()
    expect(page.get_by_role("button", name="Another", exact=True)).to_be_visible()
    expect(remembered).to_have_count(0)


def test_what_goes_wrong_is_said_and_tried_again(
    page: Page, server: ServerProcess, vendor: NativeVendor
) -> None:
    opened(page, server, "gone")
    say(page)
    failure = page.locator(".failure")
    expect(failure).to_contain_text("can't connect")
    expect(failure.locator("code")).to_have_text(re.compile(r"\S{8,}"))
    will_say(vendor, "Here I am.")
    page.get_by_label("Model").select_option("vendor")
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_text("Here I am.")).to_be_visible()
    expect(failure).to_have_count(0)
    will_break_off(vendor)
    say(page, "Once more")
    expect(failure).to_be_visible()
    expect(page.get_by_text("It is", exact=True)).to_be_visible()


def test_what_a_model_says_is_never_markup(
    page: Page, server: ServerProcess, vendor: NativeVendor
) -> None:
    attack = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    will_say(vendor, attack, thoughts=attack, calls=[(attack, {"a": attack})])
    opened(page, server)
    say(page, attack)
    expect(answer(page).locator(".body > .text")).to_have_text(attack)
    assert page.locator(".message img, .message script").count() == 0
    expect(page).not_to_have_title("owned")


def test_leaving_the_view_stops_what_it_asked(
    page: Page, server: ServerProcess, vendor: NativeVendor
) -> None:
    will_break_off(vendor, hold=True)
    opened(page, server)
    say(page)
    expect(page.get_by_text("It is", exact=True)).to_be_visible()
    page.get_by_role("link", name="Overview").click()
    assert vendor.hung_up.wait(20)
    page.get_by_role("link", name="Playground").click()
    expect(page.get_by_text("It is", exact=True)).to_be_visible()


def test_a_late_view_does_not_write_over_another(
    page: Page, server: ServerProcess, vendor: NativeVendor
) -> None:
    asked, go = threading.Event(), threading.Event()

    def late(route: Any) -> None:
        asked.set()
        page.get_by_role("link", name="Keys").click()
        expect(page.get_by_role("heading", name="Keys")).to_be_visible()
        go.set()
        route.continue_()

    page.route("**/v1/models", late)
    page.goto(server.url)
    page.wait_for_load_state("networkidle")
    assert asked.is_set()
    expect(page.get_by_role("heading", name="Keys")).to_be_visible()
    expect(page.get_by_role("heading", name="Playground")).to_have_count(0)
