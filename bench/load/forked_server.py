"""`llama-compat run TEMPLATE --workers N`, but for workers that are forked after the imports.

    python -m bench.load.forked_server TEMPLATE N

What the workers of today would share if they were no fresh interpreters. An experiment: nobody
replaces a worker that dies.
"""

from __future__ import annotations

import gc
import os
import signal
import sys

from llama_compat.distribution import load_distribution
from providers.registry import config_model
from routing.server import _listen, serve_on


def main(template: str, workers: int) -> None:
    distribution = load_distribution(template, config_model)
    listener = _listen(distribution.server.host, distribution.server.port, template)
    gc.collect()
    gc.freeze()  # or the first collection of each worker would touch every page
    children = []
    for _ in range(workers):
        child = os.fork()
        if not child:
            sys.exit(serve_on(listener, distribution))
        children.append(child)
    listener.close()

    def end(*_: object) -> None:
        for child in children:
            os.kill(child, signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
