"""The gateway of the relay tests: `remote::openai` in front of the scripted upstream."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from http.client import HTTPResponse
from pathlib import Path
from typing import Any, ClassVar

import openai

# The two modules of behaviours are imported for what they register.
from tests.integration import upstream_behaviours, upstream_failures, wire  # noqa: F401
from tests.integration.scripted_upstream import BEHAVIOURS, ScriptedUpstream
from tests.integration.server_process import ServerProcess, free_port, write_template

UPSTREAM_KEY = "sk-upstream-key-that-nobody-else-sees"

MESSAGES: list[Any] = [{"role": "user", "content": "Hello?"}]


def gateway_template(path: Path, upstream: ScriptedUpstream) -> Path:
    """A template with one model a behaviour, as `scripted/NAME`, and providers that differ."""
    base_urls = {
        "scripted": upstream.url,
        "impatient": upstream.url,
        "hurried": upstream.url,
        "fresh": upstream.url,
        "once": upstream.url,
        "kept": upstream.url,
        "catalog": upstream.url,
        "proxied": "http://vendor.invalid/v1",
        "alive": upstream.url,
        "refused": f"http://127.0.0.1:{free_port()}/v1",
        "nameless": "http://no-such-host.invalid/v1",
        "not-tls": upstream.url.replace("http://", "https://"),
    }
    configs: dict[str, dict[str, Any]] = {
        name: {"base_url": url, "api_key": "${env.UPSTREAM_KEY}"} for name, url in base_urls.items()
    }
    configs["impatient"]["timeouts"] = {"first_byte": 0.3, "between_bytes": 0.3}
    configs["hurried"]["timeouts"] = {"total": 0.5}
    configs["catalog"]["models"] = "discover"
    configs["proxied"]["proxy"] = upstream.url.removesuffix("/v1")
    configs["alive"]["keepalive_seconds"] = 0.05
    models = [
        {"id": f"scripted/{name}", "provider": "scripted", "provider_model": name}
        for name in BEHAVIOURS
        if not name.startswith("/")
    ]
    models += [
        {"id": f"{provider}/{name}", "provider": provider, "provider_model": name}
        for provider, name in [
            ("impatient", "holds"),
            ("impatient", "hangs-between-events"),
            ("impatient", "hangs-inside-body"),
            ("hurried", "holds"),
            ("hurried", "comments-forever"),
            ("kept", "plain"),
            ("fresh", "closes-when-reused"),
            ("fresh", "cut-before-reply"),
            ("alive", "holds"),
            ("alive", "status-429-in-time"),
            ("proxied", "plain"),
            ("refused", "plain"),
            ("nameless", "plain"),
            ("not-tls", "plain"),
        ]
    ]
    models.append(
        {
            "id": "once/closes-when-reused",
            "provider": "once",
            "provider_model": "closes-when-reused",
            "routing": {"retries": {"same_target": 0}},
        }
    )
    return write_template(
        path,
        server={"max_body_bytes": 32_000_000},
        providers=[
            {"id": name, "type": "remote::openai", "config": config}
            for name, config in configs.items()
        ],
        models=models,
    )


class Gateway:
    """The server process, the upstream behind it, and ways to talk to it."""

    ENVIRONMENT: ClassVar[Mapping[str, str]] = {"UPSTREAM_KEY": UPSTREAM_KEY}

    def __init__(self, server: ServerProcess, upstream: ScriptedUpstream) -> None:
        self.server = server
        self.upstream = upstream
        self.base_url = server.base_url
        self.openai = openai.OpenAI(
            base_url=self.base_url, api_key="none", max_retries=0, timeout=60
        )

    def close(self) -> None:
        self.openai.close()

    def open(
        self,
        body: bytes | dict[str, Any],
        *,
        path: str = "/chat/completions",
        headers: Mapping[str, str] | None = None,
    ) -> AbstractContextManager[HTTPResponse]:
        """Post to the gateway; a reply whose body is read by the test."""
        return wire.open_reply("POST", self.base_url + path, body, headers)

    def post(
        self,
        body: bytes | dict[str, Any],
        *,
        path: str = "/chat/completions",
        headers: Mapping[str, str] | None = None,
    ) -> wire.Reply:
        """Post to the gateway; the whole reply."""
        return wire.request("POST", self.base_url + path, body, headers)


def chat(name: str, **members: Any) -> dict[str, Any]:
    """A chat request for the behaviour `name`, or for `PROVIDER/NAME`."""
    model = name if "/" in name else f"scripted/{name}"
    return {"model": model, "messages": MESSAGES, **members}
