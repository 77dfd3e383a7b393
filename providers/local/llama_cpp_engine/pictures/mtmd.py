"""llama.cpp's multimodal library (libmtmd), as llama-cpp-python binds it.

No other module touches it. It follows llama.cpp as `bindings` does: what is used of it is listed
here, and looked for when a model first needs it. (tools/mtmd/mtmd.h of llama.cpp)
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterator
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

FUNCTIONS: dict[str, int] = {
    "mtmd_bitmap_free": 1,
    "mtmd_bitmap_init": 3,
    "mtmd_context_params_default": 0,
    "mtmd_decode_use_mrope": 1,
    "mtmd_decode_use_non_causal": 2,
    "mtmd_encode_chunk": 2,
    "mtmd_free": 1,
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
        failed="was made without llama.cpp's multimodal library, which pictures need",
        mends="compile llama.cpp with it: 'python scripts/llama_cpp_wheel.py', and install what"
        f" that makes, or 'pip install --force-reinstall llama-cpp-python=={TESTED}'",
    )
    mtmd_cpp.mtmd_helper_log_set(take_log, None)
    return mtmd_cpp


class PictureText(NamedTuple):
    """Text that is written around a picture's parts."""

    token_ids: tuple[int, ...]


class PictureParts(NamedTuple):
    """Parts of a picture that come one behind the other.

    Attributes:
        places: how many they have in a prompt.
        advance: by how many positions what follows them is further on; fewer than `places` where
            they have rows and columns.
    """

    places: int
    advance: int


class EncodedParts(NamedTuple):
    """The same, as the model reads them.

    Attributes:
        embeddings: float32 `[count, width]`, what stands in the place of a token's embedding.
        axes: int32 `[4, count]`, the positions counted from the first; None where each has the one
            behind the one before it.
        advance: see `PictureParts`.
    """

    embeddings: Numbers
    axes: Axes | None
    advance: int


class Projector:
    """What makes embeddings of pictures for a model: a GGUF file of its own (`mmproj`), loaded.

    `layout` may be asked by several threads, `encode` by one at a time.

    Args:
        path: of the file.
        model: whose embeddings they are.
        threads: of the CPU.
        on_gpu: whether it goes to a GPU, if llama.cpp was built for one.

    Attributes:
        is_whole: whether the parts of a picture look at each other, and not back alone: then they
            have to be computed at once.
        has_axes: whether they have rows and columns beside their place in the prompt (M-RoPE).

    Raises:
        LlamaError: it can't be loaded, is for another model, or is not for pictures.
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
        if not lib.mtmd_support_vision(self._context):
            raise LlamaError("it is not for pictures.")
        self.is_whole = bool(lib.mtmd_decode_use_non_causal(self._context, None))
        self.has_axes = bool(lib.mtmd_decode_use_mrope(self._context))
        self._width = model.input_size

    def layout(self, width: int, height: int) -> tuple[PictureText | PictureParts, ...]:
        """What takes a picture's place in a prompt; its size tells.

        Args:
            width, height: pixels.

        Raises:
            LlamaError: of such a size it takes none.
        """
        with self._chunks(None, width, height) as chunks:
            return tuple(map(self._piece, chunks))

    def encode(self, pixels: bytes, width: int, height: int) -> list[EncodedParts]:
        """The parts of a picture, in the order of its layout.

        Args:
            pixels: of 3 bytes each, red, green and blue, row by row.
            width, height: how many there are.

        Raises:
            LlamaError: it can't be done.
        """
        lib, found = self._lib, []
        with self._chunks(pixels, width, height) as chunks:
            for chunk in chunks:
                piece = self._piece(chunk)
                if isinstance(piece, PictureText):
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
                found.append(EncodedParts(numbers.copy(), axes, piece.advance))
        return found

    @contextmanager
    def _chunks(self, pixels: bytes | None, width: int, height: int) -> Iterator[list[Any]]:
        """What the library makes of a picture, or of one of that size; until the end of the block.

        Raises:
            LlamaError: it takes none like it.
        """
        lib = self._lib
        data = ctypes.cast(ctypes.c_char_p(pixels), ctypes.POINTER(ctypes.c_uint8))
        bitmap = lib.mtmd_bitmap_init(width, height, data)
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

    def _piece(self, chunk: Any) -> PictureText | PictureParts:
        lib = self._lib
        if lib.mtmd_input_chunk_get_type(chunk) == lib.MTMD_INPUT_CHUNK_TYPE_TEXT:
            count = ctypes.c_size_t()
            found = lib.mtmd_input_chunk_get_tokens_text(chunk, ctypes.byref(count))
            token_ids = tuple(found[: count.value])
            if min(token_ids, default=0) < 0:
                raise LlamaError(
                    "the model has no token for something that is written around a picture."
                )
            return PictureText(token_ids)
        return PictureParts(
            int(lib.mtmd_input_chunk_get_n_tokens(chunk)),
            int(lib.mtmd_input_chunk_get_n_pos(chunk)),
        )

    def _axes(self, chunk: Any, count: int) -> Axes:
        """Positions as a batch has them: time, rows, columns, and one more."""
        lib = self._lib
        image = lib.mtmd_input_chunk_get_tokens_image(chunk)
        places = (lib.mtmd_image_tokens_get_decoder_pos(image, 0, at) for at in range(count))
        return np.array([(each.t, each.y, each.x, each.z) for each in places], np.int32).T.copy()
