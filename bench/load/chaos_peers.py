"""The gateways of `bench.chaos`, each in front of the same three vendors."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import yaml

from bench.load.others import LITELLM, environment_with, tensorzero_with
from bench.load.peers import Gateway

FIRST_BYTE_SECONDS = 2
"""After so long without an answer each of them gives a vendor up."""

COOLDOWN_SECONDS = 15

ATTEMPTS = 4

Make = Callable[[Mapping[str, str], int, Path], Gateway]
"""Makes a gateway of the vendors' URLs by name, the port to listen on, and a folder for files."""


def ours(vendors: Mapping[str, str], port: int, scratch: Path) -> Gateway:
    """This project, with the policies that it has by default but for who gets a request."""
    template = {
        "server": {"port": port},
        "providers": [
            {
                "id": name,
                "type": "remote::passthrough",
                "config": {"base_url": url, "timeouts": {"first_byte": FIRST_BYTE_SECONDS}},
            }
            for name, url in vendors.items()
        ],
        "models": [
            {
                "id": "model",
                "targets": [{"provider": name, "model": "model"} for name in vendors],
                "routing": {
                    "balance": "least_busy",
                    "retries": {"attempts": ATTEMPTS},
                    "cooldown": {"seconds": COOLDOWN_SECONDS},
                },
            }
        ],
    }
    path = scratch / "ours.yaml"
    path.write_text(yaml.safe_dump(template))
    command = [str(Path(sys.executable).with_name("llama-compat")), "run", str(path)]
    return Gateway("llama_compat", port, command)


def tensorzero(vendors: Mapping[str, str], port: int, scratch: Path) -> Gateway:
    """TensorZero's gateway: the vendors in the order of the file, with no cooldown."""
    milliseconds = 1000 * FIRST_BYTE_SECONDS
    lines = [
        "[gateway]",
        "observability.enabled = false",
        "[models.model]",
        f"routing = {json.dumps(list(vendors))}",
    ]
    for name, url in vendors.items():
        lines += [
            f"[models.model.providers.{name}]",
            'type = "openai"',
            f'api_base = "{url}/"',
            'model_name = "model"',
            'api_key_location = "none"',
            f"timeouts.non_streaming.total_ms = {milliseconds}",
            f"timeouts.streaming.ttft_ms = {milliseconds}",
        ]
    return tensorzero_with("\n".join(lines) + "\n", scratch)


def litellm(vendors: Mapping[str, str], port: int, scratch: Path) -> Gateway:
    """LiteLLM's proxy with its router, one worker, no database."""
    config = {
        "model_list": [
            {
                "model_name": "model",
                "litellm_params": {
                    "model": "openai/model",
                    "api_base": url,
                    "api_key": "sk-benchmark",
                    "timeout": FIRST_BYTE_SECONDS,
                    "stream_timeout": FIRST_BYTE_SECONDS,
                    "max_retries": 0,
                },
            }
            for url in vendors.values()
        ],
        "router_settings": {
            "routing_strategy": "least-busy",
            "num_retries": ATTEMPTS - 1,
            "allowed_fails": 3,
            "cooldown_time": COOLDOWN_SECONDS,
        },
    }
    path = scratch / "litellm.yaml"
    path.write_text(yaml.safe_dump(config))
    # Its pins of these can't all be met from PyPI at once.
    unpinned = ("certifi", "litellm-proxy-extras", "litellm-enterprise")
    program = environment_with(LITELLM, extra="proxy", unpinned=unpinned) / "litellm"
    environment = {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # or it asks the network for prices at every start
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",  # as all the others here
    }
    command = [str(program), "--config", str(path), "--host", "127.0.0.1", "--port", str(port)]
    return Gateway("LiteLLM", port, command, environment, slow=True)


GATEWAYS: Mapping[str, Make] = {
    "llama_compat": ours,
    "TensorZero": tensorzero,
    "LiteLLM": litellm,
}
