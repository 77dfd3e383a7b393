"""Tokens as tokenizers write them, and the bytes that they stand for."""

from __future__ import annotations

from providers.remote.vllm.token_texts import token_bytes


def test_gpt2_s_characters_are_bytes() -> None:
    written = ["<|im_start|>", "user", "Ċ", "Hi", "Ġthere", "Ã©", "æĹ¥"]
    assert b"".join(token_bytes(written)) == "<|im_start|>user\nHi thereé日".encode()


def test_sentencepiece_s_blanks_are_blanks() -> None:
    written = ["<s>", "▁Hi", "▁", "é", "日", "<0x0A>", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>"]
    assert b"".join(token_bytes(written)) == "<s> Hi é日\n😀".encode()


def test_what_is_written_in_neither_way_is_its_text() -> None:
    assert token_bytes(["<|日本|>", "a"]) == ["<|日本|>".encode(), b"a"]
