"""What people come for, by keyboard alone, with its steps counted: those that the guide says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import openai
import pytest

from tests.integration import wire
from tests.integration.batching import line, ordered, waited_for
from tests.integration.native_vendor import NativeVendor
from tests.integration.page.chromium import needs_chromium
from tests.integration.page.conftest import ADMIN_KEY, API_KEY, providers_and_models
from tests.integration.page.test_playground import expect
from tests.integration.server_process import ServerProcess, running, write_template

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = needs_chromium

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "page.md"
MOST_TABS = 120


class Person:
    """Somebody with a keyboard and nothing else. A step is a thing that is pressed, filled in or
    chosen, however many keys that takes."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.steps = 0

    def _reach(self, place: Locator) -> None:
        expect(place).to_be_visible()
        for _ in range(MOST_TABS):
            if place.evaluate("each => each === document.activeElement"):
                self._sees(place)
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"Tab does not lead to {place}")

    def _sees(self, place: Locator) -> None:
        """There is a ring around what has the focus, or around what it is in."""
        has_ring = (
            "each => [each, each.parentElement, each.parentElement.parentElement]"
            ".some((near) => getComputedStyle(near).outlineStyle !== 'none')"
        )
        assert place.evaluate(has_ring), place

    def presses(self, name: str, role: Any = "button", *, within: Locator | None = None) -> None:
        self._reach((within or self.page).get_by_role(role, name=name, exact=True))
        self.page.keyboard.press("Enter")
        self.steps += 1

    def fills(self, label: str, text: str, *, within: Locator | None = None) -> None:
        self._reach((within or self.page).get_by_label(label))
        self.page.keyboard.type(text)
        self.steps += 1

    def chooses(self, label: str, option: str, *, within: Locator | None = None) -> None:
        field = (within or self.page).get_by_label(label)
        self._reach(field)
        self.page.keyboard.type(option)
        expect(field.locator("option:checked")).to_have_text(re.compile(f"^{re.escape(option)}"))
        self.steps += 1

    def sends(self) -> None:
        """Press Enter where one is."""
        self.page.keyboard.press("Enter")
        self.steps += 1


@pytest.fixture
def rooms(vendor: NativeVendor, tmp_path: Path) -> Iterator[ServerProcess]:
    """A server with something in every room."""
    sections = providers_and_models(vendor)
    slow = {"id": "slow", "type": "local::echo", "config": {"delay_ms": 600_000}}
    sections["providers"].append(slow)
    sections["models"].append({"id": "slow", "provider": "slow"})
    template = write_template(
        tmp_path / "rooms.yaml",
        server={
            "admin_key": ADMIN_KEY,
            "admin": {"can_edit": True},
            "records": {"record_bodies": "all"},
            "storage": f"sqlite:{tmp_path / 'operations.sqlite'}",
            "files": {"path": str(tmp_path / "files")},
            "batches": {},
            "stored_keys": True,
            "shutdown_grace_seconds": 1,
        },
        keys=[{"name": "the page's", "key": API_KEY}],
        **sections,
    )
    with running(template) as process:
        yield process


@pytest.fixture
def person(page: Page, rooms: ServerProcess) -> Person:
    """Who is there for the first time."""
    page.goto(rooms.url)
    return Person(page)


@pytest.fixture
def operator(page: Page, rooms: ServerProcess) -> Person:
    """Who has given both keys already."""
    page.goto(rooms.url)
    for key, label, room in ((API_KEY, "API key", ""), (ADMIN_KEY, "Admin key", "Overview")):
        if room:
            page.get_by_role("link", name=room).click()
        page.get_by_label(label).fill(key)
        page.get_by_role("button", name="Use this key").click()
    page.get_by_role("link", name="Playground").click()
    expect(page.get_by_label("Message")).to_be_visible()
    return Person(page)


def taken(task: str) -> int:
    """How many steps the guide says that it takes."""
    found = re.search(rf"^\| {re.escape(task)} \|.*\| (\d+) \|$", GUIDE.read_text("utf-8"), re.M)
    assert found is not None, task
    return int(found[1])


def ask(server: ServerProcess, model: str, request_id: str) -> None:
    headers = {"authorization": f"Bearer {API_KEY}", "x-request-id": request_id}
    body = {"model": model, "messages": [{"role": "user", "content": "Hi there"}]}
    wire.request("POST", f"{server.base_url}/chat/completions", body, headers)


def told(server: ServerProcess, path: str) -> Any:
    headers = {"authorization": f"Bearer {ADMIN_KEY}"}
    return wire.request("GET", f"{server.url}/admin/{path}", headers=headers).json()


