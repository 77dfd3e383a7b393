"""A model: a GGUF file, loaded, with its tokens and its adapters."""

from __future__ import annotations

import ctypes
import itertools
import weakref
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from providers.local.llama_cpp_engine.bindings.library import explained, lib, refusal

_CONTROL = int(lib.LLAMA_TOKEN_ATTR_CONTROL) | int(lib.LLAMA_TOKEN_ATTR_UNKNOWN)


class Model:
    """A GGUF file, loaded. Its memory goes with the last reference to it.

    Args:
        path: of the file, or of the first of its parts.
        gpu_layers: how many layers go to the GPU; -1 for all.
        repacked: whether weights may be rewritten in memory for faster multiplication.

    Attributes:
        vocab_size: how many tokens it knows, which is also how many logits it has.

    Raises:
        LlamaError: it can't be loaded.
    """

    def __init__(self, path: Path, *, gpu_layers: int = 0, repacked: bool = True) -> None:
        params = lib.llama_model_default_params()
        params.n_gpu_layers = gpu_layers if gpu_layers >= 0 else 2**31 - 1
        params.use_extra_bufts = repacked
        with explained():
            self._model = lib.llama_model_load_from_file(str(path).encode(), params)
            if not self._model:
                raise refusal()
        # When the process ends, a thread may still be at work with it.
        weakref.finalize(self, lib.llama_model_free, self._model).atexit = False
        self._unused_adapters: deque[Any] = deque()
        self._vocab = lib.llama_model_get_vocab(self._model)
        self.vocab_size = int(lib.llama_vocab_n_tokens(self._vocab))

    def metadata(self, key: str) -> str | None:
        """A value of the file's header as text; None if there is none. `ARCH` is the model's."""
        if key.startswith("ARCH."):
            key = f"{self.metadata('general.architecture')}{key.removeprefix('ARCH')}"
        size = lib.llama_model_meta_val_str(self._model, key.encode(), None, 0)
        if size < 0:
            return None
        buffer = ctypes.create_string_buffer(size + 1)
        lib.llama_model_meta_val_str(self._model, key.encode(), buffer, size + 1)
        return buffer.value.decode("utf-8", "replace")

    @property
    def context_length(self) -> int:
        """How many tokens it was trained with."""
        return int(lib.llama_model_n_ctx_train(self._model))

    @property
    def weight_bytes(self) -> int:
        """What all of its tensors take."""
        return int(lib.llama_model_size(self._model))

    @property
    def pointer(self) -> Any:
        """llama.cpp's."""
        return self._model

    @property
    def input_size(self) -> int:
        """How many numbers it reads in the place of a token."""
        return int(lib.llama_model_n_embd_inp(self._model))

    @property
    def embedding_size(self) -> int:
        """How many numbers an embedding has."""
        return int(lib.llama_model_n_embd_out(self._model))

    @property
    def chat_template(self) -> str | None:
        """Its chat template, if it has one."""
        found = lib.llama_model_chat_template(self._model, None)
        return found.decode("utf-8", "replace") if found else None

    @property
    def embeds(self) -> bool:
        """Whether it is there for embeddings: its header says how they are pooled."""
        pooling = self.metadata("ARCH.pooling_type")
        return pooling is not None and int(pooling) > 0

    @property
    def has_state(self) -> bool:
        """Whether it keeps, beside or in place of a KV cache, a state of what came before."""
        return bool(
            lib.llama_model_is_recurrent(self._model) or lib.llama_model_is_hybrid(self._model)
        )

    @property
    def encodes_first(self) -> bool:
        """Whether it is an encoder and a decoder, as translators are."""
        has_encoder = lib.llama_model_has_encoder(self._model)
        return bool(has_encoder and lib.llama_model_has_decoder(self._model))

    @property
    def kv_bytes_per_token(self) -> int:
        """About how many bytes a token takes in the KV cache, whose numbers have 16 bits."""
        heads = max(1, int(lib.llama_model_n_head(self._model)))
        kv_heads = int(lib.llama_model_n_head_kv(self._model))
        guessed = int(self.metadata("ARCH.embedding_length") or 0) // heads
        key = int(self.metadata("ARCH.attention.key_length") or guessed)
        value = int(self.metadata("ARCH.attention.value_length") or guessed)
        return max(1, int(lib.llama_model_n_layer(self._model)) * kv_heads * (key + value) * 2)

    # Adapters -------------------------------------------------------------------------------------

    def adapter(self, path: Path) -> LlamaAdapter:
        """The LoRA adapter in a file. No context of the model may be at work meanwhile.

        Raises:
            LlamaError: the file is no adapter, or not for this model.
        """
        with explained():
            pointer = lib.llama_adapter_lora_init(self._model, str(path).encode())
            if not pointer:
                raise refusal()
        return LlamaAdapter(pointer, self._unused_adapters)

    def free_adapters(self) -> None:
        """Give the memory of those back that nobody refers to any more; nothing may be at work."""
        while self._unused_adapters:
            lib.llama_adapter_lora_free(self._unused_adapters.popleft())

    # Tokens ---------------------------------------------------------------------------------------

    @property
    def first_token(self) -> int | None:
        """The beginning-of-text token, if it has one."""
        token_id = int(lib.llama_vocab_bos(self._vocab))
        return token_id if token_id >= 0 else None

    @property
    def last_token(self) -> int | None:
        """The end-of-text token, if it has one."""
        token_id = int(lib.llama_vocab_eos(self._vocab))
        return token_id if token_id >= 0 else None

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """The tokens of `text`.

        Args:
            text: any.
            add_special: whether the tokens that stand before and behind every text are added.
            parse_special: whether special tokens that the text spells out are those tokens.
        """
        data = text.encode("utf-8", "replace")
        room = len(data) + 8  # no token is shorter than a byte
        buffer = (ctypes.c_int32 * room)()
        count = lib.llama_tokenize(
            self._vocab, data, len(data), buffer, room, add_special, parse_special
        )
        if count < 0:
            buffer = (ctypes.c_int32 * -count)()
            count = lib.llama_tokenize(
                self._vocab, data, len(data), buffer, -count, add_special, parse_special
            )
        return buffer[:count]

    def piece(self, token_id: int) -> bytes:
        """The bytes of a token, a special one's by its name."""
        for room in (64, 2**16):
            buffer = ctypes.create_string_buffer(room)
            size = lib.llama_token_to_piece(self._vocab, token_id, buffer, room, 0, True)
            if size >= 0:
                break
        return buffer.raw[:size]

    def special_tokens(self) -> frozenset[int]:
        """The tokens that are marks for the model and no text."""
        return self._tokens_that_are(_CONTROL)

    def added_tokens(self) -> frozenset[int]:
        """Those besides that were added to the vocabulary, each for a text of its own."""
        return self._tokens_that_are(int(lib.LLAMA_TOKEN_ATTR_USER_DEFINED))

    def _tokens_that_are(self, attribute: int) -> frozenset[int]:
        return frozenset(
            token_id
            for token_id in range(self.vocab_size)
            if int(lib.llama_vocab_get_attr(self._vocab, token_id)) & attribute
        )

    def end_tokens(self) -> frozenset[int]:
        """The tokens that end a reply."""
        return frozenset(
            token_id
            for token_id in range(self.vocab_size)
            if lib.llama_vocab_is_eog(self._vocab, token_id)
        )

    def grammar_tokenizer(self, pieces: Sequence[bytes], end_tokens: Sequence[int]) -> Any:
        """The tokenizer as llguidance wants it; it must not outlive the model.

        Args:
            pieces: of all tokens.
            end_tokens: those that end a reply.
        """
        from llguidance import LLTokenizer

        special = self.special_tokens()
        # How llguidance tells a special token from a text that is written alike.
        tokens = [b"\xff" + piece if id in special else piece for id, piece in enumerate(pieces)]
        return LLTokenizer.from_llamacpp(
            tokens=tokens,
            vocab_ptr=self._vocab,
            tokenize_fptr=ctypes.cast(lib.llama_tokenize, ctypes.c_void_p).value,
            eos_token=list(end_tokens),
        )

    @property
    def chat_tokens(self) -> dict[str, str]:
        """The tokens that chat templates write by their names, as text; empty if there are none."""
        tokens = {"bos_token": self.first_token, "eos_token": self.last_token}
        return {
            name: "" if token_id is None else self.piece(token_id).decode("utf-8", "replace")
            for name, token_id in tokens.items()
        }


class LlamaAdapter:
    """A LoRA adapter of a model. It is another one each time that it is read.

    Args:
        pointer: llama.cpp's.
        unused: gets it when nobody refers to this any more, or the model's end frees it.

    Attributes:
        key: told from all others of this process.
    """

    def __init__(self, pointer: Any, unused: deque[Any]) -> None:
        self.pointer = pointer
        self.key = next(_adapters)
        weakref.finalize(self, unused.append, pointer).atexit = False


_adapters = itertools.count()

AdapterScales = Sequence[tuple[LlamaAdapter, float]]
"""Adapters, and how strong each is."""
