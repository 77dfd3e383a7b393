"""What Prometheus is told, of one worker and of several, and the dashboard's every query."""

from __future__ import annotations

import json
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import prometheus
from tests.integration import wire
from tests.integration.relay import MESSAGES
from tests.integration.scripted_upstream import ScriptedUpstream
from tests.integration.server_process import ServerProcess, running, write_template
from tests.tiny_models import make_model

pytestmark = pytest.mark.ours

pytest.importorskip("prometheus_client")

KEY = "a-key-that-nobody-else-has"

DASHBOARD = Path(__file__).parents[2] / "routing" / "observability" / "telemetry" / "grafana.json"

WAIT_SECONDS = 60


def template(folder: Path, upstream: ScriptedUpstream, *more: dict[str, Any]) -> Path:
    config = {"base_url": upstream.url}
    price = {"input": 1, "output": 10}
    one_at_a_time = {"id": "narrow", "type": "remote::passthrough", "config": config}
    return write_template(
        folder / "metrics.yaml",
        server={
            "api_keys": [KEY],
            "metrics": True,
            "storage": f"sqlite:{folder / 'operations.sqlite'}",
            "records": {},
        },
        providers=[
            {"id": "echo", "type": "local::echo"},
            {"id": "up", "type": "remote::openai", "config": config},
            {**one_at_a_time, "max_concurrent": 1, "max_waiting": 0},
            *more[:1],
        ],
        models=[
            {"id": "echo", "provider": "echo", "price": price},
            {"id": "plain", "provider": "up", "price": price},
            {"id": "comments-forever", "provider": "up"},
            {"id": "holds", "provider": "narrow"},
            {
                "id": "safe",
                "targets": [
                    {"provider": "up", "model": "status-500"},
                    {"provider": "echo", "model": "echo", "priority": 1},
                ],
                "routing": {
                    "retries": {"same_target": 0},
                    "cooldown": {"failures": 1, "seconds": 600},
                },
            },
            *more[1:],
        ],
    )


