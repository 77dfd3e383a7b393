"""Parsers of foreign bytes raise nothing that nobody expects, whatever they are fed with."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.abuse.parsers import PARSERS

ROOT = Path(__file__).parents[2]
CORPUS = Path(__file__).parent / "corpus"
FUZZ_SECONDS = 60


@pytest.mark.parametrize("name", PARSERS)
def test_what_is_made_of_a_parsers_words(name: str) -> None:
    parser = PARSERS[name]
    words = st.lists(st.sampled_from(parser.words) | st.binary(max_size=3), max_size=30)

    @settings(max_examples=60)
    @given(words.map(b"".join), st.booleans())
    def run(data: bytes, begins: bool) -> None:
        parser.run(parser.begins + data if begins else data)

    run()


@pytest.mark.parametrize("path", sorted(CORPUS.iterdir()), ids=lambda path: path.name)
def test_what_was_found_before(path: Path) -> None:
    names = sorted(PARSERS)
    data = path.read_bytes()
    for name in names:
        PARSERS[name].run(data[1:])


@pytest.mark.lengthy
def test_a_minute_of_fuzzing(tmp_path: Path) -> None:
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("needs atheris: pip install 'llama-compat[fuzz]'")
    found = tmp_path / "found"
    found.mkdir()
    command = [sys.executable, "-m", "tests.abuse.fuzz", str(found), str(CORPUS)]
    command += [f"-max_total_time={FUZZ_SECONDS}", f"-artifact_prefix={tmp_path}/"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
