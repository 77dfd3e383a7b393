"""A file that is watched: what is a change, and when it is over."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from routing.process.watched_file import WatchedFile


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "template.yaml"
    path.write_text("one")
    return path


def looks(watched: WatchedFile, count: int = 3) -> list[bool]:
    return [watched.changed() for _ in range(count)]


def test_what_is_not_touched_has_not_changed(file: Path) -> None:
    assert looks(WatchedFile(file)) == [False, False, False]


def test_a_change_is_told_once_when_it_is_over(file: Path) -> None:
    watched = WatchedFile(file)
    file.write_text("two, and longer")
    assert looks(watched) == [False, True, False]


def test_while_it_is_written_nothing_is_told(file: Path) -> None:
    watched = WatchedFile(file)
    told = []
    for size in range(3):
        file.write_text("longer" * (size + 1))
        told.append(watched.changed())
    assert told == [False, False, False]
    assert looks(watched) == [True, False, False]


def test_another_file_in_its_place_is_a_change_even_if_it_looks_alike(file: Path) -> None:
    watched = WatchedFile(file)
    times = file.stat()
    other = file.with_suffix(".new")
    other.write_text("two")
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    other.replace(file)
    assert looks(watched) == [False, True, False]


def test_a_new_time_is_a_change(file: Path) -> None:
    watched = WatchedFile(file)
    os.utime(file, ns=(1, 1))
    assert looks(watched) == [False, True, False]


def test_a_link_that_leads_elsewhere_is_a_change(file: Path) -> None:
    link = file.with_name("link.yaml")
    link.symlink_to(file)
    watched = WatchedFile(link)
    other = file.with_name("other.yaml")
    other.write_text("two")
    link.unlink()
    link.symlink_to(other)
    assert looks(watched) == [False, True, False]


def test_a_file_that_is_gone_is_waited_for(file: Path) -> None:
    watched = WatchedFile(file)
    file.unlink()
    assert looks(watched) == [False, False, False]
    file.write_text("back again")
    assert looks(watched) == [False, True, False]


def test_what_was_changed_and_changed_back_is_no_change(file: Path) -> None:
    watched = WatchedFile(file)
    before = file.stat()
    file.write_text("six")
    assert not watched.changed()
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert looks(watched) == [False, False, False]
