"""Keys: made, limited, rotated and revoked, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Callable
from secrets import token_hex
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration import wire
from tests.integration.page.chromium import needs_chromium
from tests.integration.page.conftest import ADMIN_KEY, API_KEY
from tests.integration.page.test_playground import expect
from tests.integration.server_process import ServerProcess

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = needs_chromium

ADMIN = {"authorization": f"Bearer {ADMIN_KEY}"}
HOSTILE = '<img src=x onerror="alert(1)">'

Shot = Callable[[str], None]


def ask(server: ServerProcess, key: str, model: str = "echo") -> int:
    body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": "Hi"}]}
    headers = {"authorization": f"Bearer {key}"}
    return wire.request("POST", f"{server.base_url}/chat/completions", body, headers).status


@pytest.fixture
def keys(page: Page, operated: ServerProcess) -> Page:
    page.goto(f"{operated.url}/#/keys")
    page.get_by_label("Admin key").fill(ADMIN_KEY)
    page.get_by_role("button", name="Use this key").click()
    return page


def make(page: Page, name: str, **fields: str) -> str:
    """Make a key with the form; the key."""
    page.get_by_role("button", name="New key").click()
    page.get_by_role("dialog").get_by_label("Name").fill(name)
    page.get_by_role("dialog").get_by_label("Team").select_option("research")
    for label, value in fields.items():
        page.get_by_label(label.replace("_", " ")).fill(value)
    page.get_by_role("button", name="Create").click()
    return take_secret(page, name)


def take_secret(page: Page, name: str) -> str:
    """The key that is shown this once."""
    dialog = page.get_by_role("dialog", name=f"The key of {name}")
    key = dialog.get_by_role("region", name="Key").text_content()
    assert key is not None
    dialog.get_by_role("button", name="Close").click()
    expect(page.locator("dialog")).to_have_count(0)
    assert key not in page.content()
    return key


def row(page: Page, name: str) -> Locator:
    return page.locator("li.entry").filter(has=page.get_by_role("heading", name=name, exact=True))


def test_a_key_from_first_to_last(keys: Page, operated: ServerProcess, shot: Shot) -> None:
    # The server is the module's: one that is tried again makes a key of another name.
    name = f"robot-{token_hex(3)}"
    key = make(keys, name, Models="echo, ven*", Expires="2099-12-31", Budget_in_US_dollars="2.5")
    found = row(keys, name)
    for text in ("research", "echo, ven*", "$0 of $2.50 a month", "2099-12-31", key[:12]):
        expect(found).to_contain_text(text)
    shot("keys")
    assert [ask(operated, key), ask(operated, key, "tiny")] == [200, 403]
    meter = found.get_by_role("meter", name=f"Budget of {name}")
    expect(meter).not_to_have_attribute("aria-valuenow", "0")
    expect(found).to_contain_text("used just now")

    found.get_by_role("button", name=f"Change {name}").click()
    dialog = keys.get_by_role("dialog")
    expect(dialog.get_by_label("Team")).to_have_value("research")
    shot("keys-form")
    dialog.get_by_label("Requests a minute").fill("1")
    keys.get_by_role("button", name="Change", exact=True).click()
    expect(found).to_contain_text("of 1 requests a minute")
    expect(found).to_contain_text("echo, ven*")
    assert sorted(ask(operated, key) for _ in range(3))[1:] == [429, 429]
    expect(found).to_contain_text("1 of 1 requests a minute")
    found.get_by_role("button", name=f"Change {name}").click()
    dialog.get_by_label("Requests a minute").fill("")
    dialog.get_by_label("Budget in US dollars").fill("")
    keys.get_by_role("button", name="Change", exact=True).click()
    expect(found).to_contain_text("no limits")
    expect(found).to_contain_text("no budget")
    assert ask(operated, key) == 200

    found.get_by_role("button", name=f"Rotate {name}").click()
    keys.get_by_role("button", name="Rotate", exact=True).click()
    second = take_secret(keys, name)
    assert [ask(operated, each) for each in (key, second)] == [401, 200]

    found.get_by_role("button", name=f"Revoke {name}").click()
    keys.get_by_role("button", name="Cancel").click()
    assert ask(operated, second) == 200
    found.get_by_role("button", name=f"Revoke {name}").click()
    keys.get_by_role("button", name="Revoke", exact=True).click()
    expect(found).to_contain_text("revoked 20")
    expect(found.get_by_role("button", name="Revoke")).to_have_count(0)
    assert ask(operated, second) == 401


def test_a_key_is_shown_even_where_the_list_can_t_be_read(
    keys: Page, operated: ServerProcess
) -> None:
    """Nobody is told it a second time, and the one before is revoked."""
    name = f"once-{token_hex(3)}"
    first = make(keys, name)
    keys.route("**/admin/access", lambda route: route.fulfill(status=503))
    row(keys, name).get_by_role("button", name=f"Rotate {name}").click()
    keys.get_by_role("button", name="Rotate", exact=True).click()
    expect(keys.locator("dialog")).to_have_count(2)
    second = keys.locator("dialog pre").text_content()
    assert second is not None
    assert [ask(operated, each) for each in (first, second)] == [401, 200]


def test_two_who_change_a_key_at_once_lose_nothing(keys: Page, operated: ServerProcess) -> None:
    name = f"shared-{token_hex(3)}"
    limits = {"requests_per_minute": 7, "concurrent": 2}
    path = f"{operated.url}/admin/keys"
    wire.request("POST", path, {"name": name, "limits": limits}, ADMIN)
    keys.reload()
    row(keys, name).get_by_role("button", name=f"Change {name}").click()
    dialog = keys.get_by_role("dialog")
    dialog.get_by_label("Tokens a minute").fill("900")
    dialog.get_by_label("Requests at a time").fill("5")
    others = {"team": "research", "limits": {**limits, "requests_per_minute": 8, "concurrent": 3}}
    wire.request("PATCH", f"{path}/{name}", others, ADMIN)
    change = dialog.get_by_role("button", name="Change", exact=True)
    change.click()
    told = dialog.get_by_role("alert")
    for what in ("Team: research", "Requests a minute: 8", "Requests at a time: 3"):
        expect(told).to_contain_text(what)
    expect(dialog.get_by_label("Tokens a minute")).to_have_value("900")
    change.click()
    expect(dialog).to_have_count(0)
    kept = wire.request("GET", path, headers=ADMIN).json()["data"]
    [found] = [each for each in kept if each["name"] == name]
    assert found["team"] == "research"
    assert found["limits"] == {
        "requests_per_minute": 8,
        "tokens_per_minute": 900,
        "concurrent": 5,
    }


def test_a_key_of_the_template_is_shown_as_such(keys: Page, operated: ServerProcess) -> None:
    found = row(keys, "the page's")
    expect(found.locator(".badge").first).to_have_text("template")
    expect(found.get_by_role("button", name="Revoke")).to_have_count(0)
    assert ask(operated, API_KEY) == 200
    # What it spent is a curve, with its numbers behind it.
    curve = found.get_by_role("button", name="Spending of the page's, the last 30 days")
    usage = f"{operated.url}/admin/usage?by=key"

    def is_recorded() -> bool:
        rows = wire.request("GET", usage, headers=ADMIN).json()["data"]
        return "the page's" in {row["key_name"] for row in rows}

    wire.eventually(is_recorded)
    # What happened was so long ago by the server's clock, however wrong this one is.
    keys.add_init_script("const now = Date.now; Date.now = () => now() - 2 * 3600 * 1000;")
    keys.reload()
    expect(found).to_contain_text(re.compile(r"used (just now|\d minutes? ago)"))
    curve.click()
    dialog = keys.get_by_role("dialog", name="Spending of the page's, the last 30 days")
    dialog.get_by_text("As a table").click()
    expect(dialog.locator("tbody tr")).to_have_count(1)


def test_keys_are_found(keys: Page, operated: ServerProcess) -> None:
    for grant in ({"name": "found-by-name"}, {"name": HOSTILE, "team": "research"}):
        wire.request("POST", f"{operated.url}/admin/keys", grant, ADMIN)
    keys.reload()
    entries = keys.locator("li.entry")
    expect(row(keys, HOSTILE)).to_be_visible()
    assert keys.locator("img").count() == 0
    keys.get_by_role("searchbox", name="Search").fill("FOUND-by")
    expect(entries).to_have_count(1)
    expect(keys.get_by_role("status").filter(has_text="1 of ")).to_be_visible()
    keys.get_by_role("searchbox", name="Search").fill("nobody is called so")
    expect(keys.get_by_text("No key is like that.")).to_be_visible()
    keys.get_by_role("searchbox", name="Search").fill("")
    keys.get_by_role("combobox", name="Team", exact=True).select_option("no team")
    expect(row(keys, "found-by-name")).to_be_visible()
    expect(row(keys, HOSTILE)).to_have_count(0)
    keys.get_by_role("combobox", name="Team", exact=True).select_option("research")
    expect(row(keys, HOSTILE)).to_be_visible()
    keys.get_by_role("combobox", name="State", exact=True).select_option("expired")
    expect(entries).to_have_count(0)


def test_keys_are_exported(keys: Page) -> None:
    with keys.expect_download() as download:
        keys.get_by_role("button", name="Export keys").click()
    assert download.value.suggested_filename == "keys.csv"
    assert "the page's" in download.value.path().read_text("utf-8")


def test_what_can_be_done_is_always_in_view(keys: Page, operated: ServerProcess) -> None:
    name = f"in-view-{token_hex(3)}-" + "x" * 60
    grant = {"name": name, "models": [f"a-model-of-a-long-name-{place}" for place in range(9)]}
    wire.request("POST", f"{operated.url}/admin/keys", grant, ADMIN)
    revoke = row(keys, name).get_by_role("button", name=f"Revoke {name}")
    # The two at last are those of 200 % in windows of 1440 and 640.
    for width in (390, 1024, 1440, 720, 320):
        keys.set_viewport_size({"width": width, "height": 800})
        revoke.scroll_into_view_if_needed()
        box = revoke.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        assert keys.evaluate("() => document.documentElement.scrollWidth") <= width


def test_what_the_server_refuses_is_said_in_the_form(keys: Page) -> None:
    keys.get_by_role("button", name="New key").click()
    keys.get_by_role("dialog").get_by_label("Name").fill("   ")
    keys.get_by_role("button", name="Create").click()
    expect(keys.get_by_role("dialog").get_by_role("alert")).to_contain_text("name")
    keys.keyboard.press("Escape")
    expect(keys.get_by_role("dialog")).to_have_count(0)


def test_the_playground_asks_for_a_key_where_one_is_needed(
    page: Page, operated: ServerProcess
) -> None:
    page.goto(operated.url)
    page.get_by_label("API key").fill("sk-wrong")
    page.get_by_role("button", name="Use this key").click()
    expect(page.get_by_role("alert")).to_contain_text("Incorrect or missing API key")
    page.get_by_label("API key").fill("sk-of-the-page")
    page.get_by_role("button", name="Use this key").click()
    expect(page.get_by_label("Model")).to_be_visible()
    page.get_by_label("Message").fill("With a key")
    page.keyboard.press("Enter")
    expect(page.locator(".message.assistant .text")).to_have_text("With a key")
    page.get_by_role("button", name="Forget the key").click()
    expect(page.get_by_label("API key")).to_be_visible()
