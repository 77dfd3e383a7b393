"""Which of several targets has most of a prompt already, and is not too busy for it."""

from __future__ import annotations

from llama_compat.distribution.routing import PrefixSettings
from llama_compat.extent import BYTES_PER_TOKEN
from routing.policy.balance import LeastBusy
from routing.policy.group import Group, Random
from routing.policy.prefix.chain import BLOCK_BYTES, Chain
from routing.policy.prefix.sent import SentPrefixes
from routing.policy.targets import LiveTarget, TargetState
from routing.policy.wanted import Key

BLOCKS_PER_REQUEST = 1.0
"""What a request in flight weighs against blocks of a prompt that need not be computed."""


class PrefixAffinity(LeastBusy):
    """The target where least has to be computed of a prompt, for what it has in flight.

    A prompt that nobody has goes where `LeastBusy` sends it. One that somebody has goes to who has
    most of it, less what each has to do; those that are far busier than the least busy one are not
    asked, whatever they have. As in SGLang's router, it is known from what was sent where, by
    itself; what the targets are, and what language they speak, does not matter.

    Args:
        random: gives numbers from 0 up to 1.
        settings: what the template says.
    """

    def __init__(self, random: Random, settings: PrefixSettings) -> None:
        super().__init__(random)
        self._settings = settings
        self._most = max(1, settings.cache_tokens * BYTES_PER_TOKEN // BLOCK_BYTES)

    def pick(self, group: Group, now: float, key: Key | None, stream: bool) -> LiveTarget:
        """The one that is to compute least; the less busy of two where nobody has anything."""
        if not key or isinstance(key, str):
            return super().pick(group, now, None, stream)
        since = now - self._settings.keep
        target = self._nearest(group, key, since) or super().pick(group, now, None, stream)
        sent_to(target.state).add(key, now, since, self._most)
        return target

    def _nearest(self, group: Group, chain: Chain, since: float) -> LiveTarget | None:
        """The one with most of the prompt that is not too busy; None if none has anything."""
        found = [
            (held, target)
            for target in group.targets
            if (sent := target.state.prefixes) is not None and (held := sent.held(chain, since))
        ]
        if not found:
            return None
        least = min([target.state.in_flight / target.weight for target in group.targets])
        most_busy = max(least + self._settings.busier_by, least * self._settings.busier_times)
        best, best_score = None, 0.0
        for held, target in found:
            busy = target.state.in_flight / target.weight
            score = held - (busy - least) * BLOCKS_PER_REQUEST
            if busy <= most_busy and score > best_score:
                best, best_score = target, score
        return best


def sent_to(state: TargetState) -> SentPrefixes:
    """What the target was sent, which is remembered from now on."""
    sent = state.prefixes
    if sent is None:
        sent = state.prefixes = SentPrefixes()
    return sent