def test_a_first_answer(person: Person) -> None:
    person.fills("API key", API_KEY)
    person.presses("Use this key")
    person.fills("Message", "Hello")
    person.sends()
    expect(person.page.locator(".message.assistant .text")).to_have_text("Hello")
    assert person.steps == taken("Have a first answer, with a key")


def test_two_models_side_by_side(operator: Person) -> None:
    operator.presses("Compare with another model")
    second = operator.page.get_by_role("region", name="Side 2")
    operator.chooses("Model", "slow", within=second)
    operator.fills("Message", "Hello")
    operator.sends()
    expect(operator.page.locator(".message.user")).to_have_count(2)
    operator.page.get_by_role("button", name="Stop", exact=True).click()
    assert operator.steps == taken("Ask two models the same")


def test_a_request_that_failed_is_found_and_sent_again(
    operator: Person, rooms: ServerProcess
) -> None:
    ask(rooms, "echo", "went-well")
    ask(rooms, "gone", "went-wrong")
    wire.eventually(lambda: len(told(rooms, "requests?since=1h")["data"]) == 2)
    operator.presses("Requests", "link")
    operator.fills("Status", "5xx")
    operator.sends()
    expect(operator.page.get_by_role("link", name="went-well")).to_have_count(0)
    operator.presses("went-wrong", "link")
    operator.presses("Again in the playground")
    expect(operator.page.locator(".message.user")).to_contain_text("Hi there")
    assert operator.steps == taken("Find a request that failed, and send it again")


def test_a_key_with_a_budget_and_its_end(operator: Person, rooms: ServerProcess) -> None:
    page = operator.page
    operator.presses("Keys and teams", "link")
    operator.presses("New key")
    dialog = page.get_by_role("dialog")
    operator.fills("Name", "robot", within=dialog)
    operator.fills("Budget in US dollars", "20", within=dialog)
    operator.presses("Create")
    shown = page.get_by_role("dialog", name="The key of robot")
    key = shown.get_by_role("region", name="Key").text_content()
    operator.presses("Close", within=shown)
    assert operator.steps == taken("Make a key with a budget")
    headers = {"authorization": f"Bearer {key}"}
    assert wire.request("GET", f"{rooms.base_url}/models", headers=headers).status == 200
    operator.steps = 1  # to come here
    operator.presses("Revoke robot")
    operator.presses("Revoke", within=page.get_by_role("dialog"))
    expect(page.get_by_text("revoked 20")).to_be_visible()
    assert wire.request("GET", f"{rooms.base_url}/models", headers=headers).status == 401
    assert operator.steps == taken("Revoke a key")


def test_a_target_is_drained_and_opened_again(operator: Person, rooms: ServerProcess) -> None:
    operator.presses("Models and targets", "link")
    operator.presses("Drain gone/gone")
    operator.presses("Drain", within=operator.page.get_by_role("dialog"))
    opening = operator.page.get_by_role("button", name="Open gone/gone")
    expect(opening).to_be_visible()
    assert operator.steps == taken("Drain a target")
    operator.presses("Open gone/gone")
    expect(operator.page.get_by_role("button", name="Drain gone/gone")).to_be_visible()


def test_a_batch_is_cancelled(operator: Person, rooms: ServerProcess) -> None:
    with openai.OpenAI(base_url=rooms.base_url, api_key=API_KEY, max_retries=0) as client:
        batch = ordered(client, [line("a", "slow")])
        operator.presses("Batches", "link")
        operator.presses(f"Cancel {batch.id}")
        operator.presses("Cancel the batch")
        assert waited_for(client, batch).status == "cancelled"
    assert operator.steps == taken("Cancel a batch")


def test_what_a_month_cost(operator: Person) -> None:
    operator.presses("Overview", "link")
    operator.chooses("The last", "30 days")
    expect(operator.page.get_by_role("heading", name="Last errors")).to_be_visible()
    assert operator.steps == taken("See what thirty days cost, by team")


def test_the_template_is_changed(operator: Person, rooms: ServerProcess) -> None:
    page = operator.page
    operator.presses("Template", "link")
    area = page.get_by_role("textbox", name="The template's text")
    expect(area).to_be_visible()
    area.evaluate("each => each.setSelectionRange(each.value.length, each.value.length)")
    operator.fills("The template's text", "\n# Ours.\n")
    operator.presses("Take over …")
    operator.presses("Take over", within=page.get_by_role("dialog"))
    expect(page.get_by_role("dialog")).to_contain_text("It is taken over")
    assert operator.steps == taken("Change the template")


def test_every_task_of_the_guide_is_done_here() -> None:
    tasks = re.findall(r"^\| ([^|]+?) \|.*\| \d+ \|$", GUIDE.read_text("utf-8"), re.M)
    source = Path(__file__).read_text("utf-8")
    assert tasks
    assert [task for task in tasks if f'taken("{task}")' not in source] == []
