"""The gateways that ours is measured beside, each installed apart from us and started on a port."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.machine import resident_mib, start_pinned

LITELLM = "litellm[proxy]==1.105.0"
PORTKEY = "@portkey-ai/gateway@1.15.2"
CACHE = Path(os.environ.get("LLAMA_COMPAT_BENCH_PEERS", Path(__file__).parents[1] / ".peers"))
ROOT = Path(__file__).parents[2]

OURS_TEMPLATE = """\
version: 1
server: {{port: {port}}}
providers:
  - id: upstream
    type: remote::openai
    config: {{base_url: "{upstream}/v1", api_key: sk-benchmark}}
models:
  - {{id: model, provider: upstream, provider_model: upstream-model}}
"""

LITELLM_CONFIG = """\
model_list:
  - model_name: model
    litellm_params:
      model: openai/upstream-model
      api_base: {upstream}/v1
      api_key: sk-benchmark
"""


@dataclass(frozen=True)
class Gateway:
    """How a gateway is started, and what its chat route is called.

    `command` is None where the peer could not be installed; `why` says why.
    """

    name: str
    port: int
    command: list[str] | None
    environment: dict[str, str]
    why: str = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1/chat/completions"


def bare_relay(upstream: str, port: int) -> Gateway:
    """Thirty lines of ASGI and aiohttp under the server that we use too."""
    quiet = ("--no-access-log", "--log-level", "warning")
    command = [
        *(sys.executable, "-m", "uvicorn", "bench.load.bare_relay:app"),
        *("--port", str(port), "--loop", "uvloop", "--http", "httptools", *quiet),
    ]
    return Gateway("bare relay", port, command, {"UPSTREAM": upstream})


def ours(upstream: str, port: int, scratch: Path, workers: int = 1) -> Gateway:
    """This project, its access log written as it is by default."""
    template = scratch / f"ours-{port}.yaml"
    template.write_text(OURS_TEMPLATE.format(upstream=upstream, port=port))
    command = [str(Path(sys.executable).with_name("llama-compat")), "run", str(template)]
    return Gateway("llama_compat", port, [*command, "--workers", str(workers)], {})


def litellm(upstream: str, port: int, scratch: Path) -> Gateway:
    """LiteLLM's proxy from PyPI, one worker, no database."""
    folder = CACHE / "litellm"
    executable = folder / "bin" / "litellm"
    if not executable.exists():
        print(f"installing {LITELLM} ...", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        result = subprocess.run([folder / "bin" / "pip", "install", "-q", LITELLM], check=False)
        if result.returncode:
            return Gateway("LiteLLM", port, None, {}, f"pip could not install {LITELLM}")
    config = scratch / "litellm.yaml"
    config.write_text(LITELLM_CONFIG.format(upstream=upstream))
    command = [str(executable), "--config", str(config), "--port", str(port)]
    environment = {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # or it asks the network for prices at every start
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",  # as all the others here
    }
    return Gateway("LiteLLM", port, command, environment)


def portkey(port: int) -> Gateway:
    """Portkey's gateway from npm, one process."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        return Gateway("Portkey", port, None, {}, "npm is not installed")
    script = CACHE / "portkey/node_modules/@portkey-ai/gateway/build/start-server.js"
    if not script.exists():
        print(f"installing {PORTKEY} ...", file=sys.stderr)
        command = [npm, "install", "--silent", "--prefix", str(CACHE / "portkey"), PORTKEY]
        if subprocess.run(command, check=False).returncode or not script.exists():
            return Gateway("Portkey", port, None, {}, f"npm could not install {PORTKEY}")
    command = [node, str(script), f"--port={port}", "--headless"]
    return Gateway("Portkey", port, command, {"TRUSTED_CUSTOM_HOSTS": "127.0.0.1"})


@contextmanager
def running(gateway: Gateway, cores: set[int], log: Path) -> Iterator[dict[str, float]]:
    """Run `gateway` on `cores` alone; what it says goes to the file `log`.

    Gives what it took to start: `start_s`, and `resident_mib` once it answers.
    """
    assert gateway.command is not None
    with socket.socket() as probe:
        if not probe.connect_ex(("127.0.0.1", gateway.port)):
            raise RuntimeError(f"something else listens on port {gateway.port}: end it first")
    environment = {**os.environ, **gateway.environment}
    begun = time.perf_counter()
    with log.open("wb") as output:
        process = start_pinned(
            gateway.command, cores, env=environment, stdout=output, stderr=output, cwd=ROOT
        )
        try:
            _wait_until_listening(gateway, process, log)
            yield {
                "pid": process.pid,
                "start_s": round(time.perf_counter() - begun, 1),
                "resident_mib": round(resident_mib(process.pid), 1),
            }
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_until_listening(
    gateway: Gateway, process: subprocess.Popen[bytes], log: Path, patience: float = 180
) -> None:
    for _ in range(int(patience / 0.1)):
        if process.poll() is not None:
            raise RuntimeError(f"{gateway.name} ended at once:\n{log.read_text()[-2000:]}")
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{gateway.port}/", timeout=5).close()
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"{gateway.name} does not answer:\n{log.read_text()[-2000:]}")
