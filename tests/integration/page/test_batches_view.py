"""Batches: how far they have come, what they cost, when they end, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import openai
import pytest

from tests.integration.batching import line, ordered, waited_for
from tests.integration.native_vendor import NativeVendor
from tests.integration.page.chromium import needs_chromium
from tests.integration.page.conftest import ADMIN_KEY, API_KEY, providers_and_models
from tests.integration.page.test_access import look
from tests.integration.page.test_playground import expect
from tests.integration.server_process import ServerProcess, running, write_template

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def tiny() -> None:
    """No model of its own is looked at here."""


Shot = Callable[[str], None]


@pytest.fixture(scope="module")
def working(
    vendor: NativeVendor, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """A server that works on batches."""
    folder = tmp_path_factory.mktemp("working")
    sections = providers_and_models(vendor)
    slow = {"id": "slow", "type": "local::echo", "config": {"delay_ms": 600_000}}
    sections["providers"].append(slow)
    sections["models"].append({"id": "slow", "provider": "slow"})
    template = write_template(
        folder / "working.yaml",
        server={
            "admin_key": ADMIN_KEY,
            "storage": f"sqlite:{folder / 'operations.sqlite'}",
            "files": {"path": str(folder / "files")},
            "batches": {},
            "shutdown_grace_seconds": 1,
        },
        keys=[{"name": "the page's", "key": API_KEY}],
        **sections,
    )
    with running(template) as process:
        yield process


@pytest.fixture(scope="module")
def client(working: ServerProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=working.base_url, api_key=API_KEY, max_retries=0) as one:
        yield one


def entered(page: Page, server: ServerProcess) -> Page:
    page.goto(f"{server.url}/#/batches")
    page.get_by_label("Admin key").fill(ADMIN_KEY)
    page.get_by_role("button", name="Use this key").click()
    return page


def row(page: Page, batch_id: str) -> Locator:
    return page.locator("tbody tr").filter(has=page.get_by_text(batch_id, exact=True))


def half_done(client: openai.OpenAI) -> Any:
    """A batch of which two lines are done, and one takes for ever."""
    batch = ordered(client, [line("a"), line("b"), line("c", "slow")])
    return waited_for(client, batch, lambda now: now.request_counts.completed == 2)


def test_a_batch_from_first_to_last(
    page: Page, working: ServerProcess, client: openai.OpenAI, shot: Shot
) -> None:
    entered(page, working)
    expect(page.get_by_text("There are no batches yet.")).to_be_visible()
    batch = half_done(client)
    found = row(page, batch.id)
    expect(found).to_contain_text("in progress")
    expect(found).to_contain_text("2 of 3")
    bar = found.get_by_role("progressbar", name=f"Progress of {batch.id}")
    expect(bar).to_have_js_property("position", 2 / 3)
    expect(found).to_contain_text("the page's")
    # Two words of each, at the price of echo; what the third will cost nobody knows yet.
    cost = client.batches.retrieve(batch.id).cost_usd  # type: ignore[attr-defined]
    expect(found.locator("td").nth(6)).to_have_text(f"${cost:.6f}".rstrip("0"))
    expect(found.locator("td").nth(8)).to_have_text(re.compile(r"^about \d"))
    shot("batches")
    found.get_by_role("button", name=f"Cancel {batch.id}").click()
    page.get_by_role("button", name="Cancel", exact=True).click()
    expect(page.locator("dialog")).to_have_count(0)
    expect(found).to_contain_text("in progress")
    found.get_by_role("button", name=f"Cancel {batch.id}").click()
    page.get_by_role("button", name="Cancel the batch").click()
    expect(found).to_contain_text("cancelled")
    expect(found).to_contain_text("2 of 3")
    expect(found.get_by_role("button")).to_have_count(0)
    expect(found.locator("td").nth(8)).to_have_text(re.compile(r"^\d"))
    assert waited_for(client, batch).status == "cancelled"


def test_what_was_refused_says_why(
    page: Page, working: ServerProcess, client: openai.OpenAI
) -> None:
    batch = waited_for(client, ordered(client, b"no JSON\n"))
    assert batch.status == "failed"
    entered(page, working)
    found = row(page, batch.id)
    expect(found).to_contain_text("failed")
    assert batch.errors is not None
    assert batch.errors.data is not None
    message = batch.errors.data[0].message
    assert message
    expect(found).to_contain_text(message)


def test_it_fits_and_can_be_read(page: Page, working: ServerProcess, client: openai.OpenAI) -> None:
    batch = half_done(client)
    try:
        entered(page, working)
        expect(row(page, batch.id)).to_contain_text("2 of 3")
        look(page, "batches")
    finally:
        client.batches.cancel(batch.id)


def test_without_batches_it_says_how_to_have_them(page: Page, server: ServerProcess) -> None:
    page.goto(f"{server.url}/#/batches")
    expect(page.get_by_text("This server has no admin key")).to_be_visible()
    expect(page.locator("pre")).to_contain_text("batches:")


def test_a_server_without_batches_says_what_turns_them_on(
    page: Page, operated: ServerProcess
) -> None:
    entered(page, operated)
    expect(page.get_by_role("alert")).to_contain_text("server.batches")
