"""llama.cpp as llama-cpp-python binds it. No other module touches that package.

Its low-level API follows llama.cpp's, which changes. What is used of it is listed here and looked
for when this module is imported; what does not fit is an `ImportError` that names a version that
does.
"""

from __future__ import annotations

import ctypes
import itertools
import logging
import re
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from providers.local.draw import TokenIds, Weights
from providers.local.waiting import bounded_waiting

TESTED = "0.3.36"
"""The version of llama-cpp-python that this was written for."""

TURNS = 20_000
"""How often llama.cpp's threads look for each other before they sleep; see `waiting`."""

FUNCTIONS: dict[str, int] = {
    "llama_adapter_lora_free": 1,
    "llama_adapter_lora_init": 2,
    "llama_backend_init": 0,
    "llama_context_default_params": 0,
    "llama_decode": 2,
    "llama_free": 1,
    "llama_get_embeddings_seq": 2,
    "llama_get_logits_ith": 2,
    "llama_get_memory": 1,
    "llama_init_from_model": 2,
    "llama_log_set": 2,
    "llama_max_parallel_sequences": 0,
    "llama_memory_seq_cp": 5,
    "llama_memory_seq_pos_max": 2,
    "llama_memory_seq_rm": 4,
    "llama_model_chat_template": 2,
    "llama_model_default_params": 0,
    "llama_model_free": 1,
    "llama_model_get_vocab": 1,
    "llama_model_has_decoder": 1,
    "llama_model_has_encoder": 1,
    "llama_model_is_hybrid": 1,
    "llama_model_is_recurrent": 1,
    "llama_model_load_from_file": 2,
    "llama_model_meta_val_str": 4,
    "llama_model_n_ctx_train": 1,
    "llama_model_size": 1,
    "llama_model_n_embd_inp": 1,
    "llama_model_n_embd_out": 1,
    "llama_model_n_head": 1,
    "llama_model_n_head_kv": 1,
    "llama_model_n_layer": 1,
    "llama_n_ctx": 1,
    "llama_pooling_type": 1,
    "llama_sampler_accept": 2,
    "llama_sampler_apply": 2,
    "llama_sampler_chain_add": 2,
    "llama_sampler_chain_default_params": 0,
    "llama_sampler_chain_init": 1,
    "llama_sampler_free": 1,
    "llama_sampler_init_greedy": 0,
    "llama_sampler_init_logit_bias": 3,
    "llama_sampler_init_min_p": 2,
    "llama_sampler_init_penalties": 5,
    "llama_sampler_init_temp": 1,
    "llama_sampler_init_top_k": 1,
    "llama_sampler_init_top_p": 2,
    "llama_sampler_sample": 3,
    "llama_set_adapters_lora": 4,
    "llama_set_causal_attn": 2,
    "llama_supports_gpu_offload": 0,
    "llama_token_to_piece": 6,
    "llama_tokenize": 7,
    "llama_vocab_bos": 1,
    "llama_vocab_eos": 1,
    "llama_vocab_get_attr": 2,
    "llama_vocab_is_eog": 2,
    "llama_vocab_n_tokens": 1,
}
"""The functions that are called, and how many arguments each takes."""

FIELDS: dict[str, tuple[str, ...]] = {
    "llama_batch": ("n_tokens", "token", "embd", "pos", "n_seq_id", "seq_id", "logits"),
    "llama_context_params": (
        *("n_ctx", "n_batch", "n_ubatch", "n_seq_max", "n_threads", "n_threads_batch"),
        *("n_outputs_max", "embeddings", "kv_unified", "no_perf", "offload_kqv", "swa_full"),
    ),
    "llama_logit_bias": ("token", "bias"),
    "llama_token_data": ("id", "logit", "p"),
    "llama_token_data_array": ("data", "size", "selected", "sorted"),
    "llama_model_params": ("n_gpu_layers", "use_extra_bufts"),
}
"""The structures that are filled in, and their fields."""

