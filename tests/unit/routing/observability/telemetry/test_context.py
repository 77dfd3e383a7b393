"""W3C trace context."""

from __future__ import annotations

from contextvars import copy_context

import pytest

from providers.remote.upstream.trace_headers import OUTGOING
from routing.observability.telemetry.context import DRAWN, MAX_STATE, Trace, random_ids, trace_of

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


def read(*headers: tuple[str, str], sample: float = 1.0) -> Trace:
    raw = [(name.encode(), value.encode()) for name, value in headers]
    return trace_of([(b"host", b"x"), *raw], sample, next(random_ids()))


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
    assert read(("traceparent", PARENT), ("tracestate", "a=\x01")).state == ""


def test_a_share_of_new_traces_is_sampled() -> None:
    assert not any(read(sample=0.0).sampled for _ in range(100))
    assert all(read(sample=1.0).sampled for _ in range(100))
    assert 50 < sum(read(sample=0.5).sampled for _ in range(200)) < 150


def sent_by(trace: Trace) -> str:
    """The headers of what is sent for the next attempt."""

    def send() -> str:
        trace.attempt_begins()
        lines = OUTGOING.get()
        assert lines is not None
        return lines.decode()

    return copy_context().run(send)


def test_each_attempt_is_a_span_of_the_same_trace() -> None:
    trace = read(("traceparent", f"00-{TRACE}-{SPAN}-00"), ("tracestate", "a=1"))
    first, second = sent_by(trace), sent_by(trace)
    assert len({trace.span_id, SPAN, *trace.attempts}) == 4
    assert first == f"traceparent: 00-{TRACE}-{trace.attempts[0]}-00\r\ntracestate: a=1\r\n"
    assert second == f"traceparent: 00-{TRACE}-{trace.attempts[1]}-00\r\ntracestate: a=1\r\n"


def test_a_new_trace_has_no_state() -> None:
    trace = read()
    expected = f"traceparent: 00-{trace.trace_id}-{trace.next_id}-01\r\n"
    assert sent_by(trace) == expected


def test_ids_have_their_length_and_differ() -> None:
    ids = random_ids()
    traces = [trace_of([], 1.0, next(ids)) for _ in range(2 * DRAWN + 1)]
    spans = {each.span_id for each in traces} | {each.next_id for each in traces}
    assert len(spans) == 2 * len(traces)
    assert len({each.trace_id for each in traces}) == len(traces)
    assert {len(each) for each in spans} == {16}
    assert {len(each.trace_id) for each in traces} == {32}
    sent_by(traces[0])
    sent_by(traces[0])
    assert {len(each) for each in traces[0].attempts} == {16}
