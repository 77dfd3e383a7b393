"""What whoever runs the server sees of it, in a real browser."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration import wire
from tests.integration.chat_vendor import USAGE, will_break_off, will_say
from tests.integration.native_vendor import NativeVendor
from tests.integration.page.chromium import needs_chromium
from tests.integration.page.conftest import ADMIN_KEY, API_KEY, providers_and_models
from tests.integration.page.test_playground import expect
from tests.integration.server_process import ServerProcess, running, write_template

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Locator, Page

pytestmark = needs_chromium

Shot = Callable[[str], None]
ADMIN = {"authorization": f"Bearer {ADMIN_KEY}"}


def ask(server: ServerProcess, model: str, request_id: str = "", **members: Any) -> wire.Reply:
    return wire.request(
        "POST",
        f"{server.base_url}/chat/completions",
        {"model": model, "messages": [{"role": "user", "content": "Hi there"}], **members},
        headers={"authorization": f"Bearer {API_KEY}", "x-request-id": request_id or "plain"},
    )


def admin(server: ServerProcess, path: str) -> Any:
    return wire.request("GET", f"{server.url}/admin/{path}", headers=ADMIN).json()


@pytest.fixture(scope="module")
def used(operated: ServerProcess, vendor: NativeVendor) -> ServerProcess:
    """The server after ten requests: four, three, one and two of which failed."""
    will_say(vendor, "Fine.")
    for _ in range(4):
        assert ask(operated, "echo").status == 200
    for _ in range(3):
        assert ask(operated, "vendor").status == 200
    assert ask(operated, "tiny", max_tokens=3).status == 200
    for place in range(2):
        assert ask(operated, "gone", f"failing-{place}").status == 502
    wire.eventually(lambda: len(admin(operated, "errors")["data"]) == 2)
    return operated


@pytest.fixture
def overview(page: Page, used: ServerProcess) -> Page:
    return entered(page, used)


def entered(page: Page, server: ServerProcess, key: str = ADMIN_KEY) -> Page:
    page.goto(f"{server.url}/#/overview")
    page.get_by_label("Admin key").fill(key)
    page.get_by_role("button", name="Use this key").click()
    return page


def cells(page: Page, caption: str, first: str) -> Locator:
    """The cells of the row of a table that begins so."""
    row = (
        page.get_by_role("region", name=caption, exact=True)
        .locator("tr")
        .filter(has=page.locator("td:first-child", has_text=re.compile(f"^{re.escape(first)}$")))
    )
    return row.locator("td")


def test_what_happened_is_added_up(overview: Page, shot: Shot) -> None:
    totals = overview.locator(".totals div")
    expect(totals.filter(has_text="Requests")).to_contain_text("Requests10")
    expect(totals.filter(has_text="Errors")).to_contain_text("Errors2 (20 %)")
    # Two words of each echo, what the vendor says of its replies, and the tiny model's.
    output = 4 * 2 + 3 * USAGE["completion_tokens"] + 3
    expect(totals.filter(has_text="Output tokens")).to_contain_text(f"Output tokens{output}")
    expect(totals.filter(has_text="Cost")).to_contain_text("Cost$0.000024")
    charts = overview.locator(".chart")
    expect(charts.locator("> h3")).to_have_text(
        [
            "Requests",
            "Errors",
            "Tokens",
            "Cost",
            "Latency of whole replies",
            "Latency of first contents",
        ]
    )
    bars = charts.first.locator("rect")
    expect(bars.first).to_have_count(1)
    titles = bars.locator("title").all_text_contents()
    assert sum(int(each.rsplit(" ", 1)[1]) for each in titles) == 10
    charts.first.get_by_text("As a table").click()
    numbers = charts.first.locator("tbody td").all_text_contents()
    assert sum(map(int, numbers[1::3])) == 8
    assert sum(map(int, numbers[2::3])) == 2
    shot("overview")


def test_what_happened_is_told_apart(overview: Page) -> None:
    expect(cells(overview, "By model", "echo")).to_have_text(
        ["echo", "4", "0", "16", "$0.000024", re.compile(r"m?s$")]
    )
    expect(cells(overview, "By model", "vendor")).to_have_text(
        ["vendor", "3", "0", "150", "unknown", re.compile(r"m?s$")]
    )
    expect(cells(overview, "By provider", "gone").nth(2)).to_have_text("2")
    expect(cells(overview, "By key", "the page's").nth(1)).to_have_text("10")


def test_what_went_wrong_most_is_told(overview: Page) -> None:
    [found] = [cells(overview, "Top errors", "connection (502)")]
    expect(found.nth(1)).to_have_text("2")
    expect(found.nth(2)).to_have_text("gone")
    expect(found.nth(6)).to_have_text("failing-1")
    expect(cells(overview, "By team", "none").nth(1)).to_have_text("10")


def test_budgets_say_what_they_will_come_to(overview: Page, used: ServerProcess) -> None:
    grant = {"name": "with-a-budget", "budget": {"amount": 3, "period": "month"}}
    wire.request("POST", f"{used.url}/admin/keys", grant, ADMIN)
    overview.reload()
    budgets = overview.locator("section").filter(
        has=overview.get_by_role("heading", name="Budgets", exact=True)
    )
    expect(budgets).to_contain_text("with-a-budget")
    expect(budgets.get_by_role("meter", name="Budget of with-a-budget")).to_have_attribute(
        "aria-valuetext", "$0 of $3 a month"
    )


def test_one_looks_back_as_far_as_one_likes(overview: Page) -> None:
    requests = overview.locator(".totals div").filter(has_text="Requests")
    for span in ("hour", "6 hours", "7 days", "30 days", "90 days"):
        # All ten came within the last hour: what was there before has to go first.
        requests.evaluate("each => { each.textContent = '' }")
        overview.get_by_label("The last").select_option(span)
        expect(requests).to_contain_text("Requests10")
        expect(cells(overview, "By model", "echo").nth(1)).to_have_text("4")


def test_the_last_errors_have_their_ids(overview: Page) -> None:
    found = cells(overview, "Last errors", "")
    rows = overview.get_by_role("region", name="Last errors").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.locator("code")).to_have_text(["failing-1", "failing-0"])
    expect(rows.first).to_contain_text("502")
    expect(rows.first).to_contain_text("connection")
    expect(rows.first).to_contain_text("the page's")
    assert found.count() == 0


def test_targets_and_engines_are_told_of(overview: Page) -> None:
    expect(cells(overview, "Targets", "gone/gone").nth(1)).to_have_text(
        re.compile("failed 2 in a row|left alone")
    )
    expect(cells(overview, "Targets", "gone/gone").nth(6)).to_have_text("connection")
    expect(cells(overview, "Targets", "echo/echo").nth(1)).to_have_text("well")
    expect(cells(overview, "Targets", "echo/echo").nth(4)).to_have_text("4")
    engine = overview.get_by_role("region", name="Engines").locator("tbody tr")
    expect(engine).to_have_count(1)
    expect(engine.locator("td").first).to_contain_text("local/")
    expect(engine.locator("td").nth(3)).to_have_text(re.compile(r"^\d[\d,]* of \d[\d,]* \("))
    # Of three tokens the last need not be computed with.
    expect(engine.locator("td").nth(6)).to_have_text("3")


def test_what_runs_now_is_seen_until_it_ends(
    overview: Page, used: ServerProcess, vendor: NativeVendor, shot: Shot
) -> None:
    expect(overview.get_by_text("No requests are running.")).to_be_visible()
    will_break_off(vendor, hold=True)
    left = threading.Event()

    def stay() -> None:
        body = {"model": "vendor", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
        headers = {"authorization": f"Bearer {API_KEY}", "x-request-id": "long-one"}
        url = f"{used.base_url}/chat/completions"
        with wire.open_reply("POST", url, body, headers) as reply:
            reply.read(10)
            left.wait(60)

    client = threading.Thread(target=stay)
    client.start()
    try:
        row = overview.get_by_role("region", name="Running now").locator("tbody tr")
        expect(row).to_have_count(1)
        expect(row.locator("td").first).to_have_text("long-one")
        expect(row).to_contain_text("vendor/vendor")
        expect(row).to_contain_text("the page's")
        expect(row).to_contain_text("chat")
        shot("overview-live")
    finally:
        left.set()
        client.join()
    expect(overview.get_by_text("No requests are running.")).to_be_visible()
    assert admin(used, "live")["requests"] == []


def test_a_wrong_key_shows_nothing(page: Page, used: ServerProcess) -> None:
    entered(page, used, API_KEY)
    expect(page.get_by_role("alert")).to_contain_text("Incorrect or missing admin key")
    expect(page.get_by_text("Last errors")).to_have_count(0)
    page.get_by_label("Admin key").fill(ADMIN_KEY)
    page.get_by_role("button", name="Use this key").click()
    expect(page.get_by_role("heading", name="Last errors")).to_be_visible()


def test_the_admin_key_is_this_tab_s_alone(
    overview: Page, context: BrowserContext, used: ServerProcess
) -> None:
    expect(overview.get_by_role("heading", name="Last errors")).to_be_visible()
    overview.reload()
    expect(overview.get_by_role("heading", name="Last errors")).to_be_visible()
    other = context.new_page()
    other.goto(f"{used.url}/#/overview")
    expect(other.get_by_label("Admin key")).to_be_visible()
    state = context.storage_state(indexed_db=True)
    assert ADMIN_KEY not in str(state)
    assert state["cookies"] == []
    assert ADMIN_KEY not in overview.content()
    overview.get_by_role("button", name="Forget the admin key").click()
    expect(overview.get_by_label("Admin key")).to_be_visible()
    assert overview.evaluate("() => Object.values(sessionStorage)").count(ADMIN_KEY) == 0


def test_without_an_admin_key_it_says_how_to_have_one(page: Page, server: ServerProcess) -> None:
    for view in ("overview", "keys"):
        page.goto(f"{server.url}/#/{view}")
        expect(page.get_by_text("This server has no admin key")).to_be_visible()
        expect(page.locator("pre")).to_contain_text("admin_key:")


@pytest.fixture(scope="module")
def without_records(
    vendor: NativeVendor, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    path: Path = tmp_path_factory.mktemp("bare") / "bare.yaml"
    server = {"admin_key": ADMIN_KEY}
    template = write_template(path, server=server, **providers_and_models(vendor))
    with running(template) as process:
        yield process


def test_without_records_it_shows_what_there_is(page: Page, without_records: ServerProcess) -> None:
    entered(page, without_records)
    expect(page.get_by_role("alert")).to_contain_text("records no requests")
    expect(page.get_by_role("heading", name=re.compile("Running now"))).to_be_visible()
    page.goto(f"{without_records.url}/#/keys")
    expect(page.get_by_text("This server stores no keys")).to_contain_text("stored_keys")