log = logging.getLogger(__name__)


def misfit(
    library: Any, functions: Mapping[str, int], fields: Mapping[str, tuple[str, ...]]
) -> str | None:
    """What `library` lacks of `functions` and `fields`, if anything."""
    for name, arguments in functions.items():
        function = getattr(library, name, None)
        if function is None:
            return f"it has no {name}"
        if len(getattr(function, "argtypes", None) or ()) != arguments:
            return f"its {name} does not take {arguments} arguments"
    for name, wanted in fields.items():
        structure = getattr(library, name, None)
        has = [field for field, _ in getattr(structure, "_fields_", ())]
        lacking = [field for field in wanted if field not in has]
        if lacking:
            return f"its {name} has no {lacking[0]}"
    return None


def installed_version() -> str:
    """That of llama-cpp-python."""
    try:
        return version("llama-cpp-python")
    except PackageNotFoundError:
        return "(of unknown version)"


def _library() -> Any:
    """llama-cpp-python, once it is known to fit.

    Raises:
        ImportError: it can't be loaded, or does not fit.
    """
    mends = f"the version that works is {TESTED}: pip install 'llama-cpp-python=={TESTED}'"
    try:
        with bounded_waiting(TURNS):
            import llama_cpp
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise ImportError(
            f"llama-cpp-python {installed_version()} can't be loaded ({error}); {mends}"
        ) from error
    lacking = misfit(llama_cpp, FUNCTIONS, FIELDS)
    if lacking is not None:
        raise ImportError(
            f"llama-cpp-python {installed_version()} does not fit: {lacking}; {mends}"
        )
    return llama_cpp


lib = _library()
lib.llama_backend_init()

NO_ROOM = 1
"""What `Context.decode` returns when the KV cache has no room for the batch; nothing is changed."""

MAX_SEQUENCES = int(lib.llama_max_parallel_sequences())
"""How many sequences a context can have."""

_TOKEN_DATA = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])

_CONTROL = int(lib.LLAMA_TOKEN_ATTR_CONTROL) | int(lib.LLAMA_TOKEN_ATTR_UNKNOWN)


def _log_levels() -> dict[str, int]:
    """llama.cpp's levels, by the header that was installed with it: their numbers have changed."""
    header = Path(lib.__file__).parents[1] / "include/ggml.h"
    try:
        text = header.read_text("utf-8", "replace")
    except OSError:
        text = ""
    listed = re.findall(r"\bGGML_LOG_LEVEL_([A-Z]+)\s*=\s*(\d+)", text)
    # Those of the version that this was written for, where there is no header.
    return {"ERROR": 4, "CONT": 5, **{name: int(number) for name, number in listed}}


_LEVELS = _log_levels()
_WHERE = re.compile(r"((\w+|error loading model[a-z ]*): )+")
"""What stands before a complaint: the functions of llama.cpp that pass it on."""

_complaints: deque[str] = deque(maxlen=4)
_last_level = 0


@lib.llama_log_callback  # type: ignore[untyped-decorator]
def take_log(level: int, text: bytes, _: Any) -> None:
    global _last_level
    said, continued = text.decode("utf-8", "replace"), level == _LEVELS["CONT"]
    if not continued:
        _last_level = level
    if _last_level == _LEVELS["ERROR"] and said.strip():
        if continued and _complaints:
            said = _complaints.pop() + said
        _complaints.append(said)
    # What is wrong with a model or a batch comes as an exception; this is for who looks closer.
    log.debug("llama.cpp: %s", said.rstrip())


lib.llama_log_set(take_log, ctypes.c_void_p(0))


class LlamaError(Exception):
    """llama.cpp refused something; the message is what it said, a sentence."""


@contextmanager
def explained() -> Iterator[None]:
    """Forget what was complained of before, so that `refusal` tells of what comes now."""
    _complaints.clear()
    yield


