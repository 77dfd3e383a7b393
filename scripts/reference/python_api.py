"""The Python API of the public adapters, from their docstrings."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

from scripts.reference.docstrings import as_markdown, of_assignments, split_attributes
from scripts.reference.markdown import page as page_of
from scripts.reference.markdown import sentence, table

MODULES: dict[str, tuple[str, ...]] = {
    "llama_compat.mixins": (),
    "llama_compat.exchange": (),
    "llama_compat.types": ("messages", "requests", "replies", "models", "streams"),
}
"""Those whose names are public; of a package, also the modules that its names are from."""

INTRODUCTION = """\
A provider of one's own is a class that answers in the vocabulary: it takes typed requests and gives
a stream of events. The mixins make every client's API of that.

```python
import asyncio
from collections.abc import AsyncGenerator

from llama_compat.mixins import (
    ChatOnlyMixin,
    OpenAIChatCompletionUnsupportedMixin,
    OpenAICompletionUnsupportedMixin,
)
from llama_compat.types import (
    ChatCompletionRequest,
    SamplingParams,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    StreamStart,
    TextDelta,
    Usage,
    UserMessage,
)
from providers.base import Provider, ProviderConfig


class Shouter(
    ChatOnlyMixin,
    OpenAICompletionUnsupportedMixin,
    OpenAIChatCompletionUnsupportedMixin,
    Provider,
):
    \"\"\"Says again what it is told, louder.\"\"\"

    async def chat_completion(
        self, request: ChatCompletionRequest
    ) -> AsyncGenerator[StreamEvent, None]:
        words = request.messages[-1].content.upper().split()
        yield StreamStart(prompt_tokens=len(words))
        for word in words:
            yield StreamProgress(TextDelta(f"{word} "))
        yield StreamComplete(StopReason.end_of_turn, Usage(len(words), len(words)))


async def main() -> None:
    shouter = Shouter("shouter", ProviderConfig(), ())
    request = ChatCompletionRequest(
        model="loud", messages=(UserMessage("hello there"),), sampling=SamplingParams()
    )
    async for event in shouter.chat_completion(request):
        if isinstance(event, StreamProgress):
            print(event.delta.text)


asyncio.run(main())
#> HELLO
#> THERE
```

To be named in a template it needs a row in `providers/registry.py`."""


def page() -> str:
    """The modules."""
    return page_of("Python API", INTRODUCTION, *(_module(*each) for each in MODULES.items()))


def _module(name: str, parts: Sequence[str]) -> str:
    tree = _tree(name)
    pieces = [f"## {name}", as_markdown(ast.get_docstring(tree) or ""), *_things(tree)]
    for part in parts:
        pieces += _things(_tree(f"{name}.{part}"))
    return "\n\n".join(each for each in pieces if each)


def _tree(name: str) -> ast.Module:
    return ast.parse(Path(inspect.getsourcefile(import_module(name)) or "").read_text("utf-8"))


def _things(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if getattr(node, "name", "_").startswith("_"):
            continue
        if isinstance(node, ast.ClassDef):
            yield from _class(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _function(node, "###")


def _class(node: ast.ClassDef) -> Iterator[str]:
    bases = ", ".join(ast.unparse(each) for each in node.bases)
    yield f"### {node.name}"
    yield f"```text\nclass {node.name}{f'({bases})' if bases else ''}\n```"
    about, told = split_attributes(ast.get_docstring(node) or "")
    yield as_markdown(about)
    fields = list(_fields(node, told))
    if fields:
        yield table(("member", "type", "default", "what it is"), fields)
    for each in node.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and not each.name.startswith(
            "_"
        ):
            yield from _function(each, "####", f"{node.name}.")


def _fields(node: ast.ClassDef, told: dict[str, str]) -> Iterator[tuple[str, ...]]:
    told = told | of_assignments(node.body)
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            name, kind = each.target.id, ast.unparse(each.annotation)
            value = f"`{ast.unparse(each.value)}`" if each.value else ""
        elif isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
            name, kind, value = each.targets[0].id, "", f"`{ast.unparse(each.value)}`"
        else:
            continue
        if not name.startswith("_"):
            yield f"`{name}`", f"`{kind}`" if kind else "", value, sentence(told.get(name, ""))


def _function(
    node: ast.FunctionDef | ast.AsyncFunctionDef, heading: str, owner: str = ""
) -> Iterator[str]:
    is_property = any(ast.unparse(each) == "property" for each in node.decorator_list)
    word = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    yield f"{heading} {owner}{node.name}"
    if is_property:
        yield f"```text\n{node.name}{returns.replace(' -> ', ': ')}\n```"
    else:
        yield f"```text\n{word} {node.name}({ast.unparse(node.args)}){returns}\n```"
    yield as_markdown(ast.get_docstring(node) or "")
