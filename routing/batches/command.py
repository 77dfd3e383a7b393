"""A batch without a server: a file is worked through by a template's models, and its results are
another file. The same journal has it go on where it was."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from llama_compat.distribution import BatchesSettings, Distribution, FilesSettings
from llama_compat.exchange import ANYBODY
from routing.batches.asking import Asker
from routing.batches.files import FileStore
from routing.batches.journal.rows import ENDED, Job
from routing.batches.wires import MESSAGES_ENDPOINT, OPERATIONS
from routing.batches.worker import BatchWorker
from routing.runtime import Runtime

LOOK_SECONDS = 0.2
"""How often it is seen how far the work has come."""

WINDOW_SECONDS = 30 * 86400.0

LEASE_SECONDS = 5.0
"""After so long what a killed command has asked is decided on by the next."""


class InputError(Exception):
    """The input is none; the message says why."""


def endpoint_of(path: Path) -> str:
    """What the first line of an input asks for.

    Raises:
        InputError: nothing that can be asked.
    """
    try:
        with path.open("rb") as file:
            first = next((line for line in file if line.strip()), b"")
        head = json.loads(first)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}.") from None
    except ValueError:
        raise InputError(f"{path}: its first line is no JSON object.") from None
    if isinstance(head, dict) and "params" in head and "url" not in head:
        return MESSAGES_ENDPOINT
    url = head.get("url") if isinstance(head, dict) else None
    if url not in OPERATIONS:
        raise InputError(f"{path}: the 'url' of its first line is none of {', '.join(OPERATIONS)}.")
    return str(url)


async def work_through(
    distribution: Distribution,
    source: Path,
    target: Path,
    tell: Callable[[Job], None],
) -> Job:
    """Ask all lines of an input, and put what becomes of each into another file, in their order.

    Whoever is cancelled, or killed, goes on where it was when it is called again with the same.

    Args:
        distribution: whose models are asked.
        source: the input, which may not change meanwhile.
        target: the output; it is there once all is done.
        tell: called again and again.

    Raises:
        InputError: the input is none.
        ProviderStartError: the models, or the storage, can't be had.
        StorageError: the storage can't be used.
    """
    source, target, endpoint, job_id = await asyncio.to_thread(_order, source, target)
    settings = distribution.server.batches or BatchesSettings()
    settings = settings.model_copy(
        update={"lease_seconds": min(settings.lease_seconds, LEASE_SECONDS)}
    )
    folder = target.with_name(f".{target.name}.llama-compat")
    server = distribution.server.model_copy(update={"batches": None, "files": None})
    runtime = Runtime(distribution.model_copy(update={"server": server}))
    files = FileStore(
        FilesSettings(path=str(folder)), server.storage.get_secret_value(), sweeps=False
    )
    worker = BatchWorker(files, settings, server.shutdown_grace_seconds, job_id)
    async with AsyncExitStack() as running:
        running.push_async_callback(files.stop)
        await files.start()
        found = await worker.journal.get(job_id)
        if found is not None and found.status in ENDED:
            if found.status == "completed" and target.exists():
                return found
            await worker.journal.delete(job_id)
            await worker.tidy(job_id)
            found = None
        if found is None:
            await worker.journal.add(_job(job_id, endpoint, source))
        running.push_async_callback(runtime.stop)
        await runtime.start()
        running.push_async_callback(worker.stop)
        await worker.serve(Asker(runtime, is_open=True))
        job = await _ended(worker, job_id, tell)
        await asyncio.to_thread(_move, folder, job, target)
    return job


async def _ended(worker: BatchWorker, job_id: str, tell: Callable[[Job], None]) -> Job:
    while True:
        job = await worker.journal.get(job_id)
        if job is None:
            raise InputError("The batch was deleted from the storage meanwhile.")
        tell(job)
        if job.status in ENDED:
            return job
        await asyncio.sleep(LOOK_SECONDS)


def _job(job_id: str, endpoint: str, source: Path) -> Job:
    now = time.time()
    return Job(
        job_id,
        "command",
        ANYBODY.id,
        endpoint,
        str(source),
        "30d",
        b"null",
        None,
        now,
        now + WINDOW_SECONDS,
    )


def _order(source: Path, target: Path) -> tuple[Path, Path, str, str]:
    """Where the files are, what is asked, and the id of the batch that it is."""
    source, target = source.resolve(), target.resolve()
    return source, target, endpoint_of(source), _id_of(source, target)


def _id_of(source: Path, target: Path) -> str:
    digest = hashlib.sha256(f"{source}\0{target}\0".encode())
    try:
        with source.open("rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
    except OSError as error:
        raise InputError(f"{source}: {error.strerror or error}.") from None
    return f"batch_{digest.hexdigest()[:24]}"


def _move(folder: Path, job: Job, target: Path) -> None:
    """Put the output where it is wanted, and remove the folder that it was made in."""
    if job.output_file is not None:
        os.replace(folder / job.output_file, target)
    elif job.status == "completed":
        target.touch()
    for left in folder.glob("*"):
        left.unlink()
    folder.rmdir()
