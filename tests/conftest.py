"""Options of the whole suite; they are here because pytest reads no deeper conftest for them."""

from __future__ import annotations

import ast
import gc
import logging
import re
import signal
import sys
from collections.abc import Generator, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

from tests import postgres, tls_contexts, workers
from tests.examples import LIGHT, register_profiles

# What a shell starts in the background ignores Ctrl-C, and so would all that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What is imported and collected stays: to look through all of it for garbage again and again is a
# fifth of the work. `pytest_collection_finish` has it looked for from then on.
gc.disable()

register_profiles()

STARTER_MODEL = "SmolLM2-135M-Instruct"

ROOT = Path(__file__).parents[1]

ENGINES = (
    "gguf",
    "llama_cpp",
    "providers.local.llama_cpp_engine",
    "providers.local.torch_engine",
    "safetensors",
    "tokenizers",
    "torch",
    "transformers",
    "triton",
)
"""What runs models, and takes seconds to import."""

COLLECTED_ENGINES = pytest.StashKey[list[str]]()
"""Those that something has imported by the time that all tests are collected."""

_ENGINE_OR_HELPER = re.compile("|".join(map(re.escape, (*ENGINES, "tests"))))
"""What stands in a module that imports one, in whatever way; to take others apart takes longer."""

HEAVY = ("alone", "engine", "program")
"""Marks of what is left out with `--light`."""

SERVERS = frozenset({"postgres_server", "redis"})
"""Fixtures that start one, whoever asks for them."""

needs_torch = pytest.mark.skipif(
    find_spec("torch") is None,
    reason="torch is not installed, as for `make check`; `make test` has it",
)
"""For what is said where torch is there, and no model of it is loaded."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("llama_compat")
    group.addoption(
        "--text-model",
        default=STARTER_MODEL,
        help="the model that the tests of text generation ask for (default: %(default)s)",
    )
    group.addoption(
        "--base-url",
        help="test a server that runs already, such as http://localhost:8321/v1/openai/v1; its key"
        " is read from OPENAI_API_KEY",
    )
    group.addoption(
        "--capabilities",
        metavar="FILE",
        help="with --base-url: write what the server can do to this file too, as JSON",
    )
    group.addoption(
        "--template",
        default="starter",
        help="the template, by name or path, of the server that the tests start (%(default)s)",
    )
    group.addoption(
        "--abuse",
        action="store_true",
        help="run what takes long in tests/abuse too, and hold the rest against the bounds of a"
        " machine that has nothing else to do",
    )
    group.addoption(
        "--light",
        action="store_true",
        help="leave out what imports an engine, starts a server, or measures: for `make check`",
    )


def pytest_configure(config: pytest.Config) -> None:
    workers.set_up(config)
    if config.getoption("--abuse"):
        settings.load_profile("long")
    elif config.getoption("--light"):
        settings.load_profile(LIGHT)


def pytest_sessionstart(session: pytest.Session) -> None:
    workers.note_failures_here(session.config)


@pytest.fixture(scope="session", autouse=True)
def authorities_read_once() -> Iterator[None]:
    with tls_contexts.read_once():
        yield


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.PostgresServer]:
    """One for all tests of a process."""
    pytest.importorskip("asyncpg")
    reason = postgres.missing()
    if reason is not None:
        pytest.skip(reason)
    with postgres.postgres() as server:
        yield server


@pytest.fixture
def postgres_database(postgres_server: postgres.PostgresServer) -> str:
    """The address of a database that no other test knows."""
    return postgres_server.new_database()


# --------------------------------------------------------------------------------------------------
# With --light: what needs no engine, no server, and not the machine for itself
# --------------------------------------------------------------------------------------------------


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A module that imports an engine is not imported; nor is what shares its folder's conftest."""
    if not config.getoption("--light"):
        return None
    module = collection_path / "conftest.py" if collection_path.is_dir() else collection_path
    return imports_engine(module) or None


@pytest.fixture(autouse=True)
def own_log_records() -> Iterator[None]:
    """What a server sets for its whole process ends with the test that began one in this."""
    factory, source = logging.getLogRecordFactory(), logging._srcfile
    yield
    logging.setLogRecordFactory(factory)
    logging._srcfile = source


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("early") is None)
    if not config.getoption("--abuse"):
        for item in items:
            if item.get_closest_marker("lengthy"):
                item.add_marker(pytest.mark.skip(reason="takes long: make abuse"))
    if not config.getoption("--light"):
        return
    heavy = {
        item for item in items if starts_server(item) or any(map(item.get_closest_marker, HEAVY))
    }
    config.hook.pytest_deselected(items=[*heavy])
    items[:] = [item for item in items if item not in heavy]


def pytest_collection_finish(session: pytest.Session) -> None:
    """What was imported stays, and is not gone through for garbage, of which it is nearly free: a
    look takes a second and a half and gives nothing back."""
    gc.freeze()
    gc.enable()
    session.config.stash[COLLECTED_ENGINES] = [*filter(sys.modules.get, ENGINES)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, bool | None, bool | None]:
    """What a module leaves behind stays, too: to go through all that has gathered takes each look
    for garbage of a later one up to a second."""
    done = yield
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()
    return done


def starts_server(item: pytest.Item) -> bool:
    fixtures: list[str] = getattr(item, "fixturenames", [])
    return item.get_closest_marker("server") is not None or not SERVERS.isdisjoint(fixtures)


@cache
def imports_engine(module: Path) -> bool:
    """Whether importing `module` imports an engine, by itself or by another module of the tests."""
    if module.suffix != ".py" or not module.is_file():
        return False
    source = module.read_text("utf-8")
    if not _ENGINE_OR_HELPER.search(source):
        return False
    names = list(_imported(ast.parse(source)))
    if any(name == each or name.startswith(f"{each}.") for name in names for each in ENGINES):
        return True
    helpers = {_file_of(name) for name in names if name.startswith("tests.")}
    return any(imports_engine(each) for each in helpers - {module})


def _imported(tree: ast.AST) -> list[str]:
    """The modules that are imported as `tree` is, or else it is skipped: outside of its
    functions."""
    found: list[str] = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Expr | ast.Assign):
            found += _imported_or_skipped(node.value)
        elif isinstance(node, ast.stmt | ast.excepthandler) and not isinstance(
            node, ast.FunctionDef | ast.AsyncFunctionDef
        ):
            found += _imported(node)
    return found


def _imported_or_skipped(value: ast.expr) -> list[str]:
    match value:
        case ast.Call(ast.Attribute(attr="importorskip"), [ast.Constant(str() as name), *_]):
            return [name]
    return []


def _file_of(module: str) -> Path:
    return ROOT / f"{module.replace('.', '/')}.py"
