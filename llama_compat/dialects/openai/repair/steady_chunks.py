"""The chunks of a stream that differ from an earlier one in their text alone: nearly all of them.

What mending made of one such chunk is what it makes of the next, but for the text. So the bytes
around the text are compared with the earlier chunk's, and if they are the same, those around the
mended text are put around the new one. That costs a tenth of taking a chunk apart.
"""

from __future__ import annotations

import re

from llama_compat.wire.sse import is_utf8

_TEXT = re.compile(rb'"(?:content|text)": ?"')
_STRING = re.compile(rb'[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*')
"""The inside of a string in JSON (RFC 8259, section 7), but for its UTF-8."""

_STATE = re.compile(
    rb'"(?:tool_calls|function_call|role|reasoning\w*|error)"|"usage": ?\{|"finish_reason": ?"'
)
"""What mending remembers from one chunk to the next, or does at more than one place."""


class SteadyChunks:
    """Remembers one mended chunk of a stream, and mends those that are like it."""

    def __init__(self) -> None:
        self._before = self._after = self._mended_before = self._mended_after = b""
        self._mended_between = b""

    def learn(self, chunk: bytes, mended: bytes) -> None:
        """Remember what became of `chunk`, if its text is all that can vary.

        Args:
            chunk: the data of an event.
            mended: the whole event that the client got for it.
        """
        text, mended_text = _text_span(chunk), _text_span(mended)
        if text is None or mended_text is None or _STATE.search(chunk) or b'"role"' in mended:
            return
        (begin, end), (mended_begin, mended_end) = text, mended_text
        if chunk[begin:end] == mended[mended_begin:mended_end]:
            self._before, self._after = b"data: " + chunk[:begin], chunk[end:] + b"\n\n"
            self._mended_before, self._mended_after = mended[:mended_begin], mended[mended_end:]
            self._mended_between = self._mended_after + self._mended_before

    def mend(self, events: bytes, position: int) -> tuple[bytes, int]:
        """Mend the events from `position` on that are like the one that is remembered.

        Returns:
            What becomes of them, and where the first begins that is not like it.
        """
        before, after = self._before, self._after
        if not before:
            return b"", position
        texts = []
        begin = position
        while events.startswith(before, begin):
            text = _STRING.match(events, begin + len(before))
            assert text is not None
            if not events.startswith(after, text.end()):
                break
            texts.append(text[0])
            begin = text.end() + len(after)
        # Joined by what can't complete a character that one text lacks a part of.
        if not texts or not is_utf8(b" ".join(texts)):
            return b"", position
        mended = (self._mended_before, self._mended_between.join(texts), self._mended_after)
        return b"".join(mended), begin


def _text_span(chunk: bytes) -> tuple[int, int] | None:
    """Where the chunk's one text is, if it has one."""
    found = _TEXT.search(chunk)
    if found is None or _TEXT.search(chunk, found.end()):
        return None
    string = _STRING.match(chunk, found.end())
    assert string is not None
    end = string.end()
    return (found.end(), end) if chunk[end : end + 1] == b'"' else None
