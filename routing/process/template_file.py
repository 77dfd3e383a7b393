"""The file of the template that is served: read with a mark of its version, and replaced whole."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from llama_compat.distribution import list_templates, read_template, template_path
from llama_compat.distribution.problems import Problem, TemplateError

BACKUP_SUFFIX = ".bak"
"""What the file before the last one that was taken over is called, behind the template's name."""


class TemplateChanged(Exception):
    """The file is another than the one that was read, or somebody else is replacing it."""


class TemplateNotWritable(Exception):
    """The file can't be replaced; the message is one sentence that says why."""


@dataclass(frozen=True, slots=True)
class TemplateText:
    """What is in the file of a template.

    Attributes:
        path: of the file.
        text: what is in it.
        version: differs from that of every other text that was at this path.
        problem: why it can't be replaced, one sentence; empty where it can.
    """

    path: str
    text: str
    version: str
    problem: str = ""


class TemplateFile:
    """The file of a template.

    Args:
        source: the template's name or path.
    """

    def __init__(self, source: str) -> None:
        self._source = source

    def read(self) -> TemplateText:
        """What is in it now; blocks.

        Raises:
            TemplateError: it is not there, or no text.
        """
        for _ in range(10):
            before = self._version()
            path, text = read_template(self._source)
            if before == self._version():
                return TemplateText(path, text, before, self._why_not())
        problem = Problem("changes all the time, so that it can't be read")
        raise TemplateError(self._source, [problem])

    @contextmanager
    def replacement(self, text: str, version: str) -> Iterator[Path]:
        """A file beside the template's that has `text`, the same mode and the same owner; it is
        gone at the end unless `put` has made it the template's. Nobody else replaces the template
        meanwhile.

        Raises:
            TemplateChanged: the template's file is not of this `version`.
            TemplateNotWritable: there can't be such a file.
        """
        if problem := self._why_not():
            raise TemplateNotWritable(problem)
        path = self._path()
        made: Path | None = None
        try:
            with path.open("rb") as current:
                _lock(current.fileno())
                if self._version() != version:
                    raise TemplateChanged
                found = os.fstat(current.fileno())
                descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
                made = Path(name)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(text.encode())
                    if hasattr(os, "fchown") and (found.st_uid, found.st_gid) != _owner(file):
                        os.fchown(file.fileno(), found.st_uid, found.st_gid)
                    made.chmod(stat.S_IMODE(found.st_mode))
                    file.flush()
                    os.fsync(file.fileno())
                yield made
        except OSError as error:
            raise TemplateNotWritable(_said(path, error)) from error
        finally:
            if made is not None:
                with suppress(OSError):
                    made.unlink()

    def put(self, made: Path, version: str) -> Path:
        """Make a file of `replacement` the template's, at once for whoever reads it; where the one
        before is. Blocks.

        Raises:
            TemplateChanged: the template's file is not of this `version` any more.
            TemplateNotWritable: that can't be done; the template is as it was.
        """
        path = self._path()
        if self._version() != version:
            raise TemplateChanged
        backup = path.with_name(path.name + BACKUP_SUFFIX)
        try:
            copied = made.with_name(made.name + BACKUP_SUFFIX)
            try:
                shutil.copy2(path, copied)
                copied.replace(backup)
            finally:
                copied.unlink(missing_ok=True)
            made.replace(path)
            _sync(path.parent)
        except OSError as error:
            raise TemplateNotWritable(_said(path, error)) from error
        return backup

    def _path(self) -> Path:
        # A link stays one: what it leads to is replaced.
        return Path(os.path.realpath(template_path(self._source)))

    def _version(self) -> str:
        try:
            found = os.stat(self._path())
        except OSError:
            return ""
        # Of what is in it nothing is told: not by a digest either.
        parts = (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_dev)
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]

    def _why_not(self) -> str:
        path = self._path()
        if self._source in [name for name, _ in list_templates()]:
            return (
                f"'{self._source}' is a template that ships with the server: run a copy of it, as"
                f" `llama-compat init` makes one, to change it."
            )
        if not os.access(path.parent, os.W_OK) or not os.access(path, os.W_OK):
            return (
                f"The server's user may not replace {path.name}: let it write the file and the"
                " folder, or change the file where it comes from."
            )
        return ""


def _owner(file: object) -> tuple[int, int]:
    found = os.fstat(file.fileno())  # type: ignore[attr-defined]
    return found.st_uid, found.st_gid


def _lock(descriptor: int) -> None:
    """Keep other processes of this machine from replacing the file, until it is closed."""
    try:
        import fcntl
    except ImportError:  # Windows, where there is one process
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            raise TemplateChanged from None
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL):
            raise


def _sync(folder: Path) -> None:
    """Have it survive a power cut that a file of `folder` is another."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        pass  # some file systems know of no such thing
    finally:
        os.close(descriptor)


def _said(path: Path, error: OSError) -> str:
    return f"{path.name} can't be replaced: {(error.strerror or str(error)).lower()}."
