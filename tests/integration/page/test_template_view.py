"""The template in a real browser: shown, checked as one types, compared, and taken over."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration import wire
from tests.integration.page.chromium import needs_chromium
from tests.integration.page.conftest import ADMIN_KEY
from tests.integration.page.test_access import look
from tests.integration.page.test_playground import expect
from tests.integration.server_process import ServerProcess, running

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def tiny() -> None:
    """No model of its own is looked at here."""


HOSTILE = "</textarea><img src=x onerror=alert(1)>"

TEMPLATE = f"""\
# A gateway of ours {HOSTILE}
server:
  admin_key: {ADMIN_KEY}  # from the vault
  admin: {{can_edit: true}}
  storage: sqlite:FOLDER/operations.sqlite
providers:
  - {{id: echo, type: "local::echo"}}  # here
models:
  - {{id: echo, provider: echo}}
"""


@pytest.fixture
def editable(tmp_path: Path) -> Iterator[tuple[ServerProcess, Path]]:
    path = tmp_path / "gateway.yaml"
    path.write_text(TEMPLATE.replace("FOLDER", str(tmp_path)), "utf-8")
    with running(path) as process:
        yield process, path


def entered(page: Page, server: ServerProcess) -> Locator:
    page.goto(f"{server.url}/#/template")
    page.get_by_label("Admin key").fill(ADMIN_KEY)
    page.get_by_role("button", name="Use this key").click()
    area = page.get_by_role("textbox", name="The template's text")
    expect(area).to_be_visible()
    return area


def edited(area: Locator, before: str, after: str) -> None:
    text = area.input_value()
    assert before in text
    area.fill(text.replace(before, after))


def test_it_is_checked_compared_and_taken_over(
    page: Page, editable: tuple[ServerProcess, Path], shot: Callable[[str], None]
) -> None:
    server, path = editable
    written = path.read_text("utf-8")
    area = entered(page, server)
    assert area.input_value() == written.replace(f"key: {ADMIN_KEY}", 'key: "${covered.1}"')
    expect(page.locator("#template-state")).to_have_text("This is what is in the file.")
    take = page.get_by_role("button", name="Take over …")
    expect(take).to_be_disabled()

    edited(area, "local::echo", "local::ecko")
    mistake = page.locator(".mistakes li")
    expect(mistake).to_contain_text("did you mean 'local::echo'?")
    expect(page.locator(".numbers-of-lines .bad")).to_have_text("7")
    expect(take).to_be_disabled()
    shot("template-mistake")
    mistake.get_by_role("button", name="Line 7").press("Enter")
    chosen = area.evaluate("each => each.value.slice(each.selectionStart, each.selectionEnd)")
    assert "ecko" in chosen

    edited(area, "local::ecko", "local::echo")
    edited(area, "# here", "# still here")
    area.press("ControlOrMeta+End")
    area.press_sequentially(f"  - {{id: '{HOSTILE}', provider: echo}}\n")
    expect(page.locator("#template-state")).to_have_text("Nothing is wrong with it.")
    take.click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("del")).to_have_count(1)
    expect(dialog.locator("ins")).to_have_count(2)
    expect(dialog.locator("ins").nth(1)).to_contain_text(HOSTILE)
    shot("template-difference")
    assert path.read_text("utf-8") == written
    dialog.get_by_role("button", name="Take over").click()
    expect(dialog).to_contain_text("It is taken over")
    expect(dialog).to_contain_text("gateway.yaml.bak")
    page.keyboard.press("Enter")
    expect(dialog).to_have_count(0)
    expect(page.locator("#template-state")).to_have_text("This is what is in the file.")
    after = path.read_text("utf-8")
    assert f"admin_key: {ADMIN_KEY}  # from the vault" in after
    assert "# still here" in after
    listed = wire.request("GET", f"{server.base_url}/models", None, {})
    assert HOSTILE in listed.body.decode()


def test_what_was_changed_is_kept_while_one_looks_elsewhere(
    page: Page, editable: tuple[ServerProcess, Path]
) -> None:
    server, path = editable
    area = entered(page, server)
    edited(area, "# here", "# a draft")
    page.get_by_role("link", name="Models and targets").click()
    expect(page.get_by_role("heading", name="Models and targets")).to_be_visible()
    page.get_by_role("link", name="Template").click()
    expect(area).to_have_value(re.compile("# a draft"))
    page.get_by_role("button", name="Discard the changes").click()
    page.get_by_role("dialog").get_by_role("button", name="Discard the changes").click()
    expect(area).to_have_value(re.compile("# here"))
    # Somebody else has changed the file: nothing is written over it.
    path.write_text(path.read_text("utf-8") + "# somebody's\n", "utf-8")
    edited(area, "# here", "# mine")
    expect(page.get_by_role("alert")).to_contain_text("another than the one that was read")
    page.get_by_role("button", name="Read it again").click()
    expect(area).to_have_value(re.compile("# somebody's"))
    # Nor is what was written here lost.
    mine = page.get_by_role("region", name="What you had changed").first
    expect(mine.locator("ins")).to_have_text(re.compile("# mine"))
    mine.get_by_role("button", name="Forget it").click()
    expect(mine).to_have_count(0)


def test_it_fits_and_can_be_read(page: Page, editable: tuple[ServerProcess, Path]) -> None:
    server, _ = editable
    area = entered(page, server)
    edited(area, "local::echo", "local::ecko")
    expect(page.locator(".mistakes li")).to_have_count(1)
    look(page, "template")
    edited(area, "local::ecko", "local::echo")
    edited(area, "# here", f"# {'long ' * 60}")
    page.get_by_role("button", name="Take over …").click()
    look(page, "template-difference")


def test_without_leave_it_can_only_be_read(page: Page, operated: ServerProcess) -> None:
    area = entered(page, operated)
    expect(area).not_to_be_editable()
    expect(page.get_by_role("main")).to_contain_text("server.admin.can_edit: true")
    expect(page.get_by_role("button", name="Take over …")).to_have_count(0)
    assert ADMIN_KEY not in area.input_value()
    assert "sk-of-the-page" not in area.input_value()
