"""`ARCHITECTURE.md` is true: what it names is there, and what is there it names.

And a folder is a room, which one sees at a glance, rather than a corridor; and where a module's
tests are is guessed from its path.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAP = (ROOT / "ARCHITECTURE.md").read_text("utf-8")

FLOORS = ("llama_compat", "providers", "routing")
BESIDE = ("bench", "deploy", "docs", "scripts", "templates", "tests")
NAMED_PATH = re.compile(rf"\b(?:{'|'.join((*FLOORS, *BESIDE))})/[\w./-]*")
OTHER_FILE = re.compile(r"(?<![\w./-])[\w-]+\.(?:md|toml|py|yaml)\b")

MOST_MODULES = 12


def named() -> list[str]:
    """Every path that the map names, the drawing included, and files of the root."""
    paths = {path.rstrip(".") for path in NAMED_PATH.findall(MAP)}
    return sorted(paths | set(OTHER_FILE.findall(MAP)))


@cache
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
    assert folders()[folder] <= MOST_MODULES


@pytest.mark.parametrize("floor", FLOORS)
def test_a_test_is_where_its_module_is(floor: str) -> None:
    """`test_X.py`, or `test_X_ASPECT.py`, mirrors a module or a package `X` of the same folder."""
    mirror = ROOT / "tests" / "unit"
    tests = list((mirror / floor).rglob("test_*.py"))
    assert len(tests) > 10
    strays = [test for test in tests if not mirrored(ROOT / test.relative_to(mirror))]
    assert strays == []
    assert not mirrored(ROOT / floor / "test_nothing_of_the_kind.py")


def mirrored(test: Path) -> bool:
    name = test.stem.removeprefix("test_")
    there = {
        path.stem
        for path in test.parent.glob("*")
        if path.suffix == ".py" or (path / "__init__.py").is_file()
    }
    return any(name == each or name.startswith(f"{each}_") for each in there)


def test_the_map_draws_the_chain_in_its_order() -> None:
    """The layers stand in the drawing as `chain.py` puts them: outermost first."""
    drawing = MAP.split("## The way of a request")[1].split("```")[1]
    chain = (ROOT / "routing/layers/chain.py").read_text("utf-8")
    order = re.search(r"^    (limits -> .*?)\s+-> policy", chain, re.MULTILINE | re.DOTALL)
    assert order
    layers = re.split(r"\s+->\s+", order[1])
    places = [drawing.index(f"|  {layer} ") for layer in layers]
    assert places == sorted(places)
    assert places[-1] < drawing.index("routing/layers/policy.py")


PUBLIC_CLASS = re.compile(r"^class ([^\W_]\w*)", re.MULTILINE)

OF_EVERY_DIALECT = {"StreamParser", "StreamRenderer"}
"""Each wire language has one, which is read with the language's name before it."""


@cache
def public_classes() -> dict[str, set[str]]:
    """The names of the floors' public classes, and the modules that have one of the name."""
    found: dict[str, set[str]] = {}
    for floor in FLOORS:
        for path in (ROOT / floor).rglob("*.py"):
            for name in PUBLIC_CLASS.findall(path.read_text("utf-8")):
                found.setdefault(name, set()).add(str(path.relative_to(ROOT)))
    return found


def test_one_noun_is_one_thing() -> None:
    twice = {
        name: sorted(modules)
        for name, modules in public_classes().items()
        if len(modules) > 1 and name not in OF_EVERY_DIALECT
    }
    assert twice == {}


@pytest.mark.parametrize("name", sorted(OF_EVERY_DIALECT))
def test_what_every_dialect_has_is_that_of_dialects(name: str) -> None:
    """Beside theirs there is the protocol that they follow, and no third thing."""
    others = [
        path for path in public_classes()[name] if not re.match(r"llama_compat/dialects/\w+/", path)
    ]
    assert len(others) == 1
