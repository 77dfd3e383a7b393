"""A GGUF tried out in a process that may die of it, before this one loads it.

llama.cpp checks a file as it reads it, but not everything: what a header claims may end in a failed
assertion, or worse, and that takes the process along.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from providers.base import ProviderStartError
from providers.local.models.programs import run_python

log = logging.getLogger(__name__)

SECONDS = 900
"""How long a trial may take; a file on a slow disk has to be read."""

TOKENS = 64
"""The context of a trial."""


def try_out(name: str, path: Path, adapters: Sequence[Path]) -> None:
    """Load a model with its adapters and compute one token, in a process of its own.

    Args:
        name: the provider's name for it, for the message.
        path: of the GGUF.
        adapters: LoRA adapters, GGUF files too.

    Raises:
        ProviderStartError: that does not work; the message says what is wrong with the file.
    """
    deadline = time.monotonic() + SECONDS

    def tick() -> None:
        if time.monotonic() > deadline:
            raise TimeoutError

    try:
        failure = run_python(
            f"{__name__}:load",
            {"path": str(path), "adapters": [str(each) for each in adapters]},
            tick,
            # No debugger is to look at what it died of.
            {"GGML_NO_BACKTRACE": "1"},
        )
    except TimeoutError:
        failure = f"it takes more than {SECONDS} seconds."
    if failure is not None:
        raise ProviderStartError(
            f"The model '{name}' can't be loaded from {path}: {failure} Pull it again, or name"
            " another file in the template."
        )


def load(path: str, adapters: Sequence[str]) -> None:
    """What the other process does."""
    _die_first()
    from providers.local.llama_cpp_engine.bindings import Context, LlamaError, Model

    logging.basicConfig(level=logging.CRITICAL)
    try:
        # On the CPU, from the file itself: nothing of its weights is copied.
        model = Model(Path(path), repacked=False)
        context = Context(
            model, tokens=TOKENS, sequences=1, batch_tokens=TOKENS, outputs=1, threads=1
        )
        context.adapt([(Path(adapter), 1.0) for adapter in adapters])
        context.wants_logits[0] = 1
        status = context.decode(1)
        if status != 0:
            raise LlamaError(f"it was loaded, but can't be run (llama_decode: {status}).")
    except LlamaError as error:
        sys.exit(f"ERROR: {error}")


def _die_first() -> None:
    """Where memory runs out the system ends this process, and no other for it."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
