"""The gateway's side of `deployer`, the process that speaks to Ray."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from providers import environments

MODULE = "routing.replicas.deployer"

END_SECONDS = 20.0
"""So long a cluster of our own may take to end."""

CONNECT_SECONDS = 30.0
"""How long a cluster may take to answer, the process' own start included."""

START_SECONDS = 180.0
"""How long one may take to start on this machine."""

MAX_ANSWER_BYTES = 1024 * 1024


class DriverError(Exception):
    """Ray could not do what it was asked; the message says why."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where a cluster is.

    Attributes:
        dashboard: its dashboard; empty if it has none.
        token: what it wants to be told; empty where that is known elsewhere.
    """

    dashboard: str
    token: str = ""


class Driver:
    """Starts that process, and tells it what to do.

    Args:
        address: the cluster's; empty for one of its own.
        keep: whether a cluster of its own outlives the process.

    Attributes:
        own: whether the cluster ends with the process.
    """

    def __init__(self, address: str, keep: bool) -> None:
        self._address = address
        self._keep = keep
        self.own = False
        self._process: asyncio.subprocess.Process | None = None
        self._one_at_a_time = asyncio.Lock()
        self._owed = 0  # answers that have not been read

    async def start(self) -> Cluster:
        """Connect, or start a cluster.

        Raises:
            DriverError: that can't be done.
        """
        environment, token = environments.without_vendors_keys(), ""
        if not self._address and not self._keep:
            # Its own secret, which is nowhere but in its processes.
            token = environment["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
            environment["RAY_AUTH_MODE"] = "token"
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-P", "-m", MODULE, self._address, "keep" if self._keep else ""),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment,
            limit=MAX_ANSWER_BYTES,
            start_new_session=True,  # Ctrl-C is for the gateway, which ends it
        )
        self._owed = 1
        seconds = CONNECT_SECONDS if self._address else START_SECONDS
        try:
            told = await asyncio.wait_for(self._answer(), seconds)
        except TimeoutError:
            self._process.kill()
            where = f"no cluster answers at {self._address}" if self._address else "none started"
            raise DriverError(f"{where} within {seconds:g} s") from None
        self.own = bool(told["own"])
        return Cluster(str(told["dashboard"]), token)

    async def stop(self) -> None:
        """End the process, and a cluster of its own with it."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), END_SECONDS)
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def deploy(self, config: Mapping[str, Any]) -> None:
        """Have an application run, in place of one of its name.

        Raises:
            DriverError: Serve did not take it.
        """
        await self._ask({"do": "deploy", "config": config})

    async def delete(self, name: str) -> None:
        """Have the application of this name end.

        Raises:
            DriverError: Serve can't be told.
        """
        await self._ask({"do": "delete", "name": name})

    async def _ask(self, command: Mapping[str, Any]) -> None:
        async with self._one_at_a_time:
            if self._process is None or self._process.returncode is not None:
                if self.own:
                    raise DriverError("the cluster that was started here has ended")
                await self.start()
            assert self._process is not None
            assert self._process.stdin is not None
            for _ in range(self._owed):
                # Whoever asked waits for it no more.
                with suppress(DriverError):
                    await self._answer()
            try:
                self._process.stdin.write(json.dumps(command).encode() + b"\n")
                await self._process.stdin.drain()
            except OSError as error:
                raise DriverError(f"the process that speaks to Ray has ended: {error}") from None
            self._owed += 1
            await self._answer()

    async def _answer(self) -> Mapping[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        self._owed -= 1
        if not line:
            code = await self._process.wait()
            raise DriverError(
                f"the process that speaks to Ray has ended ({code}); the log says why"
            )
        told: Mapping[str, Any] = json.loads(line)
        if "error" in told:
            raise DriverError(str(told["error"]))
        return told
