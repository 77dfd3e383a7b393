"""The browser, its pages, and the servers that they come from."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from tests.integration.native_vendor import NativeVendor
from tests.integration.page.chromium import chromium, missing
from tests.integration.server_process import ServerProcess, running, write_template

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page

ARTIFACTS = Path(__file__).parents[3] / ".artifacts" / "page"
"""Where screenshots are left; git ignores it."""

KEEPS_SHOTS = "PAGE_SHOTS" in os.environ
"""Whether pages that are as they should be are kept too, for people to look at: no test does, and
each takes a fifth of a second of CPU."""

ADMIN_KEY, API_KEY = "the-admin-key", "sk-of-the-page"


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """It ends before a test elsewhere begins, as the loop of Playwright has to."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    with chromium() as one:
        yield one


@pytest.fixture(scope="module")
def vendor() -> Iterator[NativeVendor]:
    with NativeVendor() as one:
        yield one


@pytest.fixture(scope="module")
def server(
    vendor: NativeVendor, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """A server that lets everybody in and has no admin key."""
    template = write_template(
        tmp_path_factory.mktemp("page") / "open.yaml", **providers_and_models(vendor)
    )
    with running(template) as process:
        yield process


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """The model that `operated` runs itself. A module that looks at nothing of it has None in its
    place, and a server that starts in a fifth of the time."""
    pytest.importorskip("torch")
    from tests.tiny_models import make_model

    return make_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def operated(
    vendor: NativeVendor, tiny: Path | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """A server with keys, records, and a model of its own in this process, if there is one."""
    folder = tmp_path_factory.mktemp("operated")
    sections = providers_and_models(vendor)
    if tiny is not None:
        sections["providers"].append({"id": "local", "type": "local::torch"})
        sections["models"].append({"id": "tiny", "provider": "local", "provider_model": str(tiny)})
    template = write_template(
        folder / "operated.yaml",
        server={
            "admin_key": ADMIN_KEY,
            "records": {},
            "storage": f"sqlite:{folder / 'operations.sqlite'}",
            "stored_keys": True,
        },
        keys=[{"name": "the page's", "key": API_KEY}],
        teams=[{"id": "research"}],
        **sections,
    )
    with running(template) as process:
        yield process


def providers_and_models(vendor: NativeVendor) -> dict[str, Any]:
    """Echoes, a vendor that is scripted, and one that nobody reaches."""
    remote = {"type": "remote::passthrough"}
    return {
        "providers": [
            {"id": "echo", "type": "local::echo", "config": {"delay_ms": 20}},
            {**remote, "id": "vendor", "config": {"base_url": f"{vendor.url}/v1"}},
            {**remote, "id": "gone", "config": {"base_url": "http://127.0.0.1:1/v1"}},
        ],
        "models": [
            {"id": "echo", "provider": "echo", "price": {"input": 1, "output": 2}},
            {"id": "vendor", "provider": "vendor"},
            {"id": "gone", "provider": "gone"},
        ],
    }


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A browser with nothing in it."""
    made = browser.new_context(viewport={"width": 1440, "height": 900})
    yield made
    made.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A tab in which no script fails and nothing is asked of anybody else."""
    tab = context.new_page()
    with watched(tab):
        yield tab


@contextmanager
def watched(tab: Page) -> Iterator[Page]:
    """Holds a tab to what is true of every page of ours, at its end."""
    troubles: list[str] = []
    requested: list[str] = []

    def heard(message: ConsoleMessage) -> None:
        # A refusal is an error in the console too; those are what some tests are about.
        is_refusal = re.search(r"status of (4|5)\d\d", message.text)
        if message.type in ("error", "warning") and not is_refusal:
            troubles.append(message.text)

    tab.on("pageerror", lambda error: troubles.append(str(error)))
    tab.on("console", heard)
    tab.on("request", lambda request: requested.append(request.url))
    try:
        yield tab
    except BaseException:
        tab.screenshot(path=ARTIFACTS / "failed.png", full_page=True)
        raise
    assert troubles == []
    origins = {urlsplit(url).netloc for url in requested}
    assert len(origins - {""}) <= 1, origins


@pytest.fixture
def shot(page: Page) -> Callable[[str], None]:
    """Keeps how the page looks, by a name, if that is asked for."""
    return partial(keep, page)


def keep(page: Page, name: str) -> None:
    """Keep how the page looks, by a name, if that is asked for."""
    if KEEPS_SHOTS:
        page.screenshot(path=ARTIFACTS / f"{name}.png", full_page=True)
