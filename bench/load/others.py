"""Other people's gateways: each installed apart from us, configured, and said how to start.

A maker raises `NotInstalled` where its gateway can't be had on this machine.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import distributions
from pathlib import Path

from packaging.requirements import Requirement

from bench.load.peers import ROOT, Gateway, free_port

CACHE = Path(os.environ.get("LLAMA_COMPAT_BENCH_PEERS", ROOT / "bench/.peers"))

TENSORZERO = "tensorzero==2026.6.0"
SMG = "smg==1.13.0"
VLLM_ROUTER = "vllm-router==0.1.17"
LLMSHIM = "llmshim==0.29.0"
LITELLM = "litellm==1.109.1"
PORTKEY = "@portkey-ai/gateway@1.15.2"

Make = Callable[[str, int, Path], Gateway]
"""Makes a gateway of an upstream's URL, the port to listen on, and a folder for its files."""


class NotInstalled(Exception):
    """The message says why."""


NGINX_CONFIG = """\
daemon off; master_process off; pid {scratch}/nginx.pid; error_log stderr warn;
events {{ worker_connections 4096; }}
http {{
  access_log off; proxy_buffering off; proxy_http_version 1.1; proxy_set_header Connection "";
  keepalive_requests 1000000000;
  client_body_temp_path {scratch}/body; proxy_temp_path {scratch}/proxy;
  fastcgi_temp_path {scratch}/fastcgi; uwsgi_temp_path {scratch}/uwsgi;
  scgi_temp_path {scratch}/scgi;
  upstream upstream {{ server {host}; keepalive 512; keepalive_requests 1000000000; }}
  server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://upstream; }} }}
}}
"""


def nginx(upstream: str, port: int, scratch: Path) -> Gateway:
    """nginx passing everything on unread: the floor, what no gateway can do without."""
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        raise NotInstalled("no nginx on this machine; on Debian: apt install nginx-light")
    config = scratch / "nginx.conf"
    host = upstream.removeprefix("http://")
    config.write_text(NGINX_CONFIG.format(scratch=scratch, host=host, port=port))
    return Gateway("nginx", port, [program, "-c", str(config), "-e", "stderr"])


TENSORZERO_CONFIG = """\
[gateway]
observability.enabled = false

[models.model]
routing = ["upstream"]

[models.model.providers.upstream]
type = "openai"
api_base = "{upstream}/v1/"
model_name = "upstream-model"
api_key_location = "none"
"""


def tensorzero(upstream: str, port: int, scratch: Path) -> Gateway:
    """TensorZero's gateway (Rust), which its Python package carries."""
    return tensorzero_with(TENSORZERO_CONFIG.format(upstream=upstream), scratch)


def tensorzero_with(config: str, scratch: Path) -> Gateway:
    """TensorZero's gateway with a configuration (TOML) whose model is `model`."""
    path = scratch / "tensorzero.toml"
    path.write_text(config)
    python = environment_with(TENSORZERO) / "python"
    script = Path(__file__).with_name("tensorzero_gateway.py")
    return Gateway(
        "TensorZero",
        None,
        [str(python), str(script), str(path)],
        model="tensorzero::model_name::model",
        path="/openai/v1/chat/completions",
    )


