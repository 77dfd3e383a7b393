"""W3C trace context."""

from __future__ import annotations

import pytest

from routing.operations.telemetry.context import MAX_STATE, TraceContext, context_of, new_id

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


def read(*headers: tuple[str, str], sample: float = 1.0) -> TraceContext:
    raw = [(name.encode(), value.encode()) for name, value in headers]
    return context_of([(b"host", b"x"), *raw], sample)


def test_a_request_within_a_trace_is_a_child_of_its_span() -> None:
    context = read(("traceparent", PARENT), ("tracestate", "a=1"), ("tracestate", "b=2"))
    assert (context.trace_id, context.parent_id) == (TRACE, SPAN)
    assert context.span_id not in (SPAN, "0" * 16)
    assert (context.sampled, context.state) == (True, "a=1,b=2")


@pytest.mark.parametrize(("flags", "sampled"), [("00", False), ("01", True), ("02", False),
                                                ("03", True), ("ff", True)])  # fmt: skip
def test_who_began_the_trace_decides_whether_it_is_sampled(flags: str, sampled: bool) -> None:
    for sample in (0.0, 1.0):
        context = read(("traceparent", f"00-{TRACE}-{SPAN}-{flags}"), sample=sample)
        assert context.sampled is sampled


@pytest.mark.parametrize(
    "parent",
    [
        "",
        "nonsense",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{SPAN}-01",
    ],
)
def test_what_makes_no_sense_begins_a_trace(parent: str) -> None:
    context = read(("traceparent", parent), ("tracestate", "a=1"))
    assert context.trace_id != TRACE
    assert (context.parent_id, context.state) == ("", "")


def test_two_parents_make_no_sense() -> None:
    assert read(("traceparent", PARENT), ("traceparent", PARENT)).parent_id == ""


def test_a_later_version_may_say_more() -> None:
    assert read(("traceparent", f"01-{TRACE}-{SPAN}-01-more")).parent_id == SPAN


def test_state_that_is_too_long_is_left_out() -> None:
    long = "a=" + "x" * (MAX_STATE - 2)
    assert read(("traceparent", PARENT), ("tracestate", long)).state == long
    assert read(("traceparent", PARENT), ("tracestate", long + "x")).state == ""


def test_a_share_of_new_traces_is_sampled() -> None:
    assert not any(read(sample=0.0).sampled for _ in range(100))
    assert all(read(sample=1.0).sampled for _ in range(100))
    assert 50 < sum(read(sample=0.5).sampled for _ in range(200)) < 150


def test_a_child_is_part_of_the_same_trace() -> None:
    context = TraceContext(TRACE, SPAN, "p", sampled=False, state="a=1")
    child = context.child()
    assert (child.trace_id, child.parent_id, child.sampled) == (TRACE, SPAN, False)
    assert child.span_id != SPAN
    assert child.headers() == {
        "traceparent": f"00-{TRACE}-{child.span_id}-00",
        "tracestate": "a=1",
    }
    assert TraceContext(TRACE, SPAN).headers() == {"traceparent": PARENT}


def test_ids_have_their_length() -> None:
    assert {len(new_id(128)) for _ in range(100)} == {32}
    assert {len(new_id(64)) for _ in range(100)} == {16}
