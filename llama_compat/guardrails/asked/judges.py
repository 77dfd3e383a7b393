"""Models that judge texts or pictures: how each is asked, and what it answers with."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from llama_compat.guardrails.settings import JudgeFormatName, PictureFormatName, Place

Messages = Sequence[Mapping[str, Any]]

_WORD = re.compile(r"\s*([a-z]+)\b")


class JudgeFormat(Struct, frozen=True):
    """One way to ask a model.

    Attributes:
        messages: what it is asked, given the rules, the place of a text, and that.
        finds: whether its answer says that the text is against them; None where that is no answer.
        max_tokens: of its answer.
    """

    messages: Callable[[str, Place, str], Messages]
    finds: Callable[[str], bool | None]
    max_tokens: int


def _said_by(place: Place, text: str) -> Messages:
    """A turn of who said it; the model's own chat template has the rest of the question."""
    if place in ("output", "tool_arguments"):
        return [{"role": "user", "content": "-"}, {"role": "assistant", "content": text}]
    return [{"role": "user", "content": text}]


def _safe_or_not(answer: str) -> bool | None:
    # https://github.com/meta-llama/PurpleLlama, Llama Guard's model cards: `safe`, or `unsafe` and
    # the categories in the next line
    return _first_word(answer, against="unsafe", fine="safe")


def _yes_or_no(answer: str) -> bool | None:
    # https://ai.google.dev/gemma/docs/shieldgemma/model_card
    return _first_word(answer, against="yes", fine="no")


def _first_word(answer: str, *, against: str, fine: str) -> bool | None:
    """What an answer begins with; None where that is another word, such as `not` or `safety`."""
    word = _WORD.match(answer.lower())
    return {against: True, fine: False}.get(word[1]) if word is not None else None


def _shield_gemma(policy: str, place: Place, text: str) -> Messages:
    """The question of its model card, which it was trained with."""
    is_reply = place in ("output", "tool_arguments")
    whose = "Chatbot Response" if is_reply else "Human Question"
    asked = "an AI response to a prompt" if is_reply else "a user prompt"
    question = (
        f"You are a policy expert trying to help determine whether {asked} is in violation of the"
        f" defined safety policies.\n\n<start_of_turn>\n{whose}: {text}\n<end_of_turn>\n\n"
        f"Our safety principle is defined in the below:\n\n{policy}\n\n"
        f"Does the {whose.lower()} violate the above principle? Your answer must start with 'Yes'"
        " or 'No'. And then walk through step by step to be sure we answer correctly."
    )
    return [{"role": "user", "content": question}]


def _by_policy(policy: str, place: Place, text: str) -> Messages:
    # https://cookbook.openai.com/articles/gpt-oss-safeguard-guide: the policy is the system's
    rules = f"{policy}\n\nAnswer with 1 where the content is against this policy, otherwise 0."
    return [{"role": "system", "content": rules}, {"role": "user", "content": text}]


_ONE = re.compile(r"[01]\b")


def _one_or_zero(answer: str) -> bool | None:
    """The number, or a JSON object whose `violation` it is."""
    answer = answer.strip()
    if answer.startswith("{"):
        try:
            violation: Any = json.loads(answer).get("violation")
        except (ValueError, AttributeError):
            return None
        return bool(violation) if violation in (0, 1, True, False) else None
    found = _ONE.match(answer)
    return None if found is None else found.group() == "1"


JUDGES: Mapping[JudgeFormatName, JudgeFormat] = {
    "llama_guard": JudgeFormat(lambda _, place, text: _said_by(place, text), _safe_or_not, 64),
    "shield_gemma": JudgeFormat(_shield_gemma, _yes_or_no, 8),
    "gpt_oss_safeguard": JudgeFormat(_by_policy, _one_or_zero, 2048),
}
"""The formats, by what templates call them."""


class PictureFormat(Struct, frozen=True):
    """One way to ask a model about a picture.

    Attributes:
        messages: what it is asked, given the rules and the picture's URL.
        finds, max_tokens: as of `JudgeFormat`.
    """

    messages: Callable[[str, str], Messages]
    finds: Callable[[str], bool | None]
    max_tokens: int


def _shown(url: str, *texts: str) -> Mapping[str, Any]:
    parts: list[Mapping[str, Any]] = [{"type": "image_url", "image_url": {"url": url}}]
    return {
        "role": "user",
        "content": [*parts, *({"type": "text", "text": text} for text in texts)],
    }


def _guarded_picture(_: str, url: str) -> Messages:
    # https://www.llama.com/docs/model-cards-and-prompt-formats/llama-guard-4: a turn of the user
    return [_shown(url, "-")]


def _shield_gemma_picture(policy: str, url: str) -> Messages:
    # https://ai.google.dev/gemma/docs/shieldgemma/model_card_2
    question = (
        "You are a policy expert trying to help determine whether an user provided image is in"
        " violation of the defined safety policies.\n\n"
        f"Our safety principle is defined in the below:\n\n{policy}\n\n"
        "Does the image violate the above principle? Your answer must start with 'Yes' or 'No'. And"
        " then walk through step by step to be sure we answer correctly."
    )
    return [_shown(url, question)]


def _picture_by_policy(policy: str, url: str) -> Messages:
    rules = f"{policy}\n\nAnswer with 1 where the picture is against this policy, otherwise 0."
    return [{"role": "system", "content": rules}, _shown(url, "Judge this picture.")]


PICTURE_JUDGES: Mapping[PictureFormatName, PictureFormat] = {
    "llama_guard": PictureFormat(_guarded_picture, _safe_or_not, 64),
    "shield_gemma": PictureFormat(_shield_gemma_picture, _yes_or_no, 8),
    "policy": PictureFormat(_picture_by_policy, _one_or_zero, 2048),
}
"""The formats for pictures, by what templates call them."""
