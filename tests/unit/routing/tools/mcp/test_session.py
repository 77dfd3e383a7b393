"""What a model is shown of what a server's tool gave."""

from __future__ import annotations

import base64
from typing import Any

import pytest

pytest.importorskip("mcp", reason="pip install 'llama-compat[mcp]'")

from mcp.types import CallToolResult, ImageContent, TextContent

from routing.tools.mcp import session

PNG = base64.b64encode(b"\x89PNG").decode()


def gave(*content: Any) -> Any:
    return session._gave(CallToolResult(content=list(content)))


def test_images_are_those_that_vendors_take() -> None:
    found = gave(
        TextContent(type="text", text="So:"),
        ImageContent(type="image", data=PNG, mime_type="image/png"),
    )
    assert (found.text, found.images) == ("So:", [f"data:image/png;base64,{PNG}"])


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (PNG, "image/svg+xml"),
        (PNG, "text/html"),
        ("not base64!", "image/png"),
        ("", "image/png"),
        ("ü", "image/png"),
    ],
)
def test_what_no_vendor_takes_for_an_image_is_named(data: str, kind: str) -> None:
    found = gave(ImageContent(type="image", data=data, mime_type=kind))
    assert (found.text, found.images) == (f"[image: {kind} can't be shown here.]", [])


def test_images_that_are_too_large_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "MAX_IMAGES_BYTES", len(PNG))
    image = ImageContent(type="image", data=PNG, mime_type="image/png")
    found = gave(image, image)
    assert found.text == "[An image that is too large was left out.]"
    assert len(found.images) == 1
