"""How long it takes to put a tool call together, and that the time grows with its length alone.

    python -m bench.tool_calls [--rounds 5]

Arguments of 256 KB and 1 MB come in fragments of 8 bytes: as structured fragments, as fragments
that repeat the name each time, and as text in each tool format. The two lengths take turns and the
best CPU time of each counts. A linear way takes 4 times as long for 4 times as much. Prints the
figures and writes them to `bench/results/tool_calls.json`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence

from bench.machine import write_results
from llama_compat.tools.calls import ToolCallAssembler
from llama_compat.tools.formats import FORMATS, reply_parser
from llama_compat.types import (
    AnyToolCall,
    Delta,
    ToolCall,
    ToolCallDelta,
    ToolDefinition,
)

SIZES = (256 * 1024, 1024 * 1024)
FRAGMENT_BYTES = 8
TOOL = ToolDefinition("save", parameters={"type": "object", "properties": {"text": {}}})


def arguments_of(size: int) -> str:
    """A JSON object of `size` bytes, in whose text quotes and brackets occur."""
    line = 'say \\"{[x]}\\" '
    room = size - len('{"text":""}')
    lines = line * (room // len(line))
    return f'{{"text":"{lines.ljust(room, ".")}"}}'


def pieces_of(text: str) -> list[str]:
    """`text` in fragments."""
    return [text[at : at + FRAGMENT_BYTES] for at in range(0, len(text), FRAGMENT_BYTES)]


def assemble(pieces: Sequence[str], tool_name: str | None = None) -> Sequence[Delta]:
    """The events of structured fragments; `tool_name` is repeated on each."""
    assembler = ToolCallAssembler()
    events = assembler.push(index=0, call_id="c1", tool_name=TOOL.tool_name)
    for piece in pieces:
        events += assembler.push(index=0, tool_name=tool_name, arguments=piece)
    return events + assembler.finish()


def parse_text(tool_format: str, pieces: Sequence[str]) -> Sequence[Delta]:
    """The events of a reply's text."""
    parser = reply_parser(FORMATS[tool_format], [TOOL])
    events: list[Delta] = []
    for piece in pieces:
        events += parser.push(piece)
    return events + parser.flush()


def written(tool_format: str, arguments: str) -> list[str]:
    """A reply of one call, in pieces."""
    call: AnyToolCall = ToolCall("c1", TOOL.tool_name, json.loads(arguments), arguments)
    return pieces_of(FORMATS[tool_format].render_calls([call]))


def subjects(arguments: str) -> dict[str, Callable[[], Sequence[Delta]]]:
    """What is measured for arguments of one length, by name."""
    pieces = pieces_of(arguments)
    texts = {name: written(name, arguments) for name in FORMATS if name != "qwen"}
    return {
        "fragments": lambda: assemble(pieces),
        "fragments, name repeated": lambda: assemble(pieces, TOOL.tool_name),
        **{
            f"text, {name}": (lambda name=name, text=text: parse_text(name, text))
            for name, text in texts.items()
        },
    }


def seconds(run: Callable[[], Sequence[Delta]]) -> float:
    """The CPU time of `run`, which has to end with a call that succeeded."""
    begun = time.process_time()
    events = run()
    elapsed = time.process_time() - begun
    last = events[-1]
    assert isinstance(last, ToolCallDelta)
    assert isinstance(last.tool_call, ToolCall)
    return elapsed


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds

    small, large = (subjects(arguments_of(size)) for size in SIZES)
    best: dict[str, list[float]] = {name: [float("inf")] * 2 for name in small}
    for _ in range(rounds):
        for name in small:
            for place, run in enumerate((small[name], large[name])):
                best[name][place] = min(best[name][place], seconds(run))

    print(f"{'':26}{'256 KB':>10}{'1 MB':>10}{'ratio':>8}")
    results = {}
    for name, (first, second) in best.items():
        results[name] = {
            "seconds_256_kb": round(first, 4),
            "seconds_1_mb": round(second, 4),
            "ratio": round(second / first, 2),
        }
        print(f"{name:26}{first:9.3f}s{second:9.3f}s{second / first:8.2f}")
    path = write_results("tool_calls", {"fragment_bytes": FRAGMENT_BYTES, **results})
    print(f"written to {path}")


if __name__ == "__main__":
    main()
