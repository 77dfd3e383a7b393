"""The process that speaks to Ray is asked, and each answer is that of its question."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from routing.replicas import driver as module
from routing.replicas.driver import Driver, DriverError

STAND_IN = """
import json, sys

print(json.dumps({"dashboard": "", "own": False}), flush=True)
for line in sys.stdin:
    name = json.loads(line)["name"]
    print(json.dumps({"error": name} if name.startswith("bad") else {}), flush=True)
"""


async def test_an_answer_that_nobody_waits_for_any_more_is_no_other_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    paths = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    monkeypatch.setattr(module, "MODULE", "stand_in")
    driver = Driver("somewhere", keep=False)
    await driver.start()
    try:
        asked = asyncio.create_task(driver.delete("bad one"))
        await asyncio.sleep(0)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        await driver.delete("good")
        with pytest.raises(DriverError, match="bad other"):
            await driver.delete("bad other")
        await driver.delete("good")
    finally:
        await driver.stop()
