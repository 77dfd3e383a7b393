"""Where a text names what tools have found: by a Markdown link, or by the number of a source.

Models are told to cite so (`FORM`), and most do without being told.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import structs

from llama_compat.dialects.counts import count
from llama_compat.hosted.vocabulary import Citation, Source, WebSource

FORM = (
    "When you use something of these, name it where you use it, as a Markdown link with the"
    " source's title and exactly its URL: [title](URL)."
)
"""What a model is told with what was found in the web."""

FILE_FORM = (
    "When you use something of these, name it where you use it, as a Markdown link with the file's"
    " name and exactly its id: [name](id)."
)
"""What it is told with what was found in files."""

_LONGEST = 2400
"""No link that is looked for is longer."""

_NAMED = re.compile(
    r"\[(?P<title>[^\[\]\n]{0,300})\]\((?P<url>https?://[^\s()]{1,2000}|file-\w{1,100})\)"
    r"|\[(?P<number>[0-9]{1,3})\](?!\()"
)


class Citer:
    """Finds the places in the text of one part, as it comes.

    Args:
        sources: what was found so far; more may be added.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self._held = ""
        self._before = 0

    def push(self, text: str) -> Iterator[Citation]:
        """The places that are whole with `text`."""
        if not self._sources:
            self._before += len(text)
            return
        self._held += text
        yield from self._found(at_end=False)

    def finish(self) -> Iterator[Citation]:
        """Those that only the end of the part makes whole; another part can begin then."""
        yield from self._found(at_end=True)
        self._held, self._before = "", 0

    def _found(self, *, at_end: bool) -> Iterator[Citation]:
        held, done = self._held, 0
        for match in _NAMED.finditer(held):
            if match.end() == len(held) and match["number"] and not at_end:
                break  # A parenthesis may follow.
            done = match.end()
            source = self._named(match)
            if source is not None:
                start, end = (self._before + each for each in match.span())
                yield Citation(start, end, source, match[0])
        opened = held.find("[", max(done, len(held) - _LONGEST))
        kept = len(held) if opened < 0 else opened
        self._before += kept
        self._held = held[kept:]

    def _named(self, match: re.Match[str]) -> Source | None:
        number = match["number"]
        if number is not None:
            place = int(number) - 1
            return self._sources[place] if 0 <= place < len(self._sources) else None
        url = _bare(match["url"])
        return next((each for each in self._sources if _bare(each.link) == url), None)


def _bare(url: str) -> str:
    return url.partition("#")[0].rstrip("/")


def cited_place(told: Mapping[str, Any], text: str) -> Citation | None:
    """What OpenAI's `start_index`, `end_index`, `url` and `title` name in `text`, as far as that
    goes: up to its end where no end is told. None where they name no address or no beginning."""
    start, end, url = count(told.get("start_index")), count(told.get("end_index")), told.get("url")
    if start is None or not isinstance(url, str):
        return None
    start = min(start, len(text))
    end = len(text) if end is None else max(start, min(end, len(text)))
    return Citation(start, end, WebSource(url, str(told.get("title") or "")), text[start:end])


class SaidParts:
    """A text that is one on the wire, as it comes, and where in it the vocabulary's parts begin:
    the places of citations are counted from there."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._length = 0
        self._begins: dict[int, int] = {}

    def say(self, part: int, text: str) -> None:
        """More of a part."""
        self._begins.setdefault(part, self._length)
        self._texts.append(text)
        self._length += len(text)

    @property
    def whole(self) -> str:
        """All of it."""
        return "".join(self._texts)

    def begin(self, part: int) -> int:
        """So many characters come before a part."""
        return self._begins.get(part, self._length)

    def placed(self, citation: Citation) -> tuple[int, Citation]:
        """The part that a citation of the whole begins in, and the citation there, as far as that
        part goes."""
        before = [part for part, begin in self._begins.items() if begin <= citation.start]
        part = max(before, key=self.begin, default=0)
        begin = self._begins.get(part, 0)
        end = min((each for each in self._begins.values() if each > begin), default=self._length)
        start, end = citation.start - begin, min(citation.end, end) - begin
        return part, structs.replace(citation, start=start, end=end)
