"""Files fetched over HTTP that go on where they stopped, with their digests verified.

What has arrived of a file lies beside its place, as `NAME.part`, so that another process can go on
with it by a `Range` (RFC 9110, 14.2). It gets its name when it is whole. A server that sends all of
it nevertheless is taken at its word, and it begins anew.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from providers.local.models.programs import Failure, run_python
from providers.local.models.sizes import file_size

PART = ".part"
"""How the name of a file ends that is not whole."""

CHUNK_BYTES = 1 << 20
TOGETHER = 4
"""Files that are fetched at the same time."""

TIMEOUT = 30.0
"""Seconds without a byte after which a connection is given up."""

ATTEMPTS = 5
"""In a row that bring nothing, before a file is given up; each waits twice as long as the last."""

FIRST_WAIT = 0.5
RANGE_UNSATISFIABLE = 416

_AUTHORIZATION = "Authorization"


@dataclass(frozen=True)
class WantedFile:
    """A file that is to be fetched.

    Attributes:
        url: where it is.
        path: where to, on this machine.
        size: its bytes.
        digest: `sha256:` and its hash, or `git:` and the id of it as a blob of git; None where
            nobody says it.
        headers: of the requests; `Authorization` goes to the host of `url` alone.
    """

    url: str
    path: str
    size: int
    digest: str | None
    headers: Mapping[str, str]


class BrokenError(ValueError):
    """A file can't be had; the message is a sentence."""


def fetch(files: Sequence[WantedFile], tick: Callable[[int], None]) -> Failure | None:
    """Fetch all of them, in a process of its own, which can be stopped at any moment.

    Args:
        files: those whose names are there already are verified, and left as they are.
        tick: called again and again with the bytes that have arrived.

    Returns:
        How it failed, if it did; what has arrived is kept.

    Raises:
        OSError: it failed because the disk is full.
    """
    return run_python(
        "providers.local.models.sources.ranged:fetch_all",
        {"files": [{**asdict(each), "headers": dict(each.headers)} for each in files]},
        lambda: tick(sum(map(arrived, files))),
    )


def arrived(wanted: WantedFile) -> int:
    """How many bytes of a file are here."""
    path = Path(wanted.path)
    found = (file_size(each, allocated=True) for each in (path, part_of(path)))
    return max(each or 0 for each in found)


def part_of(path: Path) -> Path:
    """Where a file lies until it is whole."""
    return path.with_name(path.name + PART)


def fetch_all(files: Sequence[Mapping[str, Any]]) -> None:
    """The other end of `fetch`: all of them, the small ones first; the process ends with what is
    wrong as its last line where one can't be had."""
    wanted = sorted((WantedFile(**each) for each in files), key=lambda each: each.size)
    with ThreadPoolExecutor(TOGETHER) as pool:
        fetched = [pool.submit(fetch_one, each) for each in wanted]
        try:
            for each in fetched:
                each.result()
        except BrokenError as error:
            pool.shutdown(wait=False, cancel_futures=True)
            print(error, flush=True)
            os._exit(1)  # now, not when the others have arrived: these go on where they stopped


