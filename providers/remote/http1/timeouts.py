"""How long to wait: what a template says is what the client is given."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from llama_compat.settings.model import TemplateSettings

Seconds = Annotated[float, Field(gt=0)]


class Timeouts(TemplateSettings):
    """How long to wait for a server, in seconds."""

    connect: Seconds = 10
    """For a connection: the name's look-up, TCP, a proxy's tunnel, and the TLS handshake."""

    first_byte: Seconds = 600
    """For the head of the answer, and then for the first byte of its body: a model may think for
    minutes."""

    between_bytes: Seconds = 300
    """For the next bytes of the body, once the answer has begun and while they are wanted."""

    total: Seconds | None = None
    """For the whole exchange, from the wait for a connection to the body's end; None for as long as
    it takes."""
