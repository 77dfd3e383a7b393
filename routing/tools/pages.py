"""What a page of the web says: its title, and its text without the markup."""

from __future__ import annotations

from html.parser import HTMLParser

_UNSEEN = frozenset({"script", "style", "noscript", "template", "svg", "head"})
_BLOCKS = frozenset(
    (
        *("address", "article", "aside", "blockquote", "br", "dd", "div", "dl", "dt", "figure"),
        *("footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main"),
        *("nav", "ol", "p", "pre", "section", "table", "td", "th", "tr", "ul"),
    )
)


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.title: list[str] = []
        self.said: list[str] = []
        self._unseen = 0
        self._in_title = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "title":
            self._in_title = True
        elif tag == "body":
            self._unseen = 0
        elif tag in _UNSEEN:
            self._unseen += 1
        elif tag in _BLOCKS:
            self.said.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        elif tag in _UNSEEN:
            self._unseen = max(0, self._unseen - 1)
        elif tag in _BLOCKS:
            self.said.append("\n")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title.append(data)
        elif not self._unseen:
            self.said.append(data)


def page_text(html: str) -> tuple[str, str]:
    """The title of a page, and what it says, a line a block."""
    parser = _Text()
    parser.feed(html)
    parser.close()
    lines = (" ".join(line.split()) for line in "".join(parser.said).split("\n"))
    return " ".join("".join(parser.title).split()), "\n".join(filter(None, lines))
