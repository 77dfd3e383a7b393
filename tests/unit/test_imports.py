"""The three floors: routing stands on providers, providers on llama_compat, and nothing reaches up.

And what is heavy is imported where it is used, not when a module loads.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]

MAY_IMPORT = {
    "llama_compat": {"llama_compat"},
    "providers": {"llama_compat", "providers"},
    "routing": {"llama_compat", "providers", "routing"},
}

HEAVY = {
    "accelerate",
    "anthropic",
    "asyncpg",
    "botocore",
    "genai_prices",
    "gguf",
    "google",
    "huggingface_hub",
    "llama_cpp",
    "openai",
    "prometheus_client",
    "ray",
    "redis",
    "safetensors",
    "torch",
    "transformers",
    "triton",
    "zmq",
}

ENGINES = (
    "providers/local/torch_engine/",
    "providers/local/llama_cpp_engine/",
    "providers/remote/bedrock/event_stream.py",
    "routing/observability/telemetry/metrics.py",
)
"""Where the heavy ones may be imported at module level: loaded only when a template asks."""


def modules(floor: str) -> list[Path]:
    return sorted((ROOT / floor).rglob("*.py"))


def statements(tree: ast.AST, *, inside_functions: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """The absolute imports; with those in functions, or without."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            if not getattr(node, "level", 0):
                yield node
        elif inside_functions or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from statements(node, inside_functions=inside_functions)


def imports(tree: ast.AST, *, inside_functions: bool) -> list[tuple[int, str]]:
    """Line and full name of each of them."""
    found = statements(tree, inside_functions=inside_functions)
    return [(node.lineno, each) for node in found for each in names_of(node)]


def names_of(node: ast.Import | ast.ImportFrom) -> list[str]:
    """What is imported, with the module that it is in."""
    module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
    return [f"{module}{alias.name}" for alias in node.names]


def is_for_type_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


class Imports(NamedTuple):
    """Line and full name of what a module imports.

    Attributes:
        all: wherever that stands.
        at_loading: what is imported when the module loads, which is not what only type checkers
            see.
    """

    all: list[tuple[int, str]]
    at_loading: list[tuple[int, str]]


@cache
def of_module(path: Path) -> Imports:
    tree = ast.parse(path.read_text("utf-8"))
    everywhere = imports(tree, inside_functions=True)
    tree.body = [node for node in tree.body if not is_for_type_checkers(node)]
    return Imports(everywhere, imports(tree, inside_functions=False))


@pytest.mark.parametrize("floor", MAY_IMPORT)
def test_no_floor_imports_from_above(floor: str) -> None:
    found = modules(floor)
    assert found
    reaching_up = [
        f"{path.relative_to(ROOT)}:{line} imports {package}"
        for path in found
        for line, name in of_module(path).all
        if (package := name.split(".")[0]) in MAY_IMPORT and package not in MAY_IMPORT[floor]
    ]
    assert reaching_up == []


def loads(path: Path) -> Iterator[str]:
    """The modules of the floors that the import of a module loads, packages on the way included;
    its own packages aside, whose loading has begun."""
    name = dotted(path)
    own = {name.rsplit(".", levels)[0] for levels in range(name.count(".") + 1)}
    for _, each in of_module(path).at_loading:
        parts = each.split(".")
        yield from {".".join(parts[:end]) for end in range(1, len(parts) + 1)} - own


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def circles(graph: Mapping[str, Iterable[str]]) -> list[set[str]]:
    """The modules that load each other, whichever is first (Tarjan's strongly connected
    components)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for each in graph[name]:
            if each in graph and each not in order:
                visit(each)
            if each in stack:
                low[name] = min(low[name], low[each])
        if low[name] == order[name]:
            circle = {stack.pop()}
            while name not in circle:
                circle.add(stack.pop())
            if len(circle) > 1:
                found.append(circle)

    for name in graph:
        if name not in order:
            visit(name)
    return found


def test_any_module_can_be_the_first_that_is_imported() -> None:
    graph = {dotted(path): set(loads(path)) for floor in MAY_IMPORT for path in modules(floor)}
    assert circles(graph) == []
    assert circles({"a": ["b"], "b": ["c", "d"], "c": ["a"], "d": []}) == [{"a", "b", "c"}]


def test_heavy_packages_are_imported_only_where_they_are_used() -> None:
    eager = [
        f"{path.relative_to(ROOT)}:{line} imports {package}"
        for floor in MAY_IMPORT
        for path in modules(floor)
        if not str(path.relative_to(ROOT)).startswith(ENGINES)
        for line, name in of_module(path).at_loading
        if (package := name.split(".")[0]) in HEAVY
    ]
    assert eager == []


def test_the_check_sees_imports_wherever_they_stand() -> None:
    tree = ast.parse(
        "import routing.app\n"
        "if True:\n"
        "    from providers import base\n"
        "def command():\n"
        "    from routing.process.server import serve\n"
    )
    at_loading = imports(tree, inside_functions=False)
    assert at_loading == [(1, "routing.app"), (3, "providers.base")]
    assert [line for line, _ in imports(tree, inside_functions=True)] == [1, 3, 5]


def test_a_plain_gateway_imports_nothing_of_records_metrics_and_traces() -> None:
    script = (
        "import sys, routing.process.server, routing.app\n"
        "print([name for name in sys.modules if name.startswith(("
        "'routing.observability.observers', 'routing.observability.records',"
        " 'routing.observability.telemetry.t', 'routing.observability.telemetry.m',"
        " 'prometheus_client', 'asyncpg', 'genai_prices'))])"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def test_what_a_pull_starts_imports_nothing_of_vendors_and_templates() -> None:
    """A pull starts several processes, and each would take a quarter of a second longer."""
    script = (
        "import sys, providers.local.models.child, providers.local.models.sources.ranged\n"
        "print([name for name in sys.modules if name.startswith("
        "('llama_compat.', 'providers.base', 'providers.remote', 'pydantic'))])"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"
