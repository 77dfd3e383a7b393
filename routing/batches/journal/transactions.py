"""What is done to a batch and its lines in a transaction of whoever writes there."""

from __future__ import annotations

from collections.abc import Sequence

from routing.batches.journal.rows import BAD, GOOD, DoneLine
from routing.storage.storage import Transaction


async def note_results(transaction: Transaction, job_id: str, lines: Sequence[DoneLine]) -> None:
    """Note what became of lines, which are their writer's."""
    await transaction.execute_many(
        "UPDATE batch_lines SET state = ?, worker = NULL WHERE batch = ? AND number = ?",
        [(GOOD if line.is_good else BAD, job_id, line.number) for line in lines],
    )
    good = sum(line.is_good for line in lines)
    await transaction.fetch(
        "UPDATE batches SET completed = completed + ?, failed = failed + ?,"
        " cost = cost + ?, unpriced = unpriced + ? WHERE id = ?",
        good,
        len(lines) - good,
        sum(line.cost or 0 for line in lines),
        sum(line.cost is None for line in lines),
        job_id,
    )
    await transaction.insert(
        "batch_results",
        ("batch", "number", "good", "result"),
        [(job_id, line.number, int(line.is_good), line.result) for line in lines],
    )


async def lock_job(transaction: Transaction, job_id: str) -> str:
    """Hold up all others that write lines of a batch; its state, empty where it is gone."""
    rows = await transaction.fetch(
        "UPDATE batches SET status = status WHERE id = ? RETURNING status", job_id
    )
    return str(rows[0][0]) if rows else ""
