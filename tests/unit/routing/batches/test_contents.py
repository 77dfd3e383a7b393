"""Where contents lie: a folder, and what fsspec knows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from llama_compat.distribution import FilesSettings
from providers.base import ProviderStartError
from routing.batches.contents import LEFT_OVER_SECONDS, Contents, contents_of


@pytest.fixture(params=["folder", "remote"])
def contents(request: pytest.FixtureRequest, tmp_path: Path) -> Contents:
    if request.param == "folder":
        made = contents_of(FilesSettings(path=str(tmp_path / "files")))
    else:
        pytest.importorskip("fsspec")
        made = contents_of(FilesSettings(url=f"file://{tmp_path / 'remote'}"))
    made.start()
    return made


def read(contents: Contents, name: str, offset: int = 0) -> bytes:
    with contents.open(name, offset) as file:
        return file.read()


def test_a_file_is_there_once_it_is_whole(contents: Contents) -> None:
    writer = contents.writer("a")
    writer.write(b"one ")
    with pytest.raises(FileNotFoundError):
        read(contents, "a")
    writer.write(b"two")
    writer.commit()
    writer.discard()
    assert (read(contents, "a"), read(contents, "a", 4)) == (b"one two", b"two")
    contents.delete("a")
    contents.delete("a")
    with pytest.raises(FileNotFoundError):
        read(contents, "a")


def test_nothing_stays_of_one_that_is_discarded(contents: Contents, tmp_path: Path) -> None:
    writer = contents.writer("a")
    writer.write(b"one")
    writer.discard()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_the_last_of_two_writers_counts(contents: Contents) -> None:
    first, second = contents.writer("a"), contents.writer("a")
    first.write(b"first")
    second.write(b"second")
    second.commit()
    first.commit()
    assert read(contents, "a") == b"first"


def test_what_was_left_half_written_long_ago_goes(tmp_path: Path) -> None:
    contents = contents_of(FilesSettings(path=str(tmp_path)))
    (old, young, whole) = (tmp_path / each for each in ("a.part", "b.part", "c"))
    for path in (old, young, whole):
        path.write_bytes(b"")
    os.utime(old, (0, young.stat().st_mtime - LEFT_OVER_SECONDS - 60))
    contents.start()
    assert sorted(tmp_path.iterdir()) == [young, whole]


def test_a_scheme_that_nobody_knows_is_said_at_the_start() -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(ProviderStartError, match=r"files[.]url"):
        contents_of(FilesSettings(url="nonsense://bucket"))
