"""`ARCHITECTURE.md` is true: what it names is there, and what is there it names.

And a folder is a room, which one sees at a glance, rather than a corridor.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAP = (ROOT / "ARCHITECTURE.md").read_text("utf-8")

FLOORS = ("llama_compat", "providers", "routing")
BESIDE = ("bench", "deploy", "docs", "scripts", "templates", "tests")
NAMED_PATH = re.compile(rf"\b(?:{'|'.join((*FLOORS, *BESIDE))})/[\w./-]*")
OTHER_FILE = re.compile(r"(?<![\w./-])[\w-]+\.(?:md|toml|py|yaml)\b")

MOST_MODULES = 12

STILL_LARGER = {
    "llama_compat": 13,
    "llama_compat/dialects/anthropic_messages": 13,
    "llama_compat/dialects/gemini": 15,
    "routing/ingress": 16,
}
"""The folders that hold more, and how many; nothing is to be added here."""


def named() -> list[str]:
    """Every path that the map names, the drawing included, and files of the root."""
    paths = {path.rstrip(".") for path in NAMED_PATH.findall(MAP)}
    return sorted(paths | set(OTHER_FILE.findall(MAP)))


def folders() -> dict[str, int]:
    """Every folder of the three floors that holds modules, and how many, `__init__` aside."""
    found: dict[str, int] = {}
    for floor in FLOORS:
        for path in (ROOT / floor).rglob("*.py"):
            folder = str(path.parent.relative_to(ROOT))
            found[folder] = found.get(folder, 0) + (path.name != "__init__.py")
    return found


def rooms() -> list[str]:
    """The folders of each floor, of both kinds of providers, and of the largest engine."""
    above = {*FLOORS, "providers/remote", "providers/local", "providers/local/torch_engine"}
    return sorted(folder for folder in folders() if str(Path(folder).parent) in above)


def test_every_path_that_the_map_names_is_there() -> None:
    paths = named()
    assert len(paths) > 50
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("room", rooms())
def test_the_map_names_every_room(room: str) -> None:
    assert f"`{room}/`" in MAP


@pytest.mark.parametrize("folder", folders())
def test_no_folder_is_a_corridor(folder: str) -> None:
    modules = folders()[folder]
    assert modules <= STILL_LARGER.get(folder, MOST_MODULES)


def test_what_is_no_corridor_any_more_may_not_become_one_again() -> None:
    found = folders()
    assert {folder: found.get(folder, 0) for folder in STILL_LARGER} == STILL_LARGER
    assert all(modules > MOST_MODULES for modules in STILL_LARGER.values())


def test_the_map_draws_the_chain_in_its_order() -> None:
    """The layers stand in the drawing as `chain.py` puts them: outermost first."""
    drawing = MAP.split("## The way of a request")[1].split("```")[1]
    chain = (ROOT / "routing/layers/chain.py").read_text("utf-8")
    order = re.search(r"^    (limits -> .*?) -> policy", chain, re.MULTILINE)
    assert order
    layers = order[1].split(" -> ")
    places = [drawing.index(f"|  {layer} ") for layer in layers]
    assert places == sorted(places)
    assert places[-1] < drawing.index("routing/layers/policy.py")
