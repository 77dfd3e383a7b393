"""`llama-compat run TEMPLATE`, counting its own event loop's tasks whenever it gets SIGUSR1.

    python -m bench.load.counted_server TEMPLATE FILE

Each count is a line of FILE.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from llama_compat.distribution import load_distribution
from providers.registry import config_model
from routing.process.server import serve


def main(template: str, counts: Path) -> int:
    def count(*_: object) -> None:
        with counts.open("a") as file:
            file.write(f"{len(asyncio.all_tasks())}\n")

    signal.signal(signal.SIGUSR1, count)
    return serve(load_distribution(template, config_model), source=template)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
