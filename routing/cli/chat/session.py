"""Reads what somebody types, or what comes through a pipe, and has it answered."""

from __future__ import annotations

import base64
import mimetypes
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from routing.cli.chat.conversation import ChatError, Conversation
from routing.cli.chat.screen import show
from routing.cli.terminal import console as terminal_console
from routing.cli.terminal import harmless

if TYPE_CHECKING:
    from rich.console import Console

MAX_IMAGE_BYTES = 20 << 20

HISTORY_LINES = 1000

MANY_LINES = '"""'

HINT = "/help says what there is, /exit or Ctrl-D ends, Ctrl-C stops an answer."

HELP = f"""\
/model [NAME]   who answers from now on; without a name, who is there
/system [TEXT]  what every request begins with; without a text, what it is; `none` for nothing
/image FILE     a picture, or the URL of one, that goes with what is said next
/save FILE      write the conversation, as Markdown, or as JSON where FILE ends with .json
/reset          forget what was said
/exit           end, as Ctrl-D does
{MANY_LINES}             begins what has more than one line, and ends it; or end each line with \\
"""


def converse(conversation: Conversation) -> None:
    """Read lines from standard input and print the answers, until the input ends.

    Raises:
        ChatError: the server can't be talked to, and there is no person to ask something else.
    """
    console = terminal_console()
    if not sys.stdin.isatty():
        _through_a_pipe(conversation, console)
        return
    history = _history()
    _tell(console, f"Talking to {conversation.model}. {HINT}")
    try:
        for said in _typed(console):
            command, _, rest = said.strip().partition(" ")
            if command == "/exit":
                return
            try:
                if command in _COMMANDS:
                    told = _COMMANDS[command](conversation, rest.strip())
                    _tell(console, told)
                elif command.startswith("/") and not rest:
                    _tell(console, f"There is no {command}. {HINT}")
                elif command:
                    _answer(conversation, said, console)
            except ChatError as error:
                _tell(console, str(error), "red")
    finally:
        history()


def _tell(console: Console, text: str, style: str = "dim") -> None:
    console.print(harmless(text), style=style, soft_wrap=True)


def _through_a_pipe(conversation: Conversation, console: Console) -> None:
    for line in sys.stdin:
        said = line.rstrip("\n")
        if said.strip() == "/exit":
            return
        if said.strip() == "/reset":
            conversation.reset()
        elif said.strip():
            _answer(conversation, said, console)


def _answer(conversation: Conversation, said: str, console: Console) -> None:
    with closing(conversation.answers(said)) as answers:
        show(answers, console)


def _typed(console: Console) -> Iterator[str]:
    """What a person says, which may be of several lines; nothing of what Ctrl-C stops."""
    while True:
        try:
            line = input("> ")
            if line.lstrip().startswith(MANY_LINES):
                lines = [line.lstrip().removeprefix(MANY_LINES)]
                while not lines[-1].rstrip().endswith(MANY_LINES):
                    lines.append(input("… "))
                lines[-1] = lines[-1].rstrip().removesuffix(MANY_LINES)
                line = "\n".join(lines).strip("\n")
            while line.endswith("\\"):
                line = f"{line[:-1]}\n{input('… ')}"
            yield line
        except EOFError:
            console.print()
            return
        except KeyboardInterrupt:
            console.print()


def _history() -> Callable[[], None]:
    """Have lines edited and remembered, from one conversation to the next; what keeps them."""
    try:
        import readline
    except ImportError:  # Windows
        return lambda: None
    from platformdirs import user_state_path

    path = user_state_path("llama-compat") / "chat_history"
    with suppress(OSError):
        readline.read_history_file(path)
    readline.set_history_length(HISTORY_LINES)

    def keep() -> None:
        with suppress(OSError):  # a conversation without a history is one all the same
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(0o600)
            readline.write_history_file(path)

    return keep


# Commands -----------------------------------------------------------------------------------------


def _model(conversation: Conversation, name: str) -> str:
    if not name:
        others = ", ".join(conversation.models())
        return f"{conversation.model} answers. There are: {others}"
    known = conversation.models()
    if known and name not in known:
        raise ChatError(f"The server lists no model '{name}'. There are: {', '.join(known)}")
    conversation.model = name
    return f"{name} answers from now on."


def _system(conversation: Conversation, text: str) -> str:
    if text:
        conversation.system = None if text == "none" else text
    return conversation.system or "There is no system message."


def _image(conversation: Conversation, place: str) -> str:
    if place.startswith(("http://", "https://", "data:")):
        url = place
    else:
        path = Path(place).expanduser()
        kind, _ = mimetypes.guess_type(path.name)
        if not (kind or "").startswith("image/"):
            raise ChatError(f"'{place}' is no picture: give a file such as cat.png, or a URL.")
        try:
            if path.stat().st_size > MAX_IMAGE_BYTES:
                raise ChatError(f"{path} is larger than {MAX_IMAGE_BYTES >> 20} MiB.")
            data = base64.b64encode(path.read_bytes()).decode()
        except OSError as error:
            raise ChatError(f"{path} can't be read: {error.strerror or error}.") from error
        url = f"data:{kind};base64,{data}"
    conversation.images.append(url)
    count = len(conversation.images)
    return f"{count} picture{'s' * (count > 1)} will go with what you say next."


def _save(conversation: Conversation, name: str) -> str:
    if not name:
        raise ChatError("Say where to: /save talk.md, or /save talk.json")
    path = Path(name).expanduser()
    text = conversation.as_json() if path.suffix == ".json" else conversation.as_markdown()
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise ChatError(f"{path} is there already. Name another file.") from error
    except OSError as error:
        raise ChatError(f"{path} can't be written: {error.strerror or error}.") from error
    return f"{path} is written."


def _reset(conversation: Conversation, _: str) -> str:
    conversation.reset()
    return "What was said is forgotten."


def _help(_: Conversation, __: str) -> str:
    return HELP.rstrip()


_COMMANDS: dict[str, Callable[[Conversation, str], str]] = {
    "/help": _help,
    "/model": _model,
    "/system": _system,
    "/image": _image,
    "/save": _save,
    "/reset": _reset,
}
