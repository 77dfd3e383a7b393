"""An S3 server for tests: moto's, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec

import pytest

from tests.integration.server_process import free_port

BUCKET = "work"

_PACKAGES = ("s3fs", "moto", "boto3", "flask")

missing = [name for name in _PACKAGES if find_spec(name) is None]

needs_s3 = pytest.mark.skipif(
    bool(missing),
    reason=f"no {', '.join(missing)}, which want another botocore than `dev` has: pip install"
    " --target FOLDER s3fs 'moto[s3,server]', and run this with PYTHONPATH=FOLDER",
)


class S3Server:
    """A server whose buckets are in its memory.

    Attributes:
        url: where it is.
        environment: with which clients find it, and their keys.
    """

    def __init__(self) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.environment: Mapping[str, str] = {
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL_S3": self.url,
            "AWS_MAX_ATTEMPTS": "1",
        }
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(self.url, timeout=5).close()
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            else:
                return

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """One that runs, with an empty bucket."""
    server = S3Server()
    try:
        make = urllib.request.Request(f"{server.url}/{BUCKET}", method="PUT")
        urllib.request.urlopen(make, timeout=20).close()
        yield server
    finally:
        server.stop()
