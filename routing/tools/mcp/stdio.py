"""A server that is a process, which is talked to by its standard input and output.

The SDK's own (`mcp.client.stdio`) takes whatever comes. This one ends a process that says too much,
and as the SDK's does one whose session is over
(https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle#shutdown).
"""

from __future__ import annotations

import asyncio
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager

from anyio import BrokenResourceError, ClosedResourceError, create_memory_object_stream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCRequest, jsonrpc_message_adapter
from pydantic import SecretStr

from llama_compat.off_loop import off_loop
from providers import environments
from routing.process.programs import end_program, kill_program, start_program
from routing.tools.mcp.answers import AnswerBound, TooMuchSaid

GRACE_SECONDS = 2.0
"""How long a process may take to end by itself, and again when it has been told to."""

_PIECE = 64 * 1024

_Said = SessionMessage | Exception


class StdioServer:
    """One process, for one session.

    Args:
        command: the program and its arguments.
        env: its environment, besides `PATH` and the like.

    Attributes:
        fault: why it was ended before its session was over; empty where it was not.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, SecretStr]) -> None:
        self._command = command
        self._env = env
        self._bound = AnswerBound()
        self.fault = ""

    @asynccontextmanager
    async def streams(
        self,
    ) -> AsyncGenerator[
        tuple[MemoryObjectReceiveStream[_Said], MemoryObjectSendStream[SessionMessage]], None
    ]:
        """What it says, and what it is asked, while it runs.

        Raises:
            OSError: it can't be started.
        """
        process = await start_program(self._command, environments.of_program(self._env))
        # Without a buffer nothing is read that is not taken.
        says, heard = create_memory_object_stream[_Said](0)
        asks, asked = create_memory_object_stream[SessionMessage](0)
        tasks = [
            asyncio.create_task(self._read(process, says)),
            asyncio.create_task(self._write(process, asked, says)),
        ]
        try:
            yield heard, asks
        finally:
            # What can't get rid of what it says does not hear that it is to end.
            heard.close()
            try:
                await end_program(process, GRACE_SECONDS)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                for stream in (says, asks, asked):
                    stream.close()

    async def _read(self, process: Process, says: MemoryObjectSendStream[_Said]) -> None:
        """Hand on what the process says, a line a message, as long as anybody hears it."""
        stdout = process.stdout
        assert stdout is not None
        with says:
            try:
                while piece := await stdout.read(_PIECE):
                    for line in await self._bound.take(piece):
                        await says.send(await off_loop(len(line), _message, line))
            except TooMuchSaid as fault:
                self.fault = str(fault)
                kill_program(process)
            except (BrokenResourceError, ClosedResourceError):
                pass
        while await stdout.read(_PIECE):
            pass

    async def _write(
        self,
        process: Process,
        asked: MemoryObjectReceiveStream[SessionMessage],
        says: MemoryObjectSendStream[_Said],
    ) -> None:
        """Ask the process what it is asked."""
        stdin = process.stdin
        assert stdin is not None
        try:
            async for each in asked:
                if isinstance(each.message, JSONRPCRequest):
                    self._bound.renew()
                stdin.write(
                    each.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
                )
                await stdin.drain()
        except (OSError, ValueError):
            says.close()  # What it can't be asked it never answers.


def _message(line: bytes) -> _Said:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error
