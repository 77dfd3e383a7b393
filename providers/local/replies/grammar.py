"""What a reply has to be, as a grammar: JSON, a schema, a pattern, or the call of a tool.

The grammars are llguidance's (https://github.com/guidance-ai/llguidance): it says which tokens may
come next, bounds the work that a grammar can make, and refuses what it can't enforce.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from llama_compat.errors import APIError, UnsupportedHere, invalid_parameter
from llama_compat.types import Guide, ToolDefinition
from providers.local.engine import Constraint, LocalModel
from providers.local.replies.call_grammar import (
    arguments_schema,
    demanded_call,
    free_reply,
    json_rule,
    parameters_path,
    string,
)
from providers.local.replies.repetitions import check_repetitions
from providers.local.replies.schemas import enforceable, parts

if TYPE_CHECKING:
    import numpy as np

CACHED = 64
"""Grammars that are kept compiled, for each model."""

MAX_SOURCE = 256 * 1024
"""Characters that a schema, pattern or grammar can have."""

ASCII = "dw"
"""What means ASCII alone in a pattern: `\\d` and `\\w`, as in ECMA-262 and so in a schema."""

_PATTERNS = re.compile(r"/((?:[^/\\\n]|\\.)+)/?")
"""Those in a grammar."""

NOTATION = "https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md"
"""How a grammar is written."""


class Grammars:
    """Compiles grammars for one model, in a thread of its own, and keeps those it compiled.

    Args:
        model: whose tokens they are about.
    """

    def __init__(self, model: LocalModel) -> None:
        self._model = model
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="grammar compiler")
        self._tokenizer: Any = None
        self._compiled: OrderedDict[str, Any] = OrderedDict()

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(cancel_futures=True)

    async def constraint(self, guide: Guide, prefix: str = "") -> Constraint:
        """A constraint under which a reply is what `guide` says.

        Args:
            guide: what the request asks for.
            prefix: text that comes before it.

        Raises:
            APIError: 400; it is no such thing, can't be enforced or is too large.
        """
        return await self._in_thread(self._compile_guide, guide, prefix)

    async def call_constraint(
        self, tools: Sequence[ToolDefinition], openings: Mapping[str, str]
    ) -> Constraint:
        """A constraint under which a reply calls one of `tools` with arguments of its schema.

        Args:
            tools: those that it may call.
            openings: what the call of each begins with, up to the `{` of its arguments.

        Raises:
            APIError: 400; a tool's parameters can't be enforced.
        """
        return await self._in_thread(self._compile_calls, tools, openings)

    async def reply_constraint(
        self,
        tools: Sequence[ToolDefinition],
        guide: Guide | None,
        *,
        prefix: str = "",
        single: bool = False,
    ) -> Constraint:
        """A constraint under which a reply may call `tools`, the strict ones by their schemas.

        Args:
            tools: those that it may call, in the model's own format, which is known.
            guide: what its text has to be, if anything; a reply is either that or calls.
            prefix: text that comes before guided text; it ends the model's reasoning.
            single: whether there may be one call only.

        Raises:
            APIError: 400; a strict tool's parameters or the guide can't be enforced.
        """
        return await self._in_thread(self._compile_reply, tools, guide, prefix, single)

    async def _in_thread(self, compile_: Callable[..., Constraint], *args: object) -> Constraint:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, compile_, *args)
        except RecursionError:
            raise APIError(
                400, "The schema is nested too deeply to be enforced.", code="invalid_value"
            ) from None

    # In the thread --------------------------------------------------------------------------------

    def _compile_guide(self, guide: Guide, prefix: str) -> Constraint:
        guide = _enforceable(guide)
        return self._compile(_source(guide, prefix), guide)

    def _compile_calls(
        self, tools: Sequence[ToolDefinition], openings: Mapping[str, str]
    ) -> Constraint:
        self._check_arguments(tools)
        source = demanded_call(tools, openings, self._model)
        return self._compile(source, Guide("grammar", source, "tools"))

    def _compile_reply(
        self,
        tools: Sequence[ToolDefinition],
        guide: Guide | None,
        prefix: str,
        single: bool,
    ) -> Constraint:
        self._check_arguments(tool for tool in tools if tool.strict)
        guided = None
        if guide is not None:
            if guide.kind == "grammar":
                raise UnsupportedHere(
                    400,
                    f"'{guide.path}' and 'tools' can't be honoured in one request by a model in"
                    " this process. Leave one of them out, or set 'tool_choice' to 'none'.",
                    param=guide.path,
                    code="unsupported_parameter",
                )
            # By itself, so that an error names the guide.
            self._compile_guide(guide, prefix)
            guided = _rule(_enforceable(guide))
        source = free_reply(tools, self._model, guided=guided, prefix=prefix, single=single)
        return self._compile(source, Guide("grammar", source, "tools"))

    def _check_arguments(self, tools: Iterable[ToolDefinition]) -> None:
        """Each tool's schema by itself, so that an error names the tool."""
        for tool in tools:
            guide = Guide("json_schema", arguments_schema(tool), parameters_path(tool))
            self._compile(_source(guide, ""), guide)

    def _compile(self, source: str, guide: Guide) -> Constraint:
        if len(source) > MAX_SOURCE:
            raise invalid_parameter(
                guide.path, f"'{guide.path}' makes a grammar of more than {MAX_SOURCE} characters."
            )
        matcher = self._compiled.get(source)
        if matcher is None:
            matcher = self._new_matcher(source, guide)
            self._compiled[source] = matcher
            if len(self._compiled) > CACHED:
                self._compiled.popitem(last=False)
        self._compiled.move_to_end(source)
        return _Matching(matcher.deep_copy(), self._model.vocab_size, guide)

    def _new_matcher(self, source: str, guide: Guide) -> Any:
        llguidance = _library()
        if self._tokenizer is None:
            try:
                self._tokenizer = self._model.tokenizer.for_grammars(
                    self._model.vocab_size, sorted(self._model.stop_tokens)
                )
            except ValueError as error:
                raise UnsupportedHere(
                    400,
                    f"The tokenizer of the model '{self._model.name}' is of a kind for which no"
                    f" grammar can be enforced ({error}). Leave out what asks for one.",
                    param=guide.path,
                    code="unsupported_parameter",
                ).about(self._model.name) from error
        grammar = llguidance.LLMatcher.grammar_from_lark(source)
        matcher = llguidance.LLMatcher(self._tokenizer, grammar, log_level=0)
        if matcher.is_error():
            raise _refused(llguidance.LLMatcher, guide, matcher.get_error())
        return matcher


