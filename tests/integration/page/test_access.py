"""For everybody: keyboard, screen reader, small and large, dark and light; and for nobody else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import pytest

from routing.page.files import FOLDER
from tests.integration import wire
from tests.integration.chat_vendor import will_say
from tests.integration.native_vendor import NativeVendor
from tests.integration.page.chromium import needs_chromium
from tests.integration.page.conftest import ADMIN_KEY, API_KEY, keep, watched
from tests.integration.page.test_chatting import REPLY
from tests.integration.page.test_playground import TOOLS, answer, expect, say
from tests.integration.server_process import ServerProcess

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

pytestmark = needs_chromium

WIDTHS = (390, 1024, 1440)
Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
GROUND = {"light": "rgb(255, 255, 255)", "dark": "rgb(21, 23, 28)"}


OF_COLOURS = ("color-contrast", "link-in-text-block")
"""The rules of axe-core that are about colours."""


def audit(page: Page, rules: Sequence[str] = ()) -> None:
    """Hold the page to the rules of axe-core (WCAG 2.2 A and AA, and best practices); to some of
    them alone, if any are named."""
    from axe_playwright_python.base import AXE_SCRIPT

    # Half a megabyte of script, which a document has to read once.
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    options: dict[str, Any] = {"resultTypes": ["violations"]}
    if rules:
        options["runOnly"] = {"type": "rule", "values": rules}
    found = page.evaluate("async options => (await axe.run(options)).violations", options)
    assert [
        (each["id"], [node["html"][:200] for node in each["nodes"]], each["help"]) for each in found
    ] == []


def look(
    page: Page, name: str, widths: Sequence[int] = WIDTHS, schemes: Sequence[Scheme] = SCHEMES
) -> None:
    """Keep how it looks, if asked to, and hold it to fitting into the window and to what can be
    read.

    One visit is enough for all: that the window and its colours are others is for the stylesheet
    alone, but for which panels are open at first. Of the schemes after the first, colours are all
    that differs: what the stylesheet has for that, `light-dark()`, gives nothing else.
    """
    for width in widths:
        page.set_viewport_size({"width": width, "height": 800})
        for scheme in schemes:
            page.emulate_media(color_scheme=scheme)
            ground = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
            assert ground == GROUND[scheme]
            keep(page, f"{name}-{width}-{scheme}")
            assert page.evaluate("() => document.documentElement.scrollWidth") <= width
            audit(page, OF_COLOURS if scheme != schemes[0] else ())


def test_a_scheme_differs_in_its_colours_alone() -> None:
    """Which is why `look` holds all but the first to the rules of colours."""
    style = (FOLDER / "style.css").read_text("utf-8")
    assert "prefers-color-scheme" not in style
    by_scheme = re.findall(r"^\[data-theme=.+", style, re.M)
    assert by_scheme == [f'[data-theme="{each}"] {{ color-scheme: {each}; }}' for each in SCHEMES]


@pytest.mark.parametrize("width", [390, 1440])
def test_every_view_fits_and_can_be_read(
    browser: Browser, operated: ServerProcess, vendor: NativeVendor, width: int
) -> None:
    """Come to with a small window, and with a large one, where panels are open."""
    widths = [each for each in WIDTHS if (each < 1000) == (width < 1000)]
    headers = {"authorization": f"Bearer {ADMIN_KEY}"}
    name = f"a-key-of-someone-{width}"
    grant = {"name": name, "team": "research", "models": ["a-long-name-of-a-model-*"]}
    wire.request("POST", f"{operated.url}/admin/keys", grant, headers)
    size: Any = {"width": width, "height": 800}
    context = browser.new_context(viewport=size)
    with watched(context.new_page()) as page:
        page.goto(operated.url)
        look(page, "key", widths)
        page.get_by_label("API key").fill(API_KEY)
        page.get_by_role("button", name="Use this key").click()
        page.get_by_label("Model").select_option("vendor")
        will_say(vendor, f"A long word: {'x' * 300}\n\n{REPLY}", thoughts="Hm. " * 20)
        say(page, "What is the capital of France?")
        answer(page)
        if width < 1000:
            page.get_by_text("Settings", exact=True).click()
        page.get_by_label("Reply as").select_option("json_schema")
        page.get_by_label("Reply as").select_option("")
        page.get_by_label("Tools (JSON)").fill(str(TOOLS).replace("'", '"'))
        will_say(vendor, calls=[("get_weather", {"city": "x" * 200})])
        say(page, "And the weather?")
        expect(page.get_by_label("Result of get_weather")).to_be_visible()
        page.get_by_role("button", name="Compare with another model").click()
        look(page, "playground", widths)

        page.get_by_role("link", name="Overview").click()
        page.get_by_label("Admin key").fill(ADMIN_KEY)
        page.get_by_role("button", name="Use this key").click()
        expect(page.get_by_role("heading", name="Last errors")).to_be_visible()
        look(page, "overview", widths)

        page.get_by_role("link", name="Keys and teams").click()
        expect(page.get_by_text(name)).to_be_visible()
        look(page, "keys", widths)
        page.get_by_role("button", name="New key").click()
        look(page, "keys-form", widths)
    context.close()


def test_colours_can_be_chosen_and_are_kept(page: Page, server: ServerProcess) -> None:
    page.goto(server.url)
    page.get_by_label("Theme").select_option("dark")
    ground = "() => getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ground) == "rgb(21, 23, 28)"
    page.reload()
    expect(page.get_by_label("Theme")).to_have_value("dark")
    assert page.evaluate(ground) == "rgb(21, 23, 28)"


def test_the_keyboard_is_enough(page: Page, server: ServerProcess, vendor: NativeVendor) -> None:
    will_say(vendor, "Hello yourself.", thoughts="Hm.")
    page.goto(server.url)
    expect(page.get_by_label("Model")).to_be_visible()
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to the content")
    expect(skip).to_be_focused()
    box = skip.bounding_box()
    assert box is not None
    assert box["x"] >= 0
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()
    tab_to(page, page.get_by_label("Model"))
    page.keyboard.type("vendor")
    tab_to(page, page.get_by_label("Message"))
    page.keyboard.type("Hello")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("you")
    page.keyboard.press("Enter")
    answer(page)
    assert vendor.last.body["messages"][-1]["content"] == "Hello\nyou"
    expect(page.get_by_label("Message")).to_be_focused()
    tab_to(page, page.get_by_text("Reasoning", exact=True), back=True)
    page.keyboard.press("Enter")
    expect(page.get_by_text("Hm.")).to_be_visible()
    tab_to(page, page.get_by_role("button", name="Copy as code"), back=True)
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Copy as code")).to_be_focused()
    tab_to(page, page.get_by_role("link", name="Keys and teams"), back=True)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Keys and teams")).to_be_visible()
    expect(page.get_by_role("link", name="Keys and teams")).to_have_attribute(
        "aria-current", "page"
    )
    expect(page).to_have_title("Keys and teams – llama_compat")


def tab_to(page: Page, place: Any, *, back: bool = False) -> None:
    """Press Tab until it is there."""
    for _ in range(40):
        page.keyboard.press("Shift+Tab" if back else "Tab")
        if place.evaluate("each => each === document.activeElement"):
            return
    raise AssertionError(f"Tab does not lead to {place}")


def test_a_screen_reader_is_told(page: Page, server: ServerProcess, vendor: NativeVendor) -> None:
    will_say(vendor, "Hello.")
    page.goto(server.url)
    page.get_by_label("Model").select_option("vendor")
    say(page)
    expect(page.get_by_role("status")).to_have_text("vendor has answered")
    expect(page.get_by_role("log", name="Conversation 1")).to_be_visible()
    expect(page.get_by_role("article", name="You")).to_have_count(1)
    expect(page.get_by_role("article", name="vendor")).to_have_count(1)
    # Every field has a name, and every landmark.
    nameless = page.evaluate(
        "() => [...document.querySelectorAll('input, select, textarea')]"
        ".filter(each => !each.labels.length).length"
    )
    assert nameless == 0
    expect(page.get_by_role("navigation", name="Views")).to_be_visible()
    assert page.locator("html").get_attribute("lang") == "en"


def test_scripts_that_are_not_ours_do_not_run(
    context: BrowserContext, server: ServerProcess
) -> None:
    page = context.new_page()
    page.goto(server.url)
    page.get_by_label("Model").wait_for()
    blocked = page.evaluate(
        """async () => {
          const blocked = new Set();
          document.addEventListener(
            'securitypolicyviolation', each => blocked.add(each.effectiveDirective));
          const script = document.createElement('script');
          try { document.body.innerHTML = '<p>'; } catch {}
          try { script.textContent = 'window.owned = 1'; document.body.append(script); } catch {}
          const style = document.createElement('style');
          style.textContent = 'body { display: none }';
          document.head.append(style);
          const image = new Image();
          image.src = 'http://127.0.0.2:9/x.png';
          await fetch('http://127.0.0.2:9/').catch(() => {});
          await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
          const shown = getComputedStyle(document.body).display;
          return { blocked: [...blocked], owned: window.owned ?? null, shown };
        }"""
    )
    assert (blocked["owned"], blocked["shown"]) == (None, "block")
    wanted = {"connect-src", "img-src", "style-src-elem", "require-trusted-types-for"}
    assert wanted <= set(blocked["blocked"])


def test_the_policy_lets_nothing_in(server: ServerProcess) -> None:
    reply = wire.request("GET", server.url)
    policy = dict(
        each.strip().partition(" ")[::2]
        for each in reply.headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert not re.search("unsafe|http|\\*", reply.headers["content-security-policy"])
