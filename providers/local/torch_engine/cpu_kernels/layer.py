"""A whole layer of sequences that decode in one kernel, for weights of 8 or 4 bits.

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
from providers.local.torch_engine.cpu_kernels.packing import GROUP, TILE
from providers.local.torch_engine.cpu_kernels.products import PackedLinear, product
from providers.local.torch_engine.model.decoder import Layer
from providers.local.torch_engine.model.gated_mlp import GatedMLP


@dataclass(frozen=True, slots=True)
class Weights:
    """A layer's weights: where they are, in the order in which `layer` takes them.

    Attributes:
        addresses: of the parameters from `input_norm` to `down_bias`, 0 for a norm that is missing.
        qkv: outputs of that product.
        intermediate: inputs of the last product.
        bits: of a weight.
    """

    addresses: tuple[int, ...]
    qkv: int
    intermediate: int
    bits: int


def weights_of(layer: Layer) -> Weights | None:
    """The weights; None if `layer` does not compute this kind of layer."""
    if not isinstance(layer.mlp, GatedMLP) or layer.query_row_norm is not None:
        return None
    if layer.recurrence is not None or layer.gates_attention:
        return None
    if layer.input_norm is None or layer.mlp_input_norm is None:
        return None
    found: list[PackedLinear] = []
    for each in (layer.qkv, layer.out, layer.mlp.gate_up, layer.mlp.down):
        # Rows without gaps, for the next operation.
        if not isinstance(each, PackedLinear) or each.outputs % TILE or each.inputs % GROUP:
            return None
        found.append(each)
    bits = found[0].bits
    if any(each.bits != bits for each in found):
        return None
    qkv, out, gate_up, down = ((each.packed.data_ptr(), each.bias.data_ptr()) for each in found)
    of_norms = (0 if norm is None else norm.weight.data_ptr() for norm in layer.norms)
    addresses = (*of_norms, *qkv, *out, *gate_up, *down)
    return Weights(addresses, found[0].outputs, found[3].inputs, bits)


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
    query_norm=FLOAT,
    key_norm=FLOAT,
    attention_norm=FLOAT,
    mlp_input_norm=FLOAT,
    mlp_norm=FLOAT,
    qkv_weights=INT8,
    qkv_bias=FLOAT,
    out_weights=INT8,
    out_bias=FLOAT,
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
    cached=INT8,
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
    query_norm: Pointer,
    key_norm: Pointer,
    attention_norm: Pointer,
    mlp_input_norm: Pointer,
    mlp_norm: Pointer,
    qkv_weights: Pointer,
    qkv_bias: Pointer,
    out_weights: Pointer,
    out_bias: Pointer,
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
    norms_heads: bool,
    norms_results: bool,
    activation: str,
    bits: int,
    packed: bool,
) -> None:
    """See `decoder.Step.layer`; `added` is what the layer before adds, and becomes this one's.

    The parameters are those of the operations in `rows`, `products` and `attention`. With
    `norms_heads` there are norms of queries and keys, with `norms_results` those behind attention
    and MLP.
    """
    everything, queries = (heads + 2 * kv_heads) * head_dim, heads * head_dim

    def multiply(x: Pointer, inputs: int, weights: Pointer, bias: Pointer, into: Pointer) -> None:
        groups, tiles = code.integer(inputs // GROUP), code.integer(outputs[into] // TILE)
        product.within(
            code, x, integers, scales, weights, bias, into, tokens, groups, tiles, bits=bits
        )
        code.wait_for_all()

    def add_and_norm(x: Pointer, weight: Pointer) -> None:
        rows.norm.within(
            code, hidden, x, weight, normed, tokens, code.integer(size), epsilon=epsilon, adds=True
        )

    def norm_result(x: Pointer, weight: Pointer) -> None:
        if norms_results:
            rows.norm.within(
                code, x, x, weight, x, tokens, code.integer(size), epsilon=epsilon, adds=False
            )

    outputs = {qkv: everything, out: size, gate_up: 2 * intermediate, added: size}
    add_and_norm(added, input_norm)
    multiply(normed, size, qkv_weights, qkv_bias, qkv)
    rows.turn_and_write.within(
        code,
        qkv,
        query_norm,
        key_norm,
        rotations,
        slots,
        cached,
        tokens,
        query_heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        pairs=pairs,
        head_epsilon=epsilon if norms_heads else None,
        packed=packed,
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
        packed=packed,
    )
    code.wait_for_all()
    multiply(attended, queries, out_weights, out_bias, out)
    norm_result(out, attention_norm)
    add_and_norm(out, mlp_input_norm)
    multiply(normed, size, gate_up_weights, gate_up_bias, gate_up)
    rows.gate.within(
        code, gate_up, gated, tokens, code.integer(intermediate), activation=activation
    )
    multiply(gated, intermediate, down_weights, down_bias, added)
    norm_result(added, mlp_norm)
