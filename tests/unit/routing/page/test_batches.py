"""What the page is told of batches, and who is told it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from routing.app import Application
from routing.batches.journal.rows import AS_CANCELLED, Job
from tests.unit.routing.ingress.test_apis import application
from tests.unit.routing.page.test_overview import ADMIN, ADMIN_KEY, client_of


def working(folder: Path) -> Application:
    """One that would work on batches, if it was started."""
    return application(
        admin_key=ADMIN_KEY,
        api_keys=["sk-anybody"],
        storage=f"sqlite:{folder / 'operations.sqlite'}",
        files={"path": str(folder / "files")},
        batches={},
    )


def job(number: int, **members: Any) -> Job:
    """A batch that was made a moment after the one before."""
    return Job(
        f"batch_{number:03}",
        "openai",
        "somebody",
        "/v1/chat/completions",
        "file-x",
        "24h",
        b"null",
        None,
        1000.0 + number,
        9e9,
        **members,
    )


async def asked(app: Application, method: str, path: str, **headers: str) -> httpx.Response:
    async with client_of(app) as client:
        return await client.request(method, f"/admin/{path}", headers={**ADMIN, **headers})


async def test_nobody_else_is_told(tmp_path: Path) -> None:
    app = working(tmp_path)
    for method, path in (("GET", "batches"), ("POST", "batches/batch_1/cancel")):
        refused = await asked(app, method, path, authorization="Bearer sk-anybody")
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_admin_key")


async def test_a_server_that_works_on_none_says_so() -> None:
    reply = await asked(application(admin_key=ADMIN_KEY), "GET", "batches")
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "batches_disabled")


async def test_those_that_are_worked_on_are_told_of_however_old_they_are(tmp_path: Path) -> None:
    app = working(tmp_path)
    worker = app.runtime.batches
    assert worker is not None
    await worker.files.start()
    try:
        journal = worker.journal
        await journal.add(job(0, status="in_progress", begun=1.0, total=4, completed=1, cost=5))
        for number in range(1, 5):
            await journal.add(job(number, status="completed", ended=2.0))
        told = (await asked(app, "GET", "batches?limit=2")).json()
        assert [each["id"] for each in told["data"]] == ["batch_004", "batch_003", "batch_000"]
        oldest = told["data"][-1]
        assert (oldest["key"], oldest["api"], oldest["ended_at"]) == ("somebody", "openai", None)
        assert oldest["request_counts"] == {"total": 4, "completed": 1, "failed": 0}
        assert oldest["cost_usd"] == 5e-9
        assert oldest["estimated_end_at"] is not None
    finally:
        await worker.files.stop()


async def test_one_is_ended_whoever_made_it(tmp_path: Path) -> None:
    app = working(tmp_path)
    worker = app.runtime.batches
    assert worker is not None
    await worker.files.start()
    try:
        await worker.journal.add(job(1, status="in_progress", begun=1.0, total=4))
        for _ in range(2):  # again is as good
            reply = await asked(app, "POST", "batches/batch_001/cancel")
            assert (reply.status_code, reply.json()["status"]) == (200, "cancelling")
        found = await worker.journal.get("batch_001")
        assert found is not None
        assert found.reason == AS_CANCELLED
        await worker.journal.add(job(2, status="completed", ended=2.0))
        ended = await asked(app, "POST", "batches/batch_002/cancel")
        assert (ended.status_code, ended.json()["error"]["code"]) == (409, "batch_has_ended")
        nowhere = await asked(app, "POST", "batches/none/cancel")
        assert (nowhere.status_code, nowhere.json()["error"]["code"]) == (404, "batch_not_found")
    finally:
        await worker.files.stop()


@pytest.mark.parametrize("limit", ["0", "101", "x"])
async def test_a_limit_that_is_none_is_refused(tmp_path: Path, limit: str) -> None:
    reply = await asked(working(tmp_path), "GET", f"batches?limit={limit}")
    assert reply.status_code == 400
