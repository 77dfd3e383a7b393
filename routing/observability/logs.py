"""The log: written by a thread of its own, so that nobody who does not read it stops the server."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

from routing.observability.request_line import LOG_FORMAT, JSONFormatter, RequestLine

MAX_CHARACTERS = 1024 * 1024
"""That wait to be written: some 10,000 requests' lines. What comes on top is counted instead."""

MAX_LINE_CHARACTERS = 64 * 1024
"""Tracebacks are shorter."""

GATHER_SECONDS = 0.02
"""Lines of so short a time are written together."""

FLUSH_SECONDS = 1.0
"""How long the end of the process waits for its last lines to be read."""


def configure_logging() -> None:
    """Log to standard error, lines from INFO up."""
    # Nobody's source line is looked up, which no line of ours says; the switch is in
    # https://docs.python.org/3/howto/logging.html#optimization.
    logging._srcfile = None
    logging.setLogRecordFactory(_Record)
    if logging.getLogger().handlers:
        return
    handler = QueuedLog(sys.stderr.fileno())
    as_json = os.environ.get(LOG_FORMAT) == "json"
    handler.setFormatter(JSONFormatter() if as_json else _Formatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    handler.start()
    atexit.register(handler.stop)
    if not as_json:
        global _line
        _line = lambda line: handler.line(str(line))  # noqa: E731


def link_requests(page: str) -> None:
    """Have the id of each request that is logged lead to its own page, where the log is shown by a
    terminal that may know links.

    Args:
        page: where the server's page is.
    """
    global _line
    for handler in logging.getLogger().handlers:
        formatter = handler.formatter
        if isinstance(handler, QueuedLog) and isinstance(formatter, _Formatter):
            if handler.knows_links:
                formatter.page = page
                _line = partial(_line_with_link, handler, page)
            return


def _line_with_link(handler: QueuedLog, page: str, line: RequestLine) -> None:
    handler.line(line.linked(page))


def log_line(line: RequestLine) -> None:
    """Log `line` at level INFO, for what is said of every request.

    It goes to the queue by the shortest way, which saves a tenth of what a relayed request costs;
    where somebody else has configured the log, through `logging` as everything else.
    """
    _line(line)


_line: Callable[[RequestLine], None] = logging.getLogger(__name__).info


class QueuedLog(logging.Handler):
    """Puts lines into a queue of which a thread writes to a file descriptor.

    Whoever logs is never made to wait, and no more than `MAX_CHARACTERS` are kept for a reader that
    does not come: how many lines are lost is said when it does.

    Args:
        descriptor: where to.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._lines: deque[str] = deque()
        self._characters = 0
        self._dropped = 0
        self._there_are = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._write_on, name="log", daemon=True)

    def createLock(self) -> None:
        """Needs none: what threads do to the queue at once is one step each."""
        self.lock = None

    @property
    def knows_links(self) -> bool:
        """Whether it is a terminal that shows links as such, or leaves them out."""
        kind = os.environ.get("TERM", "dumb")
        return os.isatty(self._descriptor) and kind not in ("dumb", "linux", "")

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """Write what there is, if somebody reads it within a second."""
        self._ending.set()
        self._there_are.set()
        if self._thread.is_alive():
            self._thread.join(FLUSH_SECONDS)

    def close(self) -> None:
        """Write what there is, when `logging` is shut down."""
        self.stop()
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        """Have `record` written some time soon."""
        self._put(self.format(record))

    def line(self, text: str) -> None:
        """Have `text` written as a record of level INFO would be."""
        self._put(f"{time_of_day(time.time())} INFO    {text}")

    def _put(self, line: str) -> None:
        if self._characters >= MAX_CHARACTERS:
            self._dropped += 1
            return
        if len(line) > MAX_LINE_CHARACTERS:
            line = f"{line[:MAX_LINE_CHARACTERS]}... ({len(line)} characters)"
        self._lines.append(line)
        self._characters += len(line)
        if not self._there_are.is_set():
            self._there_are.set()

    def _write_on(self) -> None:
        while not self._ending.is_set():
            self._there_are.wait()
            # Not with every line: a wake-up costs more than it.
            self._ending.wait(GATHER_SECONDS)
            self._there_are.clear()
            self._write_all()
        # What came while those lines were written.
        self._write_all()

    def _write_all(self) -> None:
        self._characters = 0
        lines = [self._lines.popleft() for _ in range(len(self._lines))]
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            lines.append(f"{dropped} lines are missing here: the log was not read fast enough")
        data = "".join(f"{line}\n" for line in lines).encode(errors="backslashreplace")
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:
                time.sleep(GATHER_SECONDS)  # somebody has made the pipe one that does not wait
            except OSError:
                return  # nobody is there any more


class _Record(logging.LogRecord):
    """What a line needs of a record: the usual one also finds out who wrote it, on what thread and
    from which file, which is most of what a line costs."""

    pathname = filename = module = funcName = ""
    lineno = 0
    thread = threadName = process = processName = taskName = None
    exc_text = stack_info = None
    msecs = relativeCreated = 0.0

    def __init__(
        self,
        name: str,
        level: int,
        pathname: str,
        lineno: int,
        msg: object,
        args: Any,
        exc_info: Any,
        func: str | None = None,
        sinfo: str | None = None,
    ) -> None:
        self.name = name
        self.levelno = level
        self.levelname = logging.getLevelName(level)
        self.created = time.time()
        self.msg = msg
        # Named arguments come as the one mapping, as in `log.info("%(a)s", {"a": 1})`.
        named = args and len(args) == 1 and isinstance(args[0], Mapping) and args[0]
        self.args = args[0] if named else args
        self.exc_info = exc_info
        if sinfo:
            self.stack_info = sinfo


class _Formatter(logging.Formatter):
    """Time of day, level and message.

    Attributes:
        page: where the page is to which requests lead; None for no links.
    """

    page: str | None = None

    def format(self, record: logging.LogRecord) -> str:
        is_linked = self.page is not None and isinstance(record.msg, RequestLine)
        message = record.msg.linked(self.page) if is_linked else record.getMessage()
        line = f"{time_of_day(record.created)} {record.levelname:7} {message}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return f"{line}\n{record.stack_info}" if record.stack_info else line


def time_of_day(seconds: float) -> str:
    """`seconds` since 1970 as `HH:MM:SS`, here."""
    return _time_of_day(int(seconds))


@lru_cache(maxsize=2)
def _time_of_day(second: int) -> str:
    return time.strftime("%H:%M:%S", time.localtime(second))


class BoundedLog:
    """A logger for what anybody can cause as often as they like: so many lines a second.

    The first of what was left out since is said with the next line that is not.

    Args:
        logger: where the lines go.
        lines: a second, of each kind (a kind is a message before its arguments).
    """

    def __init__(self, logger: logging.Logger, lines: int = 5) -> None:
        self._logger = logger
        self._allowed = lines
        self._second = 0
        self._said: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()

    def info(self, message: str, *arguments: object) -> None:
        """As a logger's."""
        self._log(logging.INFO, message, arguments)

    def warning(self, message: str, *arguments: object) -> None:
        """As a logger's."""
        self._log(logging.WARNING, message, arguments)

    def _log(self, level: int, message: str, arguments: tuple[object, ...]) -> None:
        second = int(time.monotonic())
        if second != self._second:
            self._second = second
            self._said.clear()
        if self._said[message] >= self._allowed:
            self._left_out[message] += 1
            return
        self._said[message] += 1
        left_out = self._left_out.pop(message, 0)
        if left_out:
            message += f" (and {left_out} more of the kind since the last line)"
        self._logger.log(level, message, *arguments)
