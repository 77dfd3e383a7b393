"""Folders of models that hear, small enough to be made in a test, and files of audio: random
weights, a trained tokenizer, a feature extractor, and a chat template in the manner of the family's
own."""

from __future__ import annotations

import random
import struct
import wave
from io import BytesIO
from pathlib import Path
from typing import Any

from tests.made_once import made_once
from tests.tiny_models import SPECIAL_TOKENS, byte_level_tokenizer
from tests.tiny_vision import PARTS, TEXT, widen

AUDIO_MODELS = ("qwen2_audio", "voxtral")

SECONDS = 1
"""What one window of these models takes: 100 columns, which their encoders make 50 of."""

_TOKENS = {
    "qwen2_audio": ["<|audio_bos|>", "<|AUDIO|>", "<|audio_eos|>"],
    "voxtral": ["[BEGIN_AUDIO]", "[AUDIO]"],
}


@made_once
def make_audio_model(folder: Path, kind: str, seed: int = 0) -> Path:
    """Write a random model of one of `AUDIO_MODELS` to `folder`, which is returned."""
    import torch
    import transformers

    tokens = _TOKENS[kind]
    template = PARTS.replace("'image'", "'audio'").replace("PICTURE", "".join(tokens))
    backend = byte_level_tokenizer()
    backend.add_special_tokens(tokens)
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|im_end|>",
        pad_token=SPECIAL_TOKENS[0],
        chat_template=template,
    )
    fast.save_pretrained(folder)
    text: dict[str, Any] = TEXT | {
        "model_type": "qwen2" if kind == "qwen2_audio" else "llama",
        "vocab_size": len(fast),
        "bos_token_id": None,
        "eos_token_id": fast.eos_token_id,
        "pad_token_id": fast.pad_token_id,
    }
    hearing: dict[str, Any] = {"num_mel_bins": 16, "max_source_positions": 50}
    if kind == "qwen2_audio":
        hearing |= {"d_model": 32, "encoder_ffn_dim": 48, "encoder_layers": 2}
        hearing |= {"encoder_attention_heads": 2}
    else:
        # Four of its encoder's places are a token.
        hearing |= {"hidden_size": 32, "intermediate_size": 128, "num_hidden_layers": 2}
        hearing |= {"num_attention_heads": 2, "max_source_positions": 52}
    torch.manual_seed(seed)
    config = transformers.AutoConfig.for_model(
        kind,
        text_config=text,
        audio_config=hearing,
        **{_AUDIO_TOKEN[kind]: fast.convert_tokens_to_ids(tokens[1])},
    )
    config.eos_token_id = fast.eos_token_id
    model = transformers.AutoModelForMultimodalLM.from_config(config)
    widen(model)
    model.save_pretrained(folder)
    transformers.WhisperFeatureExtractor(
        feature_size=16, chunk_length=SECONDS, return_attention_mask=True
    ).save_pretrained(folder)
    return folder


_AUDIO_TOKEN = {"qwen2_audio": "audio_token_index", "voxtral": "audio_token_id"}


def sound(
    seconds: float = 0.5, seed: int = 0, *, rate: int = 16_000, channels: int = 1, width: int = 2
) -> bytes:
    """A WAV file of some tones."""
    chosen = random.Random(seed)
    file = BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(channels)
        writer.setsampwidth(width)
        writer.setframerate(rate)
        writer.writeframes(_samples(chosen, round(seconds * rate), rate, channels, width))
    return file.getvalue()


def _samples(chosen: random.Random, frames: int, rate: int, channels: int, width: int) -> bytes:
    import numpy

    at = numpy.arange(frames) / rate
    found = sum(
        numpy.sin(2 * numpy.pi * chosen.uniform(100, 3000) * at + chosen.random()) for _ in range(4)
    )
    whole = (found / 5 * (2 ** (8 * width - 1) - 1)).astype("<i4")
    if width == 1:
        whole += 128
    each = whole.view(numpy.uint8).reshape(-1, 4)[:, :width]
    return numpy.repeat(each[:, None], channels, axis=1).tobytes()


def floats(seconds: float = 0.1, value: float = 0.1, rate: int = 16_000) -> bytes:
    """A WAV file of numbers of 32 bits, which are all the same."""
    count = round(seconds * rate)
    data = struct.pack("<f", value) * count
    header = struct.pack("<HHIIHH", 3, 1, rate, 4 * rate, 4, 32)
    chunks = b"fmt " + struct.pack("<I", len(header)) + header
    chunks += b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks
