"""FastChat's conversation templates: a conversation as the prompt that a model was trained on.

A worker tells its template (`/worker_get_conv_template`), and in it the number of a separator
style: how roles, texts and separators follow each other. `STYLES` says that for each.

Source: https://github.com/lm-sys/FastChat/blob/main/fastchat/conversation.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

RELEASED_STYLES = (
    "ADD_COLON_SINGLE",
    "ADD_COLON_TWO",
    "ADD_COLON_SPACE_SINGLE",
    "NO_COLON_SINGLE",
    "NO_COLON_TWO",
    "ADD_NEW_LINE_SINGLE",
    "LLAMA2",
    "CHATGLM",
    "CHATML",
    "CHATINTERN",
    "DOLLY",
    "RWKV",
    "PHOENIX",
    "ROBIN",
    "FALCON_CHAT",
    "CHATGLM3",
    "DEEPSEEK_CHAT",
    "METAMATH",
    "YUAN2",
)
"""The styles of the released package (0.2.36), counted from 1."""

SOURCE_STYLES = (*RELEASED_STYLES[:7], "LLAMA3", *RELEASED_STYLES[7:], "GEMMA", "CLLM", "DEFAULT")
"""Those of the source since: LLAMA3 came in between, and all after it moved up."""

_ONLY_IN_SOURCE = "max_image_size_mb"
"""A field that templates of the source have and released ones lack: by it the two are told apart,
since both call themselves 0.2.36."""

IMAGE_PLACEHOLDER = "$$<image>$$"


def _collapse_line_breaks(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n\n", "\n")


class Style(Struct, frozen=True):
    """How a prompt is put together; each part is a pattern.

    In patterns `{system}` is the system prompt, `{role}` the speaker's name, `{text}` what is said,
    `{sep}` and `{sep2}` the template's separators, and `{round}` counts the user's turns.

    Attributes:
        opening: the beginning.
        opening_needs: the beginning is there only if there is a system prompt, or a message in it.
        bare_opening: the beginning otherwise.
        user, assistant: one turn of each.
        first_user: the first turn, where it differs.
        open: the assistant's turn that the model is to fill.
        closing: replaces what the last turn ended with.
        clean: what is done to every text.
        takes_images: whether a turn begins with a placeholder for each of its images.
    """

    opening: str
    user: str
    assistant: str
    open: str
    opening_needs: Literal["nothing", "prompt", "message"] = "nothing"
    bare_opening: str = ""
    first_user: str | None = None
    closing: tuple[str, str] | None = None
    clean: Callable[[str], str] = str
    takes_images: bool = False


def _style(opening: str, turn: str, open: str, **others: Any) -> Style:
    """A style whose two roles speak alike."""
    return Style(opening, turn, turn, open, **others)


STYLES: dict[str, Style] = {
    "ADD_COLON_SINGLE": _style("{system}{sep}", "{role}: {text}{sep}", "{role}:"),
    "ADD_COLON_TWO": Style(
        "{system}{sep}",
        "{role}: {text}{sep}",
        "{role}: {text}{sep2}",
        "{role}:",
        takes_images=True,
    ),
    "ADD_COLON_SPACE_SINGLE": _style("{system}{sep}", "{role}: {text}{sep}", "{role}: "),
    "NO_COLON_SINGLE": _style("{system}", "{role}{text}{sep}", "{role}"),
    "NO_COLON_TWO": Style("{system}", "{role}{text}{sep}", "{role}{text}{sep2}", "{role}"),
    "ADD_NEW_LINE_SINGLE": _style(
        "{system}{sep}", "{role}\n{text}{sep}", "{role}\n", opening_needs="prompt"
    ),
    "LLAMA2": Style(
        "{system}",
        "{role} {text}{sep}",
        "{role} {text}{sep2}",
        "{role}",
        opening_needs="message",
        bare_opening="[INST] ",
        first_user="{text} ",
    ),
    "LLAMA3": _style(
        "<|begin_of_text|>{system}",
        "<|start_header_id|>{role}<|end_header_id|>\n\n{text}<|eot_id|>",
        "<|start_header_id|>{role}<|end_header_id|>\n\n",
        opening_needs="message",
        bare_opening="<|begin_of_text|>",
        clean=str.strip,
    ),
    "CHATGLM": Style(
        "{system}{sep}",
        "[Round {round}]{sep}{role}：{text}{sep}",
        "{role}：{text}{sep}",
        "{role}：",
        opening_needs="prompt",
    ),
    "CHATML": _style(
        "{system}{sep}\n", "{role}\n{text}{sep}\n", "{role}\n", opening_needs="prompt"
    ),
    "CHATINTERN": Style("{system}", "<s>{role}:{text}{sep}\n", "{role}:{text}{sep2}\n", "{role}:"),
    "DOLLY": Style("{system}", "{role}:\n{text}{sep}", "{role}:\n{text}{sep2}\n\n", "{role}:\n"),
    "RWKV": _style("{system}", "{role}: {text}\n\n", "{role}:", clean=_collapse_line_breaks),
    "PHOENIX": _style("{system}", "{role}: <s>{text}</s>", "{role}: <s>"),
    "ROBIN": _style("{system}{sep}", "{role}:\n{text}{sep}", "{role}:\n"),
    "FALCON_CHAT": _style(
        "{system}{sep}", "{role}: {text}{sep}", "{role}:", opening_needs="message"
    ),
    "CHATGLM3": _style("{system}", "{role}\n{text}", "{role}", opening_needs="message"),
    "DEEPSEEK_CHAT": Style("{system}", "{role}: {text}{sep}", "{role}: {text}{sep2}", "{role}:"),
    "METAMATH": Style(
        "{system}{sep}",
        "{role}:\n{text}{sep}",
        "{role}: {sep2}{text}",
        "{role}: {sep2}",
        opening_needs="prompt",
    ),
    "YUAN2": _style(
        "{system}{sep2}", "{text}<n>", "", opening_needs="message", closing=("<n>", "{sep}")
    ),
    "GEMMA": _style("<bos>", "<start_of_turn>{role}\n{text}{sep}", "<start_of_turn>{role}\n"),
    "DEFAULT": _style("{system}\n", "{role}: {text}\n", "{role}:"),
}


class ChatTurn(Struct, frozen=True):
    """What the user or the assistant said; `images` counts the images shown with it."""

    speaker: Literal["user", "assistant"]
    text: str
    images: int = 0


class ConversationTemplate(Struct, frozen=True):
    """A worker's template.

    Attributes:
        messages: examples that every conversation begins with, each a role's name and a text.
        style: the name of its separator style.
        stop: strings at which a turn ends.
        stop_token_ids: tokens at which a turn ends.
    """

    name: str
    style: str
    roles: tuple[str, str]
    system_template: str = "{system_message}"
    system_message: str = ""
    messages: tuple[tuple[str, str], ...] = ()
    sep: str = ""
    sep2: str = ""
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()


class _Wire(Struct):
    name: str
    roles: list[str]
    sep_style: int | None = None
    system_template: str = "{system_message}"
    system_message: str = ""
    messages: list[tuple[str, str]] = []
    sep: str | None = None
    sep2: str | None = None
    stop_str: str | list[str] | None = None
    stop_token_ids: list[int] | None = None


def parse_template(reply: Mapping[str, Any]) -> ConversationTemplate:
    """The template that a worker's `/worker_get_conv_template` tells.

    Raises:
        ValueError: it is none, or of a style that is not known here, which the message names.
    """
    conv = reply.get("conv")
    try:
        wire = msgspec.convert(conv, _Wire)
    except msgspec.ValidationError as error:
        raise ValueError(f"not a conversation template: {error}") from None
    if len(wire.roles) < 2:
        raise ValueError(f"the conversation template '{wire.name}' has fewer than two roles")
    assert isinstance(conv, Mapping)
    stop = [wire.stop_str] if isinstance(wire.stop_str, str) else wire.stop_str or []
    return ConversationTemplate(
        name=wire.name,
        style=_style_name(wire, SOURCE_STYLES if _ONLY_IN_SOURCE in conv else RELEASED_STYLES),
        roles=(wire.roles[0], wire.roles[1]),
        system_template=wire.system_template,
        system_message=wire.system_message,
        messages=tuple(wire.messages),
        sep=wire.sep or "",
        sep2=wire.sep2 or "",
        stop=tuple(text for text in stop if text),
        stop_token_ids=tuple(wire.stop_token_ids or ()),
    )


def _style_name(wire: _Wire, styles: Sequence[str]) -> str:
    number = wire.sep_style
    name = styles[number - 1] if number is not None and 0 < number <= len(styles) else None
    if name not in STYLES:
        shown = f"{number} ({name})" if name else number
        raise ValueError(
            f"the conversation template '{wire.name}' has the separator style {shown}, which is"
            " not supported"
        )
    return name


def render_prompt(
    template: ConversationTemplate, turns: Sequence[ChatTurn], system_message: str | None = None
) -> str:
    """The prompt that ends where the assistant is to speak.

    The template's examples come first. `system_message` replaces the template's own.
    """
    style = STYLES[template.style]
    if system_message is None:
        system_message = template.system_message
    system = template.system_template.replace("{system_message}", system_message)
    separators = {"sep": template.sep, "sep2": template.sep2}
    there = {"nothing": True, "prompt": bool(system), "message": bool(system_message)}
    opening = style.opening if there[style.opening_needs] else style.bare_opening
    prompt = [opening.format(system=system, **separators)]
    round_number = 1 if template.name == "chatglm2" else 0
    for number, turn in enumerate((*_examples(template), *turns)):
        pattern = style.user if turn.speaker == "user" else style.assistant
        if number == 0 and style.first_user is not None:
            pattern = style.first_user
        prompt.append(
            pattern.format(
                role=template.roles[turn.speaker == "assistant"],
                text=IMAGE_PLACEHOLDER * turn.images + style.clean(turn.text),
                round=round_number,
                **separators,
            )
        )
        round_number += turn.speaker == "assistant"
    prompt.append(style.open.format(role=template.roles[1], **separators))
    whole = "".join(prompt)
    if style.closing is not None:
        ending, closing = style.closing
        whole = whole.removesuffix(ending) + closing.format(**separators)
    return whole


def _examples(template: ConversationTemplate) -> list[ChatTurn]:
    return [
        ChatTurn("user" if role == template.roles[0] else "assistant", text)
        for role, text in template.messages
    ]
