"""llama.cpp's multimodal library (libmtmd), as llama-cpp-python binds it.

No other module touches it. It follows llama.cpp as `bindings` does: what is used of it is listed
here, and looked for when a model first needs it. (tools/mtmd/mtmd.h of llama.cpp)
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from providers.local.llama_cpp_engine.bindings.fit import TESTED, fitting
from providers.local.llama_cpp_engine.bindings.library import (
    LlamaError,
    explained,
    refusal,
    take_log,
)
from providers.local.llama_cpp_engine.bindings.model import Model
from providers.local.media.medium import Kind

FUNCTIONS: dict[str, int] = {
    "mtmd_bitmap_free": 1,
    "mtmd_bitmap_init": 3,
    "mtmd_bitmap_init_from_audio": 2,
    "mtmd_context_params_default": 0,
    "mtmd_decode_use_mrope": 1,
    "mtmd_decode_use_non_causal": 2,
    "mtmd_encode_chunk": 2,
    "mtmd_free": 1,
    "mtmd_get_audio_sample_rate": 1,
    "mtmd_get_output_embd": 1,
    "mtmd_helper_log_set": 2,
    "mtmd_image_tokens_get_decoder_pos": 3,
    "mtmd_init_from_file": 3,
    "mtmd_input_chunk_get_n_pos": 1,
    "mtmd_input_chunk_get_n_tokens": 1,
    "mtmd_input_chunk_get_tokens_image": 1,
    "mtmd_input_chunk_get_tokens_text": 2,
    "mtmd_input_chunk_get_type": 1,
    "mtmd_input_chunks_free": 1,
    "mtmd_input_chunks_get": 2,
    "mtmd_input_chunks_init": 0,
    "mtmd_input_chunks_size": 1,
    "mtmd_support_audio": 1,
    "mtmd_support_vision": 1,
    "mtmd_tokenize_from_parts": 5,
}
"""The functions that are called, and how many arguments each takes."""

FIELDS: dict[str, tuple[str, ...]] = {
    "mtmd_context_params": ("use_gpu", "print_timings", "n_threads"),
    "mtmd_decoder_pos": ("t", "x", "y", "z"),
    "mtmd_input_part": ("text", "bitmap"),
}
"""The structures that are filled in or read, and their fields."""

Numbers = np.ndarray[Any, np.dtype[np.float32]]
Axes = np.ndarray[Any, np.dtype[np.int32]]


@cache
def library() -> Any:
    """llama.cpp's multimodal library, once it is known to fit.

    Raises:
        ImportError: it can't be loaded, or does not fit.
    """
    mtmd_cpp = fitting(
        lambda: import_module("llama_cpp.mtmd_cpp"),
        FUNCTIONS,
        FIELDS,
        failed="was made without llama.cpp's multimodal library, which pictures and audio need",
        mends="compile llama.cpp with it: 'python scripts/llama_cpp_wheel.py', and install what"
        f" that makes, or 'pip install --force-reinstall llama-cpp-python=={TESTED}'",
    )
    mtmd_cpp.mtmd_helper_log_set(take_log, None)
    return mtmd_cpp


class Pixels(NamedTuple):
    """A picture, or the size of one.

    Attributes:
        width, height: in pixels.
        content: 3 bytes of each, red, green and blue, row by row; None where the size is all.
    """

    width: int
    height: int
    content: bytes | None = None


class Sound(NamedTuple):
    """Audio, or the length of some.

    Attributes:
        samples: how many there are.
        content: these, float32 `[samples]`, of `Projector.rate` a second; None where the length is
            all.
    """

    samples: int
    content: Numbers | None = None


Raw = Pixels | Sound
"""What embeddings are made of, or its extent."""


class MediumText(NamedTuple):
    """Text that is written around a medium's parts."""

    token_ids: tuple[int, ...]


class MediumParts(NamedTuple):
    """Parts of a medium that come one behind the other.

    Attributes:
        places: how many they have in a prompt.
        advance: by how many positions what follows them is further on; fewer than `places` where
            they have rows and columns.
        is_whole: whether they look at each other, and not back alone: then they have to be computed
            at once.
    """

    places: int
    advance: int
    is_whole: bool = False


class EncodedParts(NamedTuple):
    """The same, as the model reads them.

    Attributes:
        embeddings: float32 `[count, width]`, what stands in the place of a token's embedding.
        axes: int32 `[4, count]`, the positions counted from the first; None where each has the one
            behind the one before it.
        advance, is_whole: see `MediumParts`.
    """

    embeddings: Numbers
    axes: Axes | None
    advance: int
    is_whole: bool = False

    @property
    def nbytes(self) -> int:
        """What they take."""
        return int(self.embeddings.nbytes)


