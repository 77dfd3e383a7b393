"""A whole layer of sequences that decode in one kernel, for weights of 8 bits.

With an operation after the other, starting them and waiting for all threads to begin takes a fifth
of the time of a step with a single sequence.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from providers.local.torch_engine.cpu_kernels import rows
from providers.local.torch_engine.cpu_kernels.attention import attend
from providers.local.torch_engine.cpu_kernels.code import (
    FLOAT,
    INT8,
    INT16,
    INT64,
    Code,
    Pointer,
    Value,
)
from providers.local.torch_engine.cpu_kernels.library import kernel
from providers.local.torch_engine.cpu_kernels.products import GROUP, TILE, Int8Linear, product
from providers.local.torch_engine.decoder import Layer


@dataclass(frozen=True, slots=True)
class Weights:
    """A layer's weights: where they are, in the order in which `layer` takes them.

    Attributes:
        addresses: of the parameters from `input_norm` to `down_bias`.
        qkv: outputs of that product.
        intermediate: inputs of the last product.
    """

    addresses: tuple[int, ...]
    qkv: int
    intermediate: int


def weights_of(layer: Layer) -> Weights | None:
    """The weights; None if `layer` does not compute this kind of layer."""
    products = (layer.qkv, layer.out, layer.gate_up, layer.down)
    extra = (layer.query_norm, layer.key_norm, layer.attention_norm, layer.mlp_norm)
    if any(norm is not None for norm in extra):
        return None
    found: list[Int8Linear] = []
    for each in products:
        # Rows without gaps, for the next operation.
        if not isinstance(each, Int8Linear) or each.outputs % TILE or each.inputs % GROUP:
            return None
        found.append(each)
    qkv, out, gate_up, down = ((each.packed.data_ptr(), each.bias.data_ptr()) for each in found)
    norms = layer.input_norm.weight.data_ptr(), layer.mlp_input_norm.weight.data_ptr()
    addresses = (norms[0], *qkv, *out, norms[1], *gate_up, *down)
    return Weights(addresses, found[0].outputs, found[3].inputs)


@dataclass(frozen=True, slots=True)
class Room:
    """Where a layer leaves what its operations find; the next layer takes the same.

    Attributes:
        addresses: of the parameters from `normed` to `gated`.
        tensors: keep them.
    """

    addresses: tuple[int, ...]
    tensors: tuple[torch.Tensor, ...]

    @classmethod
    def of(cls, tokens: int, hidden: int, heads: int, weights: Weights) -> Room:
        """Room for `tokens`, with `heads` numbers of all heads together."""
        widest = max(hidden, heads, weights.intermediate)
        tensors = (
            torch.empty(tokens, hidden),
            torch.empty(tokens, widest, dtype=torch.int16),
            torch.empty(tokens),
            torch.empty(tokens, weights.qkv),
            torch.empty(tokens, heads),
            torch.empty(tokens, hidden),
            torch.empty(tokens, 2 * weights.intermediate),
            torch.empty(tokens, weights.intermediate),
        )
        return cls(tuple(each.data_ptr() for each in tensors), tensors)


@kernel(
    hidden=FLOAT,
    added=FLOAT,
    input_norm=FLOAT,
    qkv_weights=INT8,
    qkv_bias=FLOAT,
    out_weights=INT8,
    out_bias=FLOAT,
    mlp_norm=FLOAT,
    gate_up_weights=INT8,
    gate_up_bias=FLOAT,
    down_weights=INT8,
    down_bias=FLOAT,
    normed=FLOAT,
    integers=INT16,
    scales=FLOAT,
    qkv=FLOAT,
    attended=FLOAT,
    out=FLOAT,
    gate_up=FLOAT,
    gated=FLOAT,
    rotations=FLOAT,
    slots=INT64,
    cached=FLOAT,
    scores=FLOAT,
    numbers=INT64,
    tables=INT64,
    lengths=INT64,
    tokens=None,
    blocks=None,
    window=None,
)
def layer(
    code: Code,
    hidden: Pointer,
    added: Pointer,
    input_norm: Pointer,
    qkv_weights: Pointer,
    qkv_bias: Pointer,
    out_weights: Pointer,
    out_bias: Pointer,
    mlp_norm: Pointer,
    gate_up_weights: Pointer,
    gate_up_bias: Pointer,
    down_weights: Pointer,
    down_bias: Pointer,
    normed: Pointer,
    integers: Pointer,
    scales: Pointer,
    qkv: Pointer,
    attended: Pointer,
    out: Pointer,
    gate_up: Pointer,
    gated: Pointer,
    rotations: Pointer,
    slots: Pointer,
    cached: Pointer,
    scores: Pointer,
    numbers: Pointer,
    tables: Pointer,
    lengths: Pointer,
    tokens: Value,
    blocks: Value,
    window: Value,
    *,
    size: int,
    intermediate: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    pairs: int,
    block_size: int,
    scale: float,
    epsilon: float,
    activation: str,
) -> None:
    """See `decoder.Step.layer`; `added` is what the layer before adds, and becomes this one's.

    The parameters are those of the operations in `rows`, `products` and `attention`.
    """
    everything, queries = (heads + 2 * kv_heads) * head_dim, heads * head_dim

    def multiply(x: Pointer, inputs: int, weights: Pointer, bias: Pointer, into: Pointer) -> None:
        groups, tiles = code.integer(inputs // GROUP), code.integer(outputs[into] // TILE)
        product.within(code, x, integers, scales, weights, bias, into, tokens, groups, tiles)
        code.wait_for_all()

    def normalise(x: Pointer, weight: Pointer) -> None:
        rows.norm.within(
            code, hidden, x, weight, normed, tokens, code.integer(size), epsilon=epsilon, adds=True
        )

    outputs = {qkv: everything, out: size, gate_up: 2 * intermediate, added: size}
    normalise(added, input_norm)
    multiply(normed, size, qkv_weights, qkv_bias, qkv)
    rows.turn_and_write.within(
        code,
        qkv,
        rotations,
        slots,
        cached,
        tokens,
        query_heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        pairs=pairs,
    )
    code.wait_for_all()
    attend.within(
        code,
        qkv,
        cached,
        attended,
        scores,
        numbers,
        tables,
        lengths,
        tokens,
        code.integer(everything),
        blocks,
        window,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        block_size=block_size,
        scale=scale,
    )
    code.wait_for_all()
    multiply(attended, queries, out_weights, out_bias, out)
    normalise(out, mlp_norm)
    multiply(normed, size, gate_up_weights, gate_up_bias, gate_up)
    rows.gate.within(
        code, gate_up, gated, tokens, code.integer(intermediate), activation=activation
    )
    multiply(gated, intermediate, down_weights, down_bias, added)
