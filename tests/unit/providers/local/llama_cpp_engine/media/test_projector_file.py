"""Which file a GGUF model sees with, where its template does not say."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

from pathlib import Path

import pytest

gguf = pytest.importorskip("gguf", reason="needs the extra 'torch', to write GGUF files")

from providers.base import ProviderStartError
from providers.local.llama_cpp_engine.media.projector_file import find_projector


def write(path: Path, architecture: str = "clip", kind: str = "gemma3") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_string("clip.projector_type", kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def test_the_one_beside_a_model_is_taken(tmp_path: Path) -> None:
    model = write(tmp_path / "Fox-2B-Q4_K_M.gguf", "llama")
    assert find_projector(str(model), None) is None
    write(tmp_path / "mmproj-f32.gguf")
    best = write(tmp_path / "mmproj-F16.gguf")
    assert find_projector(str(model), None) == best
    assert find_projector(str(model), "none") is None


def test_in_a_folder_of_many_models_its_name_says_whose_it_is(tmp_path: Path) -> None:
    fox = write(tmp_path / "Fox-2B-Q4_K_M.gguf", "llama")
    hare = write(tmp_path / "Hare-1B-Q8_0-00001-of-00002.gguf", "llama")
    own = write(tmp_path / "mmproj-Hare-1B-BF16.gguf")
    assert find_projector(str(hare), None) == own
    assert find_projector(str(fox), None) is None
    assert find_projector(str(fox), str(own)) == own


def test_those_that_were_pulled_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_COMPAT_HOME", str(tmp_path))
    pulled = tmp_path / "models/gguf/ORG/Fox-2B"
    write(pulled / "q4--fox.gguf/q4/fox.gguf", "llama")
    name = "hf:ORG/Fox-2B:q4/fox.gguf"
    assert find_projector(name, None) is None
    apart = write(pulled / "mmproj-F16.gguf/mmproj-F16.gguf")
    assert find_projector(name, None) == apart
    together = write(pulled / "q4--fox.gguf/mmproj-Q8_0.gguf")
    assert find_projector(name, None) == together
    ollamas = tmp_path / "models/ollama/library/fox/latest"
    write(ollamas / "model.gguf", "llama")
    own = write(ollamas / "projector.gguf")
    assert find_projector("ollama:fox", None) == own


def test_what_can_t_be_seen_with_is_refused(tmp_path: Path) -> None:
    model = write(tmp_path / "fox.gguf", "llama")
    for path, why in (
        (model, "it is a model"),
        (write(tmp_path / "mmproj.gguf", kind="hunyuanvl"), "'hunyuanvl' are not supported"),
        (tmp_path / "nowhere.gguf", "no GGUF file at"),
    ):
        with pytest.raises(ProviderStartError, match=why):
            find_projector(str(model), str(path))
