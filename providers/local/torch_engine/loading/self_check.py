"""Whether the kernels do on this machine what PyTorch's operations do, for one model's shapes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch

from llama_compat.types import SamplingParams
from providers.local.engine import Generation
from providers.local.torch_engine.model import kv_cache
from providers.local.torch_engine.model.decoder import Decoder, Layer
from providers.local.torch_engine.model.experts import Experts
from providers.local.torch_engine.model.forward_step import ForwardStep
from providers.local.torch_engine.model.gated_mlp import GatedMLP
from providers.local.torch_engine.model.torch_step import TorchStep
from providers.local.torch_engine.model_runner import located
from providers.local.torch_engine.scheduling.sequence import TorchSequence
from providers.local.torch_engine.scheduling.step import Chunk

SEQUENCES = ((1, 1), (1, 40), (1, 300), (20, 20), (37, 90), (70, 200))
"""New tokens, and how many there are with them."""

ROWS_OF_AN_EXPERT = (1, 20, 70, 150)
"""How many pairs of a token and an expert there are, for each expert: of every kind of tiles that
kernels cut products into."""

TOLERANCE = {torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 3e-2}
"""How far results may be from each other, as a part of their length."""

FP8_TOLERANCE = 5e-3
"""How far they may be at least with a cache in FP8, where what is just between two numbers may
become either."""

FEW_ROWS = (1, 2)
"""Of which a product may be another than of many."""

StepOf = Callable[[Decoder, Sequence[Chunk], int], ForwardStep]
"""The step of these chunks in kernels; the number is that of tokens in a block of the cache."""


def find_fault(
    decoder: Decoder, block_size: int, step_of: StepOf, *, cached: torch.dtype | None = None
) -> str | None:
    """What is wrong with a step in kernels; None if nothing is.

    Each operation is given random numbers, for one layer of every kind that the model has; with
    some prompts and replies in the step, and with replies alone.

    Args:
        decoder: the model.
        block_size: tokens in a block of the cache.
        step_of: makes the step.
        cached: what the cache's tensors are; None for the dtype of the model. See `kv_cache`.
    """
    dtype = decoder.embedding.dtype
    replies = [each for each in SEQUENCES if each[0] == 1]
    for sequences in (SEQUENCES, replies):
        if fault := _find_fault(decoder, block_size, step_of, sequences, cached or dtype):
            return fault
    return None


def _find_fault(
    decoder: Decoder,
    block_size: int,
    step_of: StepOf,
    sequences: Sequence[tuple[int, int]],
    cached_as: torch.dtype,
) -> str | None:
    device, dtype = decoder.embedding.device, decoder.embedding.dtype
    # Of the rotations, those of long sequences may be among them.
    chunks, blocks = _chunks(sequences, len(decoder.ropes[0].rotations), block_size)
    tokens = sum(chunk.tokens for chunk in chunks)
    generator = torch.Generator(device).manual_seed(0)
    tolerance = TOLERANCE[dtype]
    if cached_as == kv_cache.PACKED["fp8"]:
        tolerance = max(tolerance, FP8_TOLERANCE)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device=device).to(dtype)

    try:
        _, _, where = located(decoder, chunks, block_size)
        expected_step = TorchStep(decoder, *where)
        step = step_of(decoder, chunks, block_size)
        slots, size = blocks * block_size, decoder.embedding.shape[1]
        for layer in _kinds(decoder):
            x, hidden = draw(tokens, size), draw(tokens, size)
            qkv = draw(tokens, (decoder.heads + 2 * decoder.kv_heads) * decoder.head_dim)
            cached = draw(slots, 2 * decoder.kv_heads, decoder.head_dim)
            cached = kv_cache.packed(cached, cached_as)
            own = _Own(
                layer=type(step).layer is not ForwardStep.layer,
                experts=type(step).mix is not ForwardStep.mix,
            )
            results = zip(
                _operations(layer, step, x, hidden, qkv, cached, own),
                _operations(layer, expected_step, x, hidden, qkv, cached, own),
                strict=True,
            )
            for (name, result), (_, expected) in results:
                error = float((result.float() - expected.float()).norm() / expected.float().norm())
                # Not `>`, which is false for what is no number.
                if not error <= tolerance:
                    return f"'{name}' is off by {error:.2g} of its result"
    except Exception as error:
        # Whatever the compiler, the driver or the device has against them.
        return f"{type(error).__name__}: {error}"
    return None


def _chunks(
    sequences: Sequence[tuple[int, int]], positions: int, block_size: int
) -> tuple[list[Chunk], int]:
    """Sequences whose blocks are scattered, none longer than `positions`; and how many blocks."""
    lengths = [(min(new, positions), min(length, positions)) for new, length in sequences]
    blocks = sum(-(-length // block_size) for _, length in lengths)
    free = random.Random(0).sample(range(blocks), blocks)
    chunks = []
    for new, length in lengths:
        sequence = TorchSequence(Generation((0,) * length, SamplingParams(), 1), lambda _: None)
        sequence.computed = length - new
        sequence.blocks = [free.pop() for _ in range(-(-length // block_size))]
        chunks.append(Chunk(sequence, new))
    return chunks, blocks


def _kinds(decoder: Decoder) -> list[Layer]:
    """The first layer of every kind that has attention."""
    attending = [each for each in decoder.layers if each.recurrence is None]
    kinds = {
        (each.rope, each.window, isinstance(each.mlp, Experts)): each
        for each in reversed(attending)
    }
    return list(kinds.values())


class _Own(NamedTuple):
    """What kernels have of their own, beside what every step has: a whole layer, its experts."""

    layer: bool
    experts: bool


def _operations(
    layer: Layer,
    step: ForwardStep,
    x: torch.Tensor,
    hidden: torch.Tensor,
    qkv: torch.Tensor,
    cached: torch.Tensor,
    own: _Own,
) -> Iterator[tuple[str, torch.Tensor]]:
    """Each operation's name and result."""
    hidden, qkv, cached = hidden.clone(), qkv.clone(), cached.clone()
    norm = next(each for each in layer.norms if each is not None and len(each.weight) == x.shape[1])
    yield "norm", step.norm(x, norm)
    yield "add and norm", step.add_and_norm(x, hidden, norm)
    yield "add", hidden
    queries = step.turn_and_write(qkv, layer, cached)
    yield "turned queries", queries
    yield "written cache", kv_cache.unpacked(cached)
    yield "attention", step.attend(queries, cached, layer)
    # The MLP's own product, since it alone knows its size.
    mlp = layer.mlp if isinstance(layer.mlp, GatedMLP) else layer.mlp.each[0]
    yield "gate", step.gated(mlp.gate_up(norm(x)))
    for rows in FEW_ROWS:
        yield f"product of {rows}", step.product(layer.qkv, norm(x[:rows]))
    if isinstance(layer.mlp, Experts) and own.experts:
        yield from _of_experts(layer.mlp, step, norm(x))
    if own.layer:
        # It adds to `x`, or writes what comes out over it.
        yield "layer", step.layer(layer, hidden, x.clone(), cached)
        yield "what a layer adds to", hidden


def _of_experts(
    experts: Experts, step: ForwardStep, x: torch.Tensor
) -> Iterator[tuple[str, torch.Tensor]]:
    """As `_operations`, of what a layer with experts computes of its own.

    Of experts with the same score it is open which one is taken, so that scores are compared; and
    what experts give, of a choice that is the same for all.
    """
    shares, chosen = step.route(experts.router, x)
    yield "shares of experts", shares
    scores = experts.router.scores(x)
    yield "scores of experts", scores.gather(-1, chosen.long().clamp(0, scores.shape[1] - 1))
    shares, chosen = experts.router(x)
    for rows in ROWS_OF_AN_EXPERT:
        wanted = -(-rows * len(experts.each) // chosen.shape[1])
        repeated = [each.repeat(-(-wanted // len(x)), 1)[:wanted] for each in (x, shares, chosen)]
        yield "experts", step.mix(experts, *repeated)
