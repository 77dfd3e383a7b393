"""What several owners have is started by the first of them and stopped by the last."""

from __future__ import annotations

from providers.shared import Shared


async def test_the_first_owner_starts_it_and_the_last_one_stops_it() -> None:
    stopped = []

    async def stop() -> None:
        stopped.append("stopped")

    shared = Shared("value", stop)
    assert shared.value == "value"
    assert shared.hold()
    assert not shared.hold()
    await shared.release()
    assert not shared.hold()
    await shared.release()
    assert stopped == []
    await shared.release()
    assert stopped == ["stopped"]
