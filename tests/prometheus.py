"""A real Prometheus for tests: Debian's program, with its data in a folder of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from tests.integration import wire
from tests.integration.server_process import free_port

STOP_SECONDS = 20

HOW_TO_INSTALL = "no Prometheus on this machine; on Debian: apt install prometheus"


def missing() -> str | None:
    """Why no Prometheus can be started here; None where one can."""
    return None if shutil.which("prometheus") else HOW_TO_INSTALL


class NotReady(Exception):
    """It can't be asked yet."""


class PrometheusServer:
    """A server that is running, at `url`."""

    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, expression: str) -> list[dict[str, Any]]:
        """What an instant query gives, which has to be right.

        Raises:
            NotReady: it has only been started.
        """
        reply = wire.request("GET", f"{self.url}/api/v1/query?query={quote(expression)}")
        if reply.status == 503:
            raise NotReady
        body = json.loads(reply.body)
        assert body["status"] == "success", f"{expression}: {body}"
        found: list[dict[str, Any]] = body["data"]["result"]
        return found


@contextmanager
def prometheus(folder: Path, target: str, key: str) -> Iterator[PrometheusServer]:
    """A server that scrapes `target` (HOST:PORT), showing `key`, as often as it can."""
    scrape = {
        "job_name": "llama-compat",
        "scrape_interval": "500ms",
        "scrape_timeout": "500ms",
        "authorization": {"credentials": key},
        "static_configs": [{"targets": [target]}],
    }
    config = folder / "prometheus.yml"
    config.write_text(yaml.safe_dump({"scrape_configs": [scrape]}))
    address = f"127.0.0.1:{free_port()}"
    command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
    command += [f"--web.listen-address={address}"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield PrometheusServer(f"http://{address}")
    finally:
        process.terminate()
        process.wait(STOP_SECONDS)
