"""What the tests of batches share: a template, a vendor that counts, and lines."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
from openai.types import Batch

from tests.integration.server_process import write_template
from tests.local_server import Handler, send, serving

CHAT = "/v1/chat/completions"

KEY = "sk-ann-12345678"

WAIT_SECONDS = 90

POLL_SECONDS = 0.05
"""Between two looks at a batch, of which each is some 10 ms of CPU, here and in the server."""

ENDED = ("completed", "failed", "expired", "cancelled")


def batch_template(folder: Path, vendor: str = "", **server: Any) -> Path:
    """A template with `echo`, and with `paid` and `free` of the vendor at a URL."""
    providers = [{"id": "echo", "type": "local::echo"}]
    models: list[dict[str, Any]] = [{"id": "echo", "provider": "echo"}]
    slow = {"id": "slow", "type": "local::echo", "config": {"delay_ms": 60_000}}
    providers.append(slow)  # type: ignore[arg-type]
    models.append({"id": "slow", "provider": "slow"})
    if vendor:
        config = {"base_url": f"{vendor}/v1", "api_key": "sk-vendor"}
        providers.append({"id": "vendor", "type": "remote::openai", "config": config})  # type: ignore[dict-item]
        for name, price in (("paid", 1), ("free", 0)):
            models.append(
                {
                    "id": name,
                    "provider": "vendor",
                    "provider_model": "gpt",
                    "price": {"input": price, "output": price},
                }
            )
    settings = {
        "storage": f"sqlite:{folder / 'operations.sqlite'}",
        "files": {"path": str(folder / "files")},
        "batches": {"lease_seconds": 1},
        "shutdown_grace_seconds": 2,
        **server,
    }
    return write_template(
        folder / "template.yaml",
        server=settings,
        keys=[{"name": "ann", "key": KEY}, {"name": "bob", "key": "sk-bob-12345678"}],
        providers=providers,
        models=models,
    )


def line(
    custom_id: str, model: str = "echo", text: str = "", url: str = CHAT, **body: Any
) -> dict[str, Any]:
    """A line that asks for a chat."""
    messages = [{"role": "user", "content": text or f"say {custom_id}"}]
    return {
        "custom_id": custom_id,
        "method": "POST",
        "url": url,
        "body": {"model": model, "messages": messages, **body},
    }


def jsonl(lines: Iterable[Any]) -> bytes:
    """The file of these lines."""
    return b"".join(json.dumps(each).encode() + b"\n" for each in lines)


def ordered(
    client: openai.OpenAI, lines: Iterable[Any] | bytes, endpoint: Any = CHAT, **more: Any
) -> Batch:
    """A batch of these lines, just begun."""
    content = lines if isinstance(lines, bytes) else jsonl(lines)
    file = client.files.create(file=("lines.jsonl", content), purpose="batch")
    more.setdefault("completion_window", "24h")
    return client.batches.create(input_file_id=file.id, endpoint=endpoint, **more)


def waited_for(
    client: openai.OpenAI, batch: Batch, until: Callable[[Batch], bool] | None = None
) -> Batch:
    """The batch, once it has ended, or is as is wanted."""
    is_there = until or (lambda current: current.status in ENDED)
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_there(current := client.batches.retrieve(batch.id)):
        assert time.monotonic() < deadline, current
        time.sleep(POLL_SECONDS)
    return current


def results(client: openai.OpenAI, file_id: str | None) -> dict[str, dict[str, Any]]:
    """The lines of an output by their custom_id, of which none may be there twice."""
    if file_id is None:
        return {}
    lines = client.files.content(file_id).text.splitlines()
    found = {each["custom_id"]: each for each in map(json.loads, lines)}
    assert len(found) == len(lines)
    return found


def said(result: dict[str, Any]) -> str:
    """What a model said in a line of the output."""
    text = result["response"]["body"]["choices"][0]["message"]["content"]
    assert isinstance(text, str)
    return text


class CountingVendor:
    """A vendor that says what it is told, and counts how often it was told each thing.

    Attributes:
        asked: how often each text came.
        hold: as long as it is clear, nobody is answered.
        refusals: how many requests are refused with 429 before any is answered.
        most: how many there were at a time.
    """

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.hold = threading.Event()
        self.hold.set()
        self.refusals = 0
        self.refused = 0
        self.most = self._now = 0
        self._lock = threading.Lock()

    def __call__(self, handler: Handler) -> None:
        """Answer one request."""
        body = json.loads(handler.rfile.read(int(handler.headers["content-length"])))
        text = body["messages"][-1]["content"]
        with self._lock:
            if self.refused < self.refusals:
                self.refused += 1
                error = {
                    "error": {"message": "slow down", "type": "rate_limit_error", "code": None}
                }
                send(handler, 429, json.dumps(error).encode(), **{"retry-after-ms": "50"})
                return
            self.asked[text] += 1
            self._now += 1
            self.most = max(self.most, self._now)
        try:
            self.hold.wait(WAIT_SECONDS)
            reply = {
                "id": "chatcmpl-1",
                "object": "chat.completion",
                "created": 1,
                "model": "gpt",
                "choices": [
                    {
                        "index": 0,
                        "message": {"role": "assistant", "content": text},
                        "finish_reason": "stop",
                    }
                ],
                "usage": {"prompt_tokens": 1000, "completion_tokens": 1000, "total_tokens": 2000},
            }
            send(handler, 200, json.dumps(reply).encode())
        except OSError:
            pass  # who asked is gone
        finally:
            with self._lock:
                self._now -= 1


@contextmanager
def counting_vendor() -> Iterator[tuple[CountingVendor, str]]:
    """One that runs, and its URL."""
    vendor = CountingVendor()
    with serving(vendor) as url:
        try:
            yield vendor, url
        finally:
            vendor.hold.set()
