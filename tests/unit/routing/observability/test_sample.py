"""What is remembered of an answer."""

from __future__ import annotations

import pytest

from routing.observability.sample import Sample, finish_reason


def sample(*pieces: bytes, head_bytes: int = 10) -> Sample:
    taken = Sample(head_bytes)
    for piece in pieces:
        taken.add(piece)
    return taken


def test_the_beginning_the_end_and_the_length() -> None:
    taken = sample(b"abcdef", b"ghijkl", b"mno", b"p", b"q")
    assert taken.head == b"abcdefghij"
    assert taken.tail == b"ghijklmnopq"
    assert taken.size == 17


def test_all_of_what_is_short() -> None:
    taken = sample(b"abcdefghij")
    assert (taken.head, taken.tail, taken.size) == (b"abcdefghij", b"abcdefghij", 10)
    assert (sample().head, sample().tail, sample().size) == (b"", b"", 0)


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        (b'{"choices":[{"finish_reason":"stop"}]}', "stop"),
        (b'{"choices": [{"finish_reason": "length"}]}', "length"),
        (b'data: {"finish_reason":"stop"}\n\ndata: {"finish_reason":null,"usage":{}}\n\n', "stop"),
        (b'{"finish_reason":null}', ""),
        (b'{"stop_reason":"end_turn","stop_sequence":null}', "end_turn"),
        (b'{"candidates":[{"finishReason":"MAX_TOKENS"}]}', "MAX_TOKENS"),
        (b'{"done_reason":"stop","done":true}', "stop"),
        (b'{"object":"response","status":"incomplete"}', "incomplete"),
        (rb'{"content":"\"finish_reason\":\"made up\"","finish_reason":"stop"}', "stop"),
        (rb'{"content":"\"finish_reason\":\"made up\""}', ""),
        (b"", ""),
    ],
)
def test_why_a_reply_ended(tail: bytes, reason: str) -> None:
    assert finish_reason(tail) == reason
