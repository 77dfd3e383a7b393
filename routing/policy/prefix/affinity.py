"""Which of several targets has most of a prompt already, and is not too busy for it."""

from __future__ import annotations

from llama_compat.distribution.routing import PrefixSettings
from llama_compat.extent import BYTES_PER_TOKEN
from llama_compat.prefixes.chain import BLOCK_BYTES, Chain
from routing.policy.balance import LeastBusy
from routing.policy.group import Group, Random
from routing.policy.prefix.sent import SentPrefixes
from routing.policy.targets import LiveTarget, TargetState
from routing.policy.wanted import Key

BLOCKS_PER_REQUEST = 1.0
"""What a request in flight weighs, against blocks of a prompt that need not be computed. Each has
an engine take a while longer for whatever else it does (`bench.placement`)."""

POPULAR_SECONDS = 0.5
"""What is asked for again before so many seconds are over counts for less, in proportion: another
target that computes it too will soon be asked for it as well."""


class PrefixAffinity(LeastBusy):
    """The target where least has to be computed of a prompt, for what it has in flight.

    A prompt that nobody has goes where `LeastBusy` sends it. One that somebody has goes to who has
    most of it, less what each has to do; one that is far busier than the least busy is not asked,
    whatever it has. Both bounds are those of SGLang's router, by default too
    (`--balance-abs-threshold 64`, `--balance-rel-threshold 1.5`: smg's
    docs/getting-started/load-balancing.md, read 2026-11-23).

    What a target has is known from what it tells, where it does (our own engines, vLLM and SGLang),
    and else from what was sent there and nothing else, so it may be any vendor's.

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
        target = self._nearest(group, key, now, since) or super().pick(group, now, None, stream)
        sent_to(target.state).add(key, now, since, self._most)
        return target

    def _nearest(self, group: Group, chain: Chain, now: float, since: float) -> LiveTarget | None:
        """The one with most of the prompt that is not too busy; None if none has enough of it to
        be asked before the least busy."""
        found = [
            (target, sent, held)
            for target in group.targets
            if (sent := target.state.prefixes) is not None and (held := sent.held(chain, since))
        ]
        if not found:
            return None
        settings = self._settings
        least = min([self.cost(target, now, True) for target in group.targets])
        most_busy = max(least + settings.busier_by, least * settings.busier_times)
        best, most = None, 0.0
        last = {
            length: max([sent.at(chain[length - 1]) for _, sent, held in found if held >= length])
            for length in {held for _, _, held in found}
        }
        for target, _, held in found:
            busy = self.cost(target, now, True)
            worth = held * min((now - last[held]) / POPULAR_SECONDS, 1.0)
            worth -= (busy - least) * BLOCKS_PER_REQUEST
            if worth > most and busy <= most_busy:
                best, most = target, worth
        return best


def sent_to(state: TargetState) -> SentPrefixes:
    """What the target was sent, which is remembered from now on."""
    sent = state.prefixes
    if sent is None:
        sent = state.prefixes = SentPrefixes()
    return sent
