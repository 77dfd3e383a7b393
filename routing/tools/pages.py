"""What a page of the web says: its title, and its text without the markup.

Anybody may have written it, so all of it is gone through once from its begin to its end, and never
again: Python's own `HTMLParser` looks for the end of each tag as far as the page goes, which for
20 kB of `<a ` took it 27 seconds. What is a tag, a comment or text is as browsers have it
(https://html.spec.whatwg.org/multipage/parsing.html#tokenization, read on 2026-11-28).
"""

from __future__ import annotations

import re
from html import unescape

_UNSEEN = frozenset({"script", "style", "noscript", "template", "svg"})
_BLOCKS = frozenset(
    (
        *("address", "article", "aside", "blockquote", "br", "dd", "div", "dl", "dt", "figure"),
        *("footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main"),
        *("nav", "ol", "p", "pre", "section", "table", "td", "th", "tr", "ul"),
    )
)

_ENDS = {
    name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE)
    for name in ("script", "style", "textarea", "title")
}
"""Where elements end in which nothing else is markup."""

_TAG = re.compile(r"</?([A-Za-z][^\s/>]*)")
_NO_TEXT = re.compile(r"<[!?/]")
_COMMENT_ENDS = re.compile(r"--!?>")
_ATTRIBUTES = re.compile(r"[^=>]*")
_VALUE_BEGINS = re.compile(r"=\s*")
_LONG_NUMBER = re.compile(r"&#(?:\d{12,}|[xX][0-9A-Fa-f]{12,});?")
"""A character by a number that is none's; Python takes none of thousands of digits."""


class _Text:
    """The text of a page, as it is found.

    Attributes:
        title: what the first title says.
        said: all else.
    """

    def __init__(self) -> None:
        self.title: str | None = None
        self.said: list[str] = []
        self._unseen = 0

    def begin(self, tag: str, *, is_closed: bool) -> None:
        """An element begins, and ends at once where it `is_closed`."""
        if tag == "body":
            self._unseen = 0
        elif tag in _UNSEEN:
            self._unseen += not (is_closed and tag == "svg")
        elif tag in _BLOCKS:
            self.said.append("\n")

    def end(self, tag: str) -> None:
        """An element ends."""
        if tag in _UNSEEN:
            self._unseen = max(0, self._unseen - 1)
        elif tag in _BLOCKS:
            self.said.append("\n")

    def say(self, text: str) -> None:
        """What stands between two tags."""
        if not self._unseen:
            self.said.append(_characters(text))

    def entitle(self, text: str) -> None:
        """What stands in an element `title`; drawings have some, too."""
        if self.title is None and not self._unseen:
            self.title = _characters(text)


def page_text(html: str) -> tuple[str, str]:
    """The title of a page, and what it says, a line a block."""
    found = _Text()
    at = 0
    while at < len(html):
        at = _read_on(html, at, found)
    lines = (" ".join(line.split()) for line in "".join(found.said).split("\n"))
    return " ".join((found.title or "").split()), "\n".join(filter(None, lines))


def _read_on(html: str, at: int, found: _Text) -> int:
    """Read text, a comment or a tag with what belongs to it alone; where it ends."""
    begin = html.find("<", at)
    if begin != at:
        end = len(html) if begin < 0 else begin
        found.say(html[at:end])
        return end
    if html.startswith("<!--", at):
        # `<!-->` is a comment, too.
        ended = _COMMENT_ENDS.search(html, at + 2)
        return ended.end() if ended else len(html)
    tag = _TAG.match(html, at)
    if tag is None:
        if _NO_TEXT.match(html, at):
            return html.find(">", at) + 1 or len(html)
        found.say("<")
        return at + 1
    end = _tag_end(html, tag.end())
    name = tag[1].lower()
    if html[at + 1] == "/":
        found.end(name)
        return end
    found.begin(name, is_closed=html.startswith("/>", end - 2))
    if name not in _ENDS:
        return end
    ended = _ENDS[name].search(html, end)
    inside = html[end : ended.start() if ended else len(html)]
    if name == "title":
        found.entitle(inside)
    elif name == "textarea":
        found.say(inside)
    return end + len(inside)


def _tag_end(html: str, at: int) -> int:
    """Where a tag ends whose attributes are at `at`; the end of all where it does not."""
    while True:
        matched = _ATTRIBUTES.match(html, at)
        at = matched.end() if matched else at
        value = _VALUE_BEGINS.match(html, at)
        if value is None:
            return min(at + 1, len(html))
        at = value.end()
        quote = html[at : at + 1]
        if quote in ('"', "'"):
            at = html.find(quote, at + 1) + 1
            if not at:
                return len(html)


def _characters(text: str) -> str:
    return unescape(_LONG_NUMBER.sub("\ufffd", text)) if "&" in text else text