class _Matching:
    """A `Constraint`: a grammar, and how far one reply has come in it."""

    def __init__(self, matcher: Any, vocab_size: int, guide: Guide) -> None:
        self._matcher = matcher
        self._vocab_size = vocab_size
        self._guide = guide
        self._forced: list[int] = []

    def allowed(self) -> np.ndarray[Any, np.dtype[np.bool_]] | None:
        """The tokens that may come next.

        Raises:
            APIError: 400; the grammar turned out to be too complex.
        """
        import numpy as np

        if not self._forced:
            self._forced = self._matcher.compute_ff_tokens()[::-1]
        if self._forced:
            # What can only go on in one way is written in the tokens that a text has by itself.
            mask = np.zeros(self._vocab_size, np.bool_)
            mask[self._forced[-1]] = True
            return mask
        packed = self._matcher.compute_bitmask()
        if self._matcher.is_error():
            said = self._matcher.get_error()
            if _NOTHING_FITS in said:
                why = "can't be enforced: nothing that could be written fits it."
            else:
                why = f"is too complex to be enforced: {_sentence(said)}"
            raise invalid_parameter(self._guide.path, f"'{self._guide.path}' {why}")
        bits = np.unpackbits(np.frombuffer(packed, np.uint8), bitorder="little")
        return bits[: self._vocab_size].astype(np.bool_)

    def accept(self, token_id: int) -> None:
        """The token that was chosen."""
        if self._forced and self._forced.pop() != token_id:
            self._forced = []
        self._matcher.consume_token(token_id)


# What is asked for, as a grammar in Lark's notation -----------------------------------------------


def _enforceable(guide: Guide) -> Guide:
    """`guide` with its schema, if it is one, as it can be enforced."""
    if guide.kind == "regex":
        check_repetitions(guide.value, guide.path)
    elif guide.kind == "grammar":
        for pattern in _PATTERNS.findall(guide.value):
            check_repetitions(pattern, guide.path)
    if guide.kind != "json_schema":
        return guide
    return Guide(guide.kind, enforceable(guide.value, guide.path), guide.path)


