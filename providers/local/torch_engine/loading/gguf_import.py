"""A GGUF file made into a Hugging Face model folder, once.

transformers reads GGUF, but takes ten times as long over it as over the folder that is made here.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any


def convert_gguf(gguf_path: Path, folder: Path) -> None:
    """Write the model in `gguf_path` to `folder`: config, safetensors, tokenizer, chat template.

    The weights are dequantised to float32. `folder` appears whole or not at all; if another process
    made it in the meantime, that one stays.

    Raises:
        ImportError: torch, transformers, gguf or accelerate is not installed.
        ValueError: the file can't be read, lacks weights, or is of an architecture unknown to
            transformers.
        OSError: `folder` can't be written.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from providers.local.torch_engine.loading.checkpoint import IncompleteError, read_model

    source, name = gguf_path.parent, gguf_path.name
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=name)
        model = read_model(AutoModelForCausalLM, source, gguf_file=name, dtype="float32")
        over = _blocks_left_over(gguf_path, model.config.get_text_config().num_hidden_layers)
        if over:
            raise IncompleteError(
                f"its header has no place for {over[0]}, the first of {len(over)} blocks that are"
                " left over: header and weights are of different models."
            )
    except ImportError:
        raise
    except Exception as error:  # of a torn file, whatever its reader stumbles over
        raise ValueError(f"{gguf_path} can't be read: {error}") from error

    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        tokenizer.save_pretrained(unfinished)
        model.generation_config.save_pretrained(unfinished)
        _save_model(model, unfinished)
        # mkdtemp's folder is for its owner alone; a model folder is as readable as any other.
        unfinished.chmod(0o755)
        try:
            os.rename(unfinished, folder)
        except OSError:
            if not (folder / "config.json").exists():
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _blocks_left_over(gguf_path: Path, layers: int) -> list[str]:
    """The blocks of weights behind those that the header tells of: transformers skips them."""
    from gguf import GGUFReader

    blocks = {
        int(number)
        for tensor in GGUFReader(gguf_path).tensors
        for kind, _, rest in [tensor.name.partition(".")]
        for number in [rest.partition(".")[0]]
        if kind == "blk" and number.isdecimal()
    }
    return [f"blk.{number}" for number in sorted(blocks) if number >= layers]


def _save_model(model: Any, folder: Path) -> None:
    """Config and weights; `save_pretrained` itself refuses a model that came from a GGUF."""
    from safetensors.torch import save_model

    config = model.config
    config.architectures = [type(model).__name__]
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    config.save_pretrained(folder)
    # `save_model` writes tensors that share their memory, such as tied embeddings, only once.
    weights = folder / "model.safetensors"
    save_model(model, str(weights), metadata={"format": "pt"})
    weights.chmod(0o644)
