"""Build the documentation's site, and what programs read of it: `python -m scripts.site`.

Zensical makes the pages, and a dead link ends it. Then each page is put beside itself as Markdown,
`llms.txt` lists them (https://llmstxt.org), and `llms-full.txt` has them all.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import yaml

ROOT = Path(__file__).parents[1]
CONFIGURATION = ROOT / "mkdocs.yml"
PROGRAMS = ("llms.txt", "llms-full.txt")
"""What is made beside the pages."""


_LINK = re.compile(r"""<(?:a|link|script|img)\b[^>]*?\s(?:href|src)=["']?([^"'\s>]+)""")


class Page(NamedTuple):
    """One page, where the navigation has it."""

    room: str
    title: str
    path: str


def pages() -> Iterator[Page]:
    """All pages, in order."""
    for entry in _configuration()["nav"]:
        ((name, inside),) = entry.items()
        if isinstance(inside, str):
            yield Page("", name, inside)
            continue
        for each in inside:
            ((title, path),) = each.items()
            yield Page(name, title, path)


def llms_txt() -> str:
    """The list of all pages, for programs."""
    settings = _configuration()
    lines = [f"# {settings['site_name']}", "", f"> {settings['site_description']}"]
    room = None
    for page in pages():
        if page.room != room:
            lines += ["", f"## {page.room}", ""] if page.room else [""]
            room = page.room
        lines.append(f"- [{page.title}]({page.path}){_questions(page)}")
    return "\n".join(lines) + "\n"


def _questions(page: Page) -> str:
    """What a page answers; of the reference nothing, whose headings are names."""
    if page.room in ("", "Reference"):
        return ""
    text = (ROOT / _configuration()["docs_dir"] / page.path).read_text("utf-8")
    questions = [each for each in re.findall(r"^## (.*)", text, re.M) if each.endswith("?")]
    return f": {' '.join(questions)}" if questions else ""


def llms_full_txt() -> str:
    """All pages in one file."""
    folder = ROOT / _configuration()["docs_dir"]
    texts = [(folder / page.path).read_text("utf-8").strip() for page in pages()]
    return "\n\n---\n\n".join(texts) + "\n"


def write_for_programs(site: Path) -> None:
    """Put what programs read beside the pages in the folder `site`."""
    folder = ROOT / _configuration()["docs_dir"]
    for page in pages():
        twin = site / page.path
        twin.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / page.path, twin)
    (site / "llms.txt").write_text(llms_txt(), "utf-8")
    (site / "llms-full.txt").write_text(llms_full_txt(), "utf-8")


def dead_links(site: Path) -> Iterator[tuple[str, str]]:
    """Links of the site's pages to files of its own that are not there, each with its page.

    Zensical sees to those between pages; this is about all others, such as `llms.txt`.
    """
    for page in sorted(site.rglob("*.html")):
        if page.name == "404.html":
            continue  # its links are those of the root, wherever it is shown
        for link in _LINK.findall(page.read_text("utf-8")):
            path = unquote(urlsplit(link).path)
            if urlsplit(link).scheme or link.startswith("//") or not path:
                continue
            target = (site if path.startswith("/") else page.parent) / path.lstrip("/")
            if not (target / "index.html" if target.is_dir() else target).is_file():
                yield str(page.relative_to(site)), link


def main() -> int:
    """Returns the exit code."""
    zensical = str(Path(sys.executable).with_name("zensical"))
    built = subprocess.run([zensical, "build", "--clean", "--strict"], cwd=ROOT, check=False)
    if built.returncode:
        return built.returncode
    site = ROOT / _configuration()["site_dir"]
    write_for_programs(site)
    dead = list(dead_links(site))
    for file, link in dead:
        print(f"{file} has a link to {link}, where there is nothing")
    if dead:
        return 1
    print(f"The site is in {site.relative_to(ROOT)}")
    return 0


def _configuration() -> dict[str, Any]:
    settings: dict[str, Any] = yaml.safe_load(CONFIGURATION.read_text("utf-8"))
    return settings


if __name__ == "__main__":
    sys.exit(main())