def _source(guide: Guide, prefix: str) -> str:
    if guide.kind == "grammar":
        source: str = guide.value
        return source
    return f"start: {string(prefix)} guided\nguided: {_rule(guide)}\n"


def _rule(guide: Guide) -> str:
    match guide.kind:
        case "json_schema":
            return json_rule(guide.value)
        case "choice":
            return " | ".join(string(each) for each in guide.value)
        case "regex":
            pattern = _library().regex_to_lark(guide.value, ASCII)
            return f"/{pattern}/" if pattern else string("")
    return json_rule({"type": "object"})


# Errors -------------------------------------------------------------------------------------------


def _library() -> Any:
    try:
        import llguidance
    except ImportError as error:
        raise APIError(
            400,
            "Structured output needs the package llguidance on the server, which is not there: pip"
            " install llguidance",
            code="unsupported_parameter",
        ) from error
    return llguidance


def _refused(matcher_class: Any, guide: Guide, message: str) -> APIError:
    """The error for a grammar that does not compile; of a schema it names the part."""
    path = guide.path
    if guide.kind == "json_schema":
        inner, message = _narrowed(matcher_class, guide.value, guide.value, message)
        path += inner
    is_own = guide.kind == "grammar" and path != "tools"
    said = f"'{path}' can't be enforced: {_sentence(message, with_place=is_own)}"
    if is_own:
        said += f" A grammar is written in Lark's notation, as {NOTATION} has it."
        if re.search(r"^\s*[\w-]+\s*::=", guide.value, re.MULTILINE):
            said += (
                " This looks like llama.cpp's notation, GBNF: 'python -m llguidance.gbnf_to_lark"
                " FILE' translates it."
            )
    return invalid_parameter(path, said)


_NOTHING_FITS = "NoExtension"
"""llguidance's word for it, as of a schema that refers to itself and to nothing else."""

_PLACE = re.compile(r"(?:at )?(\d+)\((\d+)\): ")
_BAD_PATTERN = re.compile(r"regex parse error:\n {4}.*\n {4}( *)\^+\nerror: (.*)")
_SAID_TOO_MUCH = re.compile(
    r"\n<state>.*|\n {3}\d+ \| .*|; following .*|"
    r" \(at \".*\" \(.*\)\)$|failed to compile JSON schema: |Parser Error: ",
    re.DOTALL | re.MULTILINE,
)
"""Of llguidance's messages: what its parser is at, the lines around, lists of all that there is."""


def _sentence(message: str, *, with_place: bool = False) -> str:
    """What llguidance says is wrong, as a sentence.

    Args:
        message: its own.
        with_place: whether the line and the column that it names are in what the client sent.
    """
    place = _PLACE.match(message)
    said = _SAID_TOO_MUCH.sub("", message[place.end() :] if place else message)
    if "lookarounds not supported" in said:
        said = "a pattern can't look around, as '(?=' and '\\b' do"
    elif bad := _BAD_PATTERN.search(said):
        said = f"{bad[2]}, at character {len(bad[1]) + 1} of the pattern"
    elif said == "lexer error":
        said = "what stands there can't be read"
    said = " ".join(said.split())
    if place and with_place:
        said = f"line {place[1]}, column {place[2]}: {said}"
    return said if said.endswith(".") else f"{said}."


def _narrowed(matcher_class: Any, schema: Any, root: Any, message: str) -> tuple[str, str]:
    """The path of the smallest part of `schema` that does not compile, and what is wrong there."""
    for path, part in parts(schema):
        alone = part
        if isinstance(part, dict) and isinstance(root, dict):
            kept = ("$defs", "definitions", "x-guidance")
            alone = {name: root[name] for name in kept if name in root} | part
        # As text: as an object it could not have a number of more than 64 bits.
        grammar = matcher_class.grammar_from_json_schema(json.dumps(alone))
        found = matcher_class.validate_grammar(grammar)
        if found and not found.startswith("WARNING"):
            inner, inner_message = _narrowed(matcher_class, part, root, found)
            return path + inner, inner_message
    return "", message
