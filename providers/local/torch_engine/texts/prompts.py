"""What goes before the texts that an embedding model is given: prompts with names, in its folder.

A model that was trained with them makes other vectors of a query than of a document. Who asks names
a prompt (`prompt_name`), or says what the texts are (`input_type`), in the words of Cohere, Voyage,
NIM, Jina or Gemini. `query` and `document` are found as sentence-transformers' `encode_query` and
`encode_document` find them (https://sbert.net/docs/package_reference/sentence_transformer/model.html).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llama_compat.errors import invalid_parameter

_QUERY = ("query",)
_DOCUMENT = ("document", "passage", "corpus")

_WORDS: Mapping[str, tuple[str, ...]] = {
    "query": _QUERY,
    "search_query": _QUERY,
    "retrieval.query": _QUERY,
    "retrieval_query": _QUERY,
    "document": _DOCUMENT,
    "passage": _DOCUMENT,
    "search_document": _DOCUMENT,
    "retrieval.passage": _DOCUMENT,
    "retrieval_document": _DOCUMENT,
}
"""What vendors call the two, and which prompts those are, the first that there is."""


@dataclass(frozen=True)
class TextPrompts:
    """A model's prompts.

    Attributes:
        named: by their names.
        default: the name of the one that is used where nobody says which; None for none.
    """

    named: Mapping[str, str]
    default: str | None

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> TextPrompts:
        """Those in a `config_sentence_transformers.json`."""
        named = {str(name): str(text) for name, text in (settings.get("prompts") or {}).items()}
        default = settings.get("default_prompt_name")
        return cls(named, default if default in named else None)

    def chosen(self, model: str, prompt_name: str | None, input_type: str | None) -> str:
        """What goes before each text.

        Args:
            model: whose they are, for errors.
            prompt_name: the prompt's name; None where that is not said.
            input_type: what the texts are; None where that is not said.

        Raises:
            APIError: 400, there is no such prompt.
        """
        if prompt_name is not None:
            if prompt_name not in self.named:
                raise invalid_parameter(
                    "prompt_name",
                    f"The model '{model}' has no prompt '{prompt_name}'. {self._known()}",
                ).about(model)
            return self.named[prompt_name]
        if input_type is None:
            return "" if self.default is None else self.named[self.default]
        by_name = {name.lower(): text for name, text in self.named.items()}
        kind = input_type.lower()
        if kind in by_name:
            return by_name[kind]
        if kind not in _WORDS:
            raise invalid_parameter(
                "input_type",
                f"The model '{model}' has no prompt for texts of the kind '{input_type}'."
                f" {self._known()} 'query' and 'document' are always taken.",
            ).about(model)
        # A model may be the same for both; none of these is its default then.
        return next((by_name[name] for name in _WORDS[kind] if name in by_name), "")

    def _known(self) -> str:
        return f"It has: {', '.join(sorted(self.named)) or 'none'}."