class Asked:
    """A server that is asked things, and then how it is."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.headers = {"authorization": f"Bearer {KEY}"}

    def ask(self, model: str, **members: Any) -> int:
        """Ask for something; the status."""
        body = {"model": model, "messages": MESSAGES, **members}
        headers = {**self.headers, "x-request-id": f"metrics-{self.server.port}-{model}"}
        url = f"{self.server.url}/v1/chat/completions"
        return wire.request("POST", url, body, headers).status

    @contextmanager
    def held(self, upstream: ScriptedUpstream) -> Iterator[None]:
        """While entered, the provider that takes one request at a time has one."""
        holding = threading.Thread(target=self.ask, args=("holds",))
        holding.start()
        recorded = upstream.request(f"metrics-{self.server.port}-holds")
        try:
            yield
        finally:
            recorded.release()
            holding.join()

    def leave(self, model: str) -> None:
        """Ask for a stream, and leave when it has begun."""
        body = {"model": model, "messages": MESSAGES, "stream": True}
        url = f"{self.server.url}/v1/chat/completions"
        with wire.open_reply("POST", url, body, self.headers) as reply:
            next(wire.events(reply))

    def text(self) -> str:
        """What Prometheus is told."""
        reply = wire.request("GET", f"{self.server.url}/metrics", headers=self.headers)
        assert reply.status == 200
        assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        return reply.body.decode()

    def value(self, name: str, **labels: str) -> float:
        """The value of one series, 0 where there is none."""
        for line in self.text().splitlines():
            match = re.fullmatch(rf"{name}(?:\{{(.*)\}})? (\S+)", line)
            if match:
                found = dict(re.findall(r'(\w+)="([^"]*)"', match[1] or ""))
                if labels.items() <= found.items():
                    return float(match[2])
        return 0.0

    def until(self, expected: float, name: str, **labels: str) -> None:
        """Wait until a series has this value."""
        wait_until(
            lambda: self.value(name, **labels) == expected, lambda: f"{name} {labels} {expected}"
        )


def wait_until(happened: Callable[[], object], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not happened():
        assert time.monotonic() < deadline, f"never: {what()}"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def asked(upstream: ScriptedUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    with running(template(tmp_path_factory.mktemp("metrics"), upstream)) as server:
        yield Asked(server)


def test_a_request_is_counted_with_its_tokens_and_cost(asked: Asked) -> None:
    assert asked.ask("plain", stream=True) == 200
    way = {"model": "plain", "provider": "up"}
    asked.until(1, "llama_compat_requests_total", **way, api="openai", status="200")
    assert asked.value("llama_compat_tokens_total", **way, type="input") == 7
    assert asked.value("llama_compat_tokens_total", **way, type="output") == 5
    assert asked.value("llama_compat_cost_dollars_total", **way) == pytest.approx(57e-6)
    genai = {
        "gen_ai_operation_name": "chat",
        "gen_ai_provider_name": "openai",
        "gen_ai_request_model": "plain",
        "gen_ai_response_model": "plain",
    }
    for name in (
        "gen_ai_server_request_duration_seconds",
        "gen_ai_server_time_to_first_token_seconds",
        "gen_ai_server_time_per_output_token_seconds",
    ):
        assert asked.value(f"{name}_count", **genai) == 1
    usage = "gen_ai_client_token_usage"
    assert asked.value(f"{usage}_sum", **genai, gen_ai_token_type="input") == 7
    assert asked.value(f"{usage}_bucket", **genai, gen_ai_token_type="input", le="16.0") == 1
    assert asked.value(f"{usage}_bucket", **genai, gen_ai_token_type="input", le="4.0") == 0


def test_no_label_is_what_a_client_says(asked: Asked) -> None:
    assert asked.ask("a-model-that-nobody-has") == 404
    asked.until(1, "llama_compat_errors_total", error="not_found", model="", provider="")
    assert "a-model-that-nobody-has" not in asked.text()


def test_fallbacks_and_cooldowns(asked: Asked) -> None:
    for _ in range(3):
        assert asked.ask("safe") == 200
    asked.until(1, "llama_compat_fallbacks_total", model="safe")
    assert asked.value("llama_compat_cooldowns_total", target="up/status-500") == 1
    assert 0 < asked.value("llama_compat_target_cooling_seconds", target="up/status-500") <= 600
    attempts = "llama_compat_attempts_total"
    assert asked.value(attempts, target="up/status-500", outcome="failed", why="first") == 1
    safe = {"target": "echo/echo", "outcome": "answered"}
    assert asked.value(attempts, **safe, why="fallback") == 1
    assert asked.value(attempts, **safe, why="first") == 2


def test_what_runs_and_what_is_refused(asked: Asked, upstream: ScriptedUpstream) -> None:
    with asked.held(upstream):
        assert asked.value("llama_compat_target_in_flight_requests", target="narrow/holds") == 1
        assert asked.value("llama_compat_in_flight_requests") == 1
        assert asked.ask("holds") == 429
        asked.until(1, "llama_compat_limits_refused_total", model="holds", error="rate_limit")
    asked.until(0, "llama_compat_in_flight_requests")


def test_a_client_that_left(asked: Asked) -> None:
    asked.leave("comments-forever")
    asked.until(1, "llama_compat_cancelled_total", model="comments-forever")


def test_records_are_counted(asked: Asked) -> None:
    asked.ask("echo")
    asked.until(0, "llama_compat_records_waiting")
    assert asked.value("llama_compat_records_written_total") >= 1
    assert asked.value("llama_compat_records_dropped_total") == 0
    assert asked.value("llama_compat_bodies_dropped_total") == 0


def test_reloads_are_counted(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    path = template(tmp_path, upstream)
    with running(path) as server:
        own = Asked(server)
        text = path.read_text()
        path.write_text(text + "nonsense: 1\n")
        server.send_signal(signal.SIGHUP)
        own.until(1, "llama_compat_reloads_total", outcome="failed")
        template(tmp_path, upstream, {"id": "another", "type": "local::echo"})
        own.ask("echo")
        server.send_signal(signal.SIGHUP)
        own.until(1, "llama_compat_reloads_total", outcome="succeeded")
        # What was counted before goes on.
        own.ask("echo")
        own.until(2, "llama_compat_requests_total", model="echo")


def test_a_key_is_needed_that_is_not_for_asking_models(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    keys = {"admin_key": "the-admin-key", "metrics_key": "the-metrics-key", "api_keys": [KEY]}
    people = [
        {"name": "restricted", "key": "sk-restricted", "models": ["echo"]},
        {"name": "colleague", "key": "sk-colleague"},
    ]
    path = write_template(
        tmp_path / "keys.yaml",
        server={**keys, "metrics": True},
        keys=people,
        providers=[{"id": "echo", "type": "local::echo"}],
        models=[{"id": "echo", "provider": "echo"}, {"id": "secret", "provider": "echo"}],
    )
    with running(path) as server:

        def get(path: str, key: str | None) -> wire.Reply:
            headers = {} if key is None else {"authorization": f"Bearer {key}"}
            return wire.request("GET", server.url + path, headers=headers)

        for key in ("the-admin-key", "the-metrics-key", KEY):
            assert get("/metrics", key).status == 200
            assert "targets" in get("/health", key).json()
        for key, status in (
            (None, 401),
            ("sk-wrong", 401),
            ("sk-restricted", 403),
            ("sk-colleague", 403),
        ):
            assert get("/metrics", key).status == status
            assert get("/health", key).json() == {"status": "ok"}
        # What Prometheus has can't spend.
        body = {"model": "echo", "messages": MESSAGES}
        for key in ("the-metrics-key", "the-admin-key"):
            headers = {"authorization": f"Bearer {key}"}
            url = f"{server.url}/v1/chat/completions"
            assert wire.request("POST", url, body, headers).status == 401
            assert get("/v1/models", key).status == 401
        assert get("/admin/keys", "the-metrics-key").status == 401
        headers = {"authorization": "Bearer sk-restricted"}
        for path in ("/v1/chat/completions", "/v1/models/nobody"):
            if path.endswith("nobody"):
                reply = get(path, "sk-restricted")
            else:
                reply = wire.request("POST", server.url + path, {**body, "model": "x"}, headers)
            assert reply.status == 404
            assert "echo" in reply.error()["message"]
            assert "secret" not in reply.body.decode()


def test_there_are_none_unless_the_template_wants_them() -> None:
    with running("echo") as server:
        reply = wire.request("GET", f"{server.url}/metrics")
        assert reply.status == 404
        assert "`metrics: true`" in reply.error()["message"]


def test_any_worker_tells_of_all(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    with running(template(tmp_path, upstream), options=["--workers", "2"]) as server:
        own = Asked(server)
        for _ in range(20):
            assert own.ask("echo") == 200
        for _ in range(4):
            own.until(20, "llama_compat_requests_total", model="echo")
        own.until(0, "llama_compat_in_flight_requests")


# The dashboard ------------------------------------------------------------------------------------


def queries() -> list[str]:
    """Every query of the dashboard, its variables filled in as Grafana does."""
    dashboard = json.loads(DASHBOARD.read_text("utf-8"))
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    return [each.replace("$__rate_interval", "20s").replace("$model", ".*") for each in found]


@pytest.mark.skipif(prometheus.missing() is not None, reason=str(prometheus.missing()))
def test_every_query_of_the_dashboard_finds_something(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    model = make_model(tmp_path / "tiny")
    local = {"id": "local", "type": "local::torch"}
    tiny = {"id": "tiny", "provider": "local", "provider_model": str(model)}
    path = template(tmp_path, upstream, local, tiny)
    with running(path) as server:
        own = Asked(server)
        stop = threading.Event()

        def traffic() -> None:
            while not stop.is_set():
                own.ask("plain", stream=True)
                own.ask("safe")
                own.ask("tiny", max_tokens=4)
                own.leave("comments-forever")
                stop.wait(0.2)

        asking = threading.Thread(target=traffic)
        with own.held(upstream):
            assert own.ask("holds") == 429
            asking.start()
            try:
                with prometheus.prometheus(tmp_path, f"127.0.0.1:{server.port}", KEY) as database:
                    left = queries()
                    assert len(left) > 30

                    def all_found() -> bool:
                        left[:] = [each for each in left if not _found(database, each)]
                        return not left

                    wait_until(all_found, lambda: "\n".join(["a value of", *left]))
            finally:
                stop.set()
                asking.join()


def _found(database: prometheus.PrometheusServer, query: str) -> bool:
    try:
        return bool(database.query(query))
    except (OSError, prometheus.NotReady):
        return False
