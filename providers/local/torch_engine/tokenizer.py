"""A Hugging Face tokenizer as `LocalProvider` uses it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from providers.local.prompts.control_tokens import control_tokens
from providers.local.prompts.templates.renderer import TemplateRenderer, variables


class HubTokenizer:
    """A fast tokenizer of transformers, which has the chat template.

    Args:
        tokenizer: from `AutoTokenizer`.

    Attributes:
        control_tokens: how the tokens are written that are no text.
        longest_token: the bytes that no token stands for more than.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._renderer = TemplateRenderer() if self.chat_template else None
        self._backend = tokenizer.backend_tokenizer
        # Some folders have the limits of a training run in their tokenizer.json.
        self._backend.no_truncation()
        self._backend.no_padding()
        added = self._backend.get_added_tokens_decoder().values()
        self.control_tokens = control_tokens(
            (token.content for token in added if token.special),
            (token.content for token in added if not token.special),
            self.chat_template or "",
        )
        # Of byte-level tokens, whose letters stand for bytes, up to twice what they stand for.
        self.longest_token = max(len(token.encode()) for token in self._backend.get_vocab())

    @property
    def chat_template(self) -> str | None:
        """The source of the chat template; of all of them, where there are several."""
        templates = self._tokenizer.chat_template
        if isinstance(templates, Mapping):
            return "\n".join(templates.values())
        return templates or None

    @property
    def first_token(self) -> int | None:
        """The beginning-of-text token, if the model has one."""
        return None if (token := self._tokenizer.bos_token_id) is None else int(token)

    def encode(self, text: str, *, add_special_tokens: bool) -> tuple[int, ...]:
        """The tokens of `text`."""
        (made,) = self._backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        return tuple(made.ids)

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        own: Mapping[str, Any] | None = None,
    ) -> str:
        """See `providers.local.engine.Tokenizer`."""
        assert self._renderer is not None
        source = self._tokenizer.get_chat_template(tools=tools)
        special = self._tokenizer.special_tokens_map
        return self._renderer.render(source, variables(messages, tools, special, own))

    def close(self) -> None:
        """Break off what is being rendered."""
        if self._renderer is not None:
            self._renderer.close()

    def has_tokens_of(self, other: HubTokenizer) -> bool:
        """Whether both have the same tokens, with the same numbers."""
        own, others = (each._backend.get_vocab(with_added_tokens=True) for each in (self, other))
        return bool(own == others)

    def reopened(self) -> HubTokenizer:
        """One of the same, which renders again where this one was closed."""
        return HubTokenizer(self._tokenizer)

    def for_grammars(self, vocab_size: int, end_tokens: Sequence[int]) -> Any:
        """The same as llguidance wants it; ValueError if it can't read it."""
        import llguidance

        return llguidance.LLTokenizer(
            self._backend.to_str(), n_vocab=vocab_size, eos_token=list(end_tokens)
        )
