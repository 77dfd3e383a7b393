"""Tools that the server runs, switched on in the playground: a real MCP server, stores, the web."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.clients.scripted_models import Asked, Said
from tests.integration.page.chromium import needs_chromium
from tests.integration.page.test_access import audit
from tests.integration.page.test_playground import Shot, answer, expect, run_code, say
from tests.integration.server_process import ServerProcess, running
from tests.integration.vector_storing import (
    ANN,
    NOBODY,
    EmbeddingVendor,
    client_of,
    store_template,
    uploaded,
)

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = needs_chromium

HOSTILE = '<img src=x onerror="document.title=1">'


def model(asked: Asked) -> Said:
    """Calls the tool that the user names, with what follows as its arguments, then says what that
    gave."""
    name, _, given = asked.texts[-1].partition(" ")
    if name == "tools":
        return Said(" ".join(sorted(asked.tools)) or "none")
    if asked.outputs:
        return Said(f"Done. It gave: {asked.outputs[-1][:300]}")
    return Said("", [(name, json.loads(given or "{}"))])


@pytest.fixture(scope="module")
def models() -> Iterator[EmbeddingVendor]:
    pytest.importorskip("mcp", reason="pip install 'llama-compat[mcp]'")
    pytest.importorskip("numpy", reason="needs the extra 'vector-stores'")
    with EmbeddingVendor(model) as vendor:
        yield vendor


@pytest.fixture(scope="module")
def mcp_url(models: EmbeddingVendor) -> Iterator[str]:
    from tests.integration.mcp_server import over_http

    with over_http() as url:
        yield url


@pytest.fixture(scope="module")
def equipped(
    models: EmbeddingVendor, mcp_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """A server with tools of each kind, and a store that holds one file."""
    folder = tmp_path_factory.mktemp("equipped")
    (folder / "web").mkdir()
    (folder / "web" / "paris").write_text(f"Paris {HOSTILE}\n\nThe capital of France.")
    template = store_template(
        folder,
        models,
        tools={
            "web_search": {"backend": "files", "folder": str(folder / "web")},
            "web_fetch": {},
            "file_search": {},
            "mcp": {
                "servers": [
                    {"label": "tests", "url": mcp_url},
                    {"label": "asking", "url": mcp_url, "require_approval": ["add"]},
                    {"label": "gone", "url": "http://127.0.0.1:9/mcp"},
                ]
            },
        },
    )
    with running(template) as process:
        with client_of(process) as ann:
            store = ann.vector_stores.create(name=f"cars {HOSTILE}")
            file = uploaded(ann, "cars.txt", "An automobile has four wheels.")
            ann.vector_stores.files.create_and_poll(
                file, vector_store_id=store.id, poll_interval_ms=50
            )
        yield process


def equipment(page: Page, server: ServerProcess, key: str = ANN) -> Locator:
    """The playground's tools of the server, as the key has them."""
    page.goto(server.url)
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Use this key").click()
    page.get_by_label("Model").select_option("m")
    return page.get_by_role("group", name="Tools of the server")


def came(locator: Locator) -> Locator:
    """It, once it is there."""
    locator.wait_for()
    return locator


def call(page: Page, place: int = -1) -> Locator:
    return page.locator(".hosted details.call").nth(place)


def test_a_tool_of_a_server_is_chosen_called_and_shown(
    page: Page, equipped: ServerProcess, models: EmbeddingVendor, shot: Shot
) -> None:
    tools = equipment(page, equipped)
    tools.get_by_label("tests").check()
    tools.get_by_text("Its tools").first.click()
    came(tools.get_by_label("die", exact=True)).uncheck()
    say(page, "tools")
    expect(answer(page)).to_contain_text("tests__add")
    expect(answer(page)).not_to_contain_text("tests__die")
    say(page, 'tests__add {"a": 2, "b": 3}')
    expect(answer(page)).to_contain_text("It gave: The sum is 5.")
    card = call(page)
    expect(card.locator("summary")).to_contain_text("tests: add")
    expect(card.locator("summary")).to_contain_text("done")
    expect(card.get_by_text("The sum is 5.")).to_be_hidden()
    card.locator("summary").click()
    given = card.get_by_label("Given to tests: add")
    assert json.loads(given.inner_text()) == {"a": 2, "b": 3}
    expect(card.get_by_label("What tests: add gave")).to_have_text("The sum is 5.")
    audit(page)
    shot("server-tools")
    # The next turn has what the call gave, and nothing is asked for it again.
    models.received.clear()
    say(page, "again")
    expect(answer(page)).to_contain_text("It gave: The sum is 5.")
    (asked,) = (body for _, body in models.received)
    assert "The sum is 5." in json.dumps(asked["messages"])


def test_a_call_that_fails_says_why(page: Page, equipped: ServerProcess) -> None:
    equipment(page, equipped).get_by_label("tests").check()
    say(page, "tests__fail")
    answer(page)
    card = call(page)
    expect(card.locator("summary")).to_contain_text("failed")
    card.locator("summary").click()
    expect(card.get_by_label("What went wrong with tests: fail")).to_contain_text(
        "Error executing tool fail"
    )


def test_a_server_that_is_gone_is_named(page: Page, equipped: ServerProcess) -> None:
    tools = equipment(page, equipped)
    tools.get_by_label("gone").check()
    tools.get_by_text("Its tools").last.click()
    expect(came(tools.get_by_role("alert"))).to_contain_text("It can't be connected to.")
    expect(tools.get_by_role("button", name="Ask again")).to_be_visible()
    say(page, "tools")
    expect(answer(page)).to_contain_text("The tools of gone are not there")
    expect(answer(page).locator(".markdown")).to_have_text("none")


