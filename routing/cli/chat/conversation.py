"""What was said so far, and the server that answers."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from typing import Any


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

    Attributes:
        model: who answers next.
        system: what every request begins with; None for nothing.
        images: the URLs of those that go with what is said next.

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
        self.system = system
        self.images: list[str] = []
        self._options: dict[str, Any] = {
            name: value
            for name, value in (("temperature", temperature), ("max_tokens", max_tokens))
            if value is not None
        }
        self._said: list[dict[str, Any]] = []
        self.model = model or self._first_model()

    def reset(self) -> None:
        """Forget what was said."""
        self._said.clear()
        self.images.clear()

    def models(self) -> list[str]:
        """What the server offers.

        Raises:
            ChatError: it does not say.
        """
        try:
            return [each.id for each in self._client.models.list().data]
        except self._openai.NotFoundError as error:
            raise ChatError(
                f"There is no OpenAI API at {self._base_url}: should that end in /v1?"
            ) from error
        except self._openai.OpenAIError as error:
            raise self._explained(error) from error

    def as_json(self) -> str:
        """All of it, as the messages of a request."""
        return json.dumps({"model": self.model, "messages": self._messages()}, indent=2) + "\n"

    def as_markdown(self) -> str:
        """All of it, for people."""
        return "\n".join(map(_as_markdown, self._messages()))

    def _messages(self) -> list[dict[str, Any]]:
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, *self._said]

    def answers(self, text: str) -> Generator[tuple[str, str], None, None]:
        """Say `text`; the answer as it comes, in pieces of (`reasoning` or `content`, text).

        What was answered is remembered when the iterator ends or is closed; what was not answered
        at all is forgotten.

        Raises:
            ChatError: the server refused or broke off.
        """
        parts = [{"type": "image_url", "image_url": {"url": each}} for each in self.images]
        content = [{"type": "text", "text": text}, *parts] if parts else text
        question = {"role": "user", "content": content}
        answer = ""
        try:
            messages: Any = [*self._messages(), question]
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
                self.images.clear()
                self._said += [question, {"role": "assistant", "content": answer}]

    def _first_model(self) -> str:
        models = self.models()
        if not models:
            raise ChatError(
                f"The server at {self._base_url} offers no models: name one, --model ID"
            )
        return models[0]

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


def _pieces(chunk: Any) -> Iterator[tuple[str, str]]:
    """The texts of a chunk; vendors call reasoning by two names, and some send both."""
    for choice in chunk.choices:
        delta = choice.delta
        reasoning = getattr(delta, "reasoning_content", None) or getattr(delta, "reasoning", None)
        if reasoning:
            yield "reasoning", reasoning
        if delta.content:
            yield "content", delta.content


def _as_markdown(message: dict[str, Any]) -> str:
    content = message["content"]
    if isinstance(content, list):
        text, *images = content
        content = "\n\n".join(
            [text["text"], *(f"![]({each['image_url']['url']})" for each in images)]
        )
    return f"## {message['role']}\n\n{content}\n"


def _message(error: Any) -> str:
    body = getattr(error, "body", None)
    message = body.get("message") if isinstance(body, dict) else None
    return str(message or getattr(error, "message", error))
