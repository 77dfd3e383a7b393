"""End-of-turn markers that leak into a text: cut off, and turned into the right stop reason.

Servers that continue a prompt may give the special tokens of the model's chat template as text.
"""

from __future__ import annotations

from collections.abc import Sequence

from llama_compat.text.markers import find_first, held_back
from llama_compat.types import StopReason, TokenLogProbs

END_OF_TURN_MARKERS: dict[str, StopReason] = {
    "<|eot_id|>": StopReason.end_of_turn,
    "<|eom_id|>": StopReason.end_of_message,
    "<|im_end|>": StopReason.end_of_turn,
}


class EndOfTurnCutter:
    """Cuts a text that comes in pieces at the first end-of-turn marker; no part of one is shown.

    Args:
        only_at_end: the text may hold markers of its own, as an echoed prompt does: only one that
            nothing follows is cut.

    Attributes:
        stop_reason: what the marker means, once one has been met.
    """

    def __init__(self, *, only_at_end: bool = False) -> None:
        self.stop_reason: StopReason | None = None
        self._only_at_end = only_at_end
        self._held = ""
        self._tokens_ended = False
        self._held_token: tuple[TokenLogProbs, ...] = ()

    def push(self, text: str) -> str:
        """More of the text, as far as it is certain to be shown."""
        if self.stop_reason is not None and not self._only_at_end:
            return ""
        text = self._held + text
        shown = self._before_marker(text)
        if shown is None:
            self.stop_reason = None
            shown = len(text) - held_back(text, END_OF_TURN_MARKERS)
        self._held = text[shown:]
        return text[:shown]

    def flush(self) -> str:
        """What was held back and is no marker after all."""
        held, self._held = self._held, ""
        return held if self.stop_reason is None else ""

    def push_logprobs(
        self, logprobs: Sequence[TokenLogProbs] | None
    ) -> tuple[TokenLogProbs, ...] | None:
        """The log probabilities of the tokens that are shown; a marker is one token."""
        if logprobs is None:
            return None
        if self._tokens_ended:
            return ()
        tokens = (*self._held_token, *logprobs)
        self._held_token = ()
        if self._only_at_end:
            if tokens and tokens[-1].chosen.token in END_OF_TURN_MARKERS:
                tokens, self._held_token = tokens[:-1], tokens[-1:]
            return tokens
        for index, token in enumerate(tokens):
            if token.chosen.token in END_OF_TURN_MARKERS:
                self._tokens_ended = True
                return tokens[:index]
        return tokens

    def _before_marker(self, text: str) -> int | None:
        if self._only_at_end:
            for marker, reason in END_OF_TURN_MARKERS.items():
                if text.endswith(marker):
                    self.stop_reason = reason
                    return len(text) - len(marker)
            return None
        found = find_first(text, END_OF_TURN_MARKERS)
        if found is None:
            return None
        self.stop_reason = END_OF_TURN_MARKERS[found[1]]
        return found[0]
