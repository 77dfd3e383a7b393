"""What a vendor may send neither freezes nor fills the process, and its key never comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from tests.abuse.bad_vendor import BEHAVIOURS, KEY, BadVendor
from tests.abuse.watch import MIB, Seen
from tests.integration import wire
from tests.integration.server_process import ServerProcess, running, write_template

Unharmed = Callable[..., AbstractContextManager[Seen]]

MAX_REPLY_BYTES = 8 * MIB
GROWS = 12 * MAX_REPLY_BYTES
"""What an answer may hold that comes to its bound: it is put together, and made an error of."""


@pytest.fixture(scope="module")
def vendor() -> Iterator[BadVendor]:
    with BadVendor() as one:
        yield one


@pytest.fixture(scope="module")
def server(vendor: BadVendor, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    config = {
        "base_url": vendor.url,
        "api_key": KEY,
        "max_reply_bytes": MAX_REPLY_BYTES,
        "models": "discover",
        "models_refresh_seconds": 0.2,
        "timeouts": {"first_byte": 60, "between_bytes": 60},
    }
    template = write_template(
        tmp_path_factory.mktemp("vendors") / "bad.yaml",
        providers=[{"id": "bad", "type": "remote::passthrough", "config": config}],
        models=[{"id": name, "provider": "bad"} for name in BEHAVIOURS],
    )
    with running(template) as process:
        yield process
        assert "Traceback" not in process.log
        assert KEY not in process.log


def ask(server: ServerProcess, model: str, *, stream: bool = False) -> wire.Reply:
    body = {"model": model, "messages": [{"role": "user", "content": "Hello"}], "stream": stream}
    return wire.request("POST", f"{server.base_url}/chat/completions", body)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    "model",
    [
        "endless-body",
        "bomb",
        "one-bomb",
        "endless-continue",
        "endless-blank-lines",
        "endless-header",
        "titles",
    ],
)
def test_an_answer_without_end_or_sense(
    server: ServerProcess, unharmed: Unharmed, model: str, stream: bool
) -> None:
    with unharmed(server, grows=GROWS):
        reply = ask(server, model, stream=stream)
    assert reply.status == 502
    assert reply.error()["message"]


def test_a_line_without_end(server: ServerProcess, unharmed: Unharmed) -> None:
    # A stream has no bound, but its events have: 32 MiB.
    with unharmed(server, grows=GROWS):
        assert "larger than" in ask(server, "endless-line", stream=True).body.decode()


def test_a_list_of_models_without_end(
    server: ServerProcess, vendor: BadVendor, unharmed: Unharmed
) -> None:
    asked = vendor.asked
    with unharmed(server, grows=GROWS):
        while vendor.asked < asked + 3:
            assert wire.request("GET", f"{server.base_url}/models").status == 200
    assert "max_list_bytes" in server.log


def test_fragments_of_calls_that_say_the_name_again(
    server: ServerProcess, unharmed: Unharmed
) -> None:
    with unharmed(server, grows=GROWS):
        assert ask(server, "call-fragments", stream=True).status == 200


def test_the_key_never_comes_out(server: ServerProcess) -> None:
    reply = ask(server, "key-everywhere", stream=True)
    assert reply.status == 200
    assert b": asked with Bearer ***" in reply.body
    assert KEY not in f"{reply.headers}{reply.body.decode()}"
    error = ask(server, "key-cut-in-an-error").error()
    assert "sk-key" not in str(error)