@pytest.mark.parametrize("lets", [True, False])
def test_a_call_waits_for_the_users_word(
    page: Page, equipped: ServerProcess, lets: bool, shot: Shot
) -> None:
    tools = equipment(page, equipped)
    tools.get_by_label("asking").check()
    say(page, 'asking__add {"a": 20, "b": 22}')
    asking = page.get_by_role("group", name="The model asks to call asking: add")
    expect(came(asking)).to_contain_text('"b": 22')
    shot("server-tools-asking")
    audit(page)
    say(page, "something else")
    expect(page.locator(".composer .problem")).to_have_text("Answer the calls first.")
    # By keyboard alone.
    button = asking.get_by_role("button", name="Let asking: add run" if lets else "Refuse")
    button.focus()
    page.keyboard.press("Enter")
    expect(asking).to_have_count(0)
    said = answer(page, 1)
    if lets:
        expect(said).to_contain_text("It gave: The sum is 42.")
        expect(call(page, 0).locator("summary")).to_contain_text("you let it run")
        expect(call(page, 1).locator("summary")).to_contain_text("done")
    else:
        expect(said).not_to_contain_text("42.")
        expect(call(page, 0).locator("summary")).to_contain_text("you refused it")
        expect(page.locator(".hosted details.call")).to_have_count(1)


def test_what_the_server_lets_run_may_still_be_asked_for(
    page: Page, equipped: ServerProcess
) -> None:
    tools = equipment(page, equipped)
    tools.get_by_label("tests").check()
    tools.get_by_label("Ask me before each call").first.check()
    say(page, 'tests__add {"a": 1, "b": 1}')
    asked = page.get_by_role("button", name="Let tests: add run")
    came(asked)
    # What is asked is kept with the conversation.
    page.get_by_role("link", name="Overview").click()
    expect(page.locator("pre")).to_contain_text("admin_key:")
    page.get_by_role("link", name="Playground").click()
    expect(tools.get_by_label("tests")).to_be_checked()
    asked.click()
    expect(answer(page, 1)).to_contain_text("It gave: The sum is 2.")


def test_files_and_the_web_are_searched(page: Page, equipped: ServerProcess) -> None:
    tools = equipment(page, equipped)
    tools.get_by_label(f"Files in cars {HOSTILE}").check()
    tools.get_by_label("Search the web").check()
    tools.get_by_label("Read web pages").check()
    say(page, "tools")
    expect(answer(page).locator(".markdown")).to_have_text("file_search web_fetch web_search")
    say(page, 'file_search {"query": "car"}')
    answer(page)
    card = call(page)
    expect(card.locator("summary")).to_contain_text("Search in files car done")
    card.locator("summary").click()
    expect(card.get_by_label("What Search in files gave")).to_contain_text("four wheels")
    page.get_by_role("button", name="New conversation").click()
    tools.get_by_label("Search the web").check()
    say(page, 'web_search {"query": "capital"}')
    answer(page)
    expect(call(page).locator("summary")).to_contain_text("Web search capital done")
    call(page).locator("summary").click()
    expect(call(page)).to_contain_text("https://files.example/paris")
    expect(page.locator("img")).to_have_count(0)


def test_a_key_that_may_use_none_is_told(page: Page, equipped: ServerProcess) -> None:
    tools = equipment(page, equipped, NOBODY)
    expect(tools).to_contain_text("This server has none for this key.")
    expect(tools.get_by_role("checkbox")).to_have_count(0)


def test_what_has_no_words_in_that_api_is_said(page: Page, equipped: ServerProcess) -> None:
    equipment(page, equipped).get_by_label("Search the web").check()
    page.get_by_label("seed").fill("7")
    say(page, "tools")
    expect(page.locator(".composer .problem")).to_contain_text("With tools of the server on, seed")
    page.get_by_label("seed").fill("")
    page.get_by_label("Reply as").select_option("json_object")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(answer(page).locator(".figures")).to_contain_text("no valid JSON")


def with_key(code: str) -> str:
    return code.replace("$OPENAI_API_KEY", ANN).replace('"OPENAI_API_KEY", "none"', f'"", "{ANN}"')


@pytest.mark.parametrize("language", ["curl", "Python"])
def test_the_same_is_had_as_code(
    page: Page, equipped: ServerProcess, models: EmbeddingVendor, language: str, tmp_path: Path
) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tools = equipment(page, equipped)
    tools.get_by_label("tests").check()
    page.get_by_label("temperature").fill("0.5")
    page.get_by_label("Message").fill('tests__add {"a": 3, "b": 4}')
    page.get_by_role("button", name="Copy as code").click()
    if language != "curl":
        page.get_by_text(language, exact=True).click()
    page.get_by_role("button", name=f"Copy as {language}").click()
    code = page.evaluate("() => navigator.clipboard.readText()")
    models.received.clear()
    run_code(language, with_key(code), tmp_path)
    bodies: list[Any] = [body for _, body in models.received]
    assert [body["temperature"] for body in bodies] == [0.5, 0.5]
    assert re.search(r"The sum is 7\.", json.dumps(bodies[1]["messages"]))


def test_what_a_preset_has_on_and_nobody_offers_is_off(page: Page, equipped: ServerProcess) -> None:
    """It would be refused, and there would be no box to switch it off."""
    page.goto(equipped.url)
    on = {"mcp": {"ended": {"on": True}}, "web_fetch": True, "file_search": ["vs_gone"]}
    kept = json.dumps({"old": {"server_tools": on}})
    page.evaluate("kept => localStorage.setItem('llama-compat-presets', kept)", kept)
    tools = equipment(page, equipped)
    page.get_by_role("combobox", name="Preset").select_option("old")
    expect(tools.get_by_label("Read web pages")).to_be_checked()
    say(page, "tools")
    expect(answer(page).locator(".markdown")).to_have_text("web_fetch")
