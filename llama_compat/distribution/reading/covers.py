"""A template's text with its secrets covered, and the text that an edited one stands for.

What is secret the settings' own types say: `SecretStr`, wherever it may stand. What they don't know
(a key that is misspelt, the settings of an unknown provider type) is covered too. References to the
environment stay as they are, but for their defaults. In comments that is covered which looks like
such a setting, or like a key.

A covered part is shown as `${covered.N}`, which is a reference that only the text it was made for
can resolve: in a file it is a mistake, never a key.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import yaml
from pydantic import BaseModel, SecretStr
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.tokens import ScalarToken

from llama_compat.distribution.problems import Problem, TemplateError
from llama_compat.distribution.reading.env_references import REFERENCE
from llama_compat.distribution.reading.yaml_positions import MAX_DEPTH, read_yaml
from llama_compat.guardrails.named import NAMED
from llama_compat.settings.secret_kinds import ADDRESS, ARGUMENTS

KindOf = Callable[[type[BaseModel], str, Mapping[str, str]], Any]
"""What a setting (the class around it, its name, and the texts beside it) has to be, where its own
class does not say; None where nobody knows."""

_MARK = re.compile(r"\$\{covered\.([0-9]+)\}|(?<=:)covered\.([0-9]+)(?=\})")
_USER = re.compile(r"(?<=://)[^\s\"'<>]*(?=@)")
_QUERY = re.compile(r"(?<=[?&])([\w.~-]+=)([^\s&#\"'<>]+)")
_ADDRESS = re.compile(r"[a-z][a-z0-9+]*:|\$\{|(?:memory|sqlite|redis)$")
_KEYS = re.compile("|".join(f"(?:{each.expression})" for each in NAMED["api_keys"]))
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff]")

_COMMENT = re.compile(r"#[^\r\n]*")
_SETTING = re.compile(
    r"([A-Za-z_][\w.-]*)[\"']?\s*:\s*(\"[^\"]*\"|'[^']*'|\$\{[^}]*\}|[^\s,}\]\"']+)"
)
_COMMENTED_OUT = re.compile(
    r"#[#\s]*(?:-\s+)?[\"']?([A-Za-z_][\w.-]*)[\"']?\s*:\s+"
    r"((?:Bearer|Basic) \S+|\S{6,})\s*(?:\s#.*)?"
)
_SHORT_NUMBER = re.compile(r"[0-9._]{1,7}|true|false|null")
_COMMENTED_ITEM = re.compile(r"#[#\s]*-\s+(\S{8,})\s*")

_SHORTEST = 8
"""A shorter secret is not looked for elsewhere: it may be any word."""

_SHORTEST_SAID = 4
"""The same in what is said of a template, of which a number may be the number of a line."""


@dataclass(frozen=True, slots=True)
class CoveredText:
    """A template that can be shown.

    Attributes:
        text: what is shown.
        secrets: what its references `covered.N` stand for.
    """

    text: str
    secrets: Mapping[str, str]
    _sources: Mapping[str, tuple[str, str]] = field(repr=False)
    _has_crlf: bool = False

    def uncovered(self, edited: str) -> str:
        """The text that `edited`, which was made of this one, stands for.

        Values that were left as they were are written as they were in the file, to the letter.

        Raises:
            TemplateError: it is no YAML, or has references to what is not covered here.
        """
        try:
            yaml.compose(edited, yaml.SafeLoader)
        except (yaml.YAMLError, RecursionError):
            raise TemplateError("", read_yaml(edited).problems) from None
        if problems := list(self._unknown(edited)):
            raise TemplateError("", problems)
        pieces, last = [], 0
        for token in _scalars(edited):
            begin, end = token.start_mark.index, token.end_mark.index
            pieces.append(self._put_back(edited[last:begin]))
            source = edited[begin:end]
            pieces.append(self._scalar(token, edited) if _MARK.search(token.value) else source)
            last = end
        text = "".join([*pieces, self._put_back(edited[last:])])
        if self._has_crlf and "\r" not in text:
            text = text.replace("\n", "\r\n")  # browsers know `\n` alone
        return text

    def hidden(self, message: str) -> str:
        """`message` without any of the secrets."""
        for name, secret in sorted(self.secrets.items(), key=lambda item: -len(item[1])):
            if len(secret.strip()) >= _SHORTEST_SAID:
                message = message.replace(secret, f"${{{name}}}")
        return message

    def _unknown(self, edited: str) -> Iterator[Problem]:
        for match in _MARK.finditer(edited):
            if _name(match) not in self.secrets:
                line = edited.count("\n", 0, match.start()) + 1
                message = f"nothing is covered as '{_name(match)}' here; write the value"
                yield Problem(message, line=line, column=1)

    def _put_back(self, text: str) -> str:
        return _MARK.sub(lambda match: self.secrets[_name(match)], text)

    def _scalar(self, token: ScalarToken, edited: str) -> str:
        source, indent = self._sources.get(token.value, ("", ""))
        written = edited[token.start_mark.index : token.end_mark.index]
        rest = written[len(written.rstrip()) :]
        if source and ("\n" not in source or indent == _indent(edited, token.start_mark.index)):
            return source + rest
        return _quoted(self._put_back(token.value)) + rest


def cover(text: str, root: type[BaseModel], kind_of: KindOf) -> CoveredText:
    """Cover the secrets of a template.

    Args:
        text: what is in its file.
        root: what it has to be.
        kind_of: says what settings have to be of which `root` does not know it.

    Raises:
        TemplateError: it is no YAML, so that nobody can tell what in it is secret.
    """
    problems = read_yaml(text).problems
    node = None
    try:
        node = yaml.compose(text, yaml.SafeLoader)
        walk = _Walk(kind_of)
        if node is not None:
            walk.into(node, [root], 0)
    except (yaml.YAMLError, RecursionError):
        # What PyYAML says may quote the text.
        line = problems[0].line if problems else 1
        message = "not valid YAML, so that nobody can tell what in it is secret"
        raise TemplateError("", [Problem(message, line=line)]) from None
    return _Writer(text, walk, _secret_names(root)).written()


# What is secret -----------------------------------------------------------------------------------


class _Walk:
    """Which scalars of a document are secret, by where they end in the text: a node that aliases
    name is in several places, and secret if it is so in one."""

    def __init__(self, kind_of: KindOf) -> None:
        self._kind_of = kind_of
        self._seen: set[tuple[Node, tuple[str, ...]]] = set()
        self.whole: set[int] = set()

    def into(self, node: Node, kinds: Sequence[Any], depth: int) -> None:
        known = [kind for each in kinds for kind in _alternatives(each)]
        here = (node, tuple(sorted(map(repr, known))))
        if here in self._seen:
            return
        self._seen.add(here)
        if depth > MAX_DEPTH:
            raise RecursionError
        if isinstance(node, MappingNode):
            beside = {
                key.value: value.value
                for key, value in node.value
                if isinstance(key, ScalarNode) and isinstance(value, ScalarNode)
            }
            for key, value in node.value:
                name = key.value if isinstance(key, ScalarNode) else None
                if name is None:
                    self.into(key, [], depth + 1)
                inner = [each for kind in known for each in self._inside(kind, name, beside)]
                self.into(value, inner, depth + 1)
        elif isinstance(node, SequenceNode):
            for index, item in enumerate(node.value):
                inner = [each for kind in known for each in self._inside(kind, index, {})]
                self.into(item, inner, depth + 1)
        elif known in ([ADDRESS], [ADDRESS, type(None)]) and _ADDRESS.match(node.value):
            pass  # what is secret in it is found as in any address
        elif not known or any(map(_holds_secrets, known)):
            self.whole.add(node.end_mark.index)

    def _inside(self, kind: Any, part: str | int | None, beside: Mapping[str, str]) -> list[Any]:
        if kind is ARGUMENTS:
            return [str if part == 0 else SecretStr]
        if _is_model(kind):
            assert isinstance(part, str | int | None)
            if not isinstance(part, str) or part not in kind.model_fields:
                return []
            special = self._kind_of(kind, part, beside)
            if special is not None:
                return [special]
            info = kind.model_fields[part]
            return (
                [Annotated[info.annotation, *info.metadata]] if info.metadata else [info.annotation]
            )
        if dataclasses.is_dataclass(kind):
            hints = get_type_hints(kind, include_extras=True)
            return [hints[part]] if part in hints else []
        arguments = [each for each in get_args(kind) if each is not ...]
        if not arguments or get_origin(kind) in (None,):
            return []
        is_mapping = len(arguments) == 2 and issubclass(get_origin(kind), Mapping)
        return [arguments[1]] if is_mapping else arguments


def _alternatives(kind: Any) -> Iterator[Any]:
    """The types that `kind` may be, without what is said of them beside."""
    if hasattr(kind, "__value__"):
        yield from _alternatives(kind.__value__)
    elif get_origin(kind) is Annotated:
        marks = [each for each in kind.__metadata__ if each in (ADDRESS, ARGUMENTS)]
        if marks:
            yield marks[0]
        else:
            yield from _alternatives(get_args(kind)[0])
    elif get_origin(kind) in (Union, UnionType):
        for each in get_args(kind):
            yield from _alternatives(each)
    else:
        yield kind


@lru_cache(maxsize=4096)
def _holds_secrets(kind: Any) -> bool:
    """Whether there is a secret anywhere in what `kind` is, or nobody knows."""
    return _find_secrets(kind, set())


def _find_secrets(kind: Any, seen: set[Any]) -> bool:
    for each in _alternatives(kind):
        if each in (ADDRESS, ARGUMENTS, SecretStr, Any, object):
            return True
        if each in seen:
            continue
        seen.add(each)
        inner: Iterable[Any] = get_args(each) if get_origin(each) is not None else ()
        if _is_model(each):
            fields = each.model_fields.values()
            inner = [Annotated[one.annotation, "", *one.metadata] for one in fields]
        elif dataclasses.is_dataclass(each):
            inner = get_type_hints(each, include_extras=True).values()
        if any(_find_secrets(one, seen) for one in inner if isinstance(one, type) or get_args(one)):
            return True
    return False


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


@lru_cache(maxsize=1)
def _secret_names(root: type[BaseModel]) -> tuple[frozenset[str], frozenset[str]]:
    """What settings are called that are secret, and those that are not, wherever they are."""
    secret, plain, todo, seen = {"api_key"}, {"config"}, [root], set()
    while todo:
        for kind in _alternatives(todo.pop()):
            if kind in seen:
                continue
            seen.add(kind)
            todo.extend(each for each in get_args(kind) if each is not ...)
            if not _is_model(kind):
                continue
            for name, info in kind.model_fields.items():
                is_secret = any(each is SecretStr for each in _alternatives(info.annotation))
                (secret if is_secret else plain).add(name)
                todo.append(info.annotation)
    return frozenset(secret), frozenset(plain - secret)


# What is written ----------------------------------------------------------------------------------


class _Writer:
    """Writes a text with what is secret in it covered."""

    def __init__(
        self, text: str, walk: _Walk, names: tuple[frozenset[str], frozenset[str]]
    ) -> None:
        self._text = text
        self._walk = walk
        self._secret_names, self._plain_names = names
        self._secrets: dict[str, str] = {}
        self._sources: dict[str, tuple[str, str]] = {}
        self._known = self._found()

    def written(self) -> CoveredText:
        pieces, last = [], 0
        for token in _scalars(self._text):
            begin, end = token.start_mark.index, token.end_mark.index
            pieces.append(self._between(self._text[last:begin]))
            pieces.append(self._scalar(token, begin, self._text[begin:end]))
            last = end
        pieces.append(self._between(self._text[last:]))
        return CoveredText("".join(pieces), self._secrets, self._sources, "\r\n" in self._text)

    def _found(self) -> re.Pattern[str] | None:
        """What secrets there are, to be found again where they are no settings."""
        literals = {
            part.strip()
            for token in _scalars(self._text)
            if token.end_mark.index in self._walk.whole and not _says_nothing(token)
            for part in _literal_parts(token.value)
            if len(part.strip()) >= _SHORTEST
        }
        longest_first = sorted(literals, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first))) if literals else None

    def _scalar(self, token: ScalarToken, begin: int, source: str) -> str:
        value = token.value
        if token.end_mark.index in self._walk.whole:
            covered = value if _says_nothing(token) else self._literals(value)
        else:
            covered = self._parts(value)
        if covered == value:
            return source
        kept = source.rstrip()
        self._sources[covered] = (kept, _indent(self._text, begin))
        return _quoted(covered) + source[len(kept) :]

    def _literals(self, value: str) -> str:
        """All of `value` covered but references to the environment."""
        if value.strip() == "":
            return value
        pieces, literal, last = [], "", 0
        for match in REFERENCE.finditer(value):
            literal += value[last : match.start()]
            last = match.end()
            if match[1] is None:  # a `${` that is no reference is a part of the secret
                literal += match[0]
                continue
            pieces.append(self._covered(literal) if literal.strip() else literal)
            literal = ""
            default = (match[2] or "").strip()
            name = f"${{env.{match[1]}:{self._name(default)}}}" if default else match[0]
            pieces.append(name)
        literal += value[last:]
        pieces.append(self._covered(literal) if literal.strip() else literal)
        return "".join(pieces)

    def _parts(self, text: str) -> str:
        """`text` with what looks like a secret covered, wherever it stands."""
        return self._spans(text, self._suspects(text))

    def _suspects(self, text: str) -> Iterator[tuple[int, int]]:
        """Where something stands that looks like a secret, or is one that is known."""
        for pattern in (_MARK, _USER, _KEYS, self._known):
            if pattern is not None:
                yield from (match.span() for match in pattern.finditer(text))
        yield from (match.span(2) for match in _QUERY.finditer(text))

    def _spans(self, text: str, spans: Iterable[tuple[int, int]]) -> str:
        pieces, last = [], 0
        for begin, end in _merged([*_whole_references(text, _merged(spans))]):
            pieces += [text[last:begin], self._literals(text[begin:end])]
            last = end
        return "".join([*pieces, text[last:]])

    def _between(self, text: str) -> str:
        """What is no value: of it comments may hold secrets."""
        return _COMMENT.sub(lambda match: self._comment(match[0]), text) if "#" in text else text

    def _comment(self, text: str) -> str:
        spans = [
            match.span(2) for match in _SETTING.finditer(text) if match[1] in self._secret_names
        ]
        setting = _COMMENTED_OUT.fullmatch(text)
        if (
            setting
            and setting[1] not in self._plain_names
            and not _SHORT_NUMBER.fullmatch(setting[2])
        ):
            spans.append(setting.span(2))
        if item := _COMMENTED_ITEM.fullmatch(text):
            spans.append(item.span(1))
        return self._spans(text, [*spans, *self._suspects(text)])

    def _covered(self, secret: str) -> str:
        return f"${{{self._name(secret)}}}"

    def _name(self, secret: str) -> str:
        name = f"covered.{len(self._secrets) + 1}"
        self._secrets[name] = secret
        return name


def _scalars(text: str) -> list[ScalarToken]:
    return [token for token in yaml.scan(text, yaml.SafeLoader) if isinstance(token, ScalarToken)]


def _says_nothing(token: ScalarToken) -> bool:
    """Whether it is `null`, `true` or the like, which is no secret."""
    return token.plain and token.value.lower() in ("", "~", "null", "true", "false")


def _literal_parts(value: str) -> Iterator[str]:
    """What in `value` is no reference, defaults included."""
    last = 0
    for match in REFERENCE.finditer(value):
        if match[1] is not None:
            yield value[last : match.start()]
            yield match[2] or ""
            last = match.end()
    yield value[last:]


def _whole_references(text: str, spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """`spans`, and of references that they are a part of the whole."""
    references = [match.span() for match in REFERENCE.finditer(text)]
    for begin, end in spans:
        cut = [each for each in references if each[0] < end and begin < each[1]]
        yield (
            min(begin, *(each[0] for each in cut), begin),
            max(end, *(each[1] for each in cut), end),
        )


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if begin == end:
            continue
        if merged and begin < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def _name(match: re.Match[str]) -> str:
    return f"covered.{match[1] or match[2]}"


def _quoted(value: str) -> str:
    """`value` as YAML reads it in double quotes, which may hold whatever JSON's may."""
    text = json.dumps(value, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" -"))]
