"""A conversation with a running server, in a terminal or through a pipe."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

CONTROL_CHARACTERS = {
    code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"
}
"""What a model's text may not do to the terminal: move its cursor, change its colours, ring."""

HELP = "/reset forgets what was said, /exit or Ctrl-D ends, Ctrl-C stops an answer."


class ChatError(Exception):
    """The conversation can't go on; the message is a sentence that says what to do."""


class Conversation:
    """The messages so far, and the server that answers.

    Args:
        base_url: the server's OpenAI base URL.
        model: the model's id; None for the first that the server lists.
        system: a system message that every request begins with.
        api_key: the server's key; None if it wants none.
        temperature, max_tokens: sent along if given.

    Raises:
        ChatError: no server answers there, or it has no model.
    """

    def __init__(
        self,
        base_url: str,
        *,
        model: str | None = None,
        system: str | None = None,
        api_key: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
    ) -> None:
        # Imported here because it takes longer to load than everything else together.
        import openai

        self._openai = openai
        self._base_url = base_url
        self._client = openai.OpenAI(base_url=base_url, api_key=api_key or "none", max_retries=0)
        self._system = [{"role": "system", "content": system}] if system else []
        self._options: dict[str, Any] = {
            name: value
            for name, value in (("temperature", temperature), ("max_tokens", max_tokens))
            if value is not None
        }
        self._said: list[dict[str, str]] = []
        self.model = model or self._first_model()

    def reset(self) -> None:
        """Forget what was said."""
        self._said.clear()

    def answers(self, text: str) -> Generator[tuple[str, str], None, None]:
        """Say `text`; the answer as it comes, in pieces of (`reasoning` or `content`, text).

        What was answered is remembered when the iterator ends or is closed; what was not answered
        at all is forgotten.

        Raises:
            ChatError: the server refused or broke off.
        """
        question = {"role": "user", "content": text}
        answer = ""
        try:
            messages: Any = [*self._system, *self._said, question]
            with self._client.chat.completions.create(
                model=self.model, messages=messages, stream=True, **self._options
            ) as stream:
                for chunk in stream:
                    for kind, piece in _pieces(chunk):
                        if kind == "content":
                            answer += piece
                        yield kind, piece
        except Exception as error:  # the client's own, or its HTTP library's in mid-stream
            raise self._explained(error) from error
        finally:
            if answer:
                self._said += [question, {"role": "assistant", "content": answer}]

    def _first_model(self) -> str:
        try:
            models = self._client.models.list().data
        except self._openai.NotFoundError as error:
            raise ChatError(
                f"There is no OpenAI API at {self._base_url}: should that end in /v1?"
            ) from error
        except self._openai.OpenAIError as error:
            raise self._explained(error) from error
        if not models:
            raise ChatError(
                f"The server at {self._base_url} offers no models: name one, --model ID"
            )
        return models[0].id

    def _explained(self, error: Exception) -> ChatError:
        openai = self._openai
        if isinstance(error, openai.APITimeoutError):
            return ChatError(f"The server at {self._base_url} took too long to answer.")
        if isinstance(error, openai.APIConnectionError):
            return ChatError(
                f"No server answers at {self._base_url}. Start one (llama-compat run starter), or"
                " name another with --base-url."
            )
        if isinstance(error, openai.AuthenticationError):
            return ChatError(
                f"The server at {self._base_url} wants an API key: give one of its keys with"
                " --api-key or in OPENAI_API_KEY."
            )
        if isinstance(error, openai.APIStatusError):
            return ChatError(f"The server answered {error.status_code}: {_message(error)}")
        return ChatError(f"The answer broke off: {_message(error)}")


def converse(conversation: Conversation) -> None:
    """Read lines from standard input and print the answers, until the input ends.

    Raises:
        ChatError: the server can't be talked to, and there is no person to ask something else.
    """
    from rich.console import Console

    console = Console(highlight=False)
    person = sys.stdin.isatty()
    if person:
        with suppress(ImportError):
            import readline  # noqa: F401  (gives input() its editing and history)

        console.print(f"Talking to {conversation.model}. {HELP}", style="dim", markup=False)
    for line in _lines(console, person):
        command = line.strip()
        if command == "/exit":
            return
        if command == "/reset":
            conversation.reset()
        elif command.startswith("/") and person and " " not in command:
            console.print(f"There is no {command}. {HELP}", style="dim", markup=False)
        elif command:
            try:
                _print_answer(conversation, line, console)
            except ChatError as error:
                if not person:
                    raise
                console.print(str(error), style="red", markup=False)


def _lines(console: Console, person: bool) -> Iterator[str]:
    if not person:
        for line in sys.stdin:
            yield line.rstrip("\n")
        return
    while True:
        try:
            yield input("> ")
        except EOFError:
            console.print()
            return
        except KeyboardInterrupt:
            console.print()


def _print_answer(conversation: Conversation, text: str, console: Console) -> None:
    printed = ""
    with closing(conversation.answers(text)) as answers:
        try:
            for kind, piece in answers:
                if printed and printed != kind:
                    console.print("\n")
                printed = kind
                shown = piece.translate(CONTROL_CHARACTERS)
                if kind == "reasoning":
                    console.print(shown, style="dim", end="", markup=False, soft_wrap=True)
                else:
                    print(shown, end="", flush=True)  # as it is, tabs too
        except KeyboardInterrupt:
            console.print(" [stopped]", style="dim", markup=False, end="" if printed else "\n")
        finally:
            if printed:
                console.print()


def _pieces(chunk: Any) -> Iterator[tuple[str, str]]:
    """The texts of a chunk; vendors call reasoning by two names, and some send both."""
    for choice in chunk.choices:
        delta = choice.delta
        reasoning = getattr(delta, "reasoning_content", None) or getattr(delta, "reasoning", None)
        if reasoning:
            yield "reasoning", reasoning
        if delta.content:
            yield "content", delta.content


def _message(error: Any) -> str:
    body = getattr(error, "body", None)
    message = body.get("message") if isinstance(body, dict) else None
    return str(message or getattr(error, "message", error))
