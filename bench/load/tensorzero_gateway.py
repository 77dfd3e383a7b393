"""TensorZero's gateway, which lives in whatever Python process has started it.

    python tensorzero_gateway.py CONFIG

Runs in TensorZero's own environment, and imports nothing of ours.
"""

import signal
import sys

import tensorzero

gateway = tensorzero._start_http_gateway(
    config_file=sys.argv[1],
    clickhouse_url=None,
    postgres_url=None,
    valkey_url=None,
    async_setup=False,
)
print("listening at", gateway.base_url, flush=True)  # a port of its own choice
signal.pause()
