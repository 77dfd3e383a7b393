"""Where turns are kept: in this process, each for who asked, bounded in number, bytes and time."""

from __future__ import annotations

import itertools
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b

import msgspec

from llama_compat.reasoning.turns import Calls, KeptTurn
from llama_compat.types import AnyToolCall, CompletionMessage, UnparseableToolCall

TURN_BYTES = 1024
"""What a turn takes besides what it says, its place among the others for one."""

KEY_BYTES = 256
"""What a key takes where it is looked up, and where it is forgotten."""

_encoder = msgspec.json.Encoder(order="deterministic")


class _Kept(msgspec.Struct, eq=False):
    number: int
    turn: KeptTurn
    keys: frozenset[bytes]
    size: int
    expires: float = 0.0


class ReasoningMemory:
    """Turns by who asked and what was called.

    A call is known by its id. Where the client's API has no ids, or a vendor counts them anew in
    every conversation, it is known by its name and arguments, and its place in the conversation.

    Args:
        max_turns: so many are kept; what was not needed for longest makes room.
        max_bytes: what all of them may come to.
        seconds: what nobody has asked for as long is forgotten.
        clock: tells the time, in seconds.
    """

    def __init__(
        self,
        max_turns: int,
        max_bytes: int,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_turns = max_turns
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._clock = clock
        # Large requests and replies are read in threads.
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        self._places: dict[bytes, _Kept] = {}
        self.size = 0

    def __len__(self) -> int:
        return len(self._kept)

    def keep(
        self, owner: str, place: str, message: CompletionMessage, turn: KeptTurn | None
    ) -> None:
        """Keep `turn`, which `message` was.

        Args:
            owner: who asked: nobody else ever gets it.
            place: where in the conversation.
            message: its calls are what it is found by.
            turn: what there is to keep; None if the model thought nothing.
        """
        calls = message.tool_calls
        if not calls:
            return
        where = _hashed(place)
        keys = frozenset(
            key for call in calls for key in (_by_id(owner, call), _by_call(owner, where, call))
        )
        with self._lock:
            now = self._clock()
            self._forget_old(now)
            for key in keys:
                # Not every vendor's ids are unique: by these, this message is meant from now on.
                before = self._places.pop(key, None)
                if before is not None and not any(
                    self._places.get(each) is before for each in before.keys
                ):
                    self._forget(before)
            if turn is None:
                return
            size = turn.size + TURN_BYTES + KEY_BYTES * len(keys)
            if size > self._max_bytes:
                return
            kept = _Kept(next(self._numbers), turn, keys, size, now + self._seconds)
            self._kept[kept.number] = kept
            self._places.update(dict.fromkeys(keys, kept))
            self.size += size
            while len(self._kept) > self._max_turns or self.size > self._max_bytes:
                self._forget(next(iter(self._kept.values())))

    def find(self, owner: str, place: str, calls: Calls) -> KeptTurn | None:
        """The turn in which `calls` were made; None where it is not known."""
        if not self._kept:
            return None
        where = _hashed(place)
        with self._lock:
            now = self._clock()
            self._forget_old(now)
            for call in calls:
                kept = self._find(owner, where, call)
                if kept is not None:
                    kept.expires = now + self._seconds
                    self._kept.move_to_end(kept.number)
                    return kept.turn
        return None

    def _find(self, owner: str, where: bytes, call: AnyToolCall) -> _Kept | None:
        same = _by_call(owner, where, call)
        kept = self._places.get(_by_id(owner, call))
        if kept is None or same not in kept.keys:
            # Ids are not unique with every vendor: a call that is the same counts for more.
            kept = self._places.get(same) or kept
        return kept

    def _forget_old(self, now: float) -> None:
        while self._kept:
            oldest = next(iter(self._kept.values()))
            if oldest.expires > now:
                return
            self._forget(oldest)

    def _forget(self, kept: _Kept) -> None:
        del self._kept[kept.number]
        self.size -= kept.size
        for key in kept.keys:
            if self._places.get(key) is kept:
                del self._places[key]


def _by_id(owner: str, call: AnyToolCall) -> bytes:
    return _hashed("\0".join(("id", owner, call.call_id, call.tool_name)))


def _by_call(owner: str, where: bytes, call: AnyToolCall) -> bytes:
    return _hashed("\0".join(("call", owner, where.hex(), call.tool_name, _arguments(call))))


def _arguments(call: AnyToolCall) -> str:
    if isinstance(call, UnparseableToolCall):
        return call.arguments_json
    try:
        return _encoder.encode(call.arguments).decode()
    except UnicodeEncodeError:  # half a character
        return call.arguments_json


def _hashed(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
