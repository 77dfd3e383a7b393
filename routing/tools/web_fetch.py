"""Reading a page of the web."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, Literal

from llama_compat.hosted.citations import FORM
from llama_compat.hosted.settings import WebFetchSettings
from llama_compat.hosted.vocabulary import WebFetchTool, WebSource
from llama_compat.types import ToolDefinition
from providers.remote import http1
from providers.remote.upstream.public_web import TooManyRedirectsError, follow
from routing.tools.domains import Domains
from routing.tools.pages import page_text
from routing.tools.queries import Uses
from routing.tools.tool import Gave, ToolError

MAX_URL = 2000

CHARACTERS_A_TOKEN = 4
"""About, where a request bounds what it wants of a page in tokens."""

_TEXTS = ("text/", "application/json", "application/xml", "application/xhtml+xml")

_PARAMETERS = {
    "type": "object",
    "properties": {"url": {"type": "string", "description": "Where it is."}},
    "required": ["url"],
    "additionalProperties": False,
}

_HEADERS = http1.encode_headers(
    {
        "user-agent": http1.USER_AGENT,
        "accept": "text/html, text/*;q=0.9, application/json;q=0.8",
        "accept-encoding": "identity",
    }
)


class WebFetch:
    """Reading pages, for one reply.

    Args:
        asked: what the request says of it.
        settings: what the template says.
        client: connects to what it may.
        is_known: whether a URL was named in the conversation, or found.
        uses: how often pages may be read in the reply.
    """

    kind: Literal["web_fetch"] = "web_fetch"
    name = "web_fetch"
    server = ""
    asks = False

    def __init__(
        self,
        asked: WebFetchTool,
        settings: WebFetchSettings,
        client: http1.Client,
        is_known: Callable[[str], bool],
        uses: Uses,
    ) -> None:
        self._settings = settings
        self._client = client
        self._is_known = is_known
        self._domains = (
            Domains(asked.allowed_domains, asked.blocked_domains),
            Domains(tuple(settings.allowed_domains), tuple(settings.blocked_domains)),
        )
        self._uses = uses.within(asked.max_uses)
        tokens = asked.max_content_tokens
        self._most = None if tokens is None else tokens * CHARACTERS_A_TOKEN
        self.definition = ToolDefinition(
            asked.name, "Read what is at an address of the web that you know of.", _PARAMETERS
        )

    async def run(self, arguments: Mapping[str, Any]) -> Gave:
        """Read one more.

        Raises:
            ToolError: it was done as often as may be, it may not be read, or can't be.
        """
        url = arguments.get("url")
        if not isinstance(url, str) or not url.startswith(("http://", "https://")):
            raise ToolError("invalid_tool_input", "'url' must be an http(s) URL.")
        if len(url) > MAX_URL:
            raise ToolError("url_too_long", f"The URL is longer than {MAX_URL} characters.")
        if not self._settings.any_url and not self._is_known(url):
            raise ToolError(
                "url_not_allowed", "Only what is named in the conversation may be read."
            )
        self._uses.take("No more pages may be read. Answer now.")
        return await self._read(url)

    async def _read(self, url: str) -> Gave:
        limit = self._settings.max_bytes
        try:
            response, url = await follow(self._client, url, _HEADERS, self._check)
            with closing(response):
                if response.status != 200:
                    raise ToolError("url_not_accessible", f"Its server said {response.status}.")
                kind, _, rest = response.headers.get("content-type", "text/plain").partition(";")
                kind = kind.strip().lower()
                if not kind.startswith(_TEXTS):
                    raise ToolError("unsupported_content_type", f"It is '{kind[:80]}', no text.")
                body = await response.read(limit)
        except http1.AnswerTooLargeError:
            raise ToolError("url_not_accessible", f"It is larger than {limit} bytes.") from None
        except TooManyRedirectsError:
            raise ToolError("url_not_accessible", "It redirects too often.") from None
        except http1.HTTPTimeout:
            raise ToolError("url_not_accessible", "Its server takes too long.") from None
        except (http1.HTTPError, ValueError):
            raise ToolError("url_not_accessible", "Its server can't be reached.") from None
        title, text = await asyncio.to_thread(_said, body, kind, rest)
        if self._most is not None:
            text = text[: self._most]
        return Gave(f"{text}\n\n{FORM}" if text else "It is empty.", [WebSource(url, title, text)])

    def _check(self, url: str) -> None:
        if not all(each.has(url) for each in self._domains):
            raise ToolError("url_not_allowed", "Its domain is not among those that may be read.")


def _said(body: bytes, kind: str, rest: str) -> tuple[str, str]:
    _, _, charset = rest.partition("charset=")
    try:
        text = body.decode(charset.strip().strip("\"'") or "utf-8", "replace")
    except (LookupError, ValueError):  # Python has codecs that can't read all, or nothing.
        text = body.decode("utf-8", "replace")
    return page_text(text) if "html" in kind else ("", text)
