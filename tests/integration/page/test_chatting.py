"""What a conversation in the playground can be: Markdown, versions, sides, files, presets."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.chat_vendor import will_say
from tests.integration.native_vendor import NativeVendor
from tests.integration.page.chromium import needs_chromium
from tests.integration.page.test_playground import Shot, answer, expect, opened, say
from tests.integration.server_process import ServerProcess

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = needs_chromium

REPLY = r"""# A heading

Some **bold**, `code`, a [link](https://example.com/a?b=1) and \(a^2 + b^2\).

| left | right |
| --- | ---: |
| one | 2 |

```python
def f(x: int) -> str:
    return "text"  # a comment
```

$$\int_0^1 x\,dx = \frac{1}{2}$$

1. first
2. second

- [x] done
"""

HOSTILE = """<img src=x onerror="document.title='owned'"><svg onload="document.title='owned'">

[one](javascript:document.title='owned') [two](data:text/html,x)
[three](#/keys) [four](//evil.example)

![see](https://evil.example/pixel.png) ![see](javascript:1) ![see](data:image/svg+xml,x)

<form action="/admin"><input name=title></form> <style>body{display:none}</style>

```"><img src=x onerror=1>
</code></pre><script>document.title='owned'</script>
```

$$\\href{javascript:alert(1)}{x} \\includegraphics{https://evil.example/a.png}$$

<https://evil.example/"onmouseover="document.title='owned'>
"""


def test_a_reply_is_shown_as_it_is_meant(
    page: Page, server: ServerProcess, vendor: NativeVendor, shot: Shot
) -> None:
    will_say(vendor, REPLY)
    opened(page, server)
    say(page)
    said = answer(page).locator(".markdown")
    expect(said.get_by_role("heading", name="A heading")).to_be_visible()
    expect(said.locator("strong")).to_have_text("bold")
    expect(said.get_by_role("cell", name="one")).to_be_visible()
    expect(said.locator("math")).to_have_count(2)
    expect(said.locator(".hljs-keyword").first).to_have_text("def")
    expect(said.get_by_role("listitem").first).to_have_text("first")
    link = said.get_by_role("link", name="link")
    expect(link).to_have_attribute("href", "https://example.com/a?b=1")
    expect(link).to_have_attribute("rel", re.compile("noopener"))
    expect(link).to_have_attribute("target", "_blank")
    shot("chatting-markdown")


def test_code_is_copied_as_it_was_written(
    page: Page, server: ServerProcess, vendor: NativeVendor
) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    will_say(vendor, "```html\n<b>&amp;</b>\n```")
    opened(page, server)
    say(page)
    answer(page).get_by_role("button", name="Copy the code").click()
    expect(page.get_by_role("status")).to_have_text("Copied")
    assert page.evaluate("() => navigator.clipboard.readText()").strip() == "<b>&amp;</b>"


def test_a_hostile_reply_does_nothing(
    page: Page, server: ServerProcess, vendor: NativeVendor
) -> None:
    """That nothing was asked of anybody else is what the `page` fixture holds."""
    will_say(vendor, HOSTILE)
    opened(page, server)
    say(page)
    said = answer(page).locator(".markdown")
    expect(said).to_contain_text("owned")
    expect(said.locator("img, script, style, form, input, svg, iframe")).to_have_count(0)
    targets = said.locator("a").evaluate_all("all => all.map(each => each.getAttribute('href'))")
    assert all(each.startswith("https://") for each in targets), targets
    attributes = said.evaluate(
        "root => [...root.querySelectorAll('*')].flatMap(each => each.getAttributeNames())"
    )
    assert not [each for each in attributes if each.startswith("on") or each in ("style", "id")]
    expect(page).not_to_have_title("owned")
    expect(said.get_by_role("link", name=re.compile("evil.example")).first).to_be_visible()


def test_what_grows_is_the_same_as_what_is_whole(page: Page, server: ServerProcess) -> None:
    """Every prefix of a reply, one after another, ends where all of it at once does."""
    page.goto(server.url)
    grown, whole, kept = page.evaluate(
        """async (text) => {
          const { Markdown } = await import("/page/markdown.js");
          const grown = new Markdown(), whole = new Markdown();
          grown.update(text.slice(0, 60));
          const heading = grown.root.querySelector("h1");
          for (let end = 61; end <= text.length; end += 1) grown.update(text.slice(0, end));
          const kept = heading === grown.root.querySelector("h1");
          grown.update(text, true);
          whole.update(text, true);
          await new Promise((resolve) => setTimeout(resolve, 500));
          return [grown.root.outerHTML, whole.root.outerHTML, kept];
        }""",
        REPLY + "\n> quoted\n\nlast line",
    )
    assert grown == whole
    assert kept


def test_versions_of_a_message(
    page: Page, server: ServerProcess, vendor: NativeVendor, shot: Shot
) -> None:
    will_say(vendor, "First try.")
    opened(page, server)
    say(page, "Question")
    answer(page)
    will_say(vendor, "Second try.")
    page.get_by_role("button", name="Regenerate").click()
    expect(page.get_by_text("Second try.")).to_be_visible()
    expect(page.get_by_text("First try.")).to_have_count(0)
    assert [each["content"] for each in vendor.last.body["messages"]] == ["Question"]
    versions = page.get_by_role("group", name="Versions")
    expect(versions).to_contain_text("2 of 2")
    shot("chatting-versions")
    page.get_by_role("button", name="Previous version").click()
    expect(page.get_by_text("First try.")).to_be_visible()
    will_say(vendor, "To another question.")
    page.get_by_role("button", name="Edit").click()
    page.get_by_label("Your message, anew").fill("Another question")
    page.get_by_role("button", name="Send anew").click()
    expect(page.get_by_text("To another question.")).to_be_visible()
    assert [each["content"] for each in vendor.last.body["messages"]] == ["Another question"]
    # What was said after the first question is there as it was left.
    answer(page)
    page.locator(".message.user").get_by_role("button", name="Previous version").click()
    expect(page.get_by_text("First try.")).to_be_visible()
    expect(page.locator(".message.assistant")).to_contain_text("1 of 2")


def test_a_version_that_fails_leaves_the_one_before(page: Page, server: ServerProcess) -> None:
    opened(page, server, "echo")
    say(page, "Still here")
    answer(page)
    page.get_by_label("Model").select_option("gone")
    page.get_by_role("button", name="Regenerate").click()
    expect(page.locator(".failure")).to_contain_text("can't connect")
    leads = ("href", re.compile("^#/requests/req_"))
    expect(page.locator(".failure").get_by_role("link")).to_have_attribute(*leads)
    expect(page.locator(".message.assistant .figures a")).to_have_attribute(*leads)
    expect(page.locator(".message.assistant .text")).to_have_text("Still here")
    expect(page.get_by_role("group", name="Versions")).to_have_count(0)


def test_a_branch_goes_on_elsewhere(
    page: Page, server: ServerProcess, vendor: NativeVendor
) -> None:
    will_say(vendor, "Yes.")
    opened(page, server)
    say(page, "One")
    answer(page)
    say(page, "Two")
    expect(page.locator(".message.assistant")).to_have_count(2)
    answer(page)
    page.get_by_role("button", name="Branch").first.click()
    expect(page.locator(".message")).to_have_count(2)
    expect(page.get_by_role("button", name="One (branch)", exact=True)).to_be_visible()
    page.get_by_role("button", name="One", exact=True).click()
    expect(page.locator(".message")).to_have_count(4)


def test_four_sides_and_no_more(page: Page, server: ServerProcess, shot: Shot) -> None:
    opened(page, server, "echo")
    compare = page.get_by_role("button", name="Compare with another model")
    for _ in range(3):
        compare.click()
    expect(compare).to_be_hidden()
    sides = page.locator(".column")
    expect(sides).to_have_count(4)
    for place in range(4):
        sides.nth(place).get_by_label("Model").select_option("echo")
    say(page, "To all")
    for place in range(4):
        expect(sides.nth(place).locator(".message.assistant .text")).to_have_text("To all")
    shot("chatting-four")
    page.get_by_role("button", name="Remove this model").nth(1).click()
    expect(sides).to_have_count(3)
    expect(page.locator(".message.assistant")).to_have_count(3)


def test_a_conversation_as_a_file(
    page: Page, server: ServerProcess, vendor: NativeVendor, tmp_path: Path
) -> None:
    will_say(vendor, "An **answer**.")
    opened(page, server)
    page.get_by_label("temperature").fill("0.2")
    say(page, "Share me")
    answer(page)
    page.get_by_role("button", name="Share", exact=True).click()
    with page.expect_download() as written:
        page.get_by_role("button", name="Download as Markdown").click()
    text = Path(written.value.path()).read_text("utf-8")
    assert "# Share me" in text
    assert "An **answer**." in text
    with page.expect_download() as written:
        page.get_by_role("button", name="Download as JSON").click()
    assert written.value.suggested_filename == "Share-me.json"
    file = tmp_path / "shared.json"
    written.value.save_as(file)
    wrong = tmp_path / "wrong.json"
    content = json.loads(file.read_text("utf-8"))
    content["columns"][0]["messages"][0]["content"] = [
        {"type": "image_url", "image_url": {"url": "https://evil.example/a.png"}}
    ]
    wrong.write_text(json.dumps(content))
    page.get_by_label("Open a file").set_input_files(wrong)
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("no conversation")
    page.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="Delete Share me").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.locator(".message")).to_have_count(0)
    page.get_by_role("button", name="Share", exact=True).click()
    heard = json.loads(file.read_text())
    heard["columns"][0]["messages"][0]["content"] = [
        {"type": "input_audio", "input_audio": {"format": "wav", "data": "UklGRg=="}}
    ]
    file.write_text(json.dumps(heard))
    page.get_by_label("Open a file").set_input_files(file)
    expect(page.locator(".message.user audio")).to_have_count(1)
    expect(page.locator(".message.assistant strong")).to_have_text("answer")
    expect(page.get_by_label("temperature")).to_have_value("0.2")


def test_files_go_along(
    page: Page, server: ServerProcess, vendor: NativeVendor, tmp_path: Path
) -> None:
    will_say(vendor, "Read.")
    (tmp_path / "notes.md").write_text("with ``` in it", "utf-8")
    (tmp_path / "paper.pdf").write_bytes(b"%PDF-1.4")
    (tmp_path / "program").write_bytes(b"\x00\xff")
    opened(page, server)
    page.get_by_label("Files").set_input_files(tmp_path / "program")
    expect(page.locator(".problem")).to_contain_text("program is neither")
    page.get_by_label("Files").set_input_files([tmp_path / "notes.md", tmp_path / "paper.pdf"])
    expect(page.locator(".attached li")).to_have_count(2)
    say(page, "Sum up")
    answer(page)
    question, notes, paper = vendor.last.body["messages"][0]["content"]
    assert question["text"] == "Sum up"
    assert notes["text"] == "notes.md:\n````\nwith ``` in it\n````"
    assert paper["file"]["filename"] == "paper.pdf"
    assert paper["file"]["file_data"].startswith("data:application/pdf;base64,")


def test_presets_are_kept(page: Page, server: ServerProcess) -> None:
    opened(page, server, "echo")
    page.get_by_label("System prompt").fill("Be a pirate.")
    page.get_by_label("Name of a new preset").fill("Pirate")
    page.get_by_role("button", name="Save as preset").click()
    page.get_by_role("button", name="New conversation").click()
    page.get_by_label("System prompt").fill("")
    page.reload()
    page.get_by_role("combobox", name="Preset").select_option("Pirate")
    expect(page.get_by_label("System prompt")).to_have_value("Be a pirate.")
    page.get_by_role("button", name="Delete preset").click()
    expect(page.get_by_role("combobox", name="Preset").locator("option")).to_have_text(["none"])


def test_a_reader_is_left_alone(page: Page, server: ServerProcess) -> None:
    opened(page, server, "echo")
    say(page, "\n\n".join(f"line {count} is here" for count in range(60)))
    log = page.locator(".log")
    page.wait_for_function(
        "() => { const log = document.querySelector('.log');"
        " return document.querySelector('.message.assistant .text') && log.scrollTop > 300; }"
    )
    log.evaluate("log => { log.scrollTop = 100; }")
    answer(page)
    assert log.evaluate("log => log.scrollTop") == 100
    to_end = page.get_by_role("button", name="Go to the end")
    to_end.click()
    expect(to_end).to_be_hidden()
    assert log.evaluate("log => log.scrollHeight - log.scrollTop - log.clientHeight") < 5


@pytest.mark.parametrize("width", [390, 1440])
def test_a_reply_fits(
    page: Page, server: ServerProcess, vendor: NativeVendor, shot: Shot, width: int
) -> None:
    """Come to with a small window, and with a large one, where panels are open."""
    page.set_viewport_size({"width": width, "height": 900})
    will_say(vendor, REPLY + "\n\n```\n" + "wide " * 60 + "\n```\n")
    opened(page, server)
    say(page)
    answer(page)
    expect(page.locator("math")).to_have_count(2)
    for now in (width,) if width < 1000 else (1024, width):
        page.set_viewport_size({"width": now, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= now
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            shot(f"chatting-{now}-{scheme}")


def test_another_room_hands_messages_over(
    page: Page, server: ServerProcess, vendor: NativeVendor
) -> None:
    will_say(vendor, "Gone on with.")
    page.goto(f"{server.url}/#/keys")
    expect(page.get_by_role("heading", name="Keys")).to_be_visible()
    page.evaluate(
        """async () => (await import("/page/handover.js")).handOver(
          {model: "vendor", temperature: 0.1, messages: [
            {role: "system", content: "Be brief."}, {role: "user", content: "Asked before"},
            {role: "assistant", content: "Said *before*"}]})"""
    )
    expect(page.locator(".message.assistant em")).to_have_text("before")
    expect(page.get_by_label("System prompt")).to_have_value("Be brief.")
    page.get_by_role("button", name="Regenerate").click()
    expect(page.get_by_text("Gone on with.")).to_be_visible()
    body = vendor.last.body
    assert body["temperature"] == 0.1
    assert [each["content"] for each in body["messages"]] == ["Be brief.", "Asked before"]


def test_the_first_look_is_quick_to_come(page: Page, server: ServerProcess) -> None:
    """What only some replies need is not asked for before one does."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    opened(page, server, "echo")
    say(page, "Plain")
    answer(page)
    assert not [each for each in asked if "highlight" in each or "temml" in each]
