"""What every worker needs, imported once in the process that they are forked from.

Importing it here is all that this process does: it has no threads, no event loop and no sockets
that a fork could inherit half-done. A worker shares the memory of what is imported
(`python -m bench.workers` measures how much that is), and starts at once.
"""

import gc

import providers.remote.openai.provider
import routing.process.server

__all__ = ["providers", "routing"]

gc.collect()
gc.freeze()  # or the first collection in each worker would write to every page, and so copy it