def smg(upstream: str, port: int, scratch: Path) -> Gateway:
    """smg (Rust), a router in front of engines."""
    program = environment_with(SMG) / "smg"
    where = ("--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(free_port()))
    command = [str(program), "launch", *where, "--worker-urls", upstream]
    return Gateway("smg", port, [*command, "--policy", "round_robin"])


def vllm_router(upstream: str, port: int, scratch: Path) -> Gateway:
    """vLLM's router (Rust), in front of engines."""
    program = environment_with(VLLM_ROUTER) / "vllm-router"
    where = ("--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(free_port()))
    command = [str(program), *where, "--worker-urls", upstream, "--policy", "round_robin"]
    return Gateway("vllm-router", port, command)


def llmshim(upstream: str, port: int, scratch: Path) -> Gateway:
    """llmshim's proxy (Rust)."""
    program = environment_with(LLMSHIM) / "llmshim"
    command = [str(program), "proxy", "--host", "127.0.0.1", "--port", str(port)]
    environment = {"VLLM_BASE_URL": f"{upstream}/v1", "HOME": str(scratch)}
    return Gateway("llmshim", port, command, environment, model="vllm/model", slow=True)


LITELLM_CONFIG = """\
model_list:
  - model_name: model
    litellm_params:
      model: openai/upstream-model
      api_base: {upstream}/v1
      api_key: sk-benchmark
"""


def litellm(upstream: str, port: int, scratch: Path) -> Gateway:
    """LiteLLM's proxy, one worker, no database."""
    # Its pins of these can't all be met from PyPI at once.
    unpinned = ("certifi", "litellm-proxy-extras", "litellm-enterprise")
    program = environment_with(LITELLM, extra="proxy", unpinned=unpinned) / "litellm"
    config = scratch / "litellm.yaml"
    config.write_text(LITELLM_CONFIG.format(upstream=upstream))
    command = [str(program), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    environment = {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # or it asks the network for prices at every start
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",  # as all the others here
    }
    return Gateway("LiteLLM", port, command, environment, slow=True)


def portkey(upstream: str, port: int, scratch: Path) -> Gateway:
    """Portkey's gateway from npm, one process."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        raise NotInstalled("npm is not installed")
    script = CACHE / "portkey/node_modules/@portkey-ai/gateway/build/start-server.js"
    if not script.exists():
        _run([npm, "install", "--silent", "--prefix", str(CACHE / "portkey"), PORTKEY], PORTKEY)
    return Gateway(
        "Portkey",
        port,
        [node, str(script), f"--port={port}", "--headless"],
        {"TRUSTED_CUSTOM_HOSTS": "127.0.0.1"},
        headers={
            "x-portkey-provider": "openai",
            "x-portkey-custom-host": f"{upstream}/v1",
        },
        slow=True,
    )


OTHERS: dict[str, Make] = {
    "nginx": nginx,
    "vllm-router": vllm_router,
    "TensorZero": tensorzero,
    "smg": smg,
    "llmshim": llmshim,
    "LiteLLM": litellm,
    "Portkey": portkey,
}


def environment_with(
    pinned: str, *, extra: str | None = None, unpinned: Sequence[str] = ()
) -> Path:
    """The programs of a virtual environment that has the package `pinned`, made if need be.

    Args:
        pinned: `name==version`.
        extra: of the package.
        unpinned: requirements of the extra whose versions don't count.

    Raises:
        NotInstalled: pip can't install it.
    """
    folder = CACHE / pinned.replace("==", "-")
    done = folder / "installed.json"
    if not done.exists():
        _run([sys.executable, "-m", "venv", "--clear", str(folder)], f"an environment for {pinned}")
        pip = [str(folder / "bin/python"), "-m", "pip", "install", "-q"]
        if extra is None:
            _run([*pip, pinned], pinned)
        else:
            _run([*pip, "--no-deps", pinned], pinned)
            needed = _requirements(folder, pinned.partition("==")[0], extra, unpinned)
            _run([*pip, *needed], f"what {pinned} needs")
        done.write_text(json.dumps(sorted(_installed(folder))))
    return folder / "bin"


def _requirements(folder: Path, name: str, extra: str, unpinned: Sequence[str]) -> list[str]:
    found = next(iter(distributions(name=name, path=[str(_site_packages(folder))])))
    needed = []
    for text in found.requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            extras = f"[{','.join(requirement.extras)}]" if requirement.extras else ""
            free = requirement.name in unpinned
            versions = "" if free else str(requirement.specifier)
            needed.append(f"{requirement.name}{extras}{versions}")
    return needed


def _installed(folder: Path) -> list[str]:
    found = distributions(path=[str(_site_packages(folder))])
    return [f"{each.name}=={each.version}" for each in found]


def _site_packages(folder: Path) -> Path:
    return next(folder.glob("lib/python*/site-packages"))


def _run(command: list[str], what: str) -> None:
    print(f"installing {what} ...", file=sys.stderr)
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    if result.returncode:
        said = (result.stderr or result.stdout).strip().splitlines()
        raise NotInstalled(f"could not install {what}: {said[-1] if said else 'no reason given'}")
