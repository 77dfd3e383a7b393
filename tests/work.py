"""How much work code does, counted: the same on every machine, however busy it is.

What is counted is loaded a second time, from the same source, with a counter in what costs more the
longer a text is: each turn of a loop, each call, and the characters that an operator or a function
of C's has to go through. What C does by itself in one call is not seen, such as a regular
expression that goes back and begins again: `processor_bound` ends that.
"""

from __future__ import annotations

import ast
import copy
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

FLOORS = ("llama_compat", "providers", "routing")

Sized = (str, bytes, bytearray, list, tuple)
Text = (str, bytes, bytearray)

_FROM_LEFT = frozenset({"find", "index"})
_FROM_RIGHT = frozenset({"rfind", "rindex"})
_AT_ONCE = frozenset({len, isinstance, next, iter, getattr, id, ord})
_AT_AN_END = frozenset({"startswith", "endswith", "append", "pop", "clear"})
_TOUCHED_BY_NAME = frozenset({"super", "locals", "globals", "vars", "eval", "exec"})
"""What looks at the frame that calls it."""


class Work:
    """A counter.

    Attributes:
        done: how much was done so far.
    """

    def __init__(self) -> None:
        self.done = 0

    def of(self, run: Callable[[], object]) -> int:
        """How much `run` does."""
        before = self.done
        run()
        return self.done - before

    # What the code that is counted calls.

    def each(self, values: Iterable[Any]) -> Iterator[Any]:
        for value in values:
            self.done += 1
            yield value

    def turn(self) -> bool:
        self.done += 1
        return True

    def call(self, function: Any, /, *arguments: Any, **named: Any) -> Any:
        if _costs_nothing(function):
            result = function(*arguments, **named)
            self.done += 1
            return result
        before = len(arguments[0]) if arguments and isinstance(arguments[0], Text) else 0
        result = function(*arguments, **named)
        self.done += 1 + _cost(function, arguments, before, result)
        return result

    def made(self, value: Any) -> Any:
        """Of an operator that makes a new value of others."""
        self.done += len(value) if isinstance(value, Sized) else 1
        return value

    def taken(self, value: Any) -> Any:
        """Of what is put to the end of another value, which grows."""
        self.done += len(value) if isinstance(value, Sized) else 1
        return value

    def grown(self, whole: Any, local: bool) -> None:
        """Of what was put to: bytes are copied, and so is a text that isn't in a variable."""
        if isinstance(whole, bytes) or (isinstance(whole, str) and not local):
            self.done += len(whole)

    def within(self, value: Any, whole: Any) -> bool:
        found = value in whole
        if isinstance(whole, Text) and isinstance(value, Text):
            self.done += whole.find(value) if found else len(whole)  # type: ignore[arg-type]
        elif isinstance(whole, list | tuple):
            self.done += whole.index(value) if found else len(whole)
        self.done += 1
        return found


def _costs_nothing(function: Any) -> bool:
    """Whether calling `function` is seen at once to cost nothing but the call, as most are.

    The others are those of `_cost`, which looks longer than many of them take.
    """
    kind = type(function)
    if kind is MethodType:
        return not isinstance(function.__self__, (*Text, list))
    return kind is FunctionType or (kind is BuiltinFunctionType and function in _AT_ONCE)


def _cost(function: Any, arguments: Sequence[Any], before: int, result: Any) -> int:
    """The characters that a function of C's goes through."""
    owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
    if isinstance(owner, re.Pattern):
        return _cost_of_pattern(name, arguments, result)
    if isinstance(owner, Text):
        length = len(owner)
        if name in _AT_AN_END:
            return 0
        if name in _FROM_LEFT or name in _FROM_RIGHT or name == "count":
            begin, end, _ = slice(*(*arguments[1:3], None, None)[:2]).indices(length)
            if name == "count" or result == -1:
                return max(0, end - begin)
            return int(result - begin if name in _FROM_LEFT else end - result)
        if name == "extend":
            return before
        return len(result) if name == "join" else length
    if isinstance(owner, list):
        if name == "pop":
            return len(owner) - (arguments[0] if arguments and arguments[0] >= 0 else len(owner))
        return 0 if name in _AT_AN_END else len(owner)
    if isinstance(function, type):
        return len(result) if isinstance(result, Sized) else 0
    if hasattr(function, "__code__") or hasattr(getattr(function, "__func__", None), "__code__"):
        return 0
    return 0 if name == "append" else before


def _cost_of_pattern(name: str, arguments: Sequence[Any], result: Any) -> int:
    text = arguments[1] if name in ("sub", "subn") else arguments[0]
    begin = arguments[1] if len(arguments) > 1 and isinstance(arguments[1], int) else 0
    if isinstance(result, re.Match):
        return result.end() - begin
    return 0 if name in ("match", "fullmatch") and result is None else len(text) - begin


