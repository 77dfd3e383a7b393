"""The KV cache's memory: nothing is lost, nothing is given out twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llama_compat.prefixes.chain import HASH_BYTES
from llama_compat.prefixes.held import HeldPrompts, blocks_in
from providers.local.block_manager import BlockManager


def test_neighbours_are_preferred_while_they_are_empty() -> None:
    manager = BlockManager(8, 16)
    first = manager.allocate(span=4)
    assert first == 0
    assert manager.allocate(span=4) == 4
    assert manager.allocate(after=0) == 1
    assert manager.allocate(after=4) == 5
    assert manager.allocate(after=7) not in (0, 1, 4, 5)


def test_cached_blocks_go_last_and_the_oldest_of_them_first() -> None:
    manager = BlockManager(4, 16)
    blocks = [manager.allocate() for _ in range(4)]
    assert manager.allocate() is None
    for block in blocks[:3]:
        assert block is not None
        assert manager.register(block, bytes([block]))
    manager.release([0])
    manager.release([1, 2])
    assert manager.available == 3
    manager.release([3])
    assert manager.allocate(after=0) == 3
    assert manager.allocate() == 0
    assert manager.find(b"\x00") is None
    # Of one sequence the end goes before the beginning.
    assert manager.allocate() == 2
    assert manager.find(b"\x01") == 1


def test_a_content_is_known_once() -> None:
    manager = BlockManager(3, 16)
    for _ in range(2):
        manager.allocate()
    assert manager.register(0, b"x")
    assert not manager.register(1, b"x")
    assert not manager.register(0, b"y")
    manager.release([0, 1])
    manager.share(0)
    assert (manager.used, manager.find(b"x")) == (1, 0)
    manager.unregister([0])
    manager.release([0])
    assert manager.find(b"x") is None
    assert manager.available == 3


def test_text_needs_the_block_of_tokens_in_which_it_ends_with_the_text_before_it() -> None:
    manager = BlockManager(3, 16)
    manager.held = HeldPrompts()
    first, second, third = (letter * HASH_BYTES for letter in (b"a", b"b", b"c"))
    # After the first there are 20 tokens, after the second 30, after the third 33.
    manager.note(((first, 20), (second, 30), (third, 33)), lambda number: bytes([number]))

    def held() -> list[bytes]:
        return [*blocks_in(manager.held.news().stored)] if manager.held else []

    assert held() == []
    for number, expected in ((0, [first, second]), (1, [first, second, third])):
        block = manager.allocate()
        assert block is not None
        manager.register(block, bytes([number]))
        assert held() == expected


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=200))
def test_blocks_are_conserved(actions: list[tuple[int, int]]) -> None:
    manager = BlockManager(10, 16)
    held: list[int] = []
    for action, number in actions:
        if action <= 1:
            block = manager.allocate(after=number if action else None)
            assert (block is None) == (len(set(held)) == 10)
            if block is not None:
                assert block not in held
                held.append(block)
        elif action == 2 and held:
            manager.register(held[number % len(held)], bytes([number]))
        elif action == 3 and (found := manager.find(bytes([number]))) is not None:
            manager.share(found)
            held.append(found)
        elif action == 4 and held:
            manager.release([held.pop(number % len(held))])
        elif action == 5 and held:
            manager.unregister([held[number % len(held)]])
        assert manager.used == len(set(held))
    manager.release(held)
    assert (manager.used, manager.available) == (0, 10)
