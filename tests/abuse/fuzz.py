"""Feeds every parser of foreign bytes with what a coverage-guided fuzzer comes up with.

    python -m tests.abuse.fuzz [FOLDER OF A CORPUS ...] [-max_total_time=60] [LIBFUZZER OPTION ...]

The first byte of an input chooses the parser, in the order of their names. An exception that a
parser does not keep to itself ends the run, and so does an input that takes over ten seconds; the
input is then in a file named `crash-...` or `timeout-...`, which belongs into `tests/abuse/corpus`
when what it showed is mended. It needs `atheris`, which is there for Linux.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["llama_compat", "providers"]):
    from tests.abuse.parsers import PARSERS

NAMES = sorted(PARSERS)
TIMEOUT_SECONDS = 10


def parse_one(data: bytes) -> None:
    """Feed the parser that the first byte stands for with the rest."""
    if data:
        PARSERS[NAMES[data[0] % len(NAMES)]].run(data[1:])


def main() -> None:
    """Run until the options say that it is enough; libFuzzer ends the process itself."""
    words = {word for parser in PARSERS.values() for word in (*parser.words, parser.begins)}
    atheris.Setup(
        [sys.argv[0], f"-timeout={TIMEOUT_SECONDS}", "-max_len=4096", *sys.argv[1:]],
        parse_one,
        custom_mutator=_with_words(sorted(words)),
    )
    atheris.Fuzz()


def _with_words(words: list[bytes]):  # type: ignore[no-untyped-def]
    """A mutator that half of the time puts a word of the parsers' in."""

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        if seed % 2:
            return bytes(atheris.Mutate(data, max_size))
        at = 1 + (seed >> 1) % max(1, len(data))
        word = words[(seed >> 8) % len(words)]
        return (data[:at] + word + data[at:])[:max_size]

    return mutate


if __name__ == "__main__":
    main()
