"""Who comes for the first time is told what to do, and *API* takes the key with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.page.chromium import needs_chromium
from tests.integration.page.conftest import ADMIN_KEY, API_KEY
from tests.integration.page.test_access import audit
from tests.integration.page.test_playground import expect
from tests.integration.server_process import ServerProcess

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def tiny() -> None:
    """No model of its own is looked at here."""


MODELS = ".opblock-get [data-path='/v1/models']"
"""Swagger UI's, which writes paths with invisible blanks."""


@pytest.mark.parametrize(
    ("view", "label", "told"),
    [
        ("playground", "API key", "llama-compat keys create"),
        ("overview", "Admin key", "server.admin_key"),
        ("keys", "Admin key", "server.admin_key"),
    ],
)
def test_who_has_brought_no_key_is_told_what_to_do(
    page: Page, operated: ServerProcess, view: str, label: str, told: str
) -> None:
    page.goto(f"{operated.url}/#/{view}")
    expect(page.get_by_label(label)).to_be_visible()
    expect(page.get_by_role("main")).to_contain_text(told)
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.get_by_text("Incorrect")).to_have_count(0)
    audit(page)
    page.get_by_label(label).fill("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("Incorrect")
    page.get_by_label(label).fill(ADMIN_KEY if label == "Admin key" else API_KEY)
    page.keyboard.press("Enter")
    expect(page.get_by_label(label)).to_have_count(0)


def test_the_api_takes_the_key_with_it(page: Page, operated: ServerProcess) -> None:
    page.goto(operated.url)
    page.get_by_label("API key").fill(API_KEY)
    page.get_by_role("button", name="Use this key").click()
    expect(page.get_by_label("Model")).to_be_visible()
    page.get_by_role("link", name="API").click()
    expect(page.locator(MODELS)).to_be_visible(timeout=30_000)
    # It is tried out with the key too.
    page.locator("[data-path='/version']").click()
    page.get_by_role("button", name="Try it out").click()
    with page.expect_response("**/version") as answered:
        page.get_by_role("button", name="Execute").click()
    assert answered.value.status == 200
    assert answered.value.request.headers["authorization"] == f"Bearer {API_KEY}"
    assert API_KEY not in page.url


def test_the_api_asks_for_a_key_where_there_is_none(page: Page, operated: ServerProcess) -> None:
    page.goto(f"{operated.url}/docs")
    expect(page.get_by_text("This server is for those who have a key")).to_be_visible()
    audit(page)
    page.get_by_label("API key").fill(API_KEY)
    page.keyboard.press("Enter")
    expect(page.locator(MODELS)).to_be_visible(timeout=30_000)


def test_the_api_is_there_at_once_where_no_key_is_needed(page: Page, server: ServerProcess) -> None:
    page.goto(f"{server.url}/docs")
    expect(page.locator(MODELS)).to_be_visible(timeout=30_000)
    audit(page)
    page.get_by_role("link", name="Back to the page").click()
    expect(page.get_by_label("Model")).to_be_visible()
