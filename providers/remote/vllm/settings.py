"""Where vLLM publishes what its KV cache holds."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

from llama_compat.settings.model import TemplateSettings
from providers.remote.openai.settings import RemoteOpenAIConfig


def _check_endpoint(endpoint: str) -> str:
    if not re.fullmatch(r"(?:tcp://[^\s*]+:\d+|ipc://\S+)", endpoint):
        raise ValueError("expected where it can be connected to, such as tcp://10.0.0.7:5557")
    return endpoint


Endpoint = Annotated[str, AfterValidator(_check_endpoint)]


class KVEventsSettings(TemplateSettings):
    """The events of a server's KV cache, as it is started with them: `--kv-events-config
    '{"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "tcp://*:5557",
    "replay_endpoint": "tcp://*:5558"}'`."""

    endpoint: Endpoint
    """Where it publishes them."""

    replay_endpoint: Endpoint | None = None
    """Where it repeats those that were missed. Without it, what is missed is not known, and all
    that was known before is forgotten."""

    topic: str = ""
    """The topic that it publishes them under."""


class VLLMConfig(RemoteOpenAIConfig):
    """The settings of vLLM's server, which may tell what its KV cache holds."""

    kv_events: KVEventsSettings | None = None
    """Where the server publishes what its KV cache holds, for `balance: prefix`; without it, what
    was sent there is taken to be there. `pip install 'llama-compat[kv-events]'`."""
