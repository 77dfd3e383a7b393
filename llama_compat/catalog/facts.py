"""The facts of one model, and how those of several sources are put together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any, Literal

from msgspec import Struct, structs

from llama_compat.types import ThinkingForm

Sampling = Literal["any", "unthinking", "one", "default"]
Instructions = Literal["system", "developer"]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]

EFFORTS: tuple[Effort, ...] = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""OpenAI's words for how hard to think, from the least on."""

INPUTS = ("text", "image", "audio", "video", "document")
"""What a model may read; the last is PDF and the like."""

OUTPUTS = (*INPUTS, "embeddings", "rerank")
"""What models give; the last two are of those that make no replies, as OpenRouter calls them."""


class Price(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dollars for a million tokens, where None is what costs as much as other input; and for what
    is not paid by the token, where None is what is not paid by that.

    Attributes:
        input, output, cached_input, cache_write: a million tokens each.
        thousand_searches: of rerank, or of the web, by the vendor.
        image: one that is made.
        million_characters: that are spoken.
        hour: of sound that is listened to.
    """

    input: float
    output: float
    cached_input: float | None = None
    cache_write: float | None = None
    thousand_searches: float | None = None
    image: float | None = None
    million_characters: float | None = None
    hour: float | None = None


class Facts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is known of one model; None for what nobody knows.

    Attributes:
        name: for people.
        context: tokens that it holds, prompt and reply together.
        output: tokens of a reply at most, what it thinks among them.
        input, makes: what it reads, and what it gives: text, image, audio, video, document.
        sampling: which temperature, top_p and top_k it takes: `any`; none but the defaults
            (`default`); any as long as it does not think (`unthinking`); or then either a
            temperature or a top_p (`one`).
        refuses: OpenAI's names of other parameters that it answers with an error.
        renamed: OpenAI's names of parameters that it knows by another of OpenAI's names.
        reasoning: whether it can think.
        thinking: in which form it is told how hard to think.
        thinking_off: in which form it is told not to think.
        thinking_bound: whether it takes a thought of its own back only after what came before it
            when it was thought.
        efforts: the words for that which it knows, of `EFFORTS`.
        usual_effort: the one that counts where nobody says anything.
        tools: whether it calls tools.
        forced_tools: whether it can be made to call one.
        structured_output: whether its text can be held to a JSON Schema.
        json_object: whether it can be held to any JSON object.
        json_beside_tools: whether it can be held to either where it has tools, too.
        calls_in_responses: whether it calls functions in OpenAI's responses alone, and not in chats
            while it thinks.
        web_search: whether its vendor searches the web for it, where that has a search.
        prefill: whether it goes on with what it is taken to have said last, where nobody has said
            anything since.
        instructions: the role in which instructions are given; None for whichever.
        released, shutdown: dates.
        successor: what its vendor names in its place.
        price: what it costs.
    """

    name: str | None = None
    context: int | None = None
    output: int | None = None
    input: tuple[str, ...] | None = None
    makes: tuple[str, ...] | None = None
    sampling: Sampling | None = None
    refuses: tuple[str, ...] | None = None
    renamed: dict[str, str] | None = None
    reasoning: bool | None = None
    thinking: Literal["effort", "adaptive", "budget", "level"] | None = None
    thinking_off: Literal["disabled", "between_tools", "omitted"] | None = None
    thinking_bound: bool | None = None
    efforts: tuple[Effort, ...] | None = None
    usual_effort: Effort | None = None
    tools: bool | None = None
    forced_tools: bool | None = None
    structured_output: bool | None = None
    json_object: bool | None = None
    json_beside_tools: bool | None = None
    calls_in_responses: bool | None = None
    web_search: bool | None = None
    prefill: bool | None = None
    instructions: Instructions | None = None
    released: date | None = None
    shutdown: date | None = None
    successor: str | None = None
    price: Price | None = None

    def known(self) -> dict[str, Any]:
        """What is known, by attribute."""
        return {name: value for name, value in structs.asdict(self).items() if value is not None}

    @property
    def thinking_form(self) -> ThinkingForm | None:
        """How it is told how hard to think, and given back what it thought; None where that is left
        to its dialect."""
        form = ThinkingForm(
            self.thinking,
            self.thinking_off,
            self.thinking_bound is True,
            self.calls_in_responses is True,
        )
        return None if form == ThinkingForm() else form

    def ends_within(self, days: int, today: date) -> bool:
        """Whether it is shut down so many days after `today`, or before."""
        return self.shutdown is not None and (self.shutdown - today).days <= days

    def reads(self, kind: str) -> bool:
        """Whether it reads `kind`, as far as anybody knows."""
        return self.input is None or kind in self.input


NOTHING = Facts()
"""Of a model that nobody knows."""


def over(*layers: Facts | Mapping[str, Any]) -> Facts:
    """The facts of several sources, of which a later one counts for more."""
    known: dict[str, Any] = {}
    for layer in layers:
        known |= layer.known() if isinstance(layer, Facts) else layer
    return Facts(**known)


def latest(dates: Iterable[date | None]) -> date | None:
    """The last of `dates`; None if one of them is open."""
    found = list(dates)
    return (
        None if None in found else max((each for each in found if each is not None), default=None)
    )
