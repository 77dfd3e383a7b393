"""How a vendor is reached: connections kept and lost, proxies, certificates."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration import wire
from tests.integration.relay import MESSAGES, Gateway, chat
from tests.integration.scripted_upstream import ScriptedUpstream
from tests.integration.server_process import running, write_template
from tests.integration.upstream_behaviours import TEXT

# A certificate for 127.0.0.1 that signs itself, and its key, which protects nothing.
CERTIFICATE = Path(__file__).parent / "tls" / "certificate.pem"
KEY = Path(__file__).parent / "tls" / "key.pem"


def test_connections_are_kept_and_used_again(gateway: Gateway, request_id: str) -> None:
    for _ in range(3):
        gateway.post(chat("kept/plain"), headers={"x-request-id": request_id})
    used = {one.connection for one in gateway.upstream.requests(request_id)}
    assert len(used) == 1


def test_a_connection_that_the_vendor_closed_while_idle_is_replaced(
    gateway: Gateway, request_id: str
) -> None:
    """Which is an attempt, as the vendor may have read the request before it closed it."""
    for attempts in ("1", "2", "2"):
        reply = gateway.post(chat("fresh/closes-when-reused"), headers={"x-request-id": request_id})
        assert reply.status == 200
        assert reply.headers["x-llama-compat-attempts"] == attempts
    answered = gateway.upstream.requests(request_id)
    assert len(answered) == len({one.connection for one in answered}) == 3
    name = "fresh/closes-when-reused"
    line = gateway.server.wait_for_log(f"via {name} (connection), {name}")
    assert request_id in line


def test_what_a_vendor_may_have_read_is_not_sent_twice_where_the_template_wants_no_retries(
    gateway: Gateway, request_id: str
) -> None:
    said = []
    for _ in range(3):
        reply = gateway.post(chat("once/closes-when-reused"), headers={"x-request-id": request_id})
        said.append((reply.status, reply.headers["x-llama-compat-attempts"]))
        if reply.status != 200:
            assert "Whether it has read the request is not known." in reply.error()["message"]
    assert said == [(200, "1"), (502, "1"), (200, "1")]


def test_a_request_that_the_vendor_dropped_is_not_sent_again_and_again(
    gateway: Gateway, request_id: str
) -> None:
    reply = gateway.post(chat("fresh/cut-before-reply"), headers={"x-request-id": request_id})
    assert reply.status == 502
    reply.error()
    assert len(gateway.upstream.requests(request_id)) <= 2


def test_a_redirect_never_takes_the_key_elsewhere(gateway: Gateway, request_id: str) -> None:
    reply = gateway.post(chat("redirect"), headers={"x-request-id": request_id})
    assert reply.status == 502
    assert "redirect" in reply.error()["message"].lower()
    (only,) = gateway.upstream.requests(request_id)
    assert (only.header("host") or "").startswith("127.0.0.1")


def test_a_proxy_of_the_template_is_used(gateway: Gateway, request_id: str) -> None:
    reply = gateway.post(chat("proxied/plain"), headers={"x-request-id": request_id})
    assert reply.status == 200
    recorded = gateway.upstream.request(request_id)
    assert recorded.path == "http://vendor.invalid/v1/chat/completions"


def provider(name: str, **config: Any) -> dict[str, Any]:
    return {"id": name, "type": "remote::openai", "config": {"api_key": "sk-any", **config}}


def plain_models(*providers: str) -> list[dict[str, Any]]:
    return [{"id": one, "provider": one, "provider_model": "plain"} for one in providers]


def test_a_proxy_of_the_environment_is_used(
    upstream: ScriptedUpstream, tmp_path: Path, request_id: str
) -> None:
    template = write_template(
        tmp_path / "proxied.yaml",
        providers=[
            provider("far", base_url="http://vendor.invalid/v1"),
            provider("near", base_url=upstream.url),
        ],
        models=[
            {"id": name, "provider": name, "provider_model": "plain"} for name in ("far", "near")
        ],
    )
    proxy = upstream.url.removesuffix("/v1")
    with running(template, env={"HTTP_PROXY": proxy, "NO_PROXY": "127.0.0.1"}) as server:
        for name in ("far", "near"):
            reply = wire.request(
                "POST",
                f"{server.base_url}/chat/completions",
                {"model": name, "messages": MESSAGES},
                {"x-request-id": request_id + name},
            )
            assert reply.status == 200, reply.body
    far, near = (upstream.request(request_id + name) for name in ("far", "near"))
    assert far.path == "http://vendor.invalid/v1/chat/completions"
    assert near.path == "/v1/chat/completions"


@pytest.fixture
def secure_upstream() -> Iterator[ScriptedUpstream]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(CERTIFICATE, KEY)
    with ScriptedUpstream(context) as one:
        yield one


def test_a_certificate_of_the_template_is_trusted_and_no_other(
    secure_upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    url = secure_upstream.url
    template = write_template(
        tmp_path / "secure.yaml",
        providers=[
            provider("trusting", base_url=url, ca_file=str(CERTIFICATE)),
            provider("wary", base_url=url),
        ],
        models=[
            {"id": name, "provider": name, "provider_model": "plain"}
            for name in ("trusting", "wary")
        ],
    )
    with running(template) as server:
        url = f"{server.base_url}/chat/completions"
        question = {"messages": MESSAGES}
        assert wire.request("POST", url, {**question, "model": "trusting"}).status == 200
        refused = wire.request("POST", url, {**question, "model": "wary"})
        assert refused.status == 502
        assert "certificate" in refused.error()["message"]


def test_comments_keep_a_waiting_stream_alive_where_the_template_wants_them(
    gateway: Gateway, request_id: str
) -> None:
    question = chat("alive/holds", stream=True)
    with gateway.open(question, headers={"x-request-id": request_id}) as reply:
        # The upstream has not said a word yet.
        assert reply.readline().startswith(b":")
        gateway.upstream.request(request_id).release()
        chunks = wire.chunks(reply)
    said = [choice["delta"].get("content") or "" for one in chunks for choice in one["choices"]]
    assert "".join(said) == TEXT


def test_an_error_after_such_a_comment_is_an_event(gateway: Gateway, request_id: str) -> None:
    question = chat("alive/status-429-in-time", stream=True)
    with gateway.open(question, headers={"x-request-id": request_id}) as reply:
        assert reply.readline().startswith(b":")
        gateway.upstream.request(request_id).release()
        *_, error, done = wire.events(reply)
    assert done == b"[DONE]"
    assert json.loads(error)["error"]["message"] == "Slow down."
