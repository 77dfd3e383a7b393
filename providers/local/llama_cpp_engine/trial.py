"""A GGUF tried out in a process that may die of it, before this one loads it.

llama.cpp checks a file as it reads it, but not everything: what a header claims may end in a failed
assertion, or worse, and that takes the process along. So may its code for a kind of CPU, where the
compiler made something else of it or the system does not play along; it is first run when a prompt
is computed.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from providers.local.models.programs import Failure, run_python

if TYPE_CHECKING:
    from providers.base import ProviderStartError
    from providers.local.llama_cpp_engine.bindings.model import Model

log = logging.getLogger(__name__)

SECONDS = 900
"""How long a trial may take; a file on a slow disk has to be read."""

TOKENS = 64
"""The context of a trial."""

PICTURE = 64
"""The width and height of a trial's picture, in pixels."""

PROMPT = 40
"""Tokens of a trial's prompt: more than the 32 from which llama.cpp multiplies in another way."""


def try_out(
    name: str,
    path: Path,
    adapters: Sequence[Path],
    threads: int,
    *,
    on_gpu: bool = False,
    projector: Path | None = None,
) -> bool:
    """Load a model with its adapters and compute some tokens, in a process of its own.

    Args:
        name: the provider's name for it, for the message.
        path: of the GGUF.
        adapters: LoRA adapters, GGUF files too.
        threads: of the CPU, that compute it.
        on_gpu: whether it is for a GPU, and so may be larger than this machine's memory: then its
            weights are tried as they are in the file, of which nothing is copied.
        projector: a GGUF file that makes embeddings of media; some are tried.

    Returns:
        Whether its weights may be rewritten in memory for faster multiplication. Where that ends
        the process and the weights as they are in the file do not, a warning says so.

    Raises:
        ProviderStartError: it does not work; the message says what is wrong.
    """
    deadline = time.monotonic() + SECONDS
    attempt = partial(_try, path, adapters, threads, deadline, projector)
    failure = attempt(repacked=not on_gpu)
    if failure is None:
        return True
    # Only what ends a process may be of how weights are rewritten.
    plain = failure if on_gpu or failure.killed_by is None else attempt(repacked=False)
    if plain is not None:
        raise _refused(name, path, plain)
    log.warning(
        "The model '%s' runs with its weights as they are in its file, which is slower. With"
        " those that llama.cpp rewrites for this CPU, %s Where llama.cpp was compiled with AMX,"
        " as pip compiles it by itself on a CPU that has it, compiling it without mends that:"
        " see 'python scripts/llama_cpp_wheel.py'.",
        name,
        failure,
    )
    return False


def _try(
    path: Path,
    adapters: Sequence[Path],
    threads: int,
    deadline: float,
    projector: Path | None,
    *,
    repacked: bool,
) -> Failure | None:
    def tick() -> None:
        if time.monotonic() > deadline:
            raise TimeoutError

    try:
        return run_python(
            f"{__name__}:load",
            {
                "path": str(path),
                "adapters": [str(each) for each in adapters],
                "threads": threads,
                "repacked": repacked,
                "projector": None if projector is None else str(projector),
            },
            tick,
            # No debugger is to look at what it died of.
            {"GGML_NO_BACKTRACE": "1"},
        )
    except TimeoutError:
        return Failure(f"it takes more than {SECONDS} seconds.")


def _refused(name: str, path: Path, failure: Failure) -> ProviderStartError:
    # The other process imports this module too, and does without the two thirds that this takes.
    from providers.base import ProviderStartError

    if failure.killed_by is None:
        advice = "Pull it again, or name another file in the template."
    elif failure.killed_by == "SIGILL":
        advice = (
            "llama.cpp was compiled for another kind of CPU than this: compile it here, with"
            " 'python scripts/llama_cpp_wheel.py', and install what that makes."
        )
    else:
        advice = (
            "The file may be damaged: pull it again, or name another in the template. If all end"
            " so, compile llama.cpp anew, with 'python scripts/llama_cpp_wheel.py'."
        )
    return ProviderStartError(f"The model '{name}' can't be loaded from {path}: {failure} {advice}")


# In the other process -----------------------------------------------------------------------------


def load(
    path: str, adapters: Sequence[str], threads: int, repacked: bool, projector: str | None = None
) -> None:
    """What the other process does."""
    _die_first()
    from providers.local.llama_cpp_engine.bindings.library import LlamaError
    from providers.local.llama_cpp_engine.bindings.model import Model

    logging.basicConfig(level=logging.CRITICAL)
    try:
        # On the CPU, where the files are wrong or its code is; a GPU's memory is for who serves.
        model = Model(Path(path), repacked=repacked)
        _compute(model, [Path(each) for each in adapters], threads)
        if projector is not None:
            _look(model, Path(projector), threads)
    except LlamaError as error:
        sys.exit(f"ERROR: {error}")


def _compute(model: Model, adapters: Sequence[Path], threads: int) -> None:
    """A long prompt, then two sequences in one batch, then one token: each has code of its own.

    What is being done is said, for who finds this process dead.

    Raises:
        LlamaError: it can't be, or what comes of it is not a number.
    """
    import numpy as np

    from providers.local.llama_cpp_engine.bindings.context import Context
    from providers.local.llama_cpp_engine.bindings.library import LlamaError

    context = Context(
        model,
        tokens=TOKENS,
        sequences=2,
        batch_tokens=TOKENS,
        outputs=TOKENS,
        threads=threads,
        embeddings=model.embeds,
    )
    context.adapt([(model.adapter(each), 1.0) for each in adapters])
    lengths = [0, 0]
    for what, batch in (
        (f"a prompt of {PROMPT} tokens", [0] * PROMPT),
        ("a batch of two sequences", [0, 1]),
        ("one token", [0]),
    ):
        print(f"computing {what}", flush=True)
        for at, sequence in enumerate(batch):
            context.tokens[at] = (at * 7 + 3) % model.vocab_size
            context.positions[at] = lengths[sequence]
            context.sequence_ids[at] = sequence
            lengths[sequence] += 1
        context.wants_logits[: len(batch)] = model.embeds
        context.wants_logits[len(batch) - 1] = 1
        status = context.decode(len(batch))
        if status != 0:
            raise LlamaError(f"it was loaded, but can't be run (llama_decode: {status}).")
        if not model.embeds and not np.isfinite(context.logits(len(batch) - 1)).all():
            raise LlamaError(f"what it makes of {what} is not a number (NaN or infinite).")


def _look(model: Model, path: Path, threads: int) -> None:
    """Make embeddings of a picture, of audio, or of both.

    Raises:
        LlamaError: it can't be.
    """
    from providers.local.llama_cpp_engine.bindings.library import LlamaError
    from providers.local.llama_cpp_engine.media.mtmd import Pixels, Projector, Sound

    print(f"making embeddings with {path}", flush=True)
    try:
        projector = Projector(path, model, threads=threads, on_gpu=False)
        if "image" in projector.kinds:
            projector.encode(Pixels(PICTURE, PICTURE, bytes(PICTURE * PICTURE * 3)))
        if "audio" in projector.kinds:
            projector.encode(Sound(projector.rate))
    except (ImportError, LlamaError) as error:
        raise LlamaError(
            f"it can't use {path}, which may be for another model ('mmproj: none' in the"
            f" template has it take text alone): {error}"
        ) from error


def _die_first() -> None:
    """Where memory runs out the system ends this process, and no other for it."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
