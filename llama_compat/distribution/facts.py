"""What a template says of a model itself, over what the catalogue knows."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Literal

from pydantic import Field

from llama_compat.catalog.facts import Effort, Instructions, Sampling
from llama_compat.settings.model import TemplateSettings

_Count = Annotated[int, Field(ge=1)]
_Kind = Literal["text", "image", "audio", "video", "document"]


class FactsSettings(TemplateSettings):
    """Facts of a model, over those of the catalogue; what is not said stays as it is there."""

    like: Annotated[str, Field(pattern="^[a-z0-9-]+/.+$")] | None = None
    """Another model whose facts count: `VENDOR/MODEL`, as `llama-compat models` shows them. For
    deployments with names of their own, and servers that pass on what a vendor has."""

    context: _Count | None = None
    """Tokens that the model holds, prompt and reply together."""

    output: _Count | None = None
    """Tokens of a reply at most."""

    input: tuple[_Kind, ...] | None = None
    """What it reads."""

    makes: tuple[_Kind, ...] | None = None
    """What it gives."""

    sampling: Sampling | None = None
    """Which temperature, top_p and top_k it takes: `any`, none but the defaults (`default`), any as
    long as it does not think (`unthinking`), or then either a temperature or a top_p (`one`)."""

    refuses: tuple[str, ...] | None = None
    """Other parameters (OpenAI's names) that it answers with an error."""

    renamed: dict[str, str] | None = None
    """Parameters (OpenAI's names) that it knows by another of OpenAI's names."""

    reasoning: bool | None = None
    """Whether it can think."""

    thinking: Literal["effort", "adaptive", "budget", "level"] | None = None
    """How it is told how hard to think: OpenAI's word, Anthropic's, a number of tokens, or
    Gemini's word."""

    thinking_off: Literal["disabled", "between_tools", "omitted"] | None = None
    """How it is told not to think."""

    thinking_bound: bool | None = None
    """Whether it takes a thought of its own back only after what came before it when it was
    thought: the same instructions, tools and messages."""

    efforts: tuple[Effort, ...] | None = None
    """The words for how hard to think that it knows."""

    usual_effort: Effort | None = None
    """The one that counts where nobody says anything."""

    tools: bool | None = None
    """Whether it calls tools."""

    calls_in_responses: bool | None = None
    """Whether it calls functions in OpenAI's responses alone, and not in chats while it thinks."""

    forced_tools: bool | None = None
    """Whether it can be made to call one."""

    structured_output: bool | None = None
    """Whether its text can be held to a JSON Schema."""

    json_object: bool | None = None
    """Whether its text can be held to any JSON object."""

    json_beside_tools: bool | None = None
    """Whether its text can be held to either where it has tools, too; otherwise its reply comes as
    the arguments of a call."""

    web_search: bool | None = None
    """Whether its vendor searches the web for it, where that has a search."""

    prefill: bool | None = None
    """Whether it goes on with what it is taken to have said last, where nobody has said anything
    since: otherwise the user's turn comes after that, and asks it to."""

    instructions: Instructions | None = None
    """The only role in which it takes instructions."""

    released: date | None = None
    """When it came."""

    shutdown: date | None = None
    """When its vendor ends it."""

    successor: str | None = None
    """What its vendor names in its place."""

    def known(self) -> dict[str, Any]:
        """What is said, by attribute of `Facts`."""
        said = self.model_dump(exclude={"like"})
        return {name: value for name, value in said.items() if value is not None}