class _Counting(ast.NodeTransformer):
    """Puts the counter into functions; what runs as a module is imported stays as it is."""

    def __init__(self) -> None:
        self._depth = 0

    def _call(self, name: str, *arguments: ast.expr, like: ast.AST) -> ast.Call:
        counter = ast.Attribute(ast.Name("__work__", ast.Load()), name, ast.Load())
        made = ast.Call(counter, list(arguments), [])
        return ast.fix_missing_locations(ast.copy_location(made, like))

    def _function(self, node: Any) -> Any:
        self._depth += 1
        made = [self.visit(each) for each in node.body]
        node.body = [one for each in made for one in (each if isinstance(each, list) else [each])]
        self._depth -= 1
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = _function

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        outer, self._depth = self._depth, 0
        self.generic_visit(node)
        self._depth = outer
        return node

    def visit_For(self, node: ast.For) -> Any:
        self.generic_visit(node)
        if self._depth:
            node.iter = self._call("each", node.iter, like=node.iter)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> Any:
        self.generic_visit(node)
        if self._depth and not node.is_async:
            node.iter = self._call("each", node.iter, like=node.iter)
        return node

    def visit_While(self, node: ast.While) -> Any:
        self.generic_visit(node)
        if self._depth:
            node.body.insert(0, _statement(self._call("turn", like=node.test)))
        return node

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        by_name = isinstance(node.func, ast.Name) and node.func.id in _TOUCHED_BY_NAME
        if not self._depth or by_name:
            return node
        call = self._call("call", node.func, *node.args, like=node)
        call.keywords = node.keywords
        return call

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        self.generic_visit(node)
        return self._call("made", node, like=node) if self._depth else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> Any:
        self.generic_visit(node)
        return self._call("made", node, like=node) if self._depth else node

    def visit_FormattedValue(self, node: ast.FormattedValue) -> Any:
        node.value = self.visit(node.value)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        self.generic_visit(node)
        if self._depth and isinstance(node.ctx, ast.Load) and isinstance(node.slice, ast.Slice):
            return self._call("made", node, like=node)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        self.generic_visit(node)
        if not self._depth or isinstance(node.target, ast.Subscript):
            return node
        node.value = self._call("taken", node.value, like=node.value)
        local = isinstance(node.target, ast.Name)
        grown = copy.copy(node.target)
        grown.ctx = ast.Load()
        count = self._call("grown", grown, ast.Constant(local), like=node)
        return [node, _statement(count)]

    def visit_Compare(self, node: ast.Compare) -> Any:
        self.generic_visit(node)
        if not self._depth or len(node.ops) > 1:
            return node
        if isinstance(node.ops[0], ast.In):
            return self._call("within", node.left, node.comparators[0], like=node)
        if isinstance(node.ops[0], ast.NotIn):
            found = self._call("within", node.left, node.comparators[0], like=node)
            return ast.copy_location(ast.UnaryOp(ast.Not(), found), node)
        return node


def _statement(value: ast.expr) -> ast.stmt:
    return ast.copy_location(ast.Expr(value), value)


def compiled(source: str | bytes, path: str) -> CodeType:
    """`source` with the counter, which it calls `__work__`."""
    tree = _Counting().visit(ast.parse(source, path))
    return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, work: Work) -> None:
        super().__init__(name, path)
        self._work = work

    def get_code(self, fullname: str) -> CodeType:
        """Compiled from the source each time: what is cached does not count."""
        path = self.get_filename(fullname)
        return compiled(self.get_data(path), path)

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__work__"] = self._work
        super().exec_module(module)


class _Finder(MetaPathFinder):
    def __init__(self, work: Work) -> None:
        self._work = work

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path) if _is_ours(fullname) else None
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(fullname, spec.loader.path, self._work)
        return spec


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in FLOORS


class CountedCode:
    """All of the three floors, loaded a second time, to be counted.

    Args:
        again: modules of the tests that are loaded a second time with them, though nothing is
            counted in them: they import what is.
    """

    def __init__(self, *again: str) -> None:
        self._again = again
        self._work = Work()
        self._finder = _Finder(self._work)
        self._modules: dict[str, ModuleType] = {}

    @contextmanager
    def in_place(self) -> Iterator[Work]:
        """Have what is imported meanwhile be what is counted, and what was imported before it."""
        before = self._taken_out()
        sys.modules.update(self._modules)
        sys.meta_path.insert(0, self._finder)
        try:
            yield self._work
        finally:
            sys.meta_path.remove(self._finder)
            self._modules = self._taken_out()
            sys.modules.update(before)

    def _taken_out(self) -> dict[str, ModuleType]:
        names = [name for name in sys.modules if _is_ours(name) or name in self._again]
        return {name: sys.modules.pop(name) for name in names}


@contextmanager
def processor_bound(seconds: float) -> Iterator[None]:
    """Interrupt what takes more of the processor than it ever should, as a text does over which an
    expression goes again and again: minutes. It bounds, and does not measure."""

    def ended(signum: int, frame: FrameType | None) -> None:
        raise AssertionError(f"not at the end after {seconds:.0f} seconds of the processor")

    before = signal.signal(signal.SIGVTALRM, ended)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
