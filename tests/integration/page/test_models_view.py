"""Models and targets: what is shown of each, and what can be done to it, by keyboard too."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration import wire
from tests.integration.chat_vendor import will_say
from tests.integration.native_vendor import NativeVendor
from tests.integration.page.chromium import needs_chromium
from tests.integration.page.conftest import ADMIN_KEY, API_KEY
from tests.integration.page.test_access import WIDTHS, look, tab_to
from tests.integration.page.test_playground import expect
from tests.integration.server_process import ServerProcess, running, write_template

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = needs_chromium

Shot = Callable[[str], None]
ADMIN = {"authorization": f"Bearer {ADMIN_KEY}"}
HOSTILE = '<img src=x onerror="alert(1)">'
LONG = "a-name-that-a-program-has-made-" * 6
TARGET = f"vendor/{HOSTILE}/of a model"


@pytest.fixture(scope="module")
def spread(vendor: NativeVendor, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A server of a model that is spread over three targets, one of which nobody reaches."""
    folder = tmp_path_factory.mktemp("spread")
    remote = {"type": "remote::passthrough"}
    template = write_template(
        folder / "spread.yaml",
        server={
            "admin_key": ADMIN_KEY,
            "records": {},
            "storage": f"sqlite:{folder / 'operations.sqlite'}",
        },
        providers=[
            {"id": "echo", "type": "local::echo"},
            {**remote, "id": "vendor", "config": {"base_url": f"{vendor.url}/v1"}},
            {**remote, "id": "gone", "config": {"base_url": "http://127.0.0.1:1/v1"}},
            {
                "id": "shared",
                "type": "local::echo",
                "config": {"simulate": {"memory": "5GB", "load_seconds": 0.2}},
            },
            {"id": "sharing", "type": "local::echo", "config": {"simulate": {"memory": "31MB"}}},
        ],
        memory={"cpu": "12GB"},
        models=[
            {
                "id": "spread",
                "aliases": [HOSTILE, LONG, "\u202eesrever"],
                "targets": [
                    {"provider": "echo", "model": "first", "weight": 3},
                    {"provider": "gone", "model": "second"},
                    {"provider": "vendor", "model": f"{HOSTILE}/of a model", "priority": 1},
                ],
                "price": {"input": 1, "output": 2.5},
            },
            {"id": "plain", "provider": "echo", "facts": {"shutdown": "2020-01-01"}},
            {"id": "large", "provider": "shared"},
            {"id": "small", "provider": "sharing"},
        ],
        keys=[{"name": "the page's", "key": API_KEY, "models": ["spread"]}],
        routing={"cooldown": {"failures": 1, "seconds": 600}},
    )
    with running(template) as process:
        # Chance says who is asked first: of so many, the one that nobody reaches is among them.
        for _ in range(100):
            ask(process)
        usage = f"{process.url}/admin/usage"
        wire.eventually(lambda: wire.request("GET", usage, headers=ADMIN).json()["data"])
        yield process


def ask(server: ServerProcess) -> str:
    """Which target answered."""
    body = {"model": "spread", "messages": [{"role": "user", "content": "Hi"}]}
    headers = {"authorization": f"Bearer {API_KEY}"}
    reply = wire.request("POST", f"{server.base_url}/chat/completions", body, headers)
    return reply.headers.get("x-llama-compat-target", str(reply.status))


@pytest.fixture
def models(page: Page, spread: ServerProcess) -> Page:
    page.goto(f"{spread.url}/#/models")
    page.get_by_label("Admin key").fill(ADMIN_KEY)
    page.get_by_role("button", name="Use this key").click()
    return page


def target(page: Page, name: str) -> Locator:
    return (
        page.locator("li.target")
        .filter(has=page.get_by_role("heading", name=name, exact=True))
        .first
    )


def test_a_model_is_shown_with_its_targets(models: Page, shot: Shot) -> None:
    spread = models.locator("li.model").first
    expect(spread).to_contain_text("also " + HOSTILE)
    # What turns letters round is spelt out, or it would look like another name.
    expect(spread).to_contain_text(r"\u202eesrever")
    expect(spread).to_contain_text("for the key the page's")
    first = target(models, "echo/first")
    for text in ("well", "weight 3", "$1 in, $2.50 out for a million tokens", "% of the traffic"):
        expect(first).to_contain_text(text)
    expect(target(models, "gone/second")).to_contain_text(re.compile(r"left alone for \d+ s"))
    expect(target(models, "gone/second")).to_contain_text("connection")
    expect(target(models, TARGET)).to_contain_text("standby 1")
    expect(models.locator("li.model").nth(1)).to_contain_text("was shut down on 2020-01-01")
    expect(models.locator("li.model").nth(1)).to_contain_text("no key opens it")
    assert models.locator("img").count() == 0
    shot("models")
    models.get_by_role("searchbox", name="Search").fill("PLAIN")
    expect(models.locator("li.model")).to_have_count(1)


