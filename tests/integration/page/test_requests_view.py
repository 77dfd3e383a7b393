"""The log of requests, and the page of one of them, in a real browser."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from msgspec import structs

from routing.observability.records.record import COLUMNS, Record
from tests.integration import wire
from tests.integration.native_vendor import NativeVendor
from tests.integration.page.chromium import needs_chromium
from tests.integration.page.conftest import ADMIN_KEY, API_KEY, providers_and_models
from tests.integration.page.test_access import look
from tests.integration.page.test_playground import expect
from tests.integration.server_process import ServerProcess, running, write_template

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = needs_chromium

ADMIN = {"authorization": f"Bearer {ADMIN_KEY}"}
HOSTILE = '<img src=x onerror="alert(1)">'
MANY = 100_000

Shot = Callable[[str], None]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("requests")


@pytest.fixture(scope="module")
def server(vendor: NativeVendor, folder: Path) -> Iterator[ServerProcess]:
    """One that keeps bodies, has a fallback, and answered some requests."""
    sections = providers_and_models(vendor)
    sections["models"].append(
        {"id": "either", "targets": [{"provider": "gone"}, {"provider": "echo", "priority": 1}]}
    )
    template = write_template(
        folder / "requests.yaml",
        server={
            "admin_key": ADMIN_KEY,
            "records": {"record_bodies": "all"},
            "storage": f"sqlite:{folder / 'operations.sqlite'}",
        },
        keys=[{"name": HOSTILE, "key": API_KEY, "team": "research"}],
        teams=[{"id": "research"}],
        **sections,
    )
    with running(template) as process:
        ask(process, "echo", "plain", temperature=0.5)
        ask(process, "either", "second-try")
        ask(process, "gone", "failed")
        message = {"role": "user", "content": f"What is {HOSTILE}?"}
        body = {"model": "echo", "max_tokens": 50, "system": "Be brief.", "messages": [message]}
        post(process, "/v1/messages", {**body, "stream": True}, "from-claude")
        wire.eventually(lambda: len(told(process, "requests?since=1h")["data"]) == 4)
        yield process


def post(server: ServerProcess, path: str, body: Any, request_id: str) -> int:
    headers = {"authorization": f"Bearer {API_KEY}", "x-request-id": request_id}
    return wire.request("POST", f"{server.url}{path}", body, headers).status


def ask(server: ServerProcess, model: str, request_id: str, **members: Any) -> int:
    messages = [{"role": "user", "content": "Hi there"}]
    return post(
        server,
        "/v1/chat/completions",
        {"model": model, "messages": messages, **members},
        request_id,
    )


def told(server: ServerProcess, path: str) -> Any:
    return wire.request("GET", f"{server.url}/admin/{path}", headers=ADMIN).json()


def opened(page: Page, server: ServerProcess, address: str) -> Page:
    page.goto(f"{server.url}/#{address}")
    page.get_by_label("Admin key").fill(ADMIN_KEY)
    page.get_by_role("button", name="Use this key").click()
    return page


def ids(page: Page) -> list[str]:
    return page.locator("tbody td:nth-child(2)").all_inner_texts()


def rows_are(page: Page, *expected: str) -> None:
    expect(page.locator("tbody td:nth-child(2)")).to_have_text(list(expected))


def test_headers_are_shown_without_what_may_be_a_key(page: Page, server: ServerProcess) -> None:
    headers = dict(told(server, "requests/plain")["headers"])
    assert headers["authorization"] == "[covered]"
    assert headers["content-type"] == "application/json"
    assert API_KEY not in str(told(server, "requests/plain"))
    opened(page, server, "/requests/plain")
    page.get_by_text("Headers", exact=True).first.click()
    row = page.get_by_role("row", name="authorization")
    expect(row).to_contain_text("[covered]")
    expect(page.get_by_role("row", name="x-request-id")).to_contain_text("plain")


def test_the_newest_is_the_first(page: Page, server: ServerProcess, shot: Shot) -> None:
    opened(page, server, "/requests")
    rows_are(page, "from-claude", "failed", "second-try", "plain")
    failed = page.locator("tr", has_text="failed").first
    expect(failed).to_contain_text("502")
    expect(failed).to_contain_text(HOSTILE)
    expect(page.locator("tr", has_text="second-try")).to_contain_text("3 attempts")
    shot("requests")


def test_filters_are_in_the_address(page: Page, server: ServerProcess) -> None:
    opened(page, server, "/requests?status=5xx")
    rows_are(page, "failed")
    expect(page.get_by_label("Status")).to_have_value("5xx")
    page.get_by_label("Status").fill("")
    page.get_by_label("Model").fill("either")
    page.get_by_role("button", name="Show these").click()
    rows_are(page, "second-try")
    assert page.url.endswith("#/requests?model=either")
    page.get_by_role("link", name="All of the last day").click()
    rows_are(page, "from-claude", "failed", "second-try", "plain")
    page.go_back()
    rows_are(page, "second-try")


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("error=any", ["failed"]),
        ("provider=echo", ["from-claude", "second-try", "plain"]),
        ("team=research&text=PLAI", ["plain"]),
        ("team=nobody", []),
        (f"key={quote(HOSTILE)}&status=502", ["failed"]),
        ("since=2020-01-01&until=2020-01-02", []),
    ],
)
def test_scripts_filter_as_the_page_does(
    server: ServerProcess, asked: str, found: list[str]
) -> None:
    assert [each["request_id"] for each in told(server, f"requests?{asked}")["data"]] == found


def test_what_makes_no_sense_is_said_beside_the_filters(page: Page, server: ServerProcess) -> None:
    opened(page, server, "/requests?status=often")
    expect(page.get_by_role("alert")).to_contain_text("'often' is no status such as 429, or 4xx")
    page.get_by_label("Status").fill("200")
    page.get_by_role("button", name="Show these").click()
    rows_are(page, "from-claude", "second-try", "plain")


def test_what_comes_is_followed(page: Page, server: ServerProcess) -> None:
    opened(page, server, "/requests?text=later")
    expect(page.get_by_text("No such requests were recorded.")).to_be_visible()
    ask(server, "echo", "later-1")
    rows_are(page, "later-1")
    ask(server, "echo", "other")
    ask(server, "echo", "later-2")
    rows_are(page, "later-2", "later-1")
    page.get_by_label("Follow what comes").uncheck()
    ask(server, "echo", "later-3")
    wire.eventually(lambda: len(told(server, "requests?text=later-3")["data"]) == 1)
    page.wait_for_timeout(2500)
    rows_are(page, "later-2", "later-1")


def test_one_request_and_what_was_tried(page: Page, server: ServerProcess, shot: Shot) -> None:
    opened(page, server, "/requests")
    page.get_by_role("link", name="second-try").click()
    assert page.url.endswith("#/requests/second-try")
    facts = page.get_by_role("region", name="What became of it")
    expect(facts).to_contain_text("echo/either")
    steps = page.get_by_role("region", name="Timeline").locator("tbody tr")
    expect(steps).to_have_count(3)
    expect(steps.nth(0)).to_contain_text("gone/either")
    expect(steps.nth(0)).to_contain_text("failed")
    expect(steps.nth(1)).to_contain_text("retry")
    expect(steps.nth(2)).to_contain_text("fallback")
    expect(steps.nth(2)).to_contain_text("answered")
    shot("request")
    trail = told(server, "requests/second-try")["data"][0]["trail"]
    assert [(each["target"], each["outcome"]) for each in trail] == [
        ("gone/either", "failed"),
        ("gone/either", "failed"),
        ("echo/either", "answered"),
    ]
    moments = [moment for each in trail for moment in (each["begun"], each["ended"])]
    assert moments == sorted(moments)
    assert trail[2]["begun"] <= trail[2]["content"] <= trail[2]["ended"]


def test_a_conversation_looks_the_same_by_whichever_api_it_came(
    page: Page, server: ServerProcess, shot: Shot
) -> None:
    opened(page, server, "/requests/from-claude")
    said = page.get_by_role("region", name="Conversation")
    expect(said.locator("article")).to_have_count(3)
    expect(said.locator("article").nth(0)).to_contain_text("Be brief.")
    expect(said.locator("article").nth(1)).to_contain_text(HOSTILE)
    expect(said.locator("article").nth(2)).to_contain_text("What is")
    page.get_by_text("What was answered").click()
    expect(page.get_by_role("region", name="What was answered")).to_contain_text(
        "content_block_delta"
    )
    shot("request-conversation")


def test_it_is_sent_again_from_the_playground_beside_another(
    page: Page, server: ServerProcess
) -> None:
    opened(page, server, "/requests/plain")
    page.get_by_role("button", name="As code").click()
    expect(page.get_by_role("dialog")).to_contain_text("temperature")
    page.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="Beside another model").click()
    page.get_by_label("API key").fill(API_KEY)
    page.get_by_role("button", name="Use this key").click()
    expect(page.locator(".column")).to_have_count(2)
    for place in range(2):
        expect(page.locator(".column").nth(place)).to_contain_text("Hi there")
    expect(page.get_by_label("temperature")).to_have_value("0.5")


def test_one_that_is_not_there_says_so(page: Page, server: ServerProcess) -> None:
    opened(page, server, "/requests/a%2Fb%20c")
    expect(page.get_by_role("alert")).to_contain_text("No request 'a/b c' is recorded here")


def test_ids_in_the_overview_lead_there(page: Page, server: ServerProcess) -> None:
    opened(page, server, "/overview")
    page.get_by_role("region", name="Last errors").get_by_role("link", name="failed").click()
    expect(page.get_by_role("region", name="What became of it")).to_contain_text("502")


def test_it_can_be_used_by_all(page: Page, server: ServerProcess) -> None:
    opened(page, server, "/requests")
    expect(page.locator("tbody tr").first).to_be_visible()
    look(page, "requests")
    page.get_by_role("link", name="second-try").press("Enter")
    expect(page.get_by_role("region", name="Timeline")).to_be_visible()
    look(page, "request")


def test_what_somebody_reads_stays_where_it_is(
    page: Page, server: ServerProcess, folder: Path
) -> None:
    write(folder, "read", range(300))
    opened(page, server, "/requests?since=7d&model=read")
    expect(page.locator("tbody tr")).to_have_count(100)
    row = page.locator("tbody tr", has_text="read-240")
    row.scroll_into_view_if_needed()
    before = row.bounding_box()
    assert before is not None
    write(folder, "read", range(300, 320))
    expect(page.locator("tbody tr")).to_have_count(120)
    after = row.bounding_box()
    assert after is not None
    assert abs(after["y"] - before["y"]) < 2


def test_none_is_left_out_behind_what_was_taken_away(
    page: Page, server: ServerProcess, folder: Path
) -> None:
    write(folder, "gap", range(100))
    opened(page, server, "/requests?since=7d&model=gap")
    expect(page.locator("tbody tr")).to_have_count(100)
    # More than one look is told of.
    write(folder, "gap", range(100, 1250))
    expect(page.locator("tbody tr").first).to_contain_text("gap-1249")
    expect(page.locator("tbody tr")).to_have_count(1000)
    assert ids(page)[-1] == "gap-250"
    page.get_by_role("button", name="Older ones").click()
    expect(page.locator("tbody tr")).to_have_count(1100)
    assert ids(page) == [f"gap-{number}" for number in reversed(range(150, 1250))]


def test_of_an_id_that_came_twice_the_body_is_the_record_s(
    server: ServerProcess, folder: Path
) -> None:
    ask(server, "echo", "twice")
    wire.eventually(lambda: bool(told(server, "requests?text=twice")["data"]))
    assert told(server, "requests/twice")["chat"]["model"] == "echo"
    now = time.time()
    record = Record(now, "twice", "nobody", "openai", "chat", "other", "other", status=200)
    insert(folder, [record])
    found = told(server, "requests/twice")
    assert [each["model"] for each in found["data"]] == ["other", "echo"]
    assert (found["request"], found["chat"]) == (None, None)


def test_a_filter_that_fits_nothing_goes_on_from_the_end(server: ServerProcess) -> None:
    ask(server, "echo", "one-more")
    wire.eventually(lambda: bool(told(server, "requests?text=one-more")["data"]))
    found = told(server, "requests?model=nobody-has-it")
    assert found["data"] == []
    [last] = told(server, "requests?limit=1")["data"]
    assert found["newest"] >= last["number"]


def test_a_hundred_thousand_of_them(page: Page, server: ServerProcess, folder: Path) -> None:
    write(folder, "many", range(MANY))
    opened(page, server, "/requests?since=7d&model=many")
    expect(page.locator("tbody tr")).to_have_count(100)
    assert ids(page)[0] == f"many-{MANY - 1}"
    page.get_by_role("button", name="Older ones").click()
    expect(page.locator("tbody tr")).to_have_count(200)
    assert ids(page)[100] == f"many-{MANY - 101}"
    page.get_by_label("Text").fill("many-77")
    page.get_by_label("Status").fill("500")
    page.get_by_role("button", name="Show these").click()
    expect(page.locator("tbody tr").first).to_contain_text("500")
    assert all(each.startswith("many-77") for each in ids(page))
    page.goto(f"{server.url}/#/requests/many-5")
    expect(page.get_by_role("region", name="What became of it")).to_contain_text("many")


def write(folder: Path, model: str, numbers: range) -> None:
    """Records of a model, a second between two, the last of them now."""
    now = time.time()
    record = Record(now, "", "nobody", "openai", "chat", model, model, status=200, duration=0.2)
    insert(
        folder,
        (
            structs.replace(
                record,
                request_id=f"{model}-{number}",
                time=now - numbers.stop + number,
                status=500 if number % 100 == 0 else 200,
            )
            for number in numbers
        ),
    )


def insert(folder: Path, records: Iterable[Record]) -> None:
    """Records that no request of this server's made."""
    names = ", ".join(COLUMNS)
    with closing(sqlite3.connect(folder / "operations.sqlite", timeout=30)) as storage, storage:
        storage.executemany(
            f"INSERT INTO records ({names}) VALUES ({', '.join('?' * len(COLUMNS))})",
            map(structs.astuple, records),
        )
