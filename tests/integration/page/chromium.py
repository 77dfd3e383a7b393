"""Debian's Chromium, driven by Playwright, whose own browsers are not needed."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# The shell alone, without the windows of a browser, takes half the time to show the same.
_PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser")
PROGRAM = next(filter(None, map(shutil.which, _PROGRAMS)), None)


def missing() -> str | None:
    """What there has to be before a Chromium can be driven; None where all is there."""
    if PROGRAM is None:
        return "there is no Chromium here (apt install chromium-headless-shell)"
    if importlib.util.find_spec("playwright") is None:
        return "there is no Playwright here (pip install playwright)"
    return None


needs_chromium = pytest.mark.skipif(missing() is not None, reason=missing() or "")


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser that runs.

    Playwright's loop is that of the thread while it is there: tests that are coroutines wait until
    it has gone.
    """
    from playwright.sync_api import sync_playwright

    # Chromium has no sandbox for root, and containers have a small /dev/shm.
    arguments = [
        "--disable-dev-shm-usage",
        "--disable-gpu",
        # A microphone that beeps; a page that asks for it is let.
        "--use-fake-device-for-media-stream",
        "--use-fake-ui-for-media-stream",
        *(["--no-sandbox"] if os.geteuid() == 0 else []),
    ]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PROGRAM, args=arguments)
        try:
            yield browser
        finally:
            browser.close()
