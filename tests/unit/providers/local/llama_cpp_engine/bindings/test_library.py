"""What llama.cpp complains of."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("llama_cpp", reason="needs the extra 'llama-cpp'")

from providers.local.llama_cpp_engine.bindings import library


def test_the_levels_of_messages_are_the_librarys_own() -> None:
    """llama.cpp has renumbered them; the bindings that come with it still say 3 for an error."""
    header = Path(library.lib.__file__).parents[1] / "include/ggml.h"
    [error] = re.findall(r"GGML_LOG_LEVEL_ERROR\s*=\s*(\d+)", header.read_text())
    assert library._LEVELS["ERROR"] == int(error)
    library.take_log(int(error), b"some_function: this went ", None)
    library.take_log(library._LEVELS["CONT"], b"wrong\n", None)
    library.take_log(library._LEVELS["INFO"], b"some_function: all is well\n", None)
    assert library._complaints.pop() == "some_function: this went wrong\n"
