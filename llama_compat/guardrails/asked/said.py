"""What somebody says in one place of a request or a reply, as checks are asked about it."""

from __future__ import annotations

from msgspec import Struct

from llama_compat.guardrails.settings import Place


class Said(Struct, frozen=True):
    """Texts that are asked about together.

    Attributes:
        place: where they stand.
        texts: they, each whole, or as much of one as a stream has brought since the last question.
        answer: of a reply, the same without what the model thought; None where that is not told
            apart.
        picture: what is shown instead of texts, as a `data:` URL.
    """

    place: Place
    texts: tuple[str, ...]
    answer: str | None = None
    picture: str | None = None

    @property
    def text(self) -> str:
        """All of it, as one."""
        return self.texts[0] if len(self.texts) == 1 else "\n".join(self.texts)
