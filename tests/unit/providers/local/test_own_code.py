"""The digest of code: of what is in its files, whatever the order in which they are named."""

from __future__ import annotations

from pathlib import Path

from providers.local.own_code import digest_of


def test_it_is_that_of_what_the_files_say(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
        (folder / "one.py").write_text("ONE = 1\n")
        (folder / "two.py").write_text("TWO = 2\n")
    before = digest_of(here.iterdir())
    assert before == digest_of([here / "two.py", here / "one.py"]) == digest_of(there.iterdir())
    (here / "two.py").write_text("TWO = 3\n")
    assert digest_of(here.iterdir()) != before
    assert digest_of([here / "one.py"]) != before
