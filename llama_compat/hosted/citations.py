"""Where a text names what tools have found: by a Markdown link, or by the number of a source.

Models are told to cite so (`FORM`), and most do without being told.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, Protocol

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


class Sliced(Protocol):
    """A text of which places can be read: one that is whole, or one that grows."""

    def __len__(self) -> int: ...

    def __getitem__(self, place: slice, /) -> str: ...


def cited_place(told: Mapping[str, Any], text: Sliced) -> Citation | None:
    """What OpenAI's `start_index`, `end_index`, `url` and `title` name in `text`, as far as that
    goes: up to its end where no end is told. None where they name no address or no beginning."""
    start, end, url = count(told.get("start_index")), count(told.get("end_index")), told.get("url")
    if start is None or not isinstance(url, str):
        return None
    start = min(start, len(text))
    end = len(text) if end is None else max(start, min(end, len(text)))
    return Citation(start, end, WebSource(url, str(told.get("title") or "")), text[start:end])


_PIECE = 1024
"""Characters: what is gone through where a place in bytes is looked for."""


class _Piece(NamedTuple):
    text: str
    begin: int
    byte_begin: int


class CitedText:
    """A text as it comes. To read a place of it costs what stands there, however much of the text
    there is: a reply may cite after each of its words.

    Bytes are those of UTF-8, in which Google counts; half a surrogate pair is one.
    """

    def __init__(self) -> None:
        self._length = 0
        self._new: list[str] = []
        self._pieces = [_Piece("", 0, 0)]

    def say(self, text: str) -> None:
        """More of it."""
        self._new.append(text)
        self._length += len(text)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, place: slice, /) -> str:
        start, end, _ = place.indices(self._length)
        pieces, found = self._in_pieces(), []
        for index in range(_last(pieces, start, "begin"), len(pieces)):
            piece = pieces[index]
            if piece.begin >= end:
                break
            found.append(piece.text[max(0, start - piece.begin) : end - piece.begin])
        return "".join(found)

    @property
    def whole(self) -> str:
        """All of it."""
        return "".join((*(piece.text for piece in self._pieces), *self._new))

    def bytes_before(self, place: int) -> int:
        """How many bytes come before the character at `place`."""
        pieces = self._in_pieces()
        piece = pieces[_last(pieces, place, "begin")]
        return piece.byte_begin + len(_encoded(piece.text[: place - piece.begin]))

    def characters_before(self, place: int) -> int:
        """How many characters are whole before the byte at `place`."""
        pieces = self._in_pieces()
        piece = pieces[_last(pieces, place, "byte_begin")]
        before = _encoded(piece.text)[: place - piece.byte_begin]
        return piece.begin + len(before.decode("utf-8", "ignore"))

    def _in_pieces(self) -> Sequence[_Piece]:
        text, self._new = "".join(self._new), []
        for start in range(0, len(text), _PIECE):
            last = self._pieces[-1]
            byte_begin = last.byte_begin + len(_encoded(last.text))
            begin = last.begin + len(last.text)
            self._pieces.append(_Piece(text[start : start + _PIECE], begin, byte_begin))
        return self._pieces


def _last(pieces: Sequence[_Piece], place: int, begin: str) -> int:
    """Which is the last of `pieces` whose `begin` is not behind `place`."""
    return max(0, bisect_right(pieces, place, key=attrgetter(begin)) - 1)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")


class SaidParts:
    """A text that is one on the wire, as it comes, and where in it the vocabulary's parts begin:
    the places of citations are counted from there.

    Attributes:
        text: all of it.
    """

    def __init__(self) -> None:
        self.text = CitedText()
        self._begins: dict[int, int] = {}
        self._begun: list[tuple[int, int]] = []

    def say(self, part: int, text: str) -> None:
        """More of a part."""
        if part not in self._begins:
            begin = self._begins[part] = len(self.text)
            self._begun.append((begin, part))
        self.text.say(text)

    def begin(self, part: int) -> int:
        """So many characters come before a part."""
        return self._begins.get(part, len(self.text))

    def placed(self, citation: Citation) -> tuple[int, Citation]:
        """The part that a citation of the whole begins in, and the citation there, as far as that
        part goes."""
        place = bisect_right(self._begun, citation.start, key=itemgetter(0))
        begin, part = self._begun[place - 1] if place else (0, 0)
        behind = self._begun[place][0] if place < len(self._begun) else len(self.text)
        start, end = citation.start - begin, min(citation.end, behind) - begin
        return part, structs.replace(citation, start=start, end=end)
