"""A model folder made into a model that can run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from llama_compat.tools.formats import FORMATS, ToolFormat, guess_tool_format
from llama_compat.types import StopReason
from providers.base import ProviderStartError
from providers.local.detokenizer import Vocabulary

END_TOKENS: dict[str, StopReason] = {
    "<|endoftext|>": StopReason.end_of_turn,
    "<|end_of_text|>": StopReason.end_of_turn,
    "<|im_end|>": StopReason.end_of_turn,
    "<|eot_id|>": StopReason.end_of_turn,
    "<|eot|>": StopReason.end_of_turn,
    "<end_of_turn>": StopReason.end_of_turn,
    "<|end_of_turn|>": StopReason.end_of_turn,
    "<|END_OF_TURN_TOKEN|>": StopReason.end_of_turn,
    "<|eom_id|>": StopReason.end_of_message,
    "<|eom|>": StopReason.end_of_message,
}
"""Special tokens that end a turn, though not every model's settings say so."""


@dataclass(frozen=True)
class LoadedModel:
    """A model and what belongs to it.

    Attributes:
        name: the provider's name for it.
        model: a transformers causal language model in evaluation mode, on its device.
        tokenizer: transformers' fast tokenizer, which has the chat template.
        vocabulary: what the token ids stand for.
        vocab_size: how many token ids the model takes and gives.
        context_length: how many tokens it can hold.
        stop_tokens: the tokens that end a reply, and what they say.
        tool_format: how it writes tool calls; None if it can't, or nothing tells.
    """

    name: str
    model: Any
    tokenizer: Any
    vocabulary: Vocabulary
    vocab_size: int
    context_length: int
    stop_tokens: Mapping[int, StopReason]
    tool_format: ToolFormat | None


def load(
    name: str,
    folder: Path,
    *,
    device: str,
    dtype: str,
    context_length: int | None,
    tool_format: str = "auto",
) -> LoadedModel:
    """Load the model in `folder`.

    Args:
        name: the provider's name for it, for messages.
        folder: in Hugging Face's layout.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        dtype: `auto`, `float32`, `bfloat16` or `float16`.
        context_length: in place of the model's own, if that is longer or not known.
        tool_format: the name of the format in which it writes tool calls, `none`, or `auto`, which
            looks for it in the chat template and the model's names.

    Raises:
        ProviderStartError: the folder or the device won't do.
    """
    chosen_device = choose_device(device)
    transformers_logging.disable_progress_bar()
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model = AutoModelForCausalLM.from_pretrained(
            folder, local_files_only=True, dtype=choose_dtype(dtype, chosen_device)
        )
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise ProviderStartError(
            f"The model '{name}' in {folder} can't be loaded: {_first_sentence(error)} Pull it"
            " again or name another folder in the template."
        ) from error
    if not tokenizer.is_fast:
        raise ProviderStartError(
            f"The model '{name}' in {folder} has no fast tokenizer (a tokenizer.json): save one"
            " there with transformers' AutoTokenizer, or choose another model."
        )
    backend = tokenizer.backend_tokenizer
    # Some folders have the limits of a training run in their tokenizer.json.
    backend.no_truncation()
    backend.no_padding()
    vocabulary = Vocabulary(backend)
    return LoadedModel(
        name=name,
        model=_to_device(model.eval(), chosen_device, name),
        tokenizer=tokenizer,
        vocabulary=vocabulary,
        vocab_size=model.get_input_embeddings().num_embeddings,
        context_length=_context_length(name, model, context_length),
        stop_tokens=_stop_tokens(model, tokenizer, vocabulary),
        tool_format=_tool_format(tool_format, name, folder, tokenizer),
    )


def choose_device(device: str) -> torch.device:
    """The device that the template's word stands for: with `auto`, CUDA where there is one.

    Raises:
        ProviderStartError: this machine has no such device.
    """
    available = torch.cuda.is_available()
    if device == "auto":
        return torch.device("cuda" if available else "cpu")
    chosen = torch.device(device)
    if chosen.type == "cuda" and not (
        available and (chosen.index or 0) < torch.cuda.device_count()
    ):
        raise ProviderStartError(
            f"The template asks for the device '{device}', but torch sees"
            f" {torch.cuda.device_count()} CUDA devices: set 'device: auto' or 'device: cpu', or"
            " install a torch that is built for this machine's GPU."
        )
    return chosen


def choose_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """The dtype that the template's word stands for: with `auto`, bfloat16 on CUDA."""
    if dtype != "auto":
        return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[
            dtype
        ]
    if device.type == "cpu":
        return torch.float32
    return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16


def _to_device(model: Any, device: torch.device, name: str) -> Any:
    try:
        return model.to(device)
    except torch.OutOfMemoryError as error:
        raise ProviderStartError(
            f"The model '{name}' does not fit into the memory of '{device}': set 'device: cpu', a"
            " smaller dtype, or choose a smaller model."
        ) from error


def _context_length(name: str, model: Any, wanted: int | None) -> int:
    own = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    known = [length for length in (own, wanted) if length is not None]
    if not known:
        raise ProviderStartError(
            f"The model '{name}' does not say how long its context is: set 'context_length' for it"
            " in the template."
        )
    return min(known)


def _stop_tokens(model: Any, tokenizer: Any, vocabulary: Vocabulary) -> dict[int, StopReason]:
    stop_tokens = {
        token_id: StopReason.end_of_turn
        for source in (model.generation_config, model.config, tokenizer)
        for token_id in _as_list(getattr(source, "eos_token_id", None))
    }
    for token, reason in END_TOKENS.items():
        token_id = vocabulary.id_of(token)
        if token_id is not None and vocabulary.is_special(token_id):
            stop_tokens[token_id] = reason
    return stop_tokens


def _tool_format(wanted: str, name: str, folder: Path, tokenizer: Any) -> ToolFormat | None:
    if wanted == "auto":
        templates = tokenizer.chat_template or ""
        if isinstance(templates, dict):
            templates = "\n".join(templates.values())
        # The folder may have any name; the config still has the one that the model was given.
        config = json.loads((folder / "config.json").read_text("utf-8"))
        given = (config.get(member, "") for member in ("_name_or_path", "_model_name_or_path"))
        names = " ".join([name, str(folder), *map(str, given)])
        wanted = guess_tool_format(chat_template=templates, model=names) or "none"
    return FORMATS.get(wanted)


def _as_list(value: int | list[int] | None) -> list[int]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _first_sentence(error: Exception) -> str:
    line = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
    return line if line.endswith(".") else line + "."
