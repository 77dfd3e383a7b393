"""What is read of a folder before its weights: the same when it was kept, and never another's."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
transformers = pytest.importorskip("transformers", reason="needs the extra 'torch'")

from providers.base import ProviderStartError
from providers.local.threads.giving_way import step
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.loading import loader, reading
from providers.local.torch_engine.loading.loader import load
from providers.local.torch_engine.loading.reading import (
    FolderReading,
    keep_reading,
    kept_reading,
    read_aside,
    read_folder,
)
from providers.local.torch_engine.model import linear
from tests.tiny_models import make_model
from tests.unit.providers.local.engines import ARCHITECTURES, make_architecture

FILE = Path(".llama-compat", "reading.json")


def read(folder: Path) -> FolderReading:
    found = read_folder(folder)
    assert found is not None
    return found


def kept(folder: Path) -> FolderReading:
    keep_reading(folder, read(folder))
    found = kept_reading(folder)
    assert found is not None
    return found


@pytest.mark.parametrize("name", [*ARCHITECTURES])
def test_what_was_kept_is_what_was_read(tmp_path: Path, name: str) -> None:
    make_architecture(tmp_path, name)
    assert kept(tmp_path) == read(tmp_path)


def test_its_tokenizer_makes_the_same_tokens(tmp_path: Path) -> None:
    make_model(tmp_path)
    transformers_own = transformers.AutoTokenizer.from_pretrained(tmp_path)
    tokenizer = kept(tmp_path).tokenizer.backend_tokenizer
    for text in ("The quick brown fox", "Größe 日本語\n\n", "<|im_start|>user\nHi<|im_end|>", ""):
        for special in (True, False):
            expected = transformers_own(text, add_special_tokens=special).input_ids
            assert tokenizer.encode(text, add_special_tokens=special).ids == expected


def test_a_template_may_lie_beside_the_tokenizer(tmp_path: Path) -> None:
    """As that of Idefics 3 does."""
    make_model(tmp_path, chat_template=None)
    assert read(tmp_path).tokenizer.chat_template is None
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": "{{ 1 }}"}))
    assert kept(tmp_path).tokenizer.with_tools == "{{ 1 }}"
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": ["of another kind"]}))
    assert read(tmp_path).tokenizer.chat_template is None


def test_end_tokens_are_of_all_that_say_some(tmp_path: Path) -> None:
    make_model(tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 9]}))
    own = transformers.AutoTokenizer.from_pretrained(tmp_path).eos_token_id
    assert kept(tmp_path).end_tokens == (5, 9, own)
    assert kept(tmp_path).positions == 512


@pytest.mark.parametrize(
    ("templates", "plain", "with_tools"),
    [
        (None, None, None),
        ("one", "one", "one"),
        ({"default": "d", "tool_use": "t"}, "d", "t"),
        ({"default": "d", "rag": "r"}, "d", "d"),
        ({"tool_use": "t"}, None, "t"),
    ],
)
def test_which_of_its_chat_templates_is_taken(
    tmp_path: Path, templates: Any, plain: str | None, with_tools: str | None
) -> None:
    make_model(tmp_path, chat_template=None)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    tokenizer.chat_template = templates
    tokenizer.save_pretrained(tmp_path)
    found = kept(tmp_path).tokenizer
    assert found.chat_template == templates
    assert (found.without_tools, found.with_tools) == (plain, with_tools)
    if plain is None:
        with pytest.raises(ValueError, match="with tools alone"):
            found.get_chat_template()
    else:
        assert found.get_chat_template() == plain
        assert found.get_chat_template(tools=[{"type": "function"}]) == with_tools


def test_another_state_of_the_folder_is_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_model(tmp_path)
    kept(tmp_path)
    os.utime(tmp_path / "config.json", ns=(1, 1))
    assert kept_reading(tmp_path) is None
    kept(tmp_path)
    monkeypatch.setattr(reading, "version", lambda package: "5.999.0")
    assert kept_reading(tmp_path) is None


def test_what_was_kept_comes_without_torch_while_that_is_imported(tmp_path: Path) -> None:
    make_model(tmp_path)
    expected = kept(tmp_path)
    code = (
        "import sys; from pathlib import Path;"
        "from providers.local.torch_engine.config import TorchConfig;"
        "from providers.local.torch_engine.loading.reading import read_aside\n"
        "with read_aside(Path(sys.argv[1]), TorchConfig()) as aside:\n"
        "    found = aside.reading.result()\n"
        "print(found.end_tokens, {'torch', 'transformers'} & set(sys.modules))"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{expected.end_tokens} set()"


def test_a_model_is_loaded_with_what_was_read_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_model(tmp_path)
    keep_reading(tmp_path, read(tmp_path))
    config = TorchConfig(device="cpu")
    with read_aside(tmp_path, config) as aside:
        aside.reading.result()
        monkeypatch.setattr(loader, "kept_reading", None)  # so that to read it again is an error
        loaded = load("small", tmp_path, config, aside=aside)
    known = aside.reading.result()
    assert known is not None
    assert tuple(loaded.model.stop_tokens)[: len(known.end_tokens)] == known.end_tokens


@pytest.mark.parametrize("size", [0, 5, 9, 300, -1])
def test_a_torn_file_is_nothing(tmp_path: Path, size: int) -> None:
    make_model(tmp_path)
    kept(tmp_path)
    whole = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(whole[:size])
    assert kept_reading(tmp_path) is None
    (tmp_path / FILE).write_bytes(whole.replace(b"512", b"513"))
    assert kept_reading(tmp_path) is None


def test_where_it_can_not_be_written_it_is_not_kept(tmp_path: Path) -> None:
    make_model(tmp_path)
    (tmp_path / ".llama-compat").write_text("a file, where a folder would be")
    keep_reading(tmp_path, read(tmp_path))
    assert kept_reading(tmp_path) is None


@pytest.mark.engine
@pytest.mark.skipif(not linear.kernels_possible(), reason="needs x86 with AVX2, Linux and llvmlite")
def test_a_second_start_goes_without_transformers(tmp_path: Path) -> None:
    """The first is in this process, where transformers is; the second in one that starts anew."""
    make_model(tmp_path)
    assert load("tiny", tmp_path, TorchConfig(device="cpu", max_sequences=1), 64).quantization == (
        "int8"
    )
    script = f"""
