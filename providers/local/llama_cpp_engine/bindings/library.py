"""The library itself: what is called of it, and what it complains of.

It is loaded when this module is imported, and looked through then; see `fit`.
"""

from __future__ import annotations

import ctypes
import logging
import re
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from providers.local.llama_cpp_engine.bindings.fit import TESTED, fitting
from providers.local.threads.waiting import bounded_waiting

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
    "llama_set_n_threads": 3,
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


def _load() -> Any:
    with bounded_waiting(TURNS):
        import llama_cpp
    return llama_cpp


lib = fitting(
    _load,
    FUNCTIONS,
    FIELDS,
    mends=f"the version that works is {TESTED}: pip install 'llama-cpp-python=={TESTED}'",
)
lib.llama_backend_init()


def layers_on_gpu(wanted: int) -> int:
    """How many of a model's layers go to a GPU, of those that are wanted there: none where
    llama-cpp-python was not built for one."""
    return wanted if lib.llama_supports_gpu_offload() else 0


# Its complaints -----------------------------------------------------------------------------------


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
