"""How each family of models takes audio.

All of them hear with an encoder in the manner of Whisper's (arXiv:2212.04356): a picture of the
sound, with so many columns a second (log-mel), of which a window of some seconds is read at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from providers.local.media.audio import AudioFile
from providers.local.media.medium import Kind
from providers.local.media.placing import Layout
from providers.local.torch_engine.media.family import Encoding, MediumFamily


class AudioFamily(MediumFamily[AudioFile]):
    """How audio comes into the prompts of one model."""

    kind: ClassVar[Kind] = "audio"

    @property
    def rate(self) -> int:
        """How many samples a second it hears."""
        return int(self.processor.sampling_rate)

    @property
    def columns(self) -> int:
        """How many of a sound's picture make a window."""
        # The encoder's second convolution halves them.
        return 2 * int(self.config.audio_config.max_source_positions)

    @property
    def window(self) -> int:
        """How many samples it reads at once."""
        return self.columns * int(self.processor.hop_length)

    def layout(self, file: AudioFile) -> Layout:
        """See `MediumFamily`."""
        tokens = self.tokens(file.samples_at(self.rate))
        if tokens < 1:
            raise ValueError(
                f"it is too short, with {file.extent}, for the model to hear any of it"
            )
        return Layout(self.part * tokens, tokens)

    def tokens(self, samples: int) -> int:
        """How many tokens so many samples have.

        Raises:
            ValueError: the model does not hear as many; the message says why.
        """
        raise NotImplementedError


class Qwen2Audio(AudioFamily):
    """Qwen2-Audio: one window, of whose picture four columns are a token."""

    def tokens(self, samples: int) -> int:
        """See `AudioFamily`."""
        if samples > self.window:
            raise ValueError(
                f"it takes {samples / self.rate:.1f} s, and the model hears no more than"
                f" {self.window / self.rate:g} s at once: cut it into several"
            )
        columns = -(-samples // int(self.processor.hop_length))
        return _halved(columns)[1]

    def prepared(self, file: AudioFile) -> Mapping[str, torch.Tensor]:
        """See `MediumFamily`."""
        given = self.processor(
            file.unpacked(self.rate),
            sampling_rate=self.rate,
            return_attention_mask=True,
            padding="max_length",
            return_tensors="pt",
        )
        return {name: given[name] for name in ("input_features", "attention_mask")}

    def encoded(self, tower: Any, given: Mapping[str, torch.Tensor]) -> Encoding:
        """See `MediumFamily`; transformers has no method for this part of the model's `forward`."""
        from transformers.masking_utils import create_bidirectional_mask

        features = given["input_features"]
        seen, tokens = _halved(int(given["attention_mask"].sum()))
        width = (features.shape[-1] - 2) // 2 + 1
        mask = create_bidirectional_mask(
            config=tower.audio_tower.config,
            inputs_embeds=features.new_zeros(1, width, 1, dtype=tower.dtype),
            attention_mask=(torch.arange(width, device=features.device) < seen).long()[None],
        )
        heard = tower.audio_tower(features, attention_mask=mask).last_hidden_state
        return Encoding(tower.multi_modal_projector(heard)[0, :tokens])


class VoxtralAudio(AudioFamily):
    """Voxtral: as many windows as it takes, each of which has the same number of tokens."""

    def tokens(self, samples: int) -> int:
        """See `AudioFamily`."""
        audio = self.config.audio_config
        each = audio.max_source_positions * audio.hidden_size // audio.intermediate_size
        return -(-samples // self.window) * int(each)

    def prepared(self, file: AudioFile) -> Mapping[str, torch.Tensor]:
        """See `MediumFamily`."""
        given = self.processor(
            file.unpacked(self.rate),
            sampling_rate=self.rate,
            padding=True,
            truncation=False,
            pad_to_multiple_of=self.window,
            return_tensors="pt",
        )
        [picture] = given["input_features"]
        return {"input_features": torch.stack(picture.split(self.columns, dim=-1))}

    def encoded(self, tower: Any, given: Mapping[str, torch.Tensor]) -> Encoding:
        """See `MediumFamily`."""
        # One after the other: half an hour at once would take gigabytes.
        windows = given["input_features"].split(1)
        found = (tower.get_audio_features(each, return_dict=True) for each in windows)
        return Encoding(torch.cat([each.pooler_output for each in found]))


def _halved(columns: int) -> tuple[int, int]:
    """How many of a sound's columns are left behind the encoder's convolution, and behind what it
    ends with, which takes two at a time."""
    seen = (columns - 1) // 2 + 1
    return seen, (seen - 2) // 2 + 1
