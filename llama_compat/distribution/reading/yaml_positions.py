"""YAML read into plain values, each with the place in the text where it stands.

The subset that settings need: mappings with text keys, lists, and scalars that are text, whole
numbers, numbers, true or false, or nothing. Dates stay text. Anchors and aliases work; how far they
may blow a document up is limited. Tags and merge keys (`<<`) are refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.constructor import ConstructorError
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from llama_compat.distribution.problems import KeyPath, Problem, dotted

MAX_VALUES = 20_000
MAX_DEPTH = 32
MAX_NUMBER_CHARACTERS = 100
"""Longer ones are no settings, and Python refuses to write some of them into a message."""

_TAG = "tag:yaml.org,2002:"
_TYPED_SCALARS = {_TAG + name for name in ("int", "float", "bool", "null")}
_KNOWN_TAGS = _TYPED_SCALARS | {
    _TAG + name for name in ("str", "timestamp", "value", "merge", "map", "seq")
}

# What PyYAML says, and what the writer most probably did.
_HINTS = {
    "'\\t'": "indent with spaces, not with tabs",
    "quoted scalar": "this quote is not closed",
    "flow sequence": "a bracket '[' is not closed, or a ',' is missing",
    "flow mapping": "a brace '{' is not closed, or a ',' is missing",
    "mapping values are not allowed": "put a value that holds ': ' in quotes, or mend the"
    " indentation",
    "expected <block end>": "lines of one mapping or list must be indented alike, and quotes must"
    " match",
    "could not find expected ':'": "a key needs a ': ' after it",
    "but found another document": "write one document; leave out the line '---'",
    "undefined alias": "an alias (*name) needs an anchor (&name) above it",
    "cannot start any token": "put a value that begins with this character in quotes",
}

# Where these go wrong is only noticed later, often at the end of the file.
_POINT_TO_START = ("quoted scalar", "flow sequence", "flow mapping")


@dataclass(frozen=True, slots=True)
class Position:
    """Where a value stands, and its key if it has one; lines and columns are counted from 1."""

    line: int
    column: int
    key_line: int
    key_column: int


@dataclass(slots=True)
class Document:
    """A YAML document.

    Attributes:
        value: mappings as dict, lists as list, and scalars.
        places: where each value stands.
        problems: what could not be read; the values in question are None.
    """

    value: Any = None
    places: dict[KeyPath, Position] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def problem(self, path: KeyPath, message: str, *, at_key: bool = False) -> Problem:
        """A problem with the value at `path`, or with the nearest around it that has a place."""
        known = path
        while known not in self.places and known:
            known = known[:-1]
        place = self.places.get(known, Position(1, 1, 1, 1))
        if at_key:
            return Problem(message, dotted(path), place.key_line, place.key_column)
        return Problem(message, dotted(path), place.line, place.column)


def read_yaml(text: str) -> Document:
    """Read one YAML document; what is wrong with it is in the result's `problems`."""
    document = Document()
    try:
        loader = _Loader(text)
    except yaml.reader.ReaderError as error:
        document.problems.append(_character_problem(error, text))
        return document
    try:
        root = loader.get_single_node()
        if root is not None:
            document.value = _Reader(loader, document).value(root, (), root)
    except yaml.MarkedYAMLError as error:
        document.problems.append(_syntax_problem(error, text))
    except yaml.reader.ReaderError as error:
        document.problems.append(_character_problem(error, text))
    except _TooMuch as error:
        document.problems.append(Problem(str(error), line=1, column=1))
    except RecursionError:
        document.problems.append(Problem("nested too deeply", line=1, column=1))
    finally:
        loader.dispose()
    return document


def _character_problem(error: yaml.reader.ReaderError, text: str) -> Problem:
    line = text.count("\n", 0, error.position) + 1
    code = ord(error.character) if isinstance(error.character, str) else error.character
    return Problem(f"not valid YAML: the character U+{code:04X} is not allowed", line=line)


def _syntax_problem(error: yaml.MarkedYAMLError, text: str) -> Problem:
    what = ", ".join(part for part in (error.context, error.problem) if part)
    hint = next((hint for said, hint in _HINTS.items() if said in what), "")
    mark = error.problem_mark or error.context_mark
    if error.context_mark and any(construct in what for construct in _POINT_TO_START):
        mark = error.context_mark
    if mark is None:
        return Problem(f"not valid YAML: {what}", line=1, column=1)
    lines = text.splitlines()
    if mark.line < len(lines) and "${" in lines[mark.line]:
        hint = "put a value that holds ${env.NAME} in quotes"
    message = f"not valid YAML: {hint} ({what})" if hint else f"not valid YAML: {what}"
    return Problem(message, line=mark.line + 1, column=mark.column + 1)


class _TooMuch(Exception):
    """The document is larger than any template is."""

    @classmethod
    def values(cls) -> _TooMuch:
        return cls(f"too large: more than {MAX_VALUES} values, aliases written out")


class _Loader(yaml.SafeLoader):
    """Stops where there is more than may be read: a megabyte of small values takes it half a
    minute."""

    _composed = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        self._composed += 1
        if self._composed > 2 * MAX_VALUES:  # a value may have a key, which is a node too
            raise _TooMuch.values()
        return super().compose_node(parent, index)


class _Reader:
    """Turns YAML nodes into values and notes their places."""

    def __init__(self, loader: yaml.SafeLoader, document: Document) -> None:
        self._loader = loader
        self._document = document

    def value(self, node: Node, path: KeyPath, key: Node) -> Any:
        """The value of `node`, which stands at `path` behind the key `key`.

        Raises:
            _TooMuch: it is larger or deeper than any template is.
        """
        # An alias is its anchor's node again, so a few lines can stand for billions of values, and
        # an anchor that holds its own alias for endlessly many.
        if len(self._document.places) >= MAX_VALUES:
            raise _TooMuch.values()
        if len(path) > MAX_DEPTH:
            raise _TooMuch(f"nested too deeply: more than {MAX_DEPTH} levels at {dotted(path[:3])}")
        self._document.places[path] = Position(
            node.start_mark.line + 1,
            node.start_mark.column + 1,
            key.start_mark.line + 1,
            key.start_mark.column + 1,
        )
        if node.tag not in _KNOWN_TAGS:
            return self._complain(path, f"the YAML tag '{_shown_tag(node.tag)}' is not supported")
        if isinstance(node, MappingNode):
            return self._mapping(node, path)
        if isinstance(node, SequenceNode):
            return [self.value(item, (*path, i), item) for i, item in enumerate(node.value)]
        assert isinstance(node, ScalarNode)
        return self._scalar(node, path)

    def _mapping(self, node: MappingNode, path: KeyPath) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        first: dict[str, int] = {}
        for key, node_value in node.value:
            line, column = key.start_mark.line + 1, key.start_mark.column + 1
            if key.tag == _TAG + "merge":
                message = "merge keys (<<) are not supported; write the settings out"
                self._document.problems.append(Problem(message, dotted(path), line, column))
            elif not isinstance(key, ScalarNode) or key.tag in _TYPED_SCALARS:
                message = "a key must be text; put it in quotes"
                self._document.problems.append(Problem(message, dotted(path), line, column))
            elif key.value in first:
                message = f"the key '{key.value}' is here twice; line {first[key.value]} has it too"
                where = dotted((*path, key.value))
                self._document.problems.append(Problem(message, where, line, column))
            else:
                first[key.value] = line
                mapping[key.value] = self.value(node_value, (*path, key.value), key)
        return mapping

    def _scalar(self, node: ScalarNode, path: KeyPath) -> Any:
        if node.tag not in _TYPED_SCALARS:
            return node.value
        try:
            if len(node.value) > MAX_NUMBER_CHARACTERS:
                raise ValueError
            return self._loader.construct_object(node)
        except (ValueError, KeyError, ConstructorError):
            return self._complain(path, f"'{node.value}' is not a value of the type that it claims")

    def _complain(self, path: KeyPath, message: str) -> None:
        self._document.problems.append(self._document.problem(path, message))


def _shown_tag(tag: str) -> str:
    return "!!" + tag.removeprefix(_TAG) if tag.startswith(_TAG) else tag
