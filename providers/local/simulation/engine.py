"""The simulated engine: which sequences a step computes, how long it takes, what its cache holds.

It has no clock and no text. Whoever drives it lets the seconds of a step pass, on whatever clock,
and says that it is done; so it is the same in a server as in a benchmark that takes no time at all.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

from llama_compat.prefixes.held import HeldPrompts
from llama_compat.prefixes.marks import Marks
from providers.local.block_manager import BlockManager
from providers.local.simulation.config import SimulationConfig


class SimulatedSequence:
    """A prompt that is computed and a reply that is said, token by token.

    Args:
        hashes: of the full blocks of the prompt and the reply; see `block_hashes`.
        prompt_tokens: of the prompt, at least one.
        reply_tokens: how many will be said, at least one.
        marks: of the prompt's characters, where somebody is told which prompts are held.

    Attributes:
        computed: tokens of it that are in the cache.
        said: tokens of the reply so far.
        cached_tokens: of the prompt, those that were there already; None while it waits.
    """

    __slots__ = (
        "blocks",
        "cached_tokens",
        "computed",
        "hashes",
        "marks",
        "prompt_tokens",
        "registered",
        "reply_tokens",
        "said",
    )

    def __init__(
        self,
        hashes: Sequence[bytes],
        prompt_tokens: int,
        reply_tokens: int,
        marks: Marks = (),
    ) -> None:
        self.hashes = hashes
        self.marks = marks
        self.prompt_tokens = prompt_tokens
        self.reply_tokens = reply_tokens
        self.computed = 0
        self.said = 0
        self.cached_tokens: int | None = None
        self.blocks: list[int] = []
        self.registered = 0

    @property
    def is_done(self) -> bool:
        """Whether all of the reply is said."""
        return self.said >= self.reply_tokens


class SimulatedStep(NamedTuple):
    """What is computed next.

    Attributes:
        seconds: how long that takes.
        decoding: those that say a token each.
        chunks: those whose prompt is computed, and so many tokens of it.
        repeats: so many steps will be the same, unless somebody comes or goes.
    """

    seconds: float
    decoding: Sequence[SimulatedSequence]
    chunks: Sequence[tuple[SimulatedSequence, int]]
    repeats: int


class SimulatedEngine:
    """Continuous batching with a paged cache, as far as time goes: those that decode come first,
    prompts share what is left of a step, and who does not fit into the cache waits for those before
    it.

    Args:
        config: its numbers.
    """

    def __init__(self, config: SimulationConfig) -> None:
        self.config = config
        self._blocks = BlockManager(config.kv_blocks, config.block_tokens)
        self._waiting: OrderedDict[SimulatedSequence, None] = OrderedDict()
        self._running: dict[SimulatedSequence, None] = {}

    def held_prompts(self) -> HeldPrompts:
        """Which prompts its cache holds, of those that came since this was first asked for."""
        if self._blocks.held is None:
            self._blocks.held = HeldPrompts()
        return self._blocks.held

    @property
    def running(self) -> int:
        """How many are computed."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def add(self, sequence: SimulatedSequence) -> None:
        """Queue a sequence of as many tokens as the cache holds at most."""
        self._waiting[sequence] = None

    def drop(self, sequence: SimulatedSequence) -> None:
        """Nobody wants it any more, if it is not done already."""
        self._waiting.pop(sequence, None)
        if sequence in self._running:
            self._end(sequence)

    def next_step(self) -> SimulatedStep | None:
        """What is computed from now on; None while there is nothing to do."""
        while self._waiting and len(self._running) < self.config.max_sequences:
            sequence = next(iter(self._waiting))
            if not self._admit(sequence):
                break
            del self._waiting[sequence]
            self._running[sequence] = None
        if not self._running:
            return None
        decoding: list[SimulatedSequence] = []
        prompts: list[SimulatedSequence] = []
        for sequence in self._running:
            (decoding if sequence.said else prompts).append(sequence)
        chunks = []
        room = max(1, self.config.step_tokens - len(decoding))
        for sequence in prompts:
            tokens = min(sequence.prompt_tokens - sequence.computed, room)
            if tokens:
                chunks.append((sequence, tokens))
                room -= tokens
        repeats = 1
        if not chunks:
            repeats = min([each.reply_tokens - each.said for each in decoding])
        return SimulatedStep(self._seconds(len(decoding), chunks), decoding, chunks, repeats)

    def _seconds(self, decoding: int, chunks: Sequence[tuple[SimulatedSequence, int]]) -> float:
        config = self.config
        tokens = sum([tokens for _, tokens in chunks])
        seconds = config.step_seconds + config.step_seconds_per_sequence * decoding
        return seconds + tokens / config.prefill_tokens_per_second

    def done(self, step: SimulatedStep, times: int = 1) -> list[SimulatedSequence]:
        """A step is over, or so many that were the same.

        Returns:
            Those that have said something new; of those dropped meanwhile none.
        """
        spoke = []
        for sequence in step.decoding:
            if sequence in self._running:
                sequence.said += times
                self._computed(sequence, times)
                spoke.append(sequence)
        for sequence, tokens in step.chunks:
            if sequence in self._running:
                self._computed(sequence, tokens)
                if sequence.computed == sequence.prompt_tokens:
                    sequence.said = 1  # the last token of a prompt gives the reply's first
                    self._blocks.note(sequence.marks, sequence.hashes.__getitem__)
                    spoke.append(sequence)
        for sequence in spoke:
            if sequence.is_done:
                self._end(sequence)
        return spoke

    def _admit(self, sequence: SimulatedSequence) -> bool:
        """Give it the blocks that it will need; False if it has to wait for them."""
        blocks, size = self._blocks, self._blocks.block_size
        found: list[int] = []
        # The last token of a prompt is always computed, as it gives the first of the reply.
        for block_hash in sequence.hashes[: (sequence.prompt_tokens - 1) // size]:
            block = blocks.find(block_hash)
            if block is None:
                break
            blocks.share(block)
            found.append(block)
        needed = blocks.blocks_for(sequence.prompt_tokens + sequence.reply_tokens) - len(found)
        if blocks.available < needed:
            blocks.release(found)
            return False
        own = [blocks.allocate(after=found[-1] if found else None) for _ in range(needed)]
        sequence.blocks = [*found, *(block for block in own if block is not None)]
        sequence.computed = sequence.cached_tokens = len(found) * size
        sequence.registered = len(found)
        return True

    def _computed(self, sequence: SimulatedSequence, tokens: int) -> None:
        """So many tokens more are in the cache, and known there once a block of them is full."""
        sequence.computed += tokens
        full = min(sequence.computed // self._blocks.block_size, len(sequence.hashes))
        for index in range(sequence.registered, full):
            self._blocks.register(sequence.blocks[index], sequence.hashes[index])
        sequence.registered = max(sequence.registered, full)

    def _end(self, sequence: SimulatedSequence) -> None:
        del self._running[sequence]
        self._blocks.release(sequence.blocks)


def block_hashes(
    tokens: Sequence[str], block_tokens: int, salt: str | None = None
) -> Sequence[bytes]:
    """What the full blocks of `tokens` are known by: each by its tokens and all before them.

    Args:
        tokens: of a prompt and its reply.
        block_tokens: how many are in a block.
        salt: the `cache_salt` of the request.
    """
    before = b"" if salt is None else _hash(salt.encode("utf-8", "surrogatepass"), b"cache_salt")
    hashes = []
    for at in range(0, len(tokens) - block_tokens + 1, block_tokens):
        text = "\0".join(tokens[at : at + block_tokens])
        before = _hash(before + text.encode("utf-8", "surrogatepass"), b"block")
        hashes.append(before)
    return hashes


def _hash(data: bytes, kind: bytes) -> bytes:
    return blake2b(data, digest_size=16, person=kind).digest()
