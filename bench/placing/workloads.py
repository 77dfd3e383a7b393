"""What the replicas are asked: conversations, each with its time and its words, by a seed."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache

from providers.local.simulation.engine import block_hashes

CHARACTERS = 4
"""Of a word with the space after it, which is a token."""

BLOCK_TOKENS = 16
"""Tokens in a block of the simulated engines."""


class Turn:
    """One request of a conversation, the same for every policy.

    Args:
        messages: all of them, as OpenAI has them.
        reply: what will be said.
        pause: seconds from the end of the turn before it, or from the beginning of the workload.

    Attributes:
        body: what a client sends.
        prompt_tokens, reply_tokens: how many words there are.
        hashes: of the blocks that these make.
    """

    __slots__ = ("body", "hashes", "pause", "prompt_tokens", "reply_tokens")

    def __init__(self, messages: Sequence[Mapping[str, str]], reply: str, pause: float) -> None:
        body = {"model": "m", "messages": messages, "stream": True}
        self.body = json.dumps(body, separators=(",", ":")).encode()
        prompt = " ".join(each["content"] for each in messages).split()
        said = reply.split()
        self.prompt_tokens, self.reply_tokens = len(prompt), len(said)
        self.hashes = block_hashes([*prompt, *said], BLOCK_TOKENS)
        self.pause = pause

    def words(self) -> Sequence[bytes]:
        """The prompt's, as a model reads them."""
        messages = json.loads(self.body)["messages"]
        text = " ".join(each["content"] for each in messages)
        return [word.encode() + b" " for word in text.split()]


Conversation = Sequence[Turn]
Workload = Callable[[int, float, int], Iterator[Conversation]]
"""The conversations for so many replicas that begin within so many seconds, by a seed."""


def text(tokens: int, seed: object) -> str:
    """So many tokens, the same for the same seed."""
    letters = random.Random(str(seed)).choices(string.ascii_lowercase, k=(CHARACTERS - 1) * tokens)
    size = CHARACTERS - 1
    return " ".join("".join(letters[at : at + size]) for at in range(0, len(letters), size))


kept_text = cache(text)


def arrivals(rate: float, seconds: float, chance: random.Random) -> Iterator[float]:
    """When somebody comes, by chance, `rate` times a second on average."""
    at = chance.expovariate(rate)
    while at < seconds:
        yield at
        at += chance.expovariate(rate)


def _said(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def shared(
    rate: float,
    *,
    prompts: int = 1,
    prompts_a_replica: int = 0,
    system: int = 3000,
    user: int = 200,
    reply: int = 100,
    skew: float = 0.0,
) -> Workload:
    """Single requests behind system prompts that many have in common.

    Args:
        rate: requests a second for each replica.
        prompts: how many such prompts there are,
        prompts_a_replica: and how many more for each replica.
        system, user, reply: tokens of each.
        skew: how much more popular the first are: the one at the place n is asked for in proportion
            to `n ** -skew`.
    """

    def conversations(replicas: int, seconds: float, seed: int) -> Iterator[Conversation]:
        chance = random.Random(seed)
        groups = range(prompts + prompts_a_replica * replicas)
        weights = [(group + 1) ** -skew for group in groups]
        for number, at in enumerate(arrivals(rate * replicas, seconds, chance)):
            (group,) = chance.choices(groups, weights)
            messages = [
                _said("system", kept_text(system, f"{seed} system {group}")),
                _said("user", text(user, f"{seed} user {number}")),
            ]
            yield [Turn(messages, text(reply, f"{seed} reply {number}"), at)]

    return conversations


def chats(
    rate: float, *, turns: int = 8, system: int = 500, user: int = 150, reply: int = 150
) -> Workload:
    """Conversations that grow, all behind the same system prompt; people think between turns."""

    def conversations(replicas: int, seconds: float, seed: int) -> Iterator[Conversation]:
        chance = random.Random(seed)
        for number, at in enumerate(arrivals(rate * replicas, seconds, chance)):
            messages = [_said("system", kept_text(system, f"{seed} system"))]
            pause, conversation = at, []
            for turn in range(turns):
                asked = text(user, f"{seed} user {number} {turn}")
                messages = [*messages, _said("user", asked)]
                said = text(reply, f"{seed} reply {number} {turn}")
                conversation.append(Turn(messages, said, pause))
                messages = [*messages, _said("assistant", said)]
                pause = chance.expovariate(1 / 8)
            yield conversation

    return conversations


SHARED = "shared prompts, full caches"

WORKLOADS: Mapping[str, Workload] = {
    SHARED: shared(1.5, prompts_a_replica=16),
    "shared prompts, some popular": shared(1.5, prompts_a_replica=16, skew=1.0),
    "four prompts for all": shared(1.5, prompts=4, skew=1.0),
    "shared prompts, long replies": shared(
        1.2, prompts_a_replica=24, system=1500, user=200, reply=1000
    ),
    "long chats": chats(0.3),
    "a short preamble, the rest its own": shared(1.5, system=200, user=1500),
    "nothing in common": shared(2.5, system=0, user=1000),
}
