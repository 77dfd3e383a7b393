"""Tokens made into text: every vocabulary, one token at a time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("tokenizers", reason="needs the extra 'torch'")

from providers.local.replies.detokenizer import HubVocabulary
from tests.tiny_models import (
    SPECIAL_TOKENS,
    byte_level_tokenizer,
    sentencepiece_tokenizer,
    word_piece_tokenizer,
)

TOKENIZERS = {
    "byte level": byte_level_tokenizer(),
    "sentencepiece": sentencepiece_tokenizer(),
    "word piece": word_piece_tokenizer(),
}
VOCABULARIES = {name: HubVocabulary(tokenizer) for name, tokenizer in TOKENIZERS.items()}
BYTES = ("byte level", "sentencepiece")

ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=30).filter(
    lambda text: "<|" not in text  # no special tokens, which are no text
)


def deltas(
    vocabulary: HubVocabulary, token_ids: Sequence[int], context: Sequence[int]
) -> list[str]:
    detokenizer = vocabulary.detokenizer(context)
    return [detokenizer.push(token_id) for token_id in token_ids] + [detokenizer.flush()]


@pytest.mark.parametrize("name", BYTES)
@given(text=ANY_TEXT, cut=st.integers(0, 60))
def test_any_text_comes_back_whole(name: str, text: str, cut: int) -> None:
    token_ids = TOKENIZERS[name].encode("|" + text).ids
    if name == "sentencepiece" and "▁" in text:
        text = text.replace("▁", " ")  # which is how such a vocabulary writes a space
    cut = min(cut, len(token_ids))
    context, rest = token_ids[:cut], token_ids[cut:]
    before = "".join(deltas(VOCABULARIES[name], context, [])[:-1])
    assert (before + "".join(deltas(VOCABULARIES[name], rest, context))).lstrip(" ") == "|" + text


@given(token_ids=st.lists(st.integers(0, VOCABULARIES["byte level"].size - 1), max_size=60))
def test_a_byte_level_stream_equals_the_tokenizers_own_decode(token_ids: list[int]) -> None:
    whole = TOKENIZERS["byte level"].decode(token_ids, skip_special_tokens=True)
    assert "".join(deltas(VOCABULARIES["byte level"], token_ids, [])) == whole


@pytest.mark.parametrize("name", TOKENIZERS)
@given(data=st.data())
def test_a_stream_equals_the_tokenizers_own_decode_of_a_text(
    name: str, data: st.DataObject
) -> None:
    words = [
        "The",
        "quick",
        "brown",
        "fox",
        "jumps",
        "over",
        "the",
        "lazy",
        "dog",
        ".",
        "日本",
        "Ελληνικά",
    ]
    text = " ".join(data.draw(st.lists(st.sampled_from(words), min_size=2, max_size=12)))
    token_ids = TOKENIZERS[name].encode(text).ids
    cut = data.draw(st.integers(1, len(token_ids)))
    context, rest = token_ids[:cut], token_ids[cut:]
    decode = TOKENIZERS[name].decode
    if not decode(context).endswith("\ufffd"):
        assert (
            "".join(deltas(VOCABULARIES[name], rest, context))
            == (decode(token_ids)[len(decode(context)) :])
        )


@pytest.mark.parametrize("name", BYTES)
def test_a_character_of_several_tokens_comes_whole(name: str) -> None:
    token_ids = TOKENIZERS[name].encode("a🦜b").ids
    assert len(token_ids) >= 5
    pieces = deltas(VOCABULARIES[name], token_ids, [])
    assert [piece.strip() for piece in pieces if piece.strip()] == ["a", "🦜", "b"]


def test_half_a_character_at_the_end_is_shown_as_such() -> None:
    token_ids = TOKENIZERS["byte level"].encode("a🦜").ids
    pieces = deltas(VOCABULARIES["byte level"], token_ids[:-1], [])
    assert "".join(pieces) == "a\ufffd"
    assert pieces[-1] == "\ufffd"


def test_a_replacement_character_of_the_text_is_not_held_back() -> None:
    token_ids = TOKENIZERS["byte level"].encode("\ufffd").ids
    assert deltas(VOCABULARIES["byte level"], token_ids, [])[-2:] == ["\ufffd", ""]


def test_a_word_after_a_context_keeps_its_space() -> None:
    token_ids = TOKENIZERS["sentencepiece"].encode("quick brown fox").ids
    text = "".join(deltas(VOCABULARIES["sentencepiece"], token_ids[1:], token_ids[:1]))
    context = TOKENIZERS["sentencepiece"].decode(token_ids[:1])
    assert context + text == "quick brown fox"


@pytest.mark.parametrize("name", TOKENIZERS)
def test_special_tokens_are_no_text(name: str) -> None:
    vocabulary = VOCABULARIES[name]
    for token in SPECIAL_TOKENS:
        token_id = vocabulary.id_of(token)
        assert token_id is not None
        assert vocabulary.is_special(token_id)
        assert vocabulary.token_bytes(token_id) == token.encode()
        assert "".join(deltas(vocabulary, [token_id], [])) == ""


@pytest.mark.parametrize("name", TOKENIZERS)
def test_special_tokens_that_are_to_be_shown(name: str) -> None:
    vocabulary = VOCABULARIES[name]
    marks = [vocabulary.id_of(token) for token in SPECIAL_TOKENS]
    assert None not in marks
    word = TOKENIZERS[name].encode("fox").ids
    token_ids = [marks[0], *word, marks[1], marks[2], *word]
    detokenizer = vocabulary.detokenizer(token_ids, shown={marks[1]})
    text = "".join(map(detokenizer.push, token_ids)) + detokenizer.flush()
    assert "".join(text.split()) == f"fox{SPECIAL_TOKENS[1]}fox"
    assert vocabulary.decode(token_ids, {marks[1]}).split() == text.split()


@pytest.mark.parametrize("name", BYTES)
def test_the_bytes_of_the_tokens_make_the_text(name: str) -> None:
    vocabulary, text = VOCABULARIES[name], "naïve 日本語 🙂"
    token_ids = TOKENIZERS[name].encode(text).ids
    assert b"".join(map(vocabulary.token_bytes, token_ids)).strip() == text.encode()


def test_an_id_without_a_token_is_no_text() -> None:
    vocabulary = VOCABULARIES["byte level"]
    assert vocabulary.token_bytes(vocabulary.size + 5) == b""
    assert vocabulary.id_of("no such token") is None
