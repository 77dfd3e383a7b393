"""A real PostgreSQL for tests: Debian's programs, a database in a folder of its own.

It listens on a socket in that folder and on no port. PostgreSQL does not run as root, so that where
the tests do, it runs as its own user or as nobody.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STOP_SECONDS = 30

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
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.address = f"postgres://postgres@/postgres?host={folder}"

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


async def emptied(address: str) -> None:
    """Delete all that the gateway has in a database."""
    import asyncpg

    connection = await asyncpg.connect(address)
    try:
        await connection.execute("DROP SCHEMA IF EXISTS llama_compat CASCADE")
    finally:
        await connection.close()


def _unprivileged() -> dict[str, str]:
    if os.geteuid() != 0:
        return {}
    names = {each.pw_name for each in pwd.getpwall()}
    return {"user": "postgres" if "postgres" in names else "nobody"}
