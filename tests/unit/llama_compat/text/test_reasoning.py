"""Reasoning told apart from the answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_compat.text.reasoning import ReasoningParser, opens_reasoning
from llama_compat.types import Delta, ReasoningDelta, TextDelta


def joined(deltas: list[Delta]) -> tuple[str, str]:
    reasoning = "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta))
    return reasoning, "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


def parse(*pieces: str, opened: bool = False) -> tuple[str, str]:
    """The reasoning and the text."""
    parser = ReasoningParser(opened=opened)
    deltas = [delta for piece in pieces for delta in parser.push(piece)]
    return joined(deltas + parser.flush())


@pytest.mark.parametrize(
    ("text", "reasoning", "answer"),
    [
        ("Hello", "", "Hello"),
        ("<think>why</think>Hello", "why", "Hello"),
        ("\n<think>\nwhy  not\n</think>\n\nHello\n", "why  not", "Hello\n"),
        ("<think>\n\n</think>\n\nHello", "", "Hello"),
        ("<think>never closed", "never closed", ""),
        ("<think>closed by half</thi", "closed by half</thi", ""),
        ("<think>a</think> <think>b</think> c", "ab", "c"),
        ("<thin", "", "<thin"),
        ("  \n", "", "  \n"),
        ("", "", ""),
        ("The tag <think> opens it, </think> closes it", "", None),
        ("a</think>b", "", None),
        ("<thinking>no</thinking>", "", None),
        ("<think>x</think>y<think>z</think>", "x", "y<think>z</think>"),
    ],
)
def test_only_what_opens_the_reply_is_reasoning(text, reasoning, answer):
    expected = (reasoning, text if answer is None else answer)
    assert parse(text) == expected
    assert parse(*text) == expected


@pytest.mark.parametrize(
    ("text", "reasoning", "answer"),
    [
        ("\nwhy\n</think>\n\nHello", "why", "Hello"),
        ("</think>Hello", "", "Hello"),
        ("why", "why", ""),
    ],
)
def test_the_prompt_may_have_opened_the_tag(text, reasoning, answer):
    assert parse(text, opened=True) == (reasoning, answer)
    assert parse(*text, opened=True) == (reasoning, answer)


@pytest.mark.parametrize(
    ("prompt", "opened"),
    [("<|im_start|>assistant\n<think>\n", True), ("<think></think>\n", False), ("", False)],
)
def test_the_end_of_the_prompt_says_whether_it_did(prompt, opened):
    assert opens_reasoning(prompt) is opened


def test_reasoning_and_text_come_as_soon_as_they_are_certain():
    parser = ReasoningParser()
    assert parser.push("<think>") == []
    assert parser.push("one ") == [ReasoningDelta("one")]
    assert parser.push("two</th") == [ReasoningDelta(" two")]
    assert parser.push("ink>\n") == []
    assert parser.push("Hi ") == [TextDelta("Hi ")]
    assert parser.flush() == []


@given(
    st.lists(st.sampled_from(["<think>", "</think>", "<", "/think>", "a", " ", "\n", "x<th"])),
    st.data(),
)
def test_any_cut_gives_the_same(parts, data):
    text = "".join(parts)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)))))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    opened = data.draw(st.booleans())
    assert parse(*pieces, opened=opened) == parse(text, opened=opened)
