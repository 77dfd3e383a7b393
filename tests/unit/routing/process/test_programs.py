"""Programs end when nobody waits for them any more, and what they have started with them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import SecretStr

from providers import environments
from routing.process.programs import end_program, start_program

ENVIRONMENT = environments.of_program({})


def command(child: Path) -> list[str]:
    """One that has started another, which has its output and would go on."""
    return ["sh", "-c", f"sleep 600 & echo $! > {child}; echo; wait"]


def has_ended(child: Path) -> bool:
    stat = Path(f"/proc/{child.read_text().strip()}/stat")
    return not stat.exists() or stat.read_text().rpartition(") ")[2].startswith("Z")


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(6000):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError


@pytest.mark.parametrize("grace", [0.0, 0.05])
async def test_what_it_has_started_ends_with_it(tmp_path: Path, grace: float) -> None:
    child = tmp_path / "child"
    process = await start_program(command(child), ENVIRONMENT)
    assert process.stdout is not None
    await process.stdout.readline()
    await asyncio.wait_for(end_program(process, grace), 60)
    await until(lambda: has_ended(child))


async def test_one_that_is_no_more_wanted_as_it_starts_ends_too(tmp_path: Path) -> None:
    child = tmp_path / "child"

    async def slowly() -> None:
        # The loop is busy until the program has begun.
        while not (child.exists() and child.read_text().strip()):
            pass
        starting.cancel()

    starting = asyncio.create_task(start_program(command(child), ENVIRONMENT))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    busy = asyncio.create_task(slowly())
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(starting, 60)
    await busy
    await until(lambda: has_ended(child))


async def test_one_that_is_not_there_is_an_error() -> None:
    with pytest.raises(OSError, match="No such file"):
        await start_program(["/nowhere/at/all"], ENVIRONMENT)


async def test_it_knows_of_the_environment_what_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-a-vendor")
    environment = environments.of_program({"TOKEN": SecretStr("of-the-program")})
    process = await start_program(["env"], environment)
    said = (await process.communicate())[0].decode()
    assert "sk-of-a-vendor" not in said
    assert {"PATH=" + environment["PATH"], "TOKEN=of-the-program"} <= set(said.splitlines())
