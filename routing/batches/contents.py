"""Where the contents of files lie: in a folder, or wherever fsspec keeps them.

All of it blocks, so it is called in threads.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

from llama_compat.distribution import FilesSettings
from providers.base import ProviderStartError

LEFT_OVER_SECONDS = 86400.0
"""What was begun and not finished for so long is of a process that has ended."""

_PART = ".part"

BLOCK_BYTES = 5 << 20
"""Of a file that is written to, or read from, where fsspec keeps it, so much is in memory: the
least that S3 takes as a part. Its 10,000 parts are far more than `max_bytes` lets anything have."""


class ContentWriter(Protocol):
    """One file that is being written; nobody finds it before `commit`."""

    def write(self, data: bytes) -> None:
        """Append `data`."""

    def commit(self) -> None:
        """It is whole: keep it, in place of one with the same name."""

    def discard(self) -> None:
        """Leave nothing of it. May follow anything, also `commit`, after which it does nothing."""


class Contents(Protocol):
    """Files by name. All methods raise OSError where they can't do what they should."""

    def start(self) -> None:
        """Make ready, and remove what was left half written long ago."""

    def writer(self, name: str) -> ContentWriter:
        """Begin a file."""

    def open(self, name: str, offset: int = 0) -> BinaryIO:
        """The file with this name, to be read from `offset` on, and closed."""

    def delete(self, name: str) -> None:
        """Remove a file, if it is there."""


def contents_of(settings: FilesSettings) -> Contents:
    """Where a template has its files.

    Raises:
        ProviderStartError: a package is missing.
    """
    return Folder(settings.path) if settings.url is None else Remote(settings.url)


class Folder:
    """A folder of this machine's, or one that several mount.

    Args:
        path: made if it is not there.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path).expanduser()

    def start(self) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        # Nobody else on this machine needs to read what is in it.
        with suppress(PermissionError):
            self._path.chmod(0o700)
        oldest = time.time() - LEFT_OVER_SECONDS
        for part in self._path.glob(f"*{_PART}"):
            with suppress(FileNotFoundError):
                if part.stat().st_mtime < oldest:
                    part.unlink()

    def writer(self, name: str) -> ContentWriter:
        return _FolderWriter(self._path / name)

    def open(self, name: str, offset: int = 0) -> BinaryIO:
        file = (self._path / name).open("rb")
        file.seek(offset)
        return file

    def delete(self, name: str) -> None:
        (self._path / name).unlink(missing_ok=True)


class _FolderWriter:
    def __init__(self, path: Path) -> None:
        self._path = path
        # Two processes may write the same file: what a batch came to, after a lease ran out.
        self._part = path.with_name(f"{path.name}.{os.urandom(4).hex()}{_PART}")
        self._file = self._part.open("wb")

    def write(self, data: bytes) -> None:
        self._file.write(data)

    def commit(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._part.replace(self._path)

    def discard(self) -> None:
        self._file.close()
        self._part.unlink(missing_ok=True)


class Remote:
    """What fsspec has at a URL, such as a bucket.

    Args:
        url: of the folder.

    Raises:
        ProviderStartError: fsspec, or its package for the URL's scheme, is not installed.
    """

    def __init__(self, url: str) -> None:
        try:
            from fsspec.core import url_to_fs

            self._files, self._root = cast(Any, url_to_fs)(url)
        except ImportError as error:
            raise ProviderStartError(
                f"`server.files.url`: {error}. pip install 'llama-compat[files]', and fsspec's"
                " package for the URL's scheme, such as s3fs."
            ) from None
        except ValueError as error:
            raise ProviderStartError(f"`server.files.url`: {error}.") from None

    def start(self) -> None:
        with _as_os_error():
            self._files.makedirs(self._root, exist_ok=True)

    def writer(self, name: str) -> ContentWriter:
        with _as_os_error():
            return _RemoteWriter(self._files, f"{self._root}/{name}")

    def open(self, name: str, offset: int = 0) -> BinaryIO:
        with _as_os_error():
            file = self._files.open(f"{self._root}/{name}", "rb", block_size=BLOCK_BYTES)
            # Those of fsspec's packages have no bound on a line.
            reader = io.BufferedReader(file)
            reader.seek(offset)
            return reader

    def delete(self, name: str) -> None:
        with suppress(FileNotFoundError), _as_os_error():
            self._files.rm_file(f"{self._root}/{name}")


class _RemoteWriter:
    def __init__(self, files: Any, path: str) -> None:
        self._files = files
        self._path = path
        # What is written so is not there before it is committed, whatever the storage.
        self._file = files.open(path, "wb", block_size=BLOCK_BYTES, autocommit=False)
        self._ended = False

    def write(self, data: bytes) -> None:
        with _as_os_error():
            self._file.write(data)

    def commit(self) -> None:
        with _as_os_error():
            self._file.close()
            self._file.commit()
        self._ended = True

    def discard(self) -> None:
        if not self._ended:
            self._ended = True
            with suppress(OSError), _as_os_error():
                self._file.discard()


@contextmanager
def _as_os_error() -> Iterator[None]:
    """What fsspec's packages raise, of which each has its own."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}") from error
