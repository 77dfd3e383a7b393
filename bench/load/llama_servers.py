"""The servers that `local::llama_cpp` is measured beside, all of them on the same GGUF and threads.

llama.cpp's own server comes in the wheel `xllamacpp`, and `python -m llama_cpp.server` with
llama-cpp-python; each has an environment of its own in `bench/.peers`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.load.others import CACHE
from bench.load.peers import ROOT, free_port
from bench.machine import end

XLLAMACPP = "xllamacpp==2026.10.11549"
CONTEXT = 2048
SLOTS = 8

OURS = """\
version: 1
server: {{port: {port}}}
providers:
  - id: engine
    type: {provider}
    config: {config}
models:
  - {{id: model, provider: engine, provider_model: "{model}", context_length: {context}}}
"""

THEIRS = """\
import sys, time, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.port = sys.argv[1], int(sys.argv[2])
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = int(sys.argv[3])
params.n_parallel, params.n_ctx, params.model_alias = {slots}, {cells}, {{"model"}}
server = xllamacpp.Server(params)
while True:
    time.sleep(60)
"""


@dataclass(frozen=True)
class LlamaServer:
    """A server that runs.

    Attributes:
        name: for the results.
        url: of the route that completes a prompt.
        ends: what is added to a body so that a model's end token does not end the reply.
    """

    name: str
    url: str
    ends: dict[str, Any]

    def body(self, prompt: str | Sequence[int], tokens: int) -> dict[str, Any]:
        """A request for so many tokens, streamed, greedily."""
        asked = {"model": "model", "prompt": prompt, "max_tokens": tokens, "n_predict": tokens}
        if self.url.endswith("/v1/completions"):
            del asked["n_predict"]
        return {**asked, "stream": True, "temperature": 0, **self.ends}


@contextmanager
def our_server(
    provider: str, config: Any, model: str | Path, scratch: Path
) -> Iterator[LlamaServer]:
    """This project's server, with one local model.

    Args:
        provider: its type, `local::...`.
        config: of the provider, as in a template.
        model: as in a template.
        scratch: where template and log go.
    """
    port = free_port()
    template = scratch / "ours.yaml"
    settings = {"provider": provider, "config": json.dumps(config), "model": model}
    template.write_text(OURS.format(port=port, context=CONTEXT, **settings))
    command = [str(Path(sys.executable).with_name("llama-compat")), "run", str(template)]
    with serving("llama_compat", command, port, scratch):
        url = f"http://127.0.0.1:{port}/v1/completions"
        yield LlamaServer("llama_compat", url, {"ignore_eos": True})


def ours(model: Path, threads: int, scratch: Path) -> AbstractContextManager[LlamaServer]:
    """This project's server, with llama.cpp in it."""
    config = {"threads": threads, "max_sequences": SLOTS}
    return our_server("local::llama_cpp", config, model, scratch)


@contextmanager
def xllamacpp(
    model: Path, threads: int, scratch: Path, slots: int = SLOTS
) -> Iterator[LlamaServer]:
    """llama.cpp's own server, which answers so many requests at a time."""
    python = python_with("xllamacpp", [XLLAMACPP])
    script, port = scratch / "xllamacpp_server.py", free_port()
    script.write_text(THEIRS.format(slots=slots, cells=slots * CONTEXT))
    command = [python, str(script), str(model), str(port), str(threads)]
    with serving("xllamacpp", command, port, scratch):
        url = f"http://127.0.0.1:{port}/completion"
        yield LlamaServer("xllamacpp", url, {"ignore_eos": True, "cache_prompt": True})


@contextmanager
def llama_cpp_server(
    model: Path, threads: int, scratch: Path, end_tokens: list[int]
) -> Iterator[LlamaServer]:
    """`python -m llama_cpp.server`."""
    wheel = subprocess.run(
        [sys.executable, str(ROOT / "scripts/llama_cpp_wheel.py")],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout.strip()
    constraints = ["-c", str(ROOT / "constraints.txt"), "--find-links", wheel]
    python = python_with("llama_cpp_server", [*constraints, "llama-cpp-python[server]"])
    port = free_port()
    command = [python, "-m", "llama_cpp.server", "--model", str(model), "--port", str(port)]
    command += ["--model_alias", "model"]
    command += ["--n_ctx", str(CONTEXT), "--n_threads", str(threads)]
    command += ["--n_threads_batch", str(threads), "--flash_attn", "true"]
    # Or a stream is cut when another request arrives.
    command += ["--interrupt_requests", "false"]
    with serving("llama_cpp.server", command, port, scratch):
        url = f"http://127.0.0.1:{port}/v1/completions"
        biases = {str(token): -100 for token in end_tokens}
        yield LlamaServer("llama_cpp.server", url, {"logit_bias": biases})


def python_with(name: str, arguments: list[str]) -> str:
    """The Python of an environment with what pip gets as `arguments`."""
    folder = CACHE / name
    if not (folder / "ready").exists():
        print(f"installing {arguments[-1]} ...", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([folder / "bin" / "pip", "install", "-q", *arguments], check=True)
        (folder / "ready").touch()
    return str(folder / "bin" / "python")


@contextmanager
def serving(
    name: str,
    command: list[str],
    port: int,
    scratch: Path,
    *,
    cwd: Path = ROOT,
    environment: Mapping[str, str] | None = None,
) -> Iterator[None]:
    """Run a server until the end of the block, which begins when it is ready."""
    log = scratch / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=output,
            cwd=cwd,
            env={**os.environ, **(environment or {})},
        )
        try:
            for _ in range(1200):
                if process.poll() is not None:
                    break
                if _is_ready(port):
                    yield
                    return
                time.sleep(0.1)
            raise RuntimeError(f"{name} does not answer:\n{log.read_text()[-2000:]}")
        finally:
            end(process)


def _is_ready(port: int) -> bool:
    """Whether the server says so, at `/health` or, if it has none, at `/v1/models`."""
    for path in ("health", "v1/models"):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=5).close()
            return True
        except urllib.error.HTTPError as error:
            if error.code != 404:
                return False
        except OSError:
            return False
    return False
