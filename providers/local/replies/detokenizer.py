"""Tokens made into text one at a time, never splitting a character.

The tokens of a byte-level or a SentencePiece vocabulary stand for bytes, so a text is put together
by decoding UTF-8 as it comes, which is exact and takes constant time a token. For any other
vocabulary the tokenizer decodes a short window of tokens at each step.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from providers.local.engine import Vocabulary

CONTEXT_TOKENS = 8
"""Tokens before the text that decide how its first token looks: no character has more of them."""

_INCOMPLETE = "\ufffd"
_MAX_BYTES_PER_CHARACTER = 4

TokenToBytes = Callable[[str], bytes]


class Detokenizer(Protocol):
    """Makes text of the tokens of one reply."""

    def push(self, token_id: int) -> str:
        """The text that is complete with this token; empty while a character is not whole."""
        ...

    def flush(self) -> str:
        """The reply has ended: what there is of an incomplete character, as U+FFFD."""
        ...


class HubVocabulary:
    """What the token ids of a tokenizer stand for.

    Args:
        tokenizer: of the Hugging Face `tokenizers` library.

    Attributes:
        size: ids are below this.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.size = tokenizer.get_vocab_size(with_added_tokens=True)
        self._tokenizer = tokenizer
        self._special = {
            token_id
            for token_id, token in tokenizer.get_added_tokens_decoder().items()
            if token.special
        }
        self._to_bytes = _bytes_rule(tokenizer)

    def id_of(self, token: str) -> int | None:
        """The id of the token that is written so, if there is one."""
        token_id = self._tokenizer.token_to_id(token)
        return None if token_id is None else int(token_id)

    def is_special(self, token_id: int) -> bool:
        """Whether the token is a mark for the model, such as an end of turn, and no text."""
        return token_id in self._special

    def token_bytes(self, token_id: int) -> bytes:
        """The UTF-8 bytes of one token, perhaps part of a character; a special token's name."""
        token = self._tokenizer.id_to_token(token_id)
        if token is None:  # a model may have more output ids than its tokenizer has tokens
            return b""
        if token_id in self._special:
            return token.encode()
        if self._to_bytes is not None:
            return self._to_bytes(token)
        return self._tokenizer.decode([token_id]).encode()

    def decode(self, token_ids: Sequence[int], shown: Collection[int] = frozenset()) -> str:
        """The text of a whole sequence of tokens, of its special tokens only those in `shown`."""
        text = [
            token_id for token_id in token_ids if token_id not in self._special or token_id in shown
        ]
        return self._tokenizer.decode(text, skip_special_tokens=False)

    def detokenizer(
        self, context: Sequence[int], shown: Collection[int] = frozenset()
    ) -> Detokenizer:
        """A detokenizer for what follows the tokens `context`; special tokens in `shown` are text.

        The others are left out.
        """
        if self._to_bytes is not None:
            return ByteDetokenizer(self, context, shown)
        return _WindowDetokenizer(self, context, shown)


class ByteDetokenizer:
    """For a vocabulary whose tokens stand for bytes; arguments as in `Vocabulary.detokenizer`."""

    def __init__(
        self, vocabulary: Vocabulary, context: Sequence[int], shown: Collection[int]
    ) -> None:
        self._vocabulary = vocabulary
        self._shown_special = shown
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        for token_id in context[-CONTEXT_TOKENS:]:
            self.push(token_id)

    def push(self, token_id: int) -> str:
        if self._vocabulary.is_special(token_id) and token_id not in self._shown_special:
            return ""
        return self._decoder.decode(self._vocabulary.token_bytes(token_id))

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)


class _WindowDetokenizer:
    def __init__(
        self, vocabulary: HubVocabulary, context: Sequence[int], shown: Collection[int]
    ) -> None:
        self._decode = partial(vocabulary.decode, shown=shown)
        self._shown = list(context[-CONTEXT_TOKENS:])
        self._pending: list[int] = []

    def push(self, token_id: int) -> str:
        self._pending.append(token_id)
        text = self._pending_text()
        if text.endswith(_INCOMPLETE) and len(self._pending) < _MAX_BYTES_PER_CHARACTER:
            return ""
        self._shown = (self._shown + self._pending)[-CONTEXT_TOKENS:]
        self._pending = []
        return text

    def flush(self) -> str:
        text, self._pending = self._pending_text(), []
        return text

    def _pending_text(self) -> str:
        before = self._decode(self._shown)
        return self._decode(self._shown + self._pending)[len(before) :]


# How a vocabulary writes its tokens ---------------------------------------------------------------


def _bytes_rule(tokenizer: Tokenizer) -> TokenToBytes | None:
    """The function from a written token to its bytes, or None if there is no such rule."""
    if tokenizer.decoder is None:
        return None
    steps = _decoder_steps(json.loads(tokenizer.decoder.__getstate__()))
    kinds = {step["type"] for step in steps}
    if kinds == {"ByteLevel"}:
        return _byte_level_bytes
    if kinds & {"ByteFallback", "Metaspace"} and kinds <= _SENTENCEPIECE_STEPS:
        return _sentencepiece_rule(steps)
    return None


def _decoder_steps(decoder: dict[str, Any]) -> list[dict[str, Any]]:
    if decoder["type"] == "Sequence":
        return [step for inner in decoder["decoders"] for step in _decoder_steps(inner)]
    return [decoder]


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's alphabet: a printable character for each byte, itself where it is printable."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(256 + index): byte for index, byte in enumerate(rest)
    }


_BYTE_ALPHABET = _byte_alphabet()


def _byte_level_bytes(token: str) -> bytes:
    try:
        return bytes([_BYTE_ALPHABET[character] for character in token])
    except KeyError:  # an added token is written as it is
        return token.encode()


_SENTENCEPIECE_STEPS = {"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"}
_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


def _sentencepiece_rule(steps: Sequence[dict[str, Any]]) -> TokenToBytes | None:
    """`<0x0A>` is a byte, and `▁` (or whatever the decoder replaces) a space.

    The decoder's `Strip` takes the space off the beginning of a whole text; a reply never is one,
    it follows a prompt.
    """
    replacements: list[tuple[str, str]] = []
    for step in steps:
        if step["type"] == "Metaspace":
            replacements.append((step.get("replacement", "▁"), " "))
        elif step["type"] == "Replace":
            if "String" not in step["pattern"]:
                return None
            replacements.append((step["pattern"]["String"], step["content"]))
    has_bytes = any(step["type"] == "ByteFallback" for step in steps)

    def to_bytes(token: str) -> bytes:
        if has_bytes and (byte := _BYTE_TOKEN.fullmatch(token)):
            return bytes([int(byte[1], 16)])
        for old, new in replacements:
            token = token.replace(old, new)
        return token.encode()

    return to_bytes
