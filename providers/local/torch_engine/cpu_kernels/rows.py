"""What a layer does to each token's row between the matrix products."""

from __future__ import annotations

from providers.local.torch_engine.cpu_kernels.code import (
    FLOAT,
    INT8,
    INT32,
    INT64,
    LANES,
    Code,
    Pointer,
    Value,
    Variable,
    exp,
)
from providers.local.torch_engine.cpu_kernels.library import kernel
from providers.local.torch_engine.model.kv_cache import LEAST_SCALE, SCALE_BYTES

ACTIVATIONS = ("silu", "gelu_pytorch_tanh")
"""Those that there is a kernel for; see `torch_step.ACTIVATIONS`."""


@kernel(hidden=FLOAT, added=FLOAT, weight=FLOAT, normed=FLOAT, rows=None, size=None)
def norm(
    code: Code,
    hidden: Pointer,
    added: Pointer,
    weight: Pointer,
    normed: Pointer,
    rows: Value,
    size: Value,
    *,
    epsilon: float,
    adds: bool,
) -> None:
    """Root-mean-square normalisation of rows `[rows, size]`; with `adds` of their sum with `added`.

    The sum replaces `hidden`.
    """
    first, end = code.share_of(rows)
    with code.loop(end, first) as row:
        here, other, into = (each.at(row * size) for each in (hidden, added, normed))
        squares = Variable(code, code.zeros(FLOAT))
        with code.loop(size, step=LANES) as at:
            values = here.load(at, LANES)
            if adds:
                values += other.load(at, LANES)
                here.store(at, values)
            squares.value = values.times(values, squares.value)
        _scale(code, here, weight, into, size, squares.value, epsilon)


def _scale(
    code: Code,
    here: Pointer,
    weight: Pointer,
    into: Pointer,
    size: Value,
    squares: Value,
    epsilon: float,
) -> None:
    """Write `size` numbers, times `weight`, over the root of their mean square."""
    mean = squares.sum() / size.to(FLOAT) + epsilon
    inverse = (code.like(1.0, FLOAT) / code.call("llvm.sqrt", mean)).spread()
    with code.loop(size, step=LANES) as at:
        into.store(at, here.load(at, LANES) * inverse * weight.load(at, LANES))


@kernel(gate_up=FLOAT, gated=FLOAT, rows=None, size=None)
def gate(
    code: Code, gate_up: Pointer, gated: Pointer, rows: Value, size: Value, *, activation: str
) -> None:
    """The activation of the first half of rows `[rows, 2 * size]` times the second half."""
    first, end = code.share_of(rows)
    with code.loop(end, first) as row, code.loop(size, step=LANES) as at:
        gates = gate_up.at(row * size * 2 + at)
        x, up = gates.load(0, LANES), gates.load(size, LANES)
        # tanh(u) is 1 - 2 / (exp(2 u) + 1), so that half of 1 + tanh(u) is a sigmoid, like silu's.
        cubed = (x * x * x).times(0.044715, x) * 1.5957691216057308
        turned = x if activation == "silu" else cubed
        gated.store(row * size + at, x / (exp(turned * -1.0) + 1.0) * up)


@kernel(
    heads=FLOAT,
    query_norm=FLOAT,
    key_norm=FLOAT,
    rotations=FLOAT,
    slots=INT64,
    cached=INT8,
    rows=None,
)
def turn_and_write(
    code: Code,
    heads: Pointer,
    query_norm: Pointer,
    key_norm: Pointer,
    rotations: Pointer,
    slots: Pointer,
    cached: Pointer,
    rows: Value,
    *,
    query_heads: int,
    kv_heads: int,
    head_dim: int,
    pairs: int,
    head_epsilon: float | None,
    packed: bool,
) -> None:
    """Turn the queries and keys of rows, in place, and write keys and values into the cache.

    Args:
        code: of the kernel.
        heads: `[rows, query_heads + 2 * kv_heads, head_dim]`.
        query_norm, key_norm: weights of the norms of each head, `[head_dim]`.
        rotations: `[rows, pairs, 2]`, complex numbers.
        slots: of the cache, `[rows]`.
        cached: `[slots, 2 * kv_heads, head_dim]`; see `packed`.
        rows: how many there are.
        query_heads, kv_heads, head_dim: of the model.
        pairs: how many pairs of dimensions of a head turn; they are the first ones.
        head_epsilon: of the norms of heads; None if there are none.
        packed: whether the cache has 8 bits a number, and a scale for each head; see `kv_cache`.
    """
    width = (query_heads + 2 * kv_heads) * head_dim
    turned = query_heads + kv_heads
    first, end = code.share_of(rows)
    with code.loop(end, first) as row:
        here, turns = heads.at(row * width), rotations.at(row * (2 * pairs))
        if head_epsilon is not None:
            _norm_heads(code, here, 0, query_heads, head_dim, query_norm, head_epsilon)
            _norm_heads(code, here, query_heads, turned, head_dim, key_norm, head_epsilon)
        with code.loop(turned) as head, code.loop(2 * pairs, step=2) as at:
            real, imaginary = turns.load(at), turns.load(at + 1)
            pair = here.at(head * head_dim + at)
            x, y = pair.load(0), pair.load(1)
            pair.store(0, x * real - y * imaginary)
            pair.store(1, y * real + x * imaginary)
        keys, slot = here.at(query_heads * head_dim), slots.load(row)
        if packed:
            size = head_dim + SCALE_BYTES
            with code.loop(2 * kv_heads) as head:
                into = cached.at((slot * (2 * kv_heads) + head) * size)
                _pack(code, keys.at(head * head_dim), into, head_dim)
        else:
            into = cached.of(FLOAT).at(slot * (2 * kv_heads * head_dim))
            with code.loop(2 * kv_heads * head_dim, step=LANES) as at:
                into.store(at, keys.load(at, LANES))


def _pack(code: Code, head: Pointer, into: Pointer, head_dim: int) -> None:
    """Write a head with 8 bits a number, and its scale behind them; as `kv_cache.packed`."""
    largest, nothing = Variable(code, code.zeros(FLOAT)), Variable(code, code.zeros(FLOAT))
    with code.loop(head_dim, step=LANES) as at:
        values = head.load(at, LANES)
        largest.value = largest.value.at_least(code.call("llvm.fabs", values))
        # What is no number is none in the scale.
        nothing.value = values.times(0.0, nothing.value)
    scale = (largest.value.largest() * (1 / 127)).at_least(LEAST_SCALE) + nothing.value.sum()
    into.at(head_dim).of(FLOAT).store(0, scale)
    by = scale.spread()
    with code.loop(head_dim, step=LANES) as at:
        numbers = code.call("llvm.rint", head.load(at, LANES) / by)
        into.store(at, numbers.to(INT32).to(INT8))


def _norm_heads(
    code: Code,
    row: Pointer,
    first: int,
    end: int,
    head_dim: int,
    weight: Pointer,
    epsilon: float,
) -> None:
    """Normalise some of a row's heads, in place."""
    with code.loop(end, first) as head:
        here = row.at(head * head_dim)
        squares = Variable(code, code.zeros(FLOAT))
        with code.loop(head_dim, step=LANES) as at:
            values = here.load(at, LANES)
            squares.value = values.times(values, squares.value)
        _scale(code, here, weight, here, code.integer(head_dim), squares.value, epsilon)
