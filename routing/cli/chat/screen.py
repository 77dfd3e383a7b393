"""How answers are shown: as they come through a pipe, as Markdown in a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from routing.cli.terminal import stripped

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live


def show(pieces: Iterable[tuple[str, str]], console: Console) -> None:
    """Print an answer as it comes; Ctrl-C stops it.

    Args:
        pieces: of it, each with what it is: `reasoning` or `content`.
        console: where; a terminal that can move its cursor is shown Markdown.
    """
    is_rendered = console.is_terminal and not console.is_dumb_terminal
    content: _Blocks | _Plain = _Blocks(console) if is_rendered else _Plain()
    last = ""
    is_open = False  # whether what was shown last has no end of its line
    try:
        for kind, piece in pieces:
            if last and last != kind:
                content.pause()
                console.print("\n")
            last = kind
            is_open = kind == "reasoning" or not is_rendered
            shown = stripped(piece)
            if kind == "reasoning":
                console.print(shown, style="dim", end="", markup=False, soft_wrap=True)
            else:
                content.add(shown)
    except KeyboardInterrupt:
        content.pause()
        console.print(" [stopped]", style="dim", markup=False, end="")
        is_open = True
    finally:
        content.pause()
        if is_open:
            console.print()


class _Plain:
    """Text as it is, tabs too."""

    def add(self, text: str) -> None:
        print(text, end="", flush=True)

    def pause(self) -> None:
        """Nothing is held back."""


class _Blocks:
    """Markdown, a block at a time: what has begun is shown as it is until it has ended."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._begun = ""
        self._live: Live | None = None

    def add(self, text: str) -> None:
        from rich.live import Live
        from rich.text import Text

        if self._live is None:
            self._live = Live(console=self._console, transient=True, refresh_per_second=8)
            self._live.start()
        *blocks, self._begun = blocks_of(self._begun + text)
        for block in blocks:
            self._print(block)
        lines = self._begun.splitlines()[-max(1, self._console.height - 4) :]
        self._live.update(Text("\n".join(lines)))

    def pause(self) -> None:
        """Show what there is."""
        if self._live is not None:
            self._live.update("")
            self._live.stop()
            self._live = None
        begun, self._begun = self._begun, ""
        if begun.strip():
            self._print(begun)

    def _print(self, block: str) -> None:
        from rich.markdown import Markdown

        # Not as links: a terminal would show their text alone, and it is the model's.
        self._console.print(Markdown(block, hyperlinks=False, code_theme="ansi_dark"))
        self._console.print()


def blocks_of(text: str) -> list[str]:
    """`text` as Markdown's blocks, which end with an empty line outside of code; the last has not
    ended, and may be empty."""
    blocks, block, fence = [], "", ""
    for line in text.splitlines(keepends=True):
        stripped = line.strip()
        if fence:
            if stripped.startswith(fence) and not stripped.strip(fence[0]):
                fence = ""
        elif stripped.startswith(("```", "~~~")):
            fence = stripped[: len(stripped) - len(stripped.lstrip(stripped[0]))]
        elif not stripped and line.endswith("\n"):
            if block.strip():
                blocks.append(block)
            block = ""
            continue
        block += line
    return [*blocks, block]
