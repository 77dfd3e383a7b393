"""The log never makes anybody wait, and says what it left out."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import suppress

import pytest

from routing.observability import logs
from routing.observability.logs import BoundedLog, QueuedLog
from routing.observability.request_line import RequestLine


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)
    os.close(writer)


def record(message: str) -> logging.LogRecord:
    return logging.LogRecord("x", logging.INFO, "", 0, message, (), None)


def test_lines_come_in_their_order(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    handler = QueuedLog(writer)
    handler.start()
    for number in range(100):
        handler.emit(record(f"line {number}"))
    handler.stop()
    assert os.read(reader, 100_000).decode() == "".join(f"line {n}\n" for n in range(100))


def test_what_nobody_reads_is_counted(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    handler = QueuedLog(writer)
    line = "x" * 999
    for _ in range(2000):  # a megabyte and as much again, with nobody to write it
        handler.emit(record(line))
    kept = len(handler._lines)
    assert kept == -(-logs.MAX_CHARACTERS // 999)
    handler.start()
    data = b""
    while b"missing" not in data:
        data += os.read(reader, 65536)
    assert data.decode() == (line + "\n") * kept + (
        f"{2000 - kept} lines are missing here: the log was not read fast enough\n"
    )
    handler.emit(record("later"))
    handler.stop()
    assert os.read(reader, 65536) == b"later\n"


def test_what_comes_while_the_end_begins_is_written(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = pipe
    handler = QueuedLog(writer)
    write_all = handler._write_all

    def interrupted() -> None:
        write_all()
        if not handler._ending.is_set():
            handler.emit(record("last"))
            handler._ending.set()

    monkeypatch.setattr(handler, "_write_all", interrupted)
    handler.emit(record("first"))
    handler.start()
    handler._thread.join()
    assert os.read(reader, 65536) == b"first\nlast\n"


def test_the_end_does_not_wait_for_a_reader(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = pipe
    os.set_blocking(reader, False)
    monkeypatch.setattr(logs, "FLUSH_SECONDS", 0.01)
    handler = QueuedLog(writer)
    handler.start()
    handler.emit(record("x" * 60_000))
    handler.emit(record("x" * 60_000))
    handler.stop()
    assert handler._thread.is_alive()  # it waits for the pipe, and nobody for it
    while handler._thread.is_alive():
        with suppress(BlockingIOError):
            os.read(reader, 65536)
        handler._thread.join(0.01)


def test_a_reader_that_is_gone_is_no_fault() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    handler = QueuedLog(writer)
    handler.start()
    handler.emit(record("x"))
    handler.stop()
    assert not handler._thread.is_alive()
    os.close(writer)


def test_a_line_has_a_bound_and_may_hold_anything(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    handler = QueuedLog(writer)
    handler.start()
    handler.emit(record("\ud83d"))
    handler.emit(record("x" * 70_000))
    data = b""
    while not data.endswith(b"... (70000 characters)\n"):
        data += os.read(reader, 65536)
    handler.stop()
    assert data == b"\\ud83d\n" + b"x" * logs.MAX_LINE_CHARACTERS + b"... (70000 characters)\n"


def test_what_anybody_can_cause_is_said_so_often_a_second(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.5
    monkeypatch.setattr(logs.time, "monotonic", lambda: now)
    log = BoundedLog(logging.getLogger("bounded"), lines=3)
    caplog.set_level(logging.INFO)
    for number in range(10):
        log.warning("refused %s", number)
    log.info("another %s", "kind")
    now = 101.0
    log.warning("refused %s", 10)
    log.warning("refused %s", 11)
    assert [each.getMessage() for each in caplog.records] == [
        "refused 0",
        "refused 1",
        "refused 2",
        "another kind",
        "refused 10 (and 7 more of the kind since the last line)",
        "refused 11",
    ]


def test_the_line_of_a_request_is_as_a_record_of_its_level(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = pipe
    monkeypatch.setattr(logs.time, "time", lambda: 1_000_000_000.9)
    handler = QueuedLog(writer)
    handler.setFormatter(logs._Formatter())
    handler.emit(logs._Record("x", logging.INFO, "", 0, "%s of %s", (1, 2), None))
    handler.line("1 of 2")
    handler.start()
    handler.close()
    first, second = os.read(reader, 1000).decode().splitlines()
    assert first == second
    assert first[2::3][:2] == "::"
    assert first.endswith(" INFO    1 of 2")


def test_a_record_says_what_a_record_of_logging_says() -> None:
    try:
        raise ValueError("on purpose")
    except ValueError as error:
        raised = (ValueError, error, error.__traceback__)
    for message, args in (("plain", ()), ("%(a)s", ({"a": 1},)), ("%s", ({},)), ("%d", (7,))):
        theirs = logging.LogRecord("x", logging.WARNING, "", 0, message, args, raised)
        ours = logs._Record("x", logging.WARNING, "", 0, message, args, raised)
        assert ours.getMessage() == theirs.getMessage()
        line = logs._Formatter().format(ours)
        assert line[8:].startswith(f" WARNING {theirs.getMessage()}\nTraceback")
        assert line.endswith("ValueError: on purpose")
        # Somebody else's formatter finds all that it may ask for.
        assert set(vars(theirs)) - {"message"} <= set(dir(ours))


def test_a_line_goes_through_logging_where_somebody_else_configured_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    logs.log_line("100 % of it")
    assert [each.getMessage() for each in caplog.records] == ["100 % of it"]


def test_requests_are_linked_in_a_terminal_alone(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = RequestLine("req_1", "/v1/chat/completions", "m", 500, 1.0, outcome="it broke")
    logger = logging.getLogger()
    monkeypatch.setattr(logs, "_line", logs._line)
    monkeypatch.setenv("TERM", "xterm-256color")
    master, terminal = os.openpty()
    for descriptor, reader, is_linked in ((terminal, master, True), (pipe[1], pipe[0], False)):
        handler = QueuedLog(descriptor)
        handler.setFormatter(logs._Formatter())
        monkeypatch.setattr(logger, "handlers", [handler])
        monkeypatch.setattr(logs, "_line", lambda each, to=handler: to.line(str(each)))
        logs.link_requests("http://h:1/")
        logs.log_line(line)
        handler.emit(logging.LogRecord("x", logging.WARNING, "", 0, line, (), None))
        handler.start()
        handler.stop()
        written = os.read(reader, 10_000).decode()
        assert written.count("POST") == 2
        assert written.count("http://h:1/#/requests/req_1") == (2 if is_linked else 0)
    os.close(terminal)
    os.close(master)