def fetch_one(wanted: WantedFile) -> None:
    """Fetch a file, or what is missing of it.

    Raises:
        BrokenError: it can't be had, or is not what its digest says.
    """
    path = Path(wanted.path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = part_of(path)
    if path.is_file():
        path.replace(part)  # of another revision, perhaps: its digest will tell
    had = file_size(part) or 0
    for _ in range(2):
        _complete(wanted, part)
        found = _digest_of(wanted, part)
        if found == wanted.digest:
            part.replace(path)
            return
        part.unlink()
        if not had:
            break
        had = 0  # a part of something else was gone on with: once more, from its start
    raise BrokenError(
        f"{path.name} is not what was published: its digest is {found}, not {wanted.digest}. It"
        " was deleted."
    )


def read_range(url: str, start: int, count: int, headers: Mapping[str, str]) -> bytes:
    """So many bytes of a file from `start` on; fewer at its end.

    Raises:
        BrokenError: they can't be had.
    """
    ranged = {**headers, "Range": f"bytes={start}-{start + count - 1}"}
    try:
        with _open(url, ranged) as reply:
            if reply.status != http.HTTPStatus.PARTIAL_CONTENT:
                _skip(reply, start)
            return bytes(reply.read(count))
    except urllib.error.HTTPError as error:
        if error.code == RANGE_UNSATISFIABLE:
            return b""
        raise BrokenError(_said(url, error)) from None
    except (OSError, http.client.HTTPException) as error:
        raise BrokenError(_said(url, error)) from None


def read_all(url: str, headers: Mapping[str, str], most: int) -> bytes:
    """A small file.

    Raises:
        urllib.error.HTTPError: the server refuses.
        BrokenError: it can't be had, or has more bytes than `most`.
    """
    try:
        with _open(url, headers) as reply:
            found = bytes(reply.read(most + 1))
    except urllib.error.HTTPError:
        raise
    except (OSError, http.client.HTTPException) as error:
        raise BrokenError(_said(url, error)) from None
    if len(found) > most:
        raise BrokenError(f"{_shown(url)} sent more than {most} bytes.")
    return found


def digest_of(path: Path, kind: str, size: int) -> str:
    """The digest of the file at `path`, `sha256:...` or `git:...`."""
    if kind == "git":  # https://git-scm.com/book/en/v2/Git-Internals-Git-Objects
        made = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    else:
        made = hashlib.sha256()
    with path.open("rb") as file:
        for chunk in _chunks(file):
            made.update(chunk)
    return f"{kind}:{made.hexdigest()}"


# One file -----------------------------------------------------------------------------------------


def _digest_of(wanted: WantedFile, part: Path) -> str | None:
    if wanted.digest is None:
        return None
    return digest_of(part, wanted.digest.partition(":")[0], wanted.size)


def _complete(wanted: WantedFile, part: Path) -> None:
    """Bring what is missing of a part, however often the connection ends."""
    failed, wait = 0, FIRST_WAIT
    while (there := file_size(part)) is None or there != wanted.size:
        if there is not None and there > wanted.size:
            part.unlink()
            continue
        try:
            _append(wanted, part, there or 0)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError) and error.code == RANGE_UNSATISFIABLE:
                part.unlink()  # of something else, perhaps
                raise BrokenError(_short(wanted, there or 0)) from None
            if _is_final(error):
                raise BrokenError(_said(wanted.url, error)) from None
            last: Exception | None = error
        else:
            last = None
        if (file_size(part) or 0) > (there or 0):
            failed, wait = 0, FIRST_WAIT
            continue
        failed += 1
        if failed == ATTEMPTS or last is None:
            raise BrokenError(_said(wanted.url, last) if last else _short(wanted, there or 0))
        time.sleep(wait)
        wait *= 2


def _append(wanted: WantedFile, part: Path, start: int) -> None:
    headers = dict(wanted.headers)
    if start:
        headers["Range"] = f"bytes={start}-"
    # Without a buffer: what has arrived is on disk, however this process ends.
    with part.open("ab", buffering=0) as file, _open(wanted.url, headers) as reply:
        if start and not _goes_on(reply, start):
            file.truncate(0)
        while chunk := reply.read1(CHUNK_BYTES):
            file.write(chunk)


def _goes_on(reply: http.client.HTTPResponse, start: int) -> bool:
    """Whether a reply is what was asked for, from `start` on, and not the whole file."""
    return reply.status == http.HTTPStatus.PARTIAL_CONTENT and str(
        reply.headers.get("Content-Range", "")
    ).startswith(f"bytes {start}-")


def _is_final(error: Exception) -> bool:
    """Whether it is no use to ask again."""
    if isinstance(error, urllib.error.HTTPError):
        return error.code < 500 and error.code not in (408, 429)
    # A disk that is full, for one.
    is_network = isinstance(error, (urllib.error.URLError, ConnectionError, TimeoutError))
    return isinstance(error, OSError) and not is_network


# HTTP ---------------------------------------------------------------------------------------------


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Tokens stay with the host that they are for; hubs send on to stores that have their own."""

    def redirect_request(
        self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: Any
    ) -> Any:
        made = super().redirect_request(req, fp, code, msg, headers, newurl)
        if made is not None and _origin(newurl) != _origin(req.full_url):
            made.headers.pop(_AUTHORIZATION, None)
        return made


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


def _open(url: str, headers: Mapping[str, str]) -> http.client.HTTPResponse:
    if urlsplit(url).scheme not in ("http", "https"):
        raise BrokenError(f"{url} is no address of a server.")
    # As it is, or sizes and ranges would be those of something else.
    request = urllib.request.Request(url, headers={"Accept-Encoding": "identity", **headers})
    reply: http.client.HTTPResponse = urllib.request.build_opener(_Redirects).open(
        request, timeout=TIMEOUT
    )
    return reply


def _skip(reply: IO[bytes], count: int) -> None:
    while count > 0 and (chunk := reply.read(min(count, CHUNK_BYTES))):
        count -= len(chunk)


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    while chunk := file.read(CHUNK_BYTES):
        yield chunk


def _short(wanted: WantedFile, there: int) -> str:
    return _said(wanted.url, f"it ends after {there} of {wanted.size} bytes")


def _said(url: str, what: object) -> str:
    reason = str(what).strip() or type(what).__name__
    return f"{_shown(url)} did not send it ({reason})."


def _shown(url: str) -> str:
    """Without what is behind a question mark, which may be a key."""
    return url.partition("?")[0]
