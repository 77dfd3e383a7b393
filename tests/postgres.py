"""A real PostgreSQL for tests: Debian's programs, a database in a folder of its own.

It listens on a socket in that folder and on no port. PostgreSQL does not run as root, so that where
the tests do, it runs as its own user or as nobody.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

STOP_SECONDS = 30

SOCKET = ".s.PGSQL.5432"

HOW_TO_INSTALL = "no PostgreSQL on this machine; on Debian: apt install postgresql"


def program(name: str) -> str | None:
    """Where `initdb` or `postgres` is; Debian keeps them off the PATH."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return shutil.which(name) or next(
        (str(each / name) for each in folders if (each / name).is_file()), None
    )


def missing() -> str | None:
    """Why no PostgreSQL can be started here; None where one can."""
    return None if program("initdb") and program("postgres") else HOW_TO_INSTALL


class PostgresServer:
    """A server that is running.

    Attributes:
        address: of its database, as a template names it.
        folder: where its socket is.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.address = self._address_of("postgres")
        self._numbers = itertools.count()

    def new_database(self, locale: str | None = None) -> str:
        """The address of another database of its own, in which there is nothing; of a `locale`
        that is not the server's."""
        name = f"database{next(self._numbers)}"
        words = f" TEMPLATE template0 LOCALE '{locale}'" if locale is not None else ""
        asyncio.run(execute(self.address, f"CREATE DATABASE {name}{words}"))
        return self._address_of(name)

    def _address_of(self, database: str) -> str:
        return f"postgres://postgres@/{database}?host={self.folder}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = [str(program("postgres")), "-D", str(self._folder / "data"), "-F"]
        command += ["-c", "listen_addresses=", "-k", str(self._folder)]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, **_unprivileged())
        # The line `ready` is written to this file when connections are let in.
        status = self._folder / "data" / "postmaster.pid"
        while self._process.poll() is None:
            if status.is_file() and "ready" in status.read_text():
                return
            try:
                self._process.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
        raise RuntimeError((self._folder / "log").read_text())

    def pause(self) -> None:
        """Let it answer nothing any more, as one does whose disk hangs, until `resume`."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after a `pause`."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        assert self._process is not None
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for each in (pid, *map(int, children)):
            with suppress(ProcessLookupError):  # a connection that has just ended
                os.kill(each, number)

    def stop(self) -> None:
        """End it at once, as a machine that is switched off does."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(3)  # SIGQUIT: "immediate shutdown"
            self._process.wait(STOP_SECONDS)
        (self._folder / "data" / "postmaster.pid").unlink(missing_ok=True)


@contextmanager
def postgres() -> Iterator[PostgresServer]:
    """A server with an empty database."""
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    try:
        user = _unprivileged().get("user")
        if user is not None:
            os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
        initdb = [str(program("initdb")), "-D", str(folder / "data"), "-U", "postgres", "-N"]
        initdb += ["--auth", "trust", "--no-instructions", "--encoding", "UTF8"]
        subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, cwd=folder, **_unprivileged())
        server = PostgresServer(folder)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def execute(address: str, *statements: str) -> None:
    """Execute statements, each in no transaction but its own."""
    import asyncpg

    connection = await asyncpg.connect(address)
    try:
        for each in statements:
            await connection.execute(each)
    finally:
        await connection.close()


@asynccontextmanager
async def read_only(address: str) -> AsyncIterator[None]:
    """For a while the server lets everybody read, and nobody write."""
    setting = "default_transaction_read_only"
    await execute(address, f"ALTER SYSTEM SET {setting} = on", "SELECT pg_reload_conf()")
    try:
        # The connections that there are hear of it a moment later.
        await asyncio.sleep(0.2)
        yield
    finally:
        may_write = f"SET {setting} = off"
        reset = (may_write, f"ALTER SYSTEM RESET {setting}", "SELECT pg_reload_conf()")
        await execute(address, *reset)


class LossyWay:
    """A way to a server on which the answer to every so many-th COMMIT is lost.

    Args:
        server: where it leads.
        every: of so many COMMITs, the first one's.
        after: so many before that are heard of.

    Attributes:
        address: of the database, over this way.
        lost: how many answers were lost.
    """

    def __init__(self, server: PostgresServer, every: int, after: int = 0) -> None:
        self._to = str(server.folder / SOCKET)
        self._every = every
        self._seen, self.lost = -after, 0
        self._folder = tempfile.mkdtemp(prefix="pg-")
        self.address = f"postgres://postgres@/postgres?host={self._folder}"

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[LossyWay]:
        """Itself, while it leads there."""
        path = f"{self._folder}/{SOCKET}"
        try:
            async with await asyncio.start_unix_server(self._carry, path):
                yield self
        finally:
            shutil.rmtree(self._folder)

    async def _carry(self, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        server, there = await asyncio.open_unix_connection(self._to)
        loses = asyncio.Event()

        async def answers() -> None:
            while data := await server.read(1 << 16):
                if loses.is_set():
                    self.lost += 1
                    return
                back.write(data)

        async def questions() -> None:
            while data := await client.read(1 << 16):
                if b"COMMIT;" in data:
                    if self._seen >= 0 and self._seen % self._every == 0:
                        loses.set()
                    self._seen += 1
                there.write(data)

        ways = [asyncio.create_task(each) for each in (answers(), questions())]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        there.close()
        back.close()


async def emptied(address: str) -> None:
    """Delete all that the gateway has in a database."""
    await execute(address, "DROP SCHEMA IF EXISTS llama_compat CASCADE")


def _unprivileged() -> dict[str, str]:
    if os.geteuid() != 0:
        return {}
    names = {each.pw_name for each in pwd.getpwall()}
    return {"user": "postgres" if "postgres" in names else "nobody"}
