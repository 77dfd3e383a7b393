"""When the page is there, and what it weighs: each of its rooms in headless Chromium.

    python -m bench.page [--rounds 7]

The server is the one of the screenshots, with a month of records. A room is opened by somebody who
was never there, with an empty cache, and once more by the same person; the browser itself says when
it first painted something, and what came over the wire. Rooms take turns; medians count. Writes
`bench/results/page.json`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.machine import write_results
from scripts.screenshots.demo import ENTERED, company
from tests.integration.page.chromium import chromium, missing

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.integration.server_process import ServerProcess

WANTED = {"first_paint_ms": 300, "compressed_kb": 300}
"""At most."""

ROOMS = {
    "playground": "textarea:visible",
    "requests": "tbody tr",
    "keys": ".entry",
    "models": ".target",
    "overview": ".chart",
    "template": "textarea:visible",
}
"""What each shows as soon as it has what it is for."""

TOLD = """() => ({
    first_paint_ms: performance.getEntriesByName("first-contentful-paint")[0].startTime,
    compressed_kb: [...performance.getEntriesByType("navigation"),
                    ...performance.getEntriesByType("resource")]
        .reduce((sum, each) => sum + each.transferSize, 0) / 1000,
})"""
"""What a browser knows of the document that it shows; what it asks of `/admin` is among it."""


def opened(page: Page, server: ServerProcess, room: str) -> dict[str, float]:
    """Open a room anew, and wait until it shows what it is for."""
    page.goto("about:blank")
    page.goto(f"{server.url}/#/{room}")
    page.locator(ROOMS[room]).first.wait_for()
    told: dict[str, float] = page.evaluate(TOLD)
    told["room_ms"] = page.evaluate("performance.now()")
    return told


def visit(browser: Browser, server: ServerProcess, room: str) -> dict[str, dict[str, float]]:
    """One person's first visit to a room, and the second."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.add_init_script(ENTERED)
    try:
        page = context.new_page()
        return {"first visit": opened(page, server, room), "again": opened(page, server, room)}
    finally:
        context.close()


def main() -> int:
    """Measure, print, and write the results; 1 where there is no browser."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    if (reason := missing()) is not None:
        print(reason, file=sys.stderr)
        return 1
    rounds: dict[str, list[dict[str, dict[str, float]]]] = {room: [] for room in ROOMS}
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        server = stack.enter_context(company(Path(folder)))
        browser = stack.enter_context(chromium())
        version = browser.version
        for _ in range(options.rounds):
            for room in ROOMS:
                rounds[room].append(visit(browser, server, room))
    found: dict[str, Any] = {}
    for room, visits in rounds.items():
        found[room] = {
            when: {
                figure: round(statistics.median(each[when][figure] for each in visits), 1)
                for figure in visits[0][when]
            }
            for when in visits[0]
        }
        print(room, found[room])
    print("wanted at most", WANTED)
    results = {"wanted": WANTED, "chromium": version, "rounds": options.rounds, "medians": found}
    write_results("page", results | {"raw": rounds})
    return 0


if __name__ == "__main__":
    sys.exit(main())