def test_a_target_is_drained_and_opened_by_keyboard(models: Page, spread: ServerProcess) -> None:
    models.get_by_label("Your name").fill("Zoë")
    drain = models.get_by_role("button", name="Drain echo/first")
    tab_to(models, drain)
    models.keyboard.press("Enter")
    dialog = models.get_by_role("dialog")
    expect(dialog).to_contain_text("Send nothing to echo/first")
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    # What opened the dialog is drawn anew meanwhile.
    drain.evaluate(
        "it => it.closest('li.model').replaceWith(it.closest('li.model').cloneNode(true))"
    )
    models.keyboard.press("Escape")
    expect(drain).to_be_focused()
    assert ask(spread)
    models.reload()
    tab_to(models, drain)
    models.keyboard.press("Enter")
    models.keyboard.press("Shift+Tab")
    models.keyboard.press("Enter")
    expect(target(models, "echo/first")).to_contain_text("drained")
    assert {ask(spread) for _ in range(4)}.isdisjoint({"echo/first"})
    done = models.get_by_role("region", name="What was done").locator("tbody tr").first
    for text in ("Zoë (127.0.0.1)", "target.drain", "echo/first"):
        expect(done).to_contain_text(text)
    opened = models.get_by_role("button", name="Open echo/first")
    expect(opened).to_be_focused()
    models.keyboard.press("Enter")
    expect(target(models, "echo/first")).to_contain_text("well")
    assert ask(spread) == "echo/first"


def test_a_target_that_is_drained_can_be_tried(
    models: Page, spread: ServerProcess, vendor: NativeVendor
) -> None:
    models.get_by_role("button", name=f"Drain {TARGET}").click()
    models.get_by_role("dialog").get_by_role("button", name="Drain").click()
    expect(target(models, TARGET)).to_contain_text("drained")
    will_say(vendor, HOSTILE)
    models.get_by_role("button", name=f"Try {TARGET}").click()
    dialog = models.get_by_role("dialog")
    dialog.get_by_role("button", name="Ask").click()
    expect(dialog.get_by_role("region", name="Reply")).to_have_text(HOSTILE)
    expect(dialog).to_contain_text("It answered in")
    dialog.get_by_role("button", name="Close").click()
    models.get_by_role("button", name="Try gone/second").click()
    dialog.get_by_role("button", name="Ask").click()
    expect(dialog.get_by_role("status")).to_contain_text("502")
    models.keyboard.press("Escape")
    models.get_by_role("button", name=f"Open {TARGET}").click()
    expect(target(models, TARGET)).to_contain_text("well")


def test_a_model_of_shared_memory_is_loaded_and_unloaded_by_keyboard(models: Page) -> None:
    large = target(models, "shared/large")
    memory = models.get_by_role("list", name="Memory that models share")
    expect(large).to_contain_text("memorynot loaded")
    expect(memory).to_contain_text("0 GB of 12 GB")
    load = models.get_by_role("button", name="Load large")
    tab_to(models, load)
    models.keyboard.press("Enter")
    expect(large).to_contain_text("takes5 GB of cpu")
    expect(large).to_contain_text("memoryloaded")
    expect(memory).to_contain_text("5 GB of 12 GB")
    models.get_by_role("button", name="Unload large").press("Enter")
    dialog = models.get_by_role("dialog")
    expect(dialog).to_contain_text("Take large out of memory")
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    dialog.get_by_role("button", name="Unload").press("Enter")
    expect(large).to_contain_text("memorynot loaded")
    expect(memory).to_contain_text("0 GB of 12 GB")
    done = models.get_by_role("region", name="What was done").locator("tbody tr").first
    expect(done).to_contain_text("model.unload")


def test_a_small_model_does_not_take_nothing(models: Page) -> None:
    models.get_by_role("button", name="Load small").press("Enter")
    expect(target(models, "sharing/small")).to_contain_text("takes31 MB of cpu")
    shown = models.get_by_role("list", name="Memory that models share")
    expect(shown).to_contain_text("31 MB of 12 GB")
    models.get_by_role("button", name="Unload small").press("Enter")
    models.get_by_role("dialog").get_by_role("button", name="Unload").press("Enter")
    expect(shown).to_contain_text("0 GB of 12 GB")


def test_what_is_not_seen_any_more_is_said(models: Page) -> None:
    """A server that is slow, and one that is gone, behind a page that is open."""
    expect(target(models, "echo/first")).to_be_visible()
    held: list[Any] = []
    models.route("**/admin/models", lambda route: held.append(route))
    models.get_by_role("link", name="Template").click()
    models.get_by_role("link", name="Models and targets").click()
    expect(models.get_by_text("Waiting for the server")).to_be_visible()
    models.unroute("**/admin/models")  # what was held goes on
    assert held
    expect(target(models, "echo/first")).to_be_visible()
    models.route("**/admin/models", lambda route: route.fulfill(status=503, body="Away."))
    away = models.locator("#away")
    expect(away).to_contain_text(re.compile(r"Away\. What is shown was so at \d\d:\d\d:\d\d\."))
    look(models, "models-away", [1440], ["light"])
    expect(target(models, "echo/first")).to_be_visible()
    models.unroute("**/admin/models")
    expect(away).to_be_empty()


RIGHTS = """names => names.map(name => {
  const button = document.querySelector(`button[aria-label="${CSS.escape(name)}"]`);
  return button?.checkVisibility() ? button.getBoundingClientRect().right : 0;
})"""
"""Where buttons end; 0 for what is not seen. Asked in one step, as the table is drawn anew now and
then: a locator finds its button in one step and asks it in another, when it can be gone."""


def test_it_fits_and_can_be_read(models: Page) -> None:
    page = models
    expect(target(page, "echo/first")).to_be_visible()
    look(page, "models")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        rights = page.evaluate(RIGHTS, [f"{name} {TARGET}" for name in ("Drain", "Try")])
        assert all(0 < right <= width for right in rights)
    page.get_by_role("button", name="Try echo/first").click()
    page.get_by_role("button", name="Ask").click()
    expect(page.get_by_role("region", name="Reply")).to_be_visible()
    look(page, "models-try")
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Playground").click()
    page.get_by_label("API key").fill(API_KEY)
    page.get_by_role("button", name="Use this key").click()
    page.get_by_label("Model").select_option(LONG)
    look(page, "models-playground")