class Projector:
    """What makes embeddings of media for a model: a GGUF file of its own (`mmproj`), loaded.

    `layout` may be asked by several threads, `encode` by one at a time.

    Args:
        path: of the file.
        model: whose embeddings they are.
        threads: of the CPU.
        on_gpu: whether it goes to a GPU, if llama.cpp was built for one.

    Attributes:
        kinds: of the media that it takes.
        rate: of audio, how many samples a second.
        has_axes: whether pictures have rows and columns beside their place in the prompt (M-RoPE).

    Raises:
        LlamaError: it can't be loaded, is for another model, or for no media.
    """

    def __init__(self, path: Path, model: Model, *, threads: int, on_gpu: bool) -> None:
        self._lib = lib = library()
        params = lib.mtmd_context_params_default()
        params.use_gpu, params.n_threads, params.print_timings = on_gpu, threads, False
        with explained():
            self._context = lib.mtmd_init_from_file(str(path).encode(), model.pointer, params)
            if not self._context:
                raise refusal()
        # The model is to outlive it.
        self._model = model
        weakref.finalize(self, lib.mtmd_free, self._context).atexit = False
        supports: Mapping[Kind, Any] = {
            "image": lib.mtmd_support_vision,
            "audio": lib.mtmd_support_audio,
        }
        self.kinds = tuple(kind for kind, says in supports.items() if says(self._context))
        if not self.kinds:
            raise LlamaError("it is neither for pictures nor for audio.")
        self.rate = int(lib.mtmd_get_audio_sample_rate(self._context))
        self.has_axes = bool(lib.mtmd_decode_use_mrope(self._context))
        self._width = model.input_size

    def layout(self, extent: Raw) -> tuple[MediumText | MediumParts, ...]:
        """What takes the place of a medium of some extent in a prompt.

        Raises:
            LlamaError: of such an extent it takes none.
        """
        with self._chunks(extent) as chunks:
            return tuple(map(self._piece, chunks))

    def encode(self, raw: Raw) -> list[EncodedParts]:
        """The parts of a medium, in the order of its layout.

        Raises:
            LlamaError: it can't be done.
        """
        lib, found = self._lib, []
        with self._chunks(raw) as chunks:
            for chunk in chunks:
                piece = self._piece(chunk)
                if isinstance(piece, MediumText):
                    continue
                with explained():
                    if lib.mtmd_encode_chunk(self._context, chunk) != 0:
                        raise refusal()
                numbers = np.ctypeslib.as_array(
                    lib.mtmd_get_output_embd(self._context), (piece.places, self._width)
                )
                if not np.isfinite(numbers).all():
                    raise LlamaError("what is made of it is not a number (NaN or infinite).")
                axes = self._axes(chunk, piece.places) if self.has_axes else None
                found.append(EncodedParts(numbers.copy(), axes, piece.advance, piece.is_whole))
        return found

    def _bitmap(self, raw: Raw) -> Any:
        """What llama.cpp calls a bitmap, of audio as well; it has to be freed."""
        lib = self._lib
        if isinstance(raw, Pixels):
            data = ctypes.cast(ctypes.c_char_p(raw.content), ctypes.POINTER(ctypes.c_uint8))
            return lib.mtmd_bitmap_init(raw.width, raw.height, data)
        # Of a single sample the library would end the process; what is short, silence follows.
        samples = np.zeros(max(raw.samples, self.rate // 2), np.float32)
        if raw.content is not None:
            samples[: raw.samples] = raw.content
        pointer = samples.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        # The samples are copied.
        return lib.mtmd_bitmap_init_from_audio(len(samples), pointer)

    @contextmanager
    def _chunks(self, raw: Raw) -> Iterator[list[Any]]:
        """What the library makes of a medium, or of one of that extent; until the end of the block.

        Raises:
            LlamaError: it takes none like it.
        """
        lib = self._lib
        bitmap = self._bitmap(raw)
        chunks = lib.mtmd_input_chunks_init()
        try:
            part = lib.mtmd_input_part(None, bitmap)
            parts = (ctypes.POINTER(lib.mtmd_input_part) * 1)(ctypes.pointer(part))
            with explained():
                if lib.mtmd_tokenize_from_parts(self._context, chunks, parts, 1, False) != 0:
                    raise refusal()
            yield [
                lib.mtmd_input_chunks_get(chunks, index)
                for index in range(lib.mtmd_input_chunks_size(chunks))
            ]
        finally:
            lib.mtmd_input_chunks_free(chunks)
            lib.mtmd_bitmap_free(bitmap)

    def _piece(self, chunk: Any) -> MediumText | MediumParts:
        lib = self._lib
        if lib.mtmd_input_chunk_get_type(chunk) == lib.MTMD_INPUT_CHUNK_TYPE_TEXT:
            count = ctypes.c_size_t()
            found = lib.mtmd_input_chunk_get_tokens_text(chunk, ctypes.byref(count))
            token_ids = tuple(found[: count.value])
            if min(token_ids, default=0) < 0:
                raise LlamaError(
                    "the model has no token for something that is written around a medium."
                )
            return MediumText(token_ids)
        return MediumParts(
            int(lib.mtmd_input_chunk_get_n_tokens(chunk)),
            int(lib.mtmd_input_chunk_get_n_pos(chunk)),
            bool(lib.mtmd_decode_use_non_causal(self._context, chunk)),
        )

    def _axes(self, chunk: Any, count: int) -> Axes:
        """Positions as a batch has them: time, rows, columns, and one more; audio has time."""
        lib = self._lib
        if lib.mtmd_input_chunk_get_type(chunk) == lib.MTMD_INPUT_CHUNK_TYPE_AUDIO:
            places = np.arange(count, dtype=np.int32)
            return np.stack([places, places, places, places * 0])
        image = lib.mtmd_input_chunk_get_tokens_image(chunk)
        grid = (lib.mtmd_image_tokens_get_decoder_pos(image, 0, at) for at in range(count))
        return np.array([(each.t, each.y, each.x, each.z) for each in grid], np.int32).T.copy()
