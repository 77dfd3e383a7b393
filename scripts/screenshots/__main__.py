"""Make pictures of the page for the documentation: `python -m scripts.screenshots [FOLDER]`.

They are of a server that is started for them, in Chromium. FOLDER is `docs/images` if it is not
named. `--only NAME` makes one, and `--all-widths` those of a phone, a tablet and a desk, light and
dark, which are for whoever works on the page.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scripts.screenshots.demo import API_KEY, ENTERED, company
from tests.integration import wire
from tests.integration.page.chromium import chromium, missing

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.integration.server_process import ServerProcess

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "images"

MOST_BYTES = 150_000
"""A picture is no larger, so that the documentation stays small."""

WIDE, HEIGHT = 1200, 800
WIDTHS = (390, 1024, 1440)


def _enter(page: Page, server: ServerProcess, view: str, heading: str) -> None:
    page.goto(f"{server.url}/#/{view}")
    page.get_by_role("heading", name=heading, exact=True).wait_for()


def _keys(page: Page, server: ServerProcess) -> None:
    _enter(page, server, "keys", "Keys and teams")
    page.locator(".entry").first.wait_for()


def _overview(page: Page, server: ServerProcess) -> None:
    _enter(page, server, "overview", "Overview")
    page.get_by_label("The last").select_option("7d")
    page.locator(".chart").first.wait_for()


def _models(page: Page, server: ServerProcess) -> None:
    _enter(page, server, "models", "Models and targets")
    page.locator(".target").first.wait_for()


def _requests(page: Page, server: ServerProcess) -> None:
    _enter(page, server, "requests", "Requests")
    page.locator("tbody tr").nth(5).wait_for()


def _request(page: Page, server: ServerProcess) -> None:
    _requests(page, server)
    # One that was tried at two targets.
    page.locator("tbody tr", has_text="attempts").first.get_by_role("link").click()
    page.get_by_role("region", name="What became of it").wait_for()


def _playground(page: Page, server: ServerProcess) -> None:
    page.goto(f"{server.url}/#/playground")
    page.get_by_label("Model").select_option("claude")
    page.get_by_role("button", name="Compare with another model").click()
    page.get_by_role("region", name="Side 2").get_by_label("Model").select_option("fast")
    page.get_by_label("Message").fill("What is the capital of France?")
    page.get_by_role("button", name="Send").click()
    page.locator(".message.assistant .figures span").nth(5).wait_for()
    page.get_by_role("button", name="Stop").wait_for(state="hidden")
    page.evaluate("scrollTo(0, 0)")


def _template(page: Page, server: ServerProcess) -> None:
    page.goto(f"{server.url}/#/template")
    area = page.get_by_role("textbox", name="The template's text")
    area.wait_for()
    # Where the server of the pictures keeps its files is nobody's business.
    text = re.sub("sqlite:.*", "sqlite:/var/lib/llama-compat/company.sqlite", area.input_value())
    area.fill(text.replace("provider: anthropic", "provider: antropic", 1))
    page.locator(".mistakes button").first.click()


VIEWS: dict[str, Callable[[Page, ServerProcess], None]] = {
    "keys": _keys,
    "models": _models,
    "overview": _overview,
    "playground": _playground,
    "request": _request,
    "template": _template,
}


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code: 1 if something is missing, or a picture is too large."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--only", action="append", choices=VIEWS, metavar="NAME")
    parser.add_argument("--all-widths", action="store_true")
    options = parser.parse_args(arguments)
    if (reason := missing()) is not None:
        print(reason, file=sys.stderr)
        return 1
    options.folder.mkdir(parents=True, exist_ok=True)
    sizes: list[tuple[Any, str]] = [(WIDE, "light")]
    if options.all_widths:
        sizes = [(width, scheme) for width in WIDTHS for scheme in ("light", "dark")]
    made = []
    with tempfile.TemporaryDirectory() as folder, company(Path(folder)) as server:
        _some_traffic(server)
        with chromium() as browser:
            for width, scheme in sizes:
                size: Any = {"width": width, "height": HEIGHT}
                context = browser.new_context(viewport=size, color_scheme=scheme)
                context.add_init_script(ENTERED)
                page = context.new_page()
                for name in options.only or VIEWS:
                    VIEWS[name](page, server)
                    suffix = f"-{width}-{scheme}" if options.all_widths else ""
                    path = options.folder / f"{name}{suffix}.png"
                    page.screenshot(path=path, full_page=options.all_widths)
                    made.append(path)
                context.close()
    for path in made:
        print(f"{path}: {path.stat().st_size:,} bytes")
    large = [path for path in made if path.stat().st_size > MOST_BYTES]
    return 1 if large and not options.all_widths else 0


def _some_traffic(server: ServerProcess) -> None:
    """A few requests, after which targets are known; one of them cools."""
    headers = {"authorization": f"Bearer {API_KEY}"}
    url = f"{server.base_url}/chat/completions"
    for place in range(24):
        model = "fast" if place % 2 else "claude"
        body = {"model": model, "messages": [{"role": "user", "content": "Good day"}]}
        wire.request("POST", url, body, headers)
    time.sleep(2)  # until they are written


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
