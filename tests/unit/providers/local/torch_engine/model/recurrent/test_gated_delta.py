"""The gated delta rule: chunks of prompts come to what their tokens do one by one."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")

from providers.local.torch_engine.model.recurrent.gated_delta import Tokens, go_on, read
from providers.local.torch_engine.model.recurrent.rows import (
    Saved,
    StateRows,
    StateSpan,
    one_by_one,
)

HEADS, KEY, VALUE = 3, 8, 5
CPU = torch.device("cpu")

# Shorter than a chunk, one and a half, two and one token more; one of them decodes. Their slots lie
# anywhere, and copies are made inside of chunks, at their ends and of a single token.
SPANS = [
    StateSpan(0, 20, 4, (Saved(16, 7),)),
    StateSpan(20, 96, 0, (Saved(16, 8), Saved(64, 9))),
    StateSpan(116, 1, 3, (Saved(1, 10),)),
    StateSpan(117, 129, 2, (Saved(129, 11),)),
    StateSpan(246, 1, 5),
]


def drawn() -> tuple[Tokens, torch.Tensor]:
    """The tokens of `SPANS`, and memories in which there is something already."""
    chosen = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=chosen, dtype=torch.float64)

    queries, keys = (
        torch.nn.functional.normalize(normal(247, HEADS, KEY), dim=-1) for _ in range(2)
    )
    values, store = normal(247, HEADS, VALUE), normal(247, HEADS).sigmoid()
    # Heads that forget at once, and such that hardly do.
    remains = -normal(247, HEADS).exp() * torch.tensor([5.0, 0.1, 0.001])
    return Tokens(queries, keys, values, store, remains), normal(12, HEADS, KEY, VALUE)


def by_definition(tokens: Tokens, memory: torch.Tensor) -> torch.Tensor:
    """See the docstring of the module, token by token and head by head."""
    found = torch.zeros_like(tokens.values)
    for span in SPANS:
        for after in range(1, span.tokens + 1):
            row = span.start + after - 1
            for head in range(HEADS):
                own = memory[span.slot, head]
                key, value = tokens.keys[row, head], tokens.values[row, head]
                own *= tokens.remains[row, head].exp()
                own += tokens.store[row, head] * torch.outer(key, value - key @ own)
                found[row, head] = tokens.queries[row, head] @ own
            for saved in span.saved:
                if saved.after == after:
                    memory[saved.slot] = memory[span.slot]
    return found


def test_all_at_once_and_one_by_one_are_what_the_rule_says() -> None:
    tokens, memory = drawn()
    expected_memory = memory.clone()
    expected = by_definition(tokens, expected_memory)

    rows, at_once, found = StateRows(SPANS, CPU), memory.clone(), torch.zeros_like(expected)
    for singles in rows.singles:
        go_on(tokens, at_once, singles, found)
    assert rows.chunks is not None
    assert [len(each.slots) for each in rows.chunks.rounds] == [3, 3, 2]
    read(tokens, at_once, rows.chunks, found)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(at_once, expected_memory)

    alone, found = memory.clone(), torch.zeros_like(expected)
    for row, each in enumerate(one_by_one(SPANS, CPU)):
        parts = (tokens.queries, tokens.keys, tokens.values, tokens.store, tokens.remains)
        own = Tokens(*(part[row : row + 1] for part in parts))
        [singles] = each.singles
        go_on(own, alone, singles, found[row : row + 1])
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(alone, expected_memory)


def test_those_side_by_side_are_computed_together() -> None:
    slots = [4, 0, 6, 1, 5]
    rows = StateRows([StateSpan(row, 1, slot) for row, slot in enumerate(slots)], CPU)
    assert rows.chunks is None
    assert [each.slots for each in rows.singles] == [slice(0, 2), slice(4, 7)]
    assert [torch.as_tensor(each.rows).tolist() for each in rows.singles] == [[1, 3], [0, 4, 2]]


def test_a_sequence_s_numbers_do_not_get_into_others() -> None:
    tokens, memory = drawn()
    expected = memory.clone()
    by_definition(tokens, expected)
    for each in (tokens.values, tokens.keys):
        each[: SPANS[0].tokens] = torch.nan
    rows, found = StateRows(SPANS, CPU), torch.zeros_like(tokens.values)
    assert rows.chunks is not None
    read(tokens, memory, rows.chunks, found)
    assert found[:20].isnan().all()
    assert not found[20:].isnan().any()
    torch.testing.assert_close(memory[[0, 2]], expected[[0, 2]])
