"""The site: what programs read of it, and its navigation. `make docs` builds all of it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from scripts import site
from tests.documents import DOCS, PAGES, ROOT


def test_every_page_is_in_the_navigation_once() -> None:
    assert sorted(page.path for page in site.pages()) == PAGES


def test_a_page_is_called_as_its_heading_says() -> None:
    for page in site.pages():
        heading = (DOCS / page.path).read_text("utf-8").partition("\n")[0]
        assert page.room == "" or heading == f"# {page.title}", page.path


def test_programs_find_every_page(tmp_path: Path) -> None:
    site.write_for_programs(tmp_path)
    listed = re.findall(r"\]\(([^)]+)\)", (tmp_path / "llms.txt").read_text("utf-8"))
    assert sorted(listed) == PAGES
    whole = (tmp_path / "llms-full.txt").read_text("utf-8")
    for path in PAGES:
        text = (DOCS / path).read_text("utf-8")
        assert (tmp_path / path).read_text("utf-8") == text
        assert text.strip() in whole


def test_the_first_page_lists_every_guide() -> None:
    first = (DOCS / "index.md").read_text("utf-8")
    rooms = ("start", "guides")
    assert [page for page in PAGES if page.startswith(rooms) and f"({page})" not in first] == []


@pytest.mark.parametrize("page", PAGES)
def test_links_between_pages_lead_somewhere(page: str) -> None:
    for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", (DOCS / page).read_text("utf-8")):
        if "://" not in link and link not in site.PROGRAMS:
            assert (DOCS / page).parent.joinpath(link).is_file(), link


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "index.html").write_text(
        '<a class="x" href="../there.txt#a">y</a> <a href="https://a.example/b">n</a>'
        ' <a href="../gone/">n</a> <img src="/gone.png"> <a href="#here">y</a> <a href="..">n</a>'
    )
    (tmp_path / "there.txt").touch()
    assert list(site.dead_links(tmp_path)) == [
        ("room/index.html", "../gone/"),
        ("room/index.html", "/gone.png"),
        ("room/index.html", ".."),
    ]


def test_the_builder_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (needed,) = (
        each for each in project["optional-dependencies"]["docs"] if each.startswith("zensical")
    )
    pinned = needed.replace(">=", "==")
    assert pinned in (ROOT / "constraints.txt").read_text("utf-8").splitlines()
