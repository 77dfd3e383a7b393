"""Batches as clients' APIs show them."""

from __future__ import annotations

from typing import Any

import msgspec

from llama_compat.catalog.prices import NANO_DOLLARS
from llama_compat.dialects.moments import exact_utc_text
from routing.batches.journal.rows import AS_EXPIRED, ENDED, Job


def estimated_end(job: Job, now: float) -> float | None:
    """When a batch will have been done, if it goes on as it has so far, in seconds since 1970; None
    where nothing tells."""
    done = job.good + job.failed
    if job.status != "in_progress" or job.begun is None or not done:
        return None
    return now + (now - job.begun) / done * (job.total - done)


def openai_batch(job: Job, now: float) -> dict[str, Any]:
    """As OpenAI's API shows it, and what it has cost so far and when it will end.

    A line that was not done when its batch was broken off is in the file of errors, and neither
    `completed` nor `failed`, which OpenAI's reference has for "requests that have failed".

    Args:
        job: the batch.
        now: in seconds since 1970.
    """
    status = job.status
    if status == "cancelling" and job.reason == AS_EXPIRED:
        status = "finalizing"

    def ended(as_what: str) -> int | None:
        return _seconds(job.ended) if job.status == as_what else None

    return {
        "id": job.id,
        "object": "batch",
        "endpoint": job.endpoint,
        "model": job.model or None,
        "errors": None if job.errors is None else msgspec.json.decode(job.errors),
        "input_file_id": job.input_file,
        "completion_window": job.completion_window,
        "status": status,
        "output_file_id": job.output_file,
        "error_file_id": job.error_file,
        "created_at": int(job.created),
        "in_progress_at": _seconds(job.begun),
        "expires_at": int(job.expires),
        "finalizing_at": _seconds(job.finalizing),
        "completed_at": ended("completed"),
        "failed_at": ended("failed"),
        "expired_at": ended("expired"),
        "cancelling_at": _seconds(job.cancelling) if job.reason != AS_EXPIRED else None,
        "cancelled_at": ended("cancelled"),
        "request_counts": {
            "total": job.total,
            "completed": job.good,
            "failed": job.failed,
        },
        "metadata": msgspec.json.decode(job.metadata),
        "cost_usd": job.cost / NANO_DOLLARS,
        "unpriced_requests": job.unpriced,
        "estimated_end_at": _seconds(estimated_end(job, now)),
    }


def _seconds(time: float | None) -> int | None:
    return None if time is None else int(time)


def message_batch(job: Job, results_url: str) -> dict[str, Any]:
    """As Anthropic's API shows it, and what it has cost so far and when it will end.

    Args:
        job: the batch.
        results_url: where its results are, once it has ended.
    """
    has_ended = job.status in ENDED
    status = "ended" if has_ended else "in_progress"
    if job.status == "cancelling" and job.reason != AS_EXPIRED:
        status = "canceling"
    expired = job.undone if job.status == "expired" else 0
    done = job.good + job.failed + job.undone
    return {
        "id": job.id,
        "type": "message_batch",
        "processing_status": status,
        "request_counts": {
            "processing": 0 if has_ended else job.total - done,
            "succeeded": job.good,
            "errored": job.failed,
            "canceled": job.undone - expired,
            "expired": expired,
        },
        "created_at": _written(job.created),
        "expires_at": _written(job.expires),
        "ended_at": _written(job.ended),
        "cancel_initiated_at": _written(job.cancelling) if job.reason != AS_EXPIRED else None,
        "archived_at": None,
        "results_url": results_url if has_ended else None,
        "cost_usd": job.cost / NANO_DOLLARS,
        "unpriced_requests": job.unpriced,
    }


def _written(time: float | None) -> str | None:
    return None if time is None else exact_utc_text(time)
