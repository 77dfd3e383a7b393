"""What a provider's connections to its vendor need before they are there."""

from __future__ import annotations

import pytest

from providers.remote import http1
from providers.remote.config import RemoteConfig
from providers.remote.upstream.exchanges import Upstream

PROXY = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("config", "reads"),
    [
        ({"base_url": "http://127.0.0.1:9/v1"}, 0),
        ({"base_url": "https://vendor.example/v1"}, 1),
        # It may be the proxy that is asked by TLS.
        ({"base_url": "http://127.0.0.1:9/v1", "proxy": PROXY}, 1),
    ],
    ids=["plain", "tls", "proxy"],
)
async def test_the_system_s_certificates_are_read_before_tls_is_asked_for_and_not_for_less(
    monkeypatch: pytest.MonkeyPatch, config: dict[str, str], reads: int
) -> None:
    read: list[int] = []
    own = http1.default_tls_context
    monkeypatch.setattr(http1, "default_tls_context", lambda: read.append(1) or own())
    upstream = Upstream("vendor", RemoteConfig(**config), {})
    await upstream.start()
    await upstream.stop()
    assert len(read) == reads
