"""A server that publishes what its KV cache holds, as vLLM does (`vllm/distributed/kv_events.py`):
a PUB socket with numbered batches, a ROUTER socket that repeats them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import zmq

END = (-1).to_bytes(8, "big", signed=True)


def stored(
    hashes: Sequence[int | bytes],
    tokens: Sequence[int],
    parent: int | bytes | None = None,
    size: int = 4,
    **members: Any,
) -> dict[str, Any]:
    """The event of blocks that follow each other."""
    return {
        "type": "BlockStored",
        "block_hashes": list(hashes),
        "parent_block_hash": parent,
        "token_ids": list(tokens),
        "block_size": size,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        **members,
    }


def removed(*hashes: int | bytes, **members: Any) -> dict[str, Any]:
    """The event of blocks that are gone."""
    return {"type": "BlockRemoved", "block_hashes": list(hashes), "medium": "GPU", **members}


CLEARED = {"type": "AllBlocksCleared"}


def encoded(events: Sequence[dict[str, Any]], *, as_arrays: bool, at: float | None = None) -> bytes:
    """A batch in either of the forms in which vLLM has written it."""
    moment = time.time() if at is None else at
    if as_arrays:
        return msgspec.msgpack.encode([moment, [list(each.values()) for each in events], 0])
    return msgspec.msgpack.encode({"ts": moment, "events": list(events), "data_parallel_rank": 0})


class Publisher:
    """Publishes and repeats, in a thread, as it is told.

    Args:
        endpoint, replay: where; free ports if they are empty.
        as_arrays: the older form.
        remembers: so many batches.
    """

    def __init__(
        self, endpoint: str = "", replay: str = "", *, as_arrays: bool = False, remembers: int = 99
    ) -> None:
        self._context = zmq.Context()
        self._pub = self._context.socket(zmq.XPUB)  # which hears who subscribes
        self._router = self._context.socket(zmq.ROUTER)
        self._pub.setsockopt(zmq.XPUB_VERBOSE, 1)
        for socket in (self._pub, self._router):
            socket.setsockopt(zmq.LINGER, 0)
        self._pub.bind(endpoint or "tcp://127.0.0.1:*")
        self._router.bind(replay or "tcp://127.0.0.1:*")
        self.endpoint = self._pub.getsockopt_string(zmq.LAST_ENDPOINT)
        self.replay = self._router.getsockopt_string(zmq.LAST_ENDPOINT)
        self._as_arrays = as_arrays
        self._buffer: deque[tuple[int, bytes]] = deque(maxlen=remembers)
        self._number = 0
        self.replays: list[int] = []
        self.subscribed = threading.Event()
        self._lock = threading.Lock()
        self._ends = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def publish(self, *events: dict[str, Any], is_heard: bool = True) -> None:
        """A batch; one that is not heard got lost on the way."""
        payload = encoded(events, as_arrays=self._as_arrays)
        with self._lock:
            number = self._number.to_bytes(8, "big")
            if is_heard:
                self._pub.send_multipart([b"", number, payload])
            self._buffer.append((self._number, payload))
            self._number += 1

    def stop(self) -> None:
        """End it; once is enough."""
        if self._ends:
            return
        self._ends = True
        self._thread.join()
        self._context.destroy(linger=0)

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._router, zmq.POLLIN)
        while not self._ends:
            with self._lock:
                while self._pub.poll(0):
                    if self._pub.recv()[:1] == b"\x01":
                        self.subscribed.set()
            if not dict(poller.poll(10)):
                continue
            client, _, first = self._router.recv_multipart()
            begin = int.from_bytes(first, "big")
            self.replays.append(begin)
            with self._lock:
                told = [each for each in self._buffer if each[0] >= begin]
            for number, payload in told:
                self._router.send_multipart([client, b"", number.to_bytes(8, "big"), payload])
            self._router.send_multipart([client, b"", END, b""])


@contextmanager
def publishing(*where: str, **options: Any) -> Iterator[Publisher]:
    """A publisher for as long as the context lasts."""
    publisher = Publisher(*where, **options)
    try:
        yield publisher
    finally:
        publisher.stop()
