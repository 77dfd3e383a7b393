"""Which tokens a block of a prompt's characters stands for: never one that another prompt with the
block might not have."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_compat.dialects.anthropic_messages.operations import MESSAGES
from llama_compat.dialects.openai.operations import COMPLETIONS
from llama_compat.exchange import Call
from llama_compat.prefixes.chain import BLOCK_BYTES, chain_of
from llama_compat.prefixes.marks import MOST_MISSES, marks_of
from tests.unit.calls import call_of

TOKEN = re.compile(rb"\s*\w{1,4}|\s*\W")


def tokens_of(text: str) -> list[bytes]:
    """Text cut into small pieces, as tokenizers do."""
    found = TOKEN.findall(text.encode())
    assert b"".join(found) == text.encode()
    return found


def template(messages: Sequence[dict[str, str]]) -> str:
    """What a chat template makes of them."""
    said = [f"<|{each['role']}|>\n{each['content']}<|end|>\n" for each in messages]
    return "".join([*said, "<|assistant|>\n"])


def chat(*said: str, **body: Any) -> tuple[Call, list[bytes]]:
    roles = ("system", *("user", "assistant") * len(said))
    messages = [{"role": role, "content": text} for role, text in zip(roles, said, strict=False)]
    return call_of({"messages": messages, **body}), tokens_of(template(messages))


SYSTEM = "You are told at length what to do, and what not. " * 60


def test_each_block_of_a_prompt_has_the_tokens_of_its_text() -> None:
    call, tokens = chat(SYSTEM, "What now? " * 120)
    chain, marks = chain_of(call), marks_of(call, tokens)
    assert [block for block, _ in marks] == list(chain)
    counts = [count for _, count in marks]
    assert counts == sorted(counts)
    ends = [sum(map(len, tokens[:count])) for count in counts]
    # What the template writes between messages is all by which they differ.
    for number, end in enumerate(ends):
        assert abs(end - (number + 1) * BLOCK_BYTES) < 100


def test_what_two_prompts_share_is_what_their_blocks_say() -> None:
    (one, first), (other, second) = chat(SYSTEM, "one " * 300), chat(SYSTEM, "two " * 300)
    shared = zip(first, second, strict=False)
    same = next(number for number, (a, b) in enumerate(shared) if a != b)
    marks = dict(marks_of(one, first))
    common = [block for block in chain_of(other) if block in marks]
    assert marks[common[-1]] <= same
    assert same - marks[common[-1]] < BLOCK_BYTES
    assert marks == {**marks, **{b: n for b, n in marks_of(other, second) if b in marks}}


@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=0, max_size=1500),
        min_size=1,
        max_size=4,
    ),
    st.data(),
)
def test_no_mark_counts_what_another_prompt_might_not_have(
    said: list[str], data: st.DataObject
) -> None:
    changed = data.draw(st.integers(0, len(said) - 1))
    at = data.draw(st.integers(0, len(said[changed])))
    others = [*said]
    others[changed] = others[changed][:at] + "x" + others[changed][at:]
    (one, first), (other, second) = chat(*said), chat(*others)
    theirs = set(chain_of(other))
    for block, count in marks_of(one, first):
        if block in theirs:
            assert b"".join(second).startswith(b"".join(first[:count]))


def test_escapes_and_characters_of_several_bytes_are_counted_as_what_they_stand_for() -> None:
    text = 'line\n"quoted" \\ tab\t é 日本 😀 ' * 100
    call, tokens = chat(text)
    for body in (call.fields["messages"], json.dumps([{"role": "system", "content": text}])):
        again = call_of(
            b'{"model":"m","messages":%b}'
            % (body.encode() if isinstance(body, str) else bytes(body))
        )
        marks = marks_of(again, tokens)
        assert len(marks) == len(chain_of(again))
        read = b"".join(tokens)
        for (_, count), end in zip(marks, range(BLOCK_BYTES, 10**6, BLOCK_BYTES), strict=False):
            # As many of the 100 repetitions have ended as the client's bytes have.
            sent = bytes(again.fields["messages"])[:end]
            written = sent.count(b"line") - 1
            assert abs(read[: sum(map(len, tokens[:count]))].count(b"line") - written) <= 2


def test_a_string_that_a_template_strips_is_found() -> None:
    call, _ = chat("\n\n  " + SYSTEM + "  \n", "next " * 300)
    tokens = tokens_of(
        template(
            [
                {"role": "system", "content": SYSTEM.strip()},
                {"role": "user", "content": "next " * 300},
            ]
        )
    )
    assert len(marks_of(call, tokens)) == len(chain_of(call))


def test_what_a_template_rewrites_counts_up_to_there() -> None:
    call, _ = chat(SYSTEM, "rewritten " * 200, "as it was " * 200)
    written = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": "REWRITTEN " * 200},
        {"role": "assistant", "content": "as it was " * 200},
    ]
    tokens = tokens_of(template(written))
    counts = [count for _, count in marks_of(call, tokens)]
    ends = [sum(map(len, tokens[:count])) for count in counts]
    before = len(f"<|system|>\n{SYSTEM}")
    inside = [each for each in ends if before - 8 <= each <= before]
    assert len(inside) >= 3
    assert ends[-1] > before + 2000


@pytest.mark.parametrize("body", [{"prompt": list(range(2000))}, {"prompt": "short"}])
def test_a_prompt_without_text_has_no_marks(body: dict[str, Any]) -> None:
    assert marks_of(call_of(body, COMPLETIONS), [b"x"] * 2000) == []


def test_clients_of_other_apis_have_marks_too() -> None:
    call = call_of(
        {
            "max_tokens": 5,
            "system": [{"type": "text", "text": SYSTEM}],
            "messages": [{"role": "user", "content": "What now? " * 100}],
        },
        MESSAGES,
    )
    read = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "What now? " * 100}]
    assert len(marks_of(call, tokens_of(template(read)))) == len(chain_of(call)) > 6


def test_half_a_character_is_passed_over() -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":"%b\\ud800%b"}]}' % (
        b"a b c " * 400,
        b"d e f " * 400,
    )
    call = call_of(body)
    assert len(chain_of(call)) > 8
    assert marks_of(call, tokens_of("<|user|>\n" + "a b c " * 400)) == []


def test_strings_that_are_nowhere_are_looked_for_so_many_times() -> None:
    texts = [f"nowhere to be found, number {number:6}" for number in range(MOST_MISSES + 50)]
    call, _ = chat(*texts, SYSTEM)
    assert marks_of(call, tokens_of(SYSTEM)) == []
