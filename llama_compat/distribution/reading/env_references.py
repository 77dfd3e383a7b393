"""`${env.NAME}` and `${env.NAME:default}` in the values of a template.

A variable that is empty counts as one that is not set. `$${` stands for a plain `${`. Spaces and
line ends around a variable's value are not part of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from llama_compat.distribution.problems import KeyPath
from llama_compat.distribution.reading.yaml_positions import Document
from llama_compat.text.one_line import one_line

REFERENCE = re.compile(
    r"\$\$\{"
    r"|\$\{env\.([A-Za-z_]\w*)(?::((?:[^}$]|\$(?!\{))*))?\}"
    r"|\$\{[^}]*\}?",
    re.ASCII,
)
"""A plain `${`, a reference with its name and default, or what looks like one and is none."""

_COVERED = re.compile(r"covered\.[0-9]+")

_NOTHING = ("null", "~")


class _NotSet:
    """Stands for a value that is left out: `${env.NAME:}` without the variable."""


_NOT_SET = _NotSet()


class ResolvedDocument(Document):
    """A document whose references are replaced by what they stand for; `covered` has what those to
    covered secrets do.

    A value that is nothing but a reference whose variable is not set and whose default is empty is
    left out, as if it were not in the file. What comes from the environment is always text here,
    for a key may look like a number; pydantic makes a number of it where one is wanted.

    Attributes:
        variables: the texts of the environment's variables in a value, and of what is covered, by
            their references. The texts may be secrets and belong in no message.
        left_out: the variable for want of which there is no value.
        unread: the places of references that stand for nothing, each a problem.
    """

    def __init__(
        self,
        document: Document,
        environ: Mapping[str, str],
        covered: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(problems=list(document.problems))
        self.variables: dict[KeyPath, dict[str, str]] = {}
        self.left_out: dict[KeyPath, str] = {}
        self.unread: set[KeyPath] = set()
        self._environ = environ
        self._covered = covered or {}
        self._written = document
        self.value = self._resolve(document.value, (), ())

    def shown(self, path: KeyPath, value: Any) -> str:
        """`value` in quotes and on one line, for a message; what comes from the environment as its
        reference."""
        references = self.variables.get(path)
        if references:
            return ", ".join(references)
        text = str(value)
        return repr(text if len(text) <= 60 else text[:57] + "...")

    def redact(self, path: KeyPath, message: str) -> str:
        """`message`, about the value at `path`, without texts from the environment."""
        for at, variables in self.variables.items():
            if at[: len(path)] == path:
                for reference, text in variables.items():
                    message = message.replace(text, reference)
        return message

    def _resolve(self, value: Any, written: KeyPath, path: KeyPath) -> Any:
        # Lists close up where an item is left out, so a value may stand at another index than it
        # was written at; its place in the file goes with it.
        self.variables.pop(path, None)
        self.left_out.pop(path, None)
        if written in self._written.places:
            self.places[path] = self._written.places[written]
        if isinstance(value, dict):
            items = {
                key: self._resolve(item, (*written, key), (*path, key))
                for key, item in value.items()
            }
            return {key: item for key, item in items.items() if item is not _NOT_SET}
        if isinstance(value, list):
            resolved: list[Any] = []
            for index, item in enumerate(value):
                new = self._resolve(item, (*written, index), (*path, len(resolved)))
                if new is not _NOT_SET:
                    resolved.append(new)
            return resolved
        return self._resolve_text(value, path) if isinstance(value, str) else value

    def _resolve_text(self, value: str, path: KeyPath) -> Any:
        text = REFERENCE.sub(lambda match: self._text_of(match, path), value)
        alone = REFERENCE.fullmatch(value)
        if alone is None or alone[1] is None:
            return text
        if not text:
            self.left_out[path] = alone[1]
            return _NOT_SET
        return None if text in _NOTHING else text

    def _text_of(self, match: re.Match[str], path: KeyPath) -> str:
        reference, name, default = match[0], match[1], match[2]
        if reference == "$${":
            return "${"
        if name is None:
            if (secret := reference[2:-1]) in self._covered:
                return self._secret(secret, path)
            shown = one_line(reference)
            self._complain(path, f"'{shown}' is not a reference{_corrected(shown)}")
            return ""
        text = self._environ.get(name, "").strip()
        if text:
            self.variables.setdefault(path, {})[f"${{env.{name}}}"] = text
            return text
        if default is None:
            self._complain(
                path,
                f"the environment variable {name} is not set; set it, or write a default:"
                f" ${{env.{name}:DEFAULT}}",
            )
            return ""
        if _COVERED.fullmatch(default.strip()):
            return self._secret(default.strip(), path)
        return str(default).strip()

    def _secret(self, name: str, path: KeyPath) -> str:
        if name not in self._covered:
            message = f"'{name}' is what is shown in the place of a secret; write the secret"
            self._complain(path, message)
            return ""
        text = self._covered[name].replace("$${", "${")
        self.variables.setdefault(path, {})[f"${{{name}}}"] = text
        return text

    def _complain(self, path: KeyPath, message: str) -> None:
        self.unread.add(path)
        self.problems.append(self.problem(path, message))


def _corrected(reference: str) -> str:
    if reference.count("${") > 1:
        return ": a default can't hold another reference"
    if not reference.endswith("}"):
        return ": its '}' is missing"
    name = re.fullmatch(r"\$\{(?:env[.:])?([A-Za-z_]\w*)(?::[-=]?([^}]*))?\}", reference, re.ASCII)
    if name is None:
        return "; write ${env.NAME} or ${env.NAME:default}, and $${ for a plain ${"
    default = "" if name[2] is None else f":{name[2]}"
    return f"; did you mean '${{env.{name[1]}{default}}}'? A plain ${{ is written $${{"
