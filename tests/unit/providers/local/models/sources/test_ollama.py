"""Models of Ollama's library, from a registry on this machine that is as strict as the real one."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from providers.local.models.folders import ModelStoreError
from providers.local.models.forecast import ModelForecast
from providers.local.models.pulled import pulled, remove
from providers.local.models.sources.ollama import MANIFEST_TYPE, OllamaName
from providers.local.models.store import foretell, pull, resolve, resolve_gguf
from tests.local_server import Handler, send, serving

GGUF = b"GGUF" + hashlib.sha256(b"llama").digest() * 20_000
PARAMS = json.dumps({"stop": ["<|eot_id|>"], "temperature": 0.6, "num_ctx": 4096}).encode()
MODEL, IMAGE = "application/vnd.ollama.image.model", "application/vnd.ollama.image"


class Registry:
    """What registry.ollama.ai does when it is asked for a model, and the store that it sends on to.

    A manifest is sent to whom accepts its type; nobody has to say who they are, and whom the store
    is told of as anybody it refuses, as its addresses are signed.

    Attributes:
        layers: the media type and the content of each.
        asked: the blobs that were asked for, each with where from.
        hold: half of the weights is sent at once, the rest when it is set.
    """

    def __init__(self) -> None:
        self.layers: list[tuple[str, bytes]] = [
            (MODEL, GGUF),
            (f"{IMAGE}.template", b"{{ .Prompt }}"),
            (f"{IMAGE}.license", b"first"),
            (f"{IMAGE}.license", b"second"),
            (f"{IMAGE}.params", PARAMS),
        ]
        self.names = {"library/llama3.2/latest", "library/llama3.2/1b", "mine/own/q4"}
        self.asked: list[tuple[str, int]] = []
        self.hold = threading.Event()
        self.hold.set()
        self.store = ""
        self.manifest: bytes | None = None

    def answer(self, handler: Handler) -> None:
        path = handler.path
        if "authorization" in handler.headers:
            send(handler, 401, b"{}")
        elif match := re.fullmatch(r"/v2/([^/]+/[^/]+)/manifests/([^/]+)", path):
            is_there = f"{match[1]}/{match[2]}" in self.names
            if not is_there:
                send(handler, 404, b'{"errors":[{"code":"MANIFEST_UNKNOWN"}]}')
            elif handler.headers["accept"] != MANIFEST_TYPE:
                send(handler, 406, b'{"errors":[{"code":"MANIFEST_INVALID"}]}')
            else:
                send(handler, 200, self.manifest or self.made_manifest(), MANIFEST_TYPE)
        elif match := re.fullmatch(r"/v2/[^/]+/[^/]+/blobs/(sha256:[0-9a-f]{64})", path):
            send(handler, 307, b"", location=f"{self.store}/{match[1]}?signature=s")
        else:
            send(handler, 404, b'{"errors":[{"code":"NOT_FOUND"}]}')

    def made_manifest(self) -> bytes:
        layers = [
            {"mediaType": kind, "digest": digest(body), "size": len(body)}
            for kind, body in self.layers
        ]
        config = {
            "mediaType": "application/vnd.docker.container.image.v1+json",
            "digest": digest(b"{}"),
            "size": 2,
        }
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "config": config}
        return json.dumps(manifest | {"layers": layers}).encode()

    def send_blob(self, handler: Handler) -> None:
        """What the store does."""
        match = re.fullmatch(r"/(sha256:[0-9a-f]{64})\?signature=s", handler.path)
        bodies = {digest(body): body for _, body in self.layers}
        if match is None or match[1] not in bodies or "authorization" in handler.headers:
            send(handler, 400, b"<Error/>", "application/xml")
            return
        body, start, end = bodies[match[1]], 0, len(bodies[match[1]])
        if asked := re.fullmatch(r"bytes=(\d+)-(\d*)", handler.headers.get("range", "")):
            start, end = int(asked[1]), min(int(asked[2] or end) + 1, end)
            handler.send_response(206)
            handler.send_header("content-range", f"bytes {start}-{end - 1}/{len(body)}")
        else:
            handler.send_response(200)
        handler.send_header("content-length", str(end - start))
        handler.end_headers()
        self.asked.append((match[1], start))
        sent, half = body[start:end], (end - start) // 2
        with suppress(ConnectionError):
            if body is GGUF:
                handler.wfile.write(sent[:half])
                self.hold.wait(30)
                sent = sent[half:]
            handler.wfile.write(sent)


def digest(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "store"
    monkeypatch.setenv("LLAMA_COMPAT_HOME", str(folder))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    registry = Registry()
    with serving(registry.answer) as url, serving(registry.send_blob) as blobs:
        registry.store = blobs
        monkeypatch.setenv("OLLAMA_REGISTRY", url)
        yield registry


def quiet(step: str, done: int = 0, total: int | None = None) -> None:
    pass


def test_a_model_is_pulled_by_ollama_s_name(registry: Registry) -> None:
    folder = pull("ollama:llama3.2", quiet)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        "model.gguf": GGUF,
        "params.json": PARAMS,
        "template.txt": b"{{ .Prompt }}",
        "license.txt": b"first",
        "license-2.txt": b"second",
        "manifest.json": registry.made_manifest(),
    }
    assert resolve_gguf("ollama:llama3.2") == folder / "model.gguf"
    # The same in other words, as Ollama has it.
    assert resolve_gguf("ollama:library/llama3.2:latest") == folder / "model.gguf"
    with pytest.raises(ModelStoreError, match="not on this machine yet"):
        resolve_gguf("ollama:llama3.2:1b")
    with pytest.raises(ModelStoreError, match="which 'local::llama_cpp' runs"):
        resolve("ollama:llama3.2")


def test_they_are_listed_and_removed_by_their_names(registry: Registry) -> None:
    for name in ("ollama:llama3.2", "ollama:llama3.2:1b", "ollama:mine/own:q4"):
        pull(name, quiet)
    assert [each.name for each in pulled()] == [
        "ollama:llama3.2",
        "ollama:llama3.2:1b",
        "ollama:mine/own:q4",
    ]
    assert all(each.is_gguf for each in pulled())
    remove("ollama:library/llama3.2:latest")
    remove("ollama:mine/own:q4")
    assert [each.name for each in pulled()] == ["ollama:llama3.2:1b"]


def test_a_pull_that_was_stopped_goes_on_within_the_weights(
    registry: Registry, store: Path
) -> None:
    partial = store / "partial" / "ollama--library--llama3.2--1b"
    registry.hold.clear()

    def interrupt(step: str, done: int = 0, total: int | None = None) -> None:
        part = partial / "model.gguf.part"
        others = {"params.json", "template.txt", "license.txt", "license-2.txt"}
        is_half = part.is_file() and part.stat().st_size == len(GGUF) // 2
        if is_half and others < {path.name for path in partial.iterdir()}:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull("ollama:llama3.2:1b", interrupt)
    assert pulled() == []
    registry.hold.set()
    registry.asked.clear()
    assert (pull("ollama:llama3.2:1b", quiet) / "model.gguf").read_bytes() == GGUF
    assert registry.asked == [(digest(GGUF), len(GGUF) // 2)]


def test_what_has_another_digest_makes_no_model(registry: Registry, store: Path) -> None:
    manifest = json.loads(registry.made_manifest())
    registry.manifest = json.dumps(manifest).encode()
    sent = GGUF[:-1] + b"!"
    registry.send_blob = wrong_blob(registry, sent)  # type: ignore[method-assign]
    with serving(registry.send_blob) as blobs:
        registry.store = blobs
        with pytest.raises(ModelStoreError, match=r"model\.gguf is not what was published: its"):
            pull("ollama:llama3.2", quiet)
    assert not (store / "models").exists()
    assert not list(store.rglob("model.gguf*"))


def wrong_blob(registry: Registry, sent: bytes) -> Any:
    right = registry.send_blob

    def send_blob(handler: Handler) -> None:
        if digest(GGUF) in handler.path:
            send(handler, 200, sent)
        else:
            right(handler)

    return send_blob


@pytest.mark.parametrize(
    ("layers", "sentence"),
    [
        ([(MODEL, GGUF), (f"{IMAGE}.adapter", b"a")], "can't be run here, since it is a LoRA"),
        ([(f"{IMAGE}.tensor; name=a; dtype=BF16", b"a")], "its weights are no GGUF"),
        ([(f"{IMAGE}.params", PARAMS)], "has no weights that could be fetched"),
    ],
    ids=["adapter", "tensors", "cloud"],
)
def test_what_is_not_run_is_not_fetched(
    registry: Registry, layers: list[tuple[str, bytes]], sentence: str
) -> None:
    registry.layers = layers
    with pytest.raises(ModelStoreError, match=f"ollama:llama3.2 .*{sentence}"):
        pull("ollama:llama3.2", quiet)
    assert registry.asked == []


@pytest.mark.parametrize(
    "manifest",
    [
        b"<html>",
        b"[]",
        b'{"layers":[{"mediaType":"a","digest":"sha256:../../etc","size":1}]}',
        b'{"layers":[{"mediaType":"a","digest":"sha256:' + b"0" * 64 + b'","size":-1}]}',
        b'{"layers":[{"mediaType":1,"digest":"sha256:' + b"0" * 64 + b'","size":1}]}',
    ],
)
def test_a_manifest_that_is_none_is_told(registry: Registry, manifest: bytes) -> None:
    registry.manifest = manifest
    with pytest.raises(ModelStoreError, match=r"as the manifest of ollama:llama3\.2 is none"):
        pull("ollama:llama3.2", quiet)


def test_why_a_model_can_not_be_had(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelStoreError, match="Ollama's library has no ollama:nothing: look"):
        pull("ollama:nothing", quiet)
    monkeypatch.setenv("OLLAMA_REGISTRY", "http://127.0.0.1:1")
    with pytest.raises(ModelStoreError, match=r"can't be asked for ollama:llama3\.2 .*OLLAMA_R"):
        pull("ollama:llama3.2", quiet)


@pytest.mark.parametrize("name", ["ollama:", "ollama:a/b/c", "ollama:hf.co/o/n:Q4", "ollama:../x"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(ModelStoreError, match="is not the name of an Ollama model"):
        pull(name, quiet)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("ollama:a", "ollama:a"),
        ("ollama:a:latest", "ollama:a"),
        ("ollama:library/a:b", "ollama:a:b"),
        ("ollama:u/a", "ollama:u/a"),
    ],
)
def test_a_name_has_a_shortest_form(name: str, short: str) -> None:
    assert str(OllamaName.of(name)) == short


def test_what_is_known_before(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("providers.local.models.forecast.available_memory", lambda: 10**9)
    gguf = pytest.importorskip("gguf", reason="needs the extra 'torch'")
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_context_length(131072)
    writer.add_block_count(2)
    writer.add_head_count(4)
    writer.add_embedding_length(64)
    # Longer than what is asked for at once.
    writer.add_token_list([f"token {each} of many" for each in range(30_000)])
    import numpy as np

    writer.add_tensor("output.weight", np.zeros((1000, 64), np.float32))
    writer.add_tensor("output_norm.weight", np.zeros(64, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    body = (tmp_path / "m.gguf").read_bytes()
    registry.layers[0] = (MODEL, body)
    told: list[ModelForecast] = []
    told.append(foretell("ollama:llama3.2:1b", quiet))
    assert registry.asked
    assert {blob for blob, _ in registry.asked} == {digest(body)}
    pull("ollama:llama3.2:1b", quiet, told.append)
    assert told[0] == told[1]
    forecast = told[0]
    assert (forecast.name, forecast.size) == ("ollama:llama3.2:1b", len(body))
    assert (forecast.parameters, forecast.context) == (64_064, 131072)
    assert forecast.engine == "local::llama_cpp"
    pytest.importorskip("llama_cpp", reason="needs the extra 'llama-cpp'")
    [need] = forecast.needs
    assert need.bytes > len(body)