import sys
from pathlib import Path
from providers.base import ProviderStartError
from providers.local.threads.giving_way import step
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.loading.loader import load
loaded = load("tiny", Path({str(tmp_path)!r}), TorchConfig(device="cpu", max_sequences=1), 64)
print(loaded.quantization, "transformers" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "int8 False"


def not_here(folder: Path) -> FolderReading | None:
    raise AssertionError(f"{folder} is read in this process")


@pytest.mark.engine
def test_beside_an_engine_another_process_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_model(tmp_path)
    expected = read(tmp_path)
    monkeypatch.setattr(reading, "_LARGE", 0)
    for module in (reading, loader):
        monkeypatch.setattr(module, "read_folder", not_here)
    with step(), read_aside(tmp_path, TorchConfig(device="cpu")) as aside:
        assert aside.reading.result() == expected
    assert kept_reading(tmp_path) == expected


@pytest.mark.parametrize(("computed", "large"), [(False, 0), (True, 10**9)])
def test_where_none_waits_for_long_this_process_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, computed: bool, large: int
) -> None:
    make_model(tmp_path)
    monkeypatch.setattr(reading, "computed_lately", lambda: computed)
    monkeypatch.setattr(reading, "_LARGE", large)
    with read_aside(tmp_path, TorchConfig(device="cpu")) as aside:
        assert aside.reading.result() is None
    assert not (tmp_path / FILE).exists()


def test_no_other_process_reads_what_can_not_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_model(tmp_path)
    (tmp_path / ".llama-compat").write_text("a file, where a folder would be")
    monkeypatch.setattr(reading, "_LARGE", 0)
    monkeypatch.setattr(reading, "run_python", None)  # so that to start one is an error
    with step(), read_aside(tmp_path, TorchConfig(device="cpu")) as aside:
        assert aside.reading.result() is None


@pytest.mark.engine
def test_what_another_process_can_not_read_is_told_by_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_model(tmp_path)
    monkeypatch.setattr(reading, "_LARGE", 0)
    (tmp_path / "config.json").write_text("{")
    config = TorchConfig(device="cpu")
    with (
        step(),
        read_aside(tmp_path, config) as aside,
        pytest.raises(ProviderStartError, match="can't be loaded"),
    ):
        load("broken", tmp_path, config, aside=aside)