def refusal() -> LlamaError:
    """What llama.cpp said last of what it does not do."""
    # The first is the nearest to the cause; later ones say that something else failed for it.
    said = " ".join((_complaints[0] if _complaints else "llama.cpp does not say why").split())
    said = said[found.end() :] if (found := _WHERE.match(said)) else said
    return LlamaError(said if said.endswith(".") else f"{said}.")


# Models -------------------------------------------------------------------------------------------


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


# Contexts -----------------------------------------------------------------------------------------


class Context:
    """The KV cache of a model, whose cells all sequences share, and the batch to be computed next.

    One thread at a time may use it.

    Args:
        model: whose it is.
        tokens: how many the cache holds.
        sequences: how many there can be.
        batch_tokens: how many a batch has at most.
        outputs: after how many tokens of a batch there can be logits.
        threads: of the CPU.
        embeddings: whether embeddings are computed in place of logits.
        offload: whether the cache goes where the layers are, and not into this machine's memory.
        apart: whether each sequence has its own part of the cache, so that where its tokens lie
            does not depend on others; none can be shared then.

    Attributes:
        tokens, positions, sequence_ids, wants_logits: the batch's arrays, `[batch_tokens]`; int32,
            the last int8. They are read by `decode`.

    Raises:
        LlamaError: there is not enough memory, or the model's header makes no sense.
    """

    def __init__(
        self,
        model: Model,
        *,
        tokens: int,
        sequences: int,
        batch_tokens: int,
        outputs: int,
        threads: int,
        embeddings: bool = False,
        offload: bool = True,
        apart: bool = False,
    ) -> None:
        params = lib.llama_context_default_params()
        params.n_ctx, params.n_seq_max = tokens, sequences
        params.n_batch = params.n_ubatch = batch_tokens
        params.n_outputs_max = outputs
        params.n_threads = params.n_threads_batch = threads
        params.embeddings, params.offload_kqv = embeddings, offload
        # One pool for all: sequences of any length, and prefixes shared by marking cells.
        params.kv_unified = not apart
        # Or a sliding window would leave nothing of a prefix that others could begin with.
        params.swa_full = True
        params.no_perf = True
        with explained():
            self._context = lib.llama_init_from_model(model._model, params)
            if not self._context:
                raise refusal()
        self.model = model
        self._memory = lib.llama_get_memory(self._context)
        self._adapters: tuple[tuple[LlamaAdapter, float], ...] = ()
        self.tokens = np.zeros(batch_tokens, np.int32)
        self.positions = np.zeros(batch_tokens, np.int32)
        self.sequence_ids = np.zeros(batch_tokens, np.int32)
        self.wants_logits = np.zeros(batch_tokens, np.int8)
        self._ones = np.ones(batch_tokens, np.int32)
        self._rows = (
            self.sequence_ids.ctypes.data
            + np.arange(batch_tokens, dtype=np.uintp) * self.sequence_ids.itemsize
        )
        self._batch = lib.llama_batch()
        fields = dict(lib.llama_batch._fields_)
        for name, array in (
            ("token", self.tokens),
            ("pos", self.positions),
            ("n_seq_id", self._ones),
            ("seq_id", self._rows),
            ("logits", self.wants_logits),
        ):
            setattr(self._batch, name, array.ctypes.data_as(fields[name]))

    @property
    def size(self) -> int:
        """How many tokens the cache really holds."""
        return int(lib.llama_n_ctx(self._context))

    @property
    def pooling(self) -> int:
        """How embeddings are pooled: llama.cpp's `LLAMA_POOLING_TYPE_*`."""
        return int(lib.llama_pooling_type(self._context))

    def free(self) -> None:
        """Give its memory back; it must not be used any more."""
        lib.llama_free(self._context)
        self._context = None

    def adapt(self, adapters: AdapterScales) -> None:
        """Compute with these LoRA adapters, and no others, from now on.

        Raises:
            LlamaError: llama.cpp refuses that.
        """
        wanted = tuple(adapters)
        if wanted == self._adapters:
            return
        array = (lib.llama_adapter_lora_p_ctypes * len(wanted))(
            *(each.pointer for each, _ in wanted)
        )
        scales = (ctypes.c_float * len(wanted))(*(scale for _, scale in wanted))
        with explained():
            if lib.llama_set_adapters_lora(self._context, array, len(wanted), scales):
                raise refusal()
        self._adapters = wanted

    def decode(self, tokens: int) -> int:
        """Compute the first `tokens` of the batch: 0 when done, `NO_ROOM`, or another failure."""
        self._batch.n_tokens = tokens
        return int(lib.llama_decode(self._context, self._batch))

    def decode_embeddings(
        self,
        sequence: int,
        embeddings: np.ndarray[Any, np.dtype[np.float32]],
        positions: np.ndarray[Any, np.dtype[np.int32]],
        *,
        causal: bool,
        logits: bool,
    ) -> int:
        """Compute embeddings in the place of tokens; what it returns is as of `decode`.

        Args:
            sequence: whose they are.
            embeddings: float32 `[tokens, input_size]`.
            positions: `[tokens]`, or `[4, tokens]` of a model that turns by four axes (M-RoPE).
            causal: whether each looks back alone, and not at all of them.
            logits: whether the last one's are wanted.
        """
        tokens = len(embeddings)
        embeddings, positions = np.ascontiguousarray(embeddings), np.ascontiguousarray(positions)
        self.sequence_ids[:tokens] = sequence
        self.wants_logits[:tokens] = 0
        self.wants_logits[tokens - 1] = logits
        batch = lib.llama_batch()
        fields = dict(lib.llama_batch._fields_)
        for name, array in (
            ("embd", embeddings),
            ("pos", positions),
            ("n_seq_id", self._ones),
            ("seq_id", self._rows),
            ("logits", self.wants_logits),
        ):
            setattr(batch, name, array.ctypes.data_as(fields[name]))
        batch.n_tokens = tokens
        lib.llama_set_causal_attn(self._context, causal)
        try:
            return int(lib.llama_decode(self._context, batch))
        finally:
            lib.llama_set_causal_attn(self._context, True)

    def logits(self, index: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        """The logits after the token `index` of the batch, `[vocab_size]`; a view, until `decode`.

        What is written to it, `Sampler.sample` sees.
        """
        pointer = lib.llama_get_logits_ith(self._context, index)
        return np.ctypeslib.as_array(pointer, shape=(self.model.vocab_size,))

    def embedding(self, sequence: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        """The pooled embedding of a sequence, a copy."""
        pointer = lib.llama_get_embeddings_seq(self._context, sequence)
        return np.ctypeslib.as_array(pointer, shape=(self.model.embedding_size,)).copy()

    # The KV cache ---------------------------------------------------------------------------------

    def length(self, sequence: int) -> int:
        """How many tokens there are of `sequence`."""
        return int(lib.llama_memory_seq_pos_max(self._memory, sequence)) + 1

    def keep(self, sequence: int, tokens: int) -> bool:
        """Remove what `sequence` has behind its first `tokens`; False if nothing could be kept.

        They are counted in positions, of which a picture may have fewer than tokens.

        A model whose state can't be taken back, such as a recurrent one, loses all of it.
        """
        if self._memory is None:
            return False
        if tokens == 0:
            lib.llama_memory_seq_rm(self._memory, sequence, -1, -1)
            return True
        lib.llama_memory_seq_rm(self._memory, sequence, tokens, -1)
        if self.length(sequence) == tokens:
            return True
        lib.llama_memory_seq_rm(self._memory, sequence, -1, -1)
        return False

    def share(self, source: int, target: int, tokens: int) -> bool:
        """Let the empty `target` begin with the first `tokens` of `source`; False if it can't."""
        if self._memory is None:
            return False
        lib.llama_memory_seq_cp(self._memory, source, target, 0, tokens)
        return self.keep(target, tokens)


# Samplers -----------------------------------------------------------------------------------------


class LlamaSampler:
    """A chain of llama.cpp's samplers: how the tokens of one sequence are chosen.

    Args:
        vocab_size: of the model.
    """

    def __init__(self, vocab_size: int) -> None:
        self._chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
        self._vocab_size = vocab_size

    def add_penalties(
        self,
        last_tokens: int,
        *,
        repetition: float = 1.0,
        frequency: float = 0.0,
        presence: float = 0.0,
        seen: Sequence[int] = (),
    ) -> None:
        """Penalise what is among the `last_tokens` that were chosen, or in `seen`."""
        penalties = lib.llama_sampler_init_penalties(
            self._vocab_size, last_tokens, repetition, frequency, presence
        )
        for token_id in seen:
            lib.llama_sampler_accept(penalties, token_id)
        self._add(penalties)

    def add_biases(self, biases: Mapping[int, float]) -> None:
        """Add to the logits of some tokens."""
        array = (lib.llama_logit_bias * len(biases))(
            *(lib.llama_logit_bias(token=token_id, bias=bias) for token_id, bias in biases.items())
        )
        self._add(lib.llama_sampler_init_logit_bias(self._vocab_size, len(biases), array))

    def add_temperature(self, temperature: float) -> None:
        """Divide the logits by `temperature`."""
        self._add(lib.llama_sampler_init_temp(temperature))

    def add_min_p(self, min_p: float) -> None:
        """Leave out what is less likely than `min_p` times the likeliest."""
        self._add(lib.llama_sampler_init_min_p(min_p, 1))

    def add_top_k(self, top_k: int) -> None:
        """Leave in the `top_k` likeliest."""
        self._add(lib.llama_sampler_init_top_k(top_k))

    def add_top_p(self, top_p: float) -> None:
        """Leave in the fewest likeliest that make `top_p`."""
        self._add(lib.llama_sampler_init_top_p(top_p, 1))

    def add_greedy(self) -> None:
        """Choose the likeliest."""
        self._add(lib.llama_sampler_init_greedy())

    def kept(self, context: Context, index: int) -> tuple[TokenIds, Weights]:
        """What the chain leaves of the tokens that may follow the token `index` of the batch.

        Returns:
            Which they are, and their logits.
        """
        logits = context.logits(index)
        data = np.zeros(len(logits), _TOKEN_DATA)
        data["id"] = np.arange(len(logits))
        data["logit"] = logits
        pointer = data.ctypes.data_as(ctypes.POINTER(lib.llama_token_data))
        left = lib.llama_token_data_array(data=pointer, size=len(data), selected=-1, sorted=False)
        lib.llama_sampler_apply(self._chain, ctypes.byref(left))
        kept = np.ctypeslib.as_array(left.data, (left.size,)).view(_TOKEN_DATA)
        return kept["id"].astype(np.uint32), kept["logit"].copy()

    def accept(self, token_id: int) -> None:
        """Count a token that was chosen of those that `kept` gave."""
        lib.llama_sampler_accept(self._chain, token_id)

    def sample(self, context: Context, index: int) -> int:
        """Choose the token that follows the token `index` of the batch; the chain has to end so."""
        return int(lib.llama_sampler_sample(self._chain, context._context, index))

    def free(self) -> None:
        """Give its memory back; it must not be used any more."""
        lib.llama_sampler_free(self._chain)

    def _add(self, sampler: Any) -> None:
        # The chain owns it from now on.
        lib.llama_sampler_chain_add(self._chain, sampler)


def offloads() -> bool:
    """Whether llama-cpp-python was built for a GPU."""
    return bool(lib.llama_supports_gpu_offload())
