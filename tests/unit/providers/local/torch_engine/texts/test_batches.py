"""Texts of similar length are run together."""

from __future__ import annotations

from providers.local.torch_engine.texts.batches import batches


def test_batches_hold_every_text_once_and_little_padding() -> None:
    lengths = [3, 500, 7, 4000, 500, 1, 500, 500, 500, 500, 500, 500, 5000]
    made = batches(lengths, 512)
    assert sorted(index for batch in made for index in batch) == list(range(len(lengths)))
    for batch in made:
        padded = len(batch) * max(lengths[index] for index in batch)
        assert padded <= 512 or len(batch) == 1
