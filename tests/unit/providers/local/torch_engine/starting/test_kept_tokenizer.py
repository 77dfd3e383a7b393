"""A tokenizer that was kept in parts is the very same."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

pytest.importorskip("tokenizers", reason="needs the extra 'torch'")

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from providers.local.torch_engine.starting.kept_tokenizer import KeptTokenizer

TEXTS = [
    "the quick brown fox jumps over the lazy dog",
    "Größe 日本語",
    "a lazy fox",
    "",
    " the  fox",
]


def byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=300, show_progress=False))
    return tokenizer


def ends_of_words() -> Tokenizer:
    tokenizer = Tokenizer(
        models.BPE(unk_token="<unk>", end_of_word_suffix="</w>", fuse_unk=True, dropout=None)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(
        vocab_size=80, end_of_word_suffix="</w>", special_tokens=["<unk>"], show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def byte_fallback() -> Tokenizer:
    letters = {f"<0x{byte:02X}>": byte for byte in range(256)} | {"<unk>": 256, "f": 257, "o": 258}
    vocabulary = letters | {"fo": 259, "x": 260, "fox": 261}
    model = models.BPE(
        vocab=vocabulary,
        merges=[("f", "o"), ("fo", "x")],
        unk_token="<unk>",
        byte_fallback=True,
        ignore_merges=True,
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def word_piece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=30))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=90, special_tokens=["[UNK]", "[CLS]", "[SEP]"], show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    tokenizer.enable_truncation(12)
    tokenizer.enable_padding(pad_id=2, pad_token="[SEP]")
    return tokenizer


def unigram() -> Tokenizer:
    pieces = [("<unk>", 0.0), ("▁the", -1.5), ("▁fox", -2.25), ("▁", -3.0), ("a", -3.125)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def word_level() -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel({"the": 0, "fox": 1, "?": 2}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


def with_added(make: Callable[[], Tokenizer]) -> Tokenizer:
    """Tokens of its own and others, special ones and such that are not, in turns."""
    tokenizer = make()
    known = tokenizer.id_to_token(1)
    tokenizer.add_special_tokens([known, AddedToken("<|im_start|>"), "<|im_end|>"])
    tokenizer.add_tokens(
        [AddedToken("<tool_call>", normalized=False), AddedToken("dog", lstrip=True)]
    )
    tokenizer.add_special_tokens([AddedToken("<|last|>", rstrip=True, single_word=True)])
    return tokenizer


MAKERS = [byte_level, ends_of_words, byte_fallback, word_piece, unigram, word_level]


def kept(tokenizer: Tokenizer) -> KeptTokenizer:
    written = msgspec.json.encode(KeptTokenizer.of(tokenizer))
    return msgspec.json.decode(written, type=KeptTokenizer)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("added", [False, True])
def test_it_is_the_very_same(make: Callable[[], Tokenizer], *, added: bool) -> None:
    tokenizer = with_added(make) if added else make()
    parts = kept(tokenizer)
    assert parts.kind == type(tokenizer.model).__name__
    made = parts.made()
    assert made.to_str() == tokenizer.to_str()
    for text in (*TEXTS, "<|im_start|>the fox<tool_call> fox <|last|>"):
        for special in (True, False):
            ours = made.encode(text, add_special_tokens=special)
            theirs = tokenizer.encode(text, add_special_tokens=special)
            assert (ours.ids, ours.tokens, ours.offsets) == (
                (theirs.ids, theirs.tokens, theirs.offsets)
            )
        ids = tokenizer.encode(text).ids
        assert made.decode(ids) == tokenizer.decode(ids)


def test_its_frame_is_small() -> None:
    """What takes long is not in it."""
    parts = kept(byte_level())
    assert len(parts.frame) < 1000


def test_what_parts_can_not_make_is_kept_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """As what a later version of the library writes of itself may be."""
    tokenizer = with_added(byte_level)
    monkeypatch.delattr(models, "BPE")
    parts = kept(tokenizer)
    assert parts.kind is None
    assert parts.made().to_str() == tokenizer.to_str()


def test_what_parts_make_otherwise_is_kept_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = with_added(word_level)
    other = models.WordLevel({"another": 0}, unk_token="?")
    monkeypatch.setattr(models, "WordLevel", lambda **given: other)
    parts = kept(tokenizer)
    assert parts.kind is None
    assert parts.made().to_str() == tokenizer.to_str()


def test_parts_in_python_are_not_kept() -> None:
    class Own:
        def pre_tokenize(self, text: object) -> None: ...

    tokenizer = word_level()
    tokenizer.pre_tokenizer = pre_tokenizers.PreTokenizer.custom(Own())
    with pytest.raises(Exception, match=r"[Cc]ustom"):
        KeptTokenizer.of(tokenizer)
