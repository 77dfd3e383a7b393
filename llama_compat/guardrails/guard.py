"""The checks at work on one request: what they found, and what its texts become."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Container, Iterator, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from msgspec import Raw

from llama_compat.errors import APIError
from llama_compat.guardrails.asked.entities import EntityScanner
from llama_compat.guardrails.asked.pictures import Pictures
from llama_compat.guardrails.asked.presidio import Entity, entities_in
from llama_compat.guardrails.asked.said import Said
from llama_compat.guardrails.checks import Checks, Sought
from llama_compat.guardrails.documents import (
    has_twins,
    is_text,
    mapped,
    rejoined,
    said_in,
    without_tokens,
)
from llama_compat.guardrails.guarded_text import GuardedText, is_json, seen_together
from llama_compat.guardrails.hidden import Hidden, Restorer
from llama_compat.guardrails.scanner import Watch
from llama_compat.guardrails.settings import CheckSettings, Place
from llama_compat.media.images import is_remote
from llama_compat.off_loop import off_loop
from llama_compat.text.changes import Traces
from llama_compat.types import (
    ImageContent,
    TextContent,
)
from llama_compat.wire.json_fields import from_raw, to_raw

log = logging.getLogger(__name__)

_P = ParamSpec("_P")
_T = TypeVar("_T")

_PROMPTS = ("prompt", "input")
"""What may be the ids of tokens, in which nobody here can read."""

ERROR = "error"
"""The verdict on a text that a check could not tell."""


Ask = Callable[[CheckSettings, Said], Awaitable[bool]]
"""Asks a check about what is said; whether it found anything."""

FetchPicture = Callable[[CheckSettings, str], Awaitable[str]]
"""Gets the picture at a URL for a check, as a `data:` URL."""


class Blocked(Exception):
    """A check has stopped what it looked through.

    Args:
        check: its name.
    """

    def __init__(self, check: str) -> None:
        super().__init__(check)
        self.check = check


class Guard:
    """Has the texts of one request and of its reply looked through, each of them once.

    Args:
        checks: what they have to pass.
        ask: asks a check about a whole text, or a picture; whether it found anything.
        fetch: gets pictures that a request names by their URLs.

    Attributes:
        checks: the same.
        verdicts: how often each check came to each verdict, by its name and that: `block`,
            `redact`, `monitor` or `error`.
    """

    def __init__(
        self, checks: Checks, ask: Ask | None = None, fetch: FetchPicture | None = None
    ) -> None:
        self.checks = checks
        self._ask = ask
        self._fetch = fetch
        self._pictures = Pictures(self._tells, self._fetched, self._hidden_picture)
        self.verdicts: dict[tuple[str, str], int] = {}
        self._hidden = Hidden()
        self._seen: dict[tuple[Place, str, bool], str] = {}
        self._failure: APIError | None = None

    @property
    def changes_replies(self) -> bool:
        """Whether a reply may be another when it has been looked through."""
        return self.checks.watches_replies or self._hidden.comes_back

    @property
    def puts_back(self) -> bool:
        """Whether a reply may have words in it in whose place something is put back."""
        return self._hidden.comes_back

    @property
    def changes_pictures(self) -> bool:
        """Whether a picture is sent as another than it came, or as a word."""
        return self._pictures.changes

    @property
    def hid(self) -> list[str]:
        """The names of the checks that have hidden something."""
        return [name for name, verdict in self.verdicts if verdict == "redact"]

    # Texts ----------------------------------------------------------------------------------------

    def text(self, place: Place, text: str, *, is_said: bool = True) -> str:
        """What is shown of a whole text.

        Args:
            place: where it stands.
            text: all of it.
            is_said: whether somebody says it; otherwise it is a word of an API, or the name of a
                member, in which nobody is meant.

        Raises:
            Blocked: nothing is.
        """
        is_said = is_said and self._has_entities(place)
        if not is_said and self.checks.has_nothing(place, text):
            return text
        key = (place, text, is_said)
        known = self._seen.get(key)
        if known is None:
            guarded = GuardedText(self, place, in_json=is_json(place, text), is_said=is_said)
            known = self._seen[key] = guarded.push(text) + guarded.flush()
            self._seen[place, known, is_said] = known
        return known

    def _has_entities(self, place: Place) -> bool:
        return self.checks.is_slow and bool(self.checks.with_entities(place))

    async def off_loop(
        self, size: int, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """What `work` returns, which looks through input of `size` bytes: in a thread where that
        takes long."""
        if self.checks.is_slow:
            return await asyncio.to_thread(work, *args, **kwargs)
        return await off_loop(size, work, *args, **kwargs)

    def watches(self, place: Place) -> list[Watch]:
        """What is looked for in a text of `place`, and noted here."""
        return [self._watch(each) for each in self.checks.sought(place)]

    def _watch(self, sought: Sought) -> Watch:
        def found(of: int, text: str) -> str:
            check = sought.checks[of]
            self.note(check.name, sought.mode)
            if sought.mode == "block":
                raise Blocked(check.name)
            if sought.mode == "monitor":
                return text
            label = sought.search.patterns[of].label
            return self._hidden.word(label, text, restore=check.restore)

        return Watch(sought.search, found, hides=sought.mode == "redact")

    def entity_scanners(self, place: Place, *, in_json: bool) -> list[EntityScanner]:
        """What looks for entities in a text of `place`, in turn, and notes them here."""
        checks = self.checks.with_entities(place)
        return [self._entity_scanner(each, in_json=in_json) for each in checks]

    def _entity_scanner(self, check: CheckSettings, *, in_json: bool) -> EntityScanner:
        settings = check.presidio
        assert settings is not None

        def find(text: str) -> Sequence[Entity]:
            try:
                began = time.monotonic()
                found = entities_in(text, settings)
                if time.monotonic() - began > check.seconds:
                    raise TimeoutError  # a thread can't be ended, but what it says is too late
                return found
            except Exception as error:
                self._failed(check, error)
                return ()

        def found(kind: str, text: str) -> str:
            self.note(check.name, check.mode)
            if check.mode == "block":
                raise Blocked(check.name)
            if check.mode == "monitor":
                return text
            return self._hidden.word(kind, text, restore=check.restore)

        return EntityScanner(find, found, check.window, in_json=in_json)

    def _failed(self, check: CheckSettings, error: Exception) -> None:
        """A check could not tell.

        Raises:
            Blocked: it wants nothing to go by then.
        """
        log.warning("guardrail '%s' could not tell: %s", check.name, error or "too late")
        self.note(check.name, ERROR)
        if check.on_error == "block":
            raise Blocked(check.name) from None

    def restorer(self, *, in_json: bool) -> Restorer | None:
        """Puts back what was hidden, in a text of the reply; None where nothing is put back."""
        return Restorer(self._hidden, in_json=in_json) if self._hidden.comes_back else None

    def words_in(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Where in a text the words for what was hidden are, and what is put back."""
        return self._hidden.find(text)

    def note(self, check: str, verdict: str) -> None:
        """A check has come to a verdict."""
        key = (check, verdict)
        self.verdicts[key] = self.verdicts.get(key, 0) + 1

    async def ask(self, said: Said) -> None:
        """Have the checks asked about what is said that are asked about whole texts.

        Raises:
            Blocked: it may not go by.
        """
        if self._ask is None:
            return
        for check in self.checks.asked(said.place):
            if not (said.answer if check.valid_json and said.answer is not None else said.text):
                continue
            await self._tells(check, said)

    async def look(self, pictures: Mapping[Place, Sequence[str]]) -> None:
        """Have the checks asked about pictures that are asked about those.

        Args:
            pictures: their URLs, by where they stand.

        Raises:
            Blocked: one may not go by.
        """
        for place, urls in pictures.items():
            for check in self.checks.with_pictures(place):
                try:
                    self._pictures.count(check, place, urls)
                except ValueError as error:
                    self._failed(check, error)
                else:
                    await self._pictures.look(check, place, urls)

    def unseen(self, *places: Place) -> None:
        """Nobody could tell which pictures there are in `places`.

        Raises:
            Blocked: a check wants nothing to go by then.
        """
        for check in self.checks.settings:
            if check.images is not None and not set(places).isdisjoint(check.places):
                self._failed(check, ValueError("which pictures there are can't be told"))

    async def _tells(self, check: CheckSettings, said: Said) -> bool:
        """Whether a check finds anything, which is noted.

        Raises:
            Blocked: what is said may not go by.
        """
        if self._ask is None:
            return False
        try:
            async with asyncio.timeout(check.seconds):
                found = await self._ask(check, said)
        except Exception as error:
            self._failed(check, error)
            found = False
        if found:
            self.note(check.name, check.mode)
            if check.mode == "block":
                raise Blocked(check.name)
        return found

    def shown_picture(self, picture: ImageContent) -> ImageContent | TextContent:
        """A picture as it may be shown, or the word for one that may not."""
        return self._pictures.shown(picture)

    def shown_pictures(self, urls: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
        """The URLs of pictures as they may be shown, and the words for those that may not."""
        shown = [self._pictures.shown(ImageContent(each)) for each in urls]
        return (
            tuple(each.url for each in shown if isinstance(each, ImageContent)),
            [each.text for each in shown if isinstance(each, TextContent)],
        )

    async def _fetched(self, check: CheckSettings, url: str) -> str | None:
        assert self._fetch is not None
        try:
            if not is_remote(url):
                raise ValueError("a picture is where nobody here can see it")
            return await self._fetch(check, url)
        except Exception as error:
            self._failed(check, error)
        return None

    def _hidden_picture(self, digest: str) -> str:
        return self._hidden.word("IMAGE", digest, restore=False)

    def undecided(self, place: Place, *, by_patterns: bool = False) -> None:
        """Nobody could look through a text of `place`.

        Args:
            place: where it stands.
            by_patterns: whether only those could not that look for patterns.

        Raises:
            Blocked: a check wants nothing to go by then.
        """
        for check in self.checks.settings:
            if place not in check.places or check.images is not None:
                continue
            if by_patterns and not check.has_patterns:
                continue
            self.note(check.name, ERROR)
            if check.on_error == "block":
                raise Blocked(check.name)

    # What is asked --------------------------------------------------------------------------------

    def fields(
        self, fields: Mapping[str, Raw], spoken: Container[tuple[Place, str]] = ()
    ) -> Mapping[str, Raw]:
        """The members of a request as they may go on.

        Args:
            fields: they.
            spoken: the texts in them that somebody says, with where they stand.

        Raises:
            Blocked: they may not.
        """

        def visit(place: Place, text: str) -> str:
            return self.text(place, text, is_said=(place, text) in spoken)

        changed: dict[str, Raw] = {}
        renamed: dict[str, str] = {}
        for name, raw in fields.items():
            shown = self._word("input", name)
            if shown != name:
                renamed[name] = shown
            value = from_raw(raw)
            if name in _PROMPTS and not is_text(value):
                self.undecided("input")
            new = mapped(value, "input", visit, name)
            new = rejoined(new, "input", self._together, name)
            if new is not value or has_twins(bytes(raw), value):
                changed[name] = to_raw(new)
        if renamed:
            return {renamed.get(name, name): changed.get(name, fields[name]) for name in fields}
        return {**fields, **changed} if changed else fields

    def _together(self, place: Place, texts: Sequence[str]) -> Sequence[str]:
        return seen_together(self, place, texts)

    def _word(self, place: Place, text: str) -> str:
        return self.text(place, text, is_said=False)

    # What is said ---------------------------------------------------------------------------------

    def said(
        self, value: Any, known: dict[str, str] | None = None, traces: Traces | None = None
    ) -> Any:
        """A whole reply, decoded from JSON, or what an event of one says, as the client may have
        it.

        Args:
            value: that.
            known: texts that were looked through before, with what is shown of each; those in
                which something is found come to it.
            traces: told what has become of each text that is another.

        Raises:
            Blocked: it may not.
        """

        spoken = set(said_in(value, "output")) if self.checks.is_slow_with_replies else ()
        has_nothing = self.checks.has_nothing

        def visit(place: Place, text: str) -> str:
            place = "output" if place == "input" else place
            if known is not None and text in known:
                again = known[text]
                return text if again == text else again
            is_said = (place, text) in spoken
            if not is_said and has_nothing(place, text) and not self._hidden.comes_back:
                return text
            in_json = is_json(place, text)
            counts_bytes = None if traces is None or in_json else traces.in_bytes
            said = GuardedText(
                self,
                place,
                in_json=in_json,
                is_reply=True,
                is_said=is_said,
                counts_bytes=counts_bytes,
            )
            shown = said.push(text) + said.flush()
            if not said.may_differ:
                shown = text  # escapes that were taken out need not come back
            if traces is not None and counts_bytes is not None and shown != text:
                traces.note(text, shown, said.changes)
            if known is not None:
                known[text] = shown
            return shown

        def together(place: Place, texts: Sequence[str]) -> Sequence[str]:
            # What an event repeats of several texts was looked through as they came.
            is_new = known is None or not {*texts} <= {*known, *known.values()}
            return self._together(place, texts) if is_new else texts

        shown = rejoined(mapped(value, "output", visit), "output", together)
        return shown if shown is value else without_tokens(shown)

    async def look_through(self, error: APIError) -> None:
        """Make of an error what its client may have of it: vendors repeat in theirs what they were
        asked. Of what is blocked its words are left out; what kind of error it is stays."""
        if not self.changes_replies or error is self._failure:
            return
        self._failure = error
        size = len(error.message) + (0 if error.vendor_body is None else len(error.vendor_body[1]))
        try:
            await self.off_loop(size, self._look_through, error)
        except Blocked as stop:
            error.message = f"What was said of it is withheld by the guardrail '{stop.check}'."
            error.param = error.vendor_body = None

    def _look_through(self, error: APIError) -> None:
        words = {name: getattr(error, name) for name in ("message", "type", "param", "code")}
        for name, shown in self.said(words).items():
            setattr(error, name, shown)
        if error.vendor_body is not None:
            body = error.vendor_body[1]
            try:
                told = from_raw(Raw(body))
            except ValueError:
                told = body.decode(errors="replace")
            if self.said(told) is not told:
                error.vendor_body = None  # it is said in our words
