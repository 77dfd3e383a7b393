"""A GGUF's tokenizer and chat template as `LocalProvider` uses them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from providers.local.llama_cpp_engine.bindings.model import Model
from providers.local.llama_cpp_engine.media.sense import LlamaSenses
from providers.local.prompts.control_tokens import control_tokens
from providers.local.prompts.prompts import wants_parts
from providers.local.prompts.templates.renderer import (
    TemplateBrokenOff,
    TemplateComplaint,
    TemplateRenderer,
    variables,
)
from providers.local.replies.detokenizer import ByteDetokenizer, Detokenizer


class GGUFVocabulary:
    """What the token ids of a GGUF stand for: all of them are bytes.

    Args:
        model: whose they are.

    Attributes:
        pieces: the bytes of each, special ones by their names.
    """

    def __init__(self, model: Model) -> None:
        self.pieces = [model.piece(token_id) for token_id in range(model.vocab_size)]
        self._special = model.special_tokens()
        # Of tokens that are written alike, such as a byte and the letter that it is, the first.
        self._ids = {piece: id for id, piece in reversed(list(enumerate(self.pieces)))}

    def id_of(self, token: str) -> int | None:
        """The id of the token that is written so, if there is one."""
        return self._ids.get(token.encode("utf-8", "replace"))

    def name(self, token_id: int) -> str:
        """How a token is written."""
        return self.pieces[token_id].decode("utf-8", "replace")

    def is_special(self, token_id: int) -> bool:
        """Whether the token is a mark for the model, such as an end of turn, and no text."""
        return token_id in self._special

    def token_bytes(self, token_id: int) -> bytes:
        """The UTF-8 bytes of one token, perhaps part of a character; a special token's name."""
        return self.pieces[token_id] if token_id < len(self.pieces) else b""

    def decode(self, token_ids: Sequence[int], shown: Collection[int] = frozenset()) -> str:
        """The text of a whole sequence of tokens, of its special tokens only those in `shown`."""
        return b"".join(
            self.token_bytes(token_id)
            for token_id in token_ids
            if token_id not in self._special or token_id in shown
        ).decode("utf-8", "replace")

    def detokenizer(
        self, context: Sequence[int], shown: Collection[int] = frozenset()
    ) -> Detokenizer:
        """A detokenizer for what follows the tokens `context`; special tokens in `shown` are text.

        The others are left out.
        """
        return ByteDetokenizer(self, context, shown)


class GGUFTokenizer:
    """The tokenizer in a GGUF's header.

    Args:
        model: whose it is.
        vocabulary: the model's.
        senses: what it makes of media, if it takes any.

    Attributes:
        chat_template: the source of the chat template, if it has one.
        control_tokens: how the tokens are written that are no text.
        longest_token: the most bytes that one token stands for.

    Raises:
        ValueError: its chat template is no template.
    """

    def __init__(
        self, model: Model, vocabulary: GGUFVocabulary, senses: LlamaSenses | None = None
    ) -> None:
        self._model = model
        self._vocabulary = vocabulary
        self._senses = senses
        self.chat_template = model.chat_template
        self.control_tokens = control_tokens(
            map(vocabulary.name, model.special_tokens()),
            map(vocabulary.name, model.added_tokens()),
            self.chat_template or "",
        )
        self.longest_token = max(map(len, vocabulary.pieces))
        self._renderer: TemplateRenderer | None = None
        if self.chat_template:
            self._renderer = TemplateRenderer()
            try:
                self._renderer.check(self.chat_template)
            except (TemplateComplaint, TemplateBrokenOff) as error:
                self.close()
                raise ValueError(f"its chat template can't be read ({error})") from error

    @property
    def first_token(self) -> int | None:
        """The beginning-of-text token, if the model has one."""
        return self._model.first_token

    def encode(self, text: str, *, add_special_tokens: bool) -> tuple[int, ...]:
        """The tokens of `text`; special tokens that it spells out are those tokens."""

        def encode(text: str, *, add_special: bool = False) -> tuple[int, ...]:
            return tuple(self._model.tokenize(text, add_special=add_special, parse_special=True))

        found = None if self._senses is None else self._senses.token_ids(text, encode)
        return encode(text, add_special=add_special_tokens) if found is None else found

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        own: Mapping[str, Any] | None = None,
    ) -> str:
        """See `providers.local.engine.Tokenizer`."""
        assert self._renderer is not None
        assert self.chat_template is not None
        special = self._model.chat_tokens
        if self._senses is not None:
            messages = [self._with_marks(each) for each in messages]
        return self._renderer.render(self.chat_template, variables(messages, tools, special, own))

    def _with_marks(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """A message with marks for its media in its text, as llama.cpp has it: what stands
        around a medium is not for the template to write."""
        content = message.get("content")
        if not isinstance(content, list) or self._senses is None:
            return message
        marks = {kind: each.mark for kind, each in self._senses.by_kind.items()}
        parts = [
            {"type": "text", "text": marks[part["type"]]} if part["type"] in marks else part
            for part in content
        ]
        if parts != content and not wants_parts(self):
            return {**message, "content": "".join(part["text"] for part in parts)}
        return {**message, "content": parts}

    def close(self) -> None:
        """Break off what is being rendered."""
        if self._renderer is not None:
            self._renderer.close()

    def for_grammars(self, vocab_size: int, end_tokens: Sequence[int]) -> Any:
        """The same as llguidance wants it."""
        return self._model.grammar_tokenizer(self._vocabulary.pieces, end_tokens)
