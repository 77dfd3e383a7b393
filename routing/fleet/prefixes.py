"""Which prompts were sent to which target by the other gateways, for `balance: prefix`.

Of targets that tell themselves what they hold nobody tells anybody else: all hear it from them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import islice

from llama_compat.prefixes.chain import HASH_BYTES
from routing.policy.prefix.sent import SentPrefixes
from routing.policy.targets import TargetState

MOST_BLOCKS = 16_384
"""So many are told at a time, of all targets: 128 KiB."""

MOST_HELD = 65_536
"""So many are told to a gateway that is new, of all targets: 512 KiB."""

TIMES = 4
"""A report says again what the last few said, for those that have missed one."""


class SharedPrefixes:
    """What one gateway has to tell of prompts, and what it has heard."""

    def __init__(self) -> None:
        self._number = 0
        self._last: deque[tuple[int, dict[str, bytes]]] = deque(maxlen=TIMES)
        self._heard: dict[str, int] = {}
        self._has_all = False

    def told(self, targets: Iterable[TargetState]) -> list[tuple[int, dict[str, bytes]]]:
        """What is new, with what was told the last few times."""
        room, news = MOST_BLOCKS, {}
        for target in targets:
            sent = target.prefixes
            if sent is None or sent.is_told:
                continue
            blocks = sent.news_from_now(room)
            room -= len(blocks)
            if blocks:
                news[target.id] = b"".join(blocks)
        if news:
            self._number += 1
            self._last.append((self._number, news))
        return list(self._last)

    @staticmethod
    def held(targets: Iterable[TargetState]) -> dict[str, bytes]:
        """All that is remembered, for a gateway that is new; the latest, if it is too much."""
        found = [(each.id, each.prefixes) for each in targets if each.prefixes]
        found = [(name, sent) for name, sent in found if not sent.is_told]
        most = MOST_HELD // max(len(found), 1)
        return {name: b"".join(sent.latest(most)) for name, sent in found}

    def hears(
        self,
        gateway: str,
        sent: Iterable[tuple[int, Mapping[str, bytes]]],
        held: Mapping[str, bytes] | None,
        targets: Mapping[str, TargetState],
        now: float,
    ) -> None:
        """What another gateway has told, as far as it is new here."""
        if held is not None and not self._has_all:
            self._has_all = True
            _learn(held, targets, now)
        known = self._heard.get(gateway, 0)
        for number, news in sent:
            if number > known:
                self._heard[gateway] = number
                _learn(news, targets, now)

    def gone(self, gateways: Iterable[str]) -> None:
        """Nothing more will be heard of these."""
        for each in gateways:
            self._heard.pop(each, None)


def _learn(told: Mapping[str, bytes], targets: Mapping[str, TargetState], now: float) -> None:
    for name, blocks in told.items():
        target = targets.get(name)
        if target is None:
            continue
        if target.prefixes is None:
            target.prefixes = SentPrefixes()
        if target.prefixes.is_told:
            continue
        starts = range(0, len(blocks), HASH_BYTES)
        target.prefixes.learn(
            [blocks[at : at + HASH_BYTES] for at in islice(starts, MOST_HELD)], now
        )
