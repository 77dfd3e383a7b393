"""What a client asks for and says: bounds on counts and lengths, looked at before any work."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.abuse.bad_vendor import BadVendor
from tests.abuse.watch import MIB, Seen
from tests.integration import wire
from tests.integration.server_process import ServerProcess, running, write_template

Unharmed = Callable[..., AbstractContextManager[Seen]]


@pytest.fixture(scope="module")
def vendor() -> Iterator[BadVendor]:
    with BadVendor() as one:
        yield one


@pytest.fixture(scope="module")
def server(vendor: BadVendor, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """With a model that echoes, and vendors to whom nothing of all this may get."""
    config = {"base_url": vendor.url}
    template = write_template(
        tmp_path_factory.mktemp("content") / "content.yaml",
        providers=[
            {"id": "echo", "type": "local::echo", "config": {"delay_ms": 2}},
            {"id": "vendor", "type": "remote::anthropic-messages", "config": config},
            {"id": "images", "type": "remote::ollama-native", "config": config},
        ],
        models=[
            {"id": "echo", "provider": "echo"},
            {"id": "vendor", "provider": "vendor"},
            {"id": "images", "provider": "images"},
        ],
    )
    with running(template) as process:
        yield process
        assert "Traceback" not in process.log


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """With a model in the process."""
    pytest.importorskip("torch", reason="needs the extra 'torch'")
    from tests.tiny_models import make_model

    folder = tmp_path_factory.mktemp("local")
    template = write_template(
        folder / "local.yaml",
        providers=[{"id": "torch", "type": "local::torch", "config": {"device": "cpu"}}],
        models=[
            {"id": "tiny", "provider": "torch", "provider_model": str(make_model(folder / "m"))}
        ],
    )
    with running(template) as process:
        yield process
        assert "Traceback" not in process.log


def post(server: ServerProcess, path: str, **body: Any) -> wire.Reply:
    return wire.request("POST", f"{server.base_url}{path}", body)


@pytest.mark.parametrize("model", ["echo", "vendor"])
def test_thousands_of_replies(
    server: ServerProcess, vendor: BadVendor, unharmed: Unharmed, model: str
) -> None:
    with unharmed(server, grows=32 * MIB):
        reply = post(server, "/completions", model=model, prompt=["a"] * 1000, n=128)
    assert (reply.status, reply.error()["code"]) == (400, "too_many_choices")
    assert vendor.asked == 0


def test_as_many_replies_as_there_may_be_and_nobody_waits(
    server: ServerProcess, unharmed: Unharmed
) -> None:
    body = {"model": "echo", "prompt": ["a b c d e f g h " * 100] * 128, "stream": True}
    with unharmed(server, grows=64 * MIB):
        for _ in range(3):
            with wire.open_reply("POST", f"{server.base_url}/completions", body) as reply:
                assert reply.read(10)
        while server.health()["running"]:
            pass


def test_thousands_of_images(server: ServerProcess, vendor: BadVendor, unharmed: Unharmed) -> None:
    images = [
        {"type": "image_url", "image_url": {"url": f"http://127.0.0.1:9/{number}.png"}}
        for number in range(5000)
    ]
    with unharmed(server, grows=48 * MIB):
        messages = [{"role": "user", "content": images}]
        reply = post(server, "/chat/completions", model="images", messages=messages)
    assert (reply.status, reply.error()["code"]) == (400, "too_many_images")
    assert vendor.asked == 0


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::127.0.0.1]", "[64:ff9b:1::7f00:1]", "[::ffff:7f00:1]"]
)
def test_images_of_the_own_network(server: ServerProcess, vendor: BadVendor, host: str) -> None:
    url = f"http://{host}:{vendor.server_address[1]}/a.png"
    content = [{"type": "image_url", "image_url": {"url": url}}]
    messages = [{"role": "user", "content": content}]
    reply = post(server, "/chat/completions", model="images", messages=messages)
    assert (reply.status, reply.error()["code"]) == (400, "invalid_image_url")
    assert vendor.asked == 0


@pytest.mark.parametrize("size", [8 * MIB, pytest.param(60 * MIB, marks=pytest.mark.lengthy)])
@pytest.mark.parametrize("path", ["/completions", "/chat/completions"])
def test_a_prompt_of_megabytes(
    local: ServerProcess, unharmed: Unharmed, path: str, size: int
) -> None:
    text = "The quick brown fox. " * (size // 21)
    asked = {"prompt": text} if path == "/completions" else {
        "messages": [{"role": "user", "content": text}]
    }  # fmt: skip
    # The body, what is decoded of it, and its rendering are as large as it is.
    with unharmed(local, grows=6 * size + 64 * MIB):
        reply = post(local, path, model="tiny", **asked)
    assert (reply.status, reply.error()["code"]) == (400, "context_length_exceeded")


def test_control_tokens_in_a_text(local: ServerProcess) -> None:
    def prompt_tokens(text: str) -> int:
        messages = [{"role": "user", "content": text}]
        reply = post(local, "/chat/completions", model="tiny", messages=messages, max_tokens=1)
        tokens = reply.json()["usage"]["prompt_tokens"]
        assert isinstance(tokens, int)
        return tokens

    # As text it has several tokens more; as itself it would be one.
    assert prompt_tokens("a<|im_end|>a") >= prompt_tokens("aa") + 5


@pytest.mark.parametrize("keys", ['["abcdefgh", ""]', '["${env.UNSET:}"]', '["1234567"]'])
@pytest.mark.parametrize("command", ["check", "run"])
def test_keys_that_are_none(tmp_path: Path, keys: str, command: str) -> None:
    template = tmp_path / "keys.yaml"
    template.write_text(
        f"server: {{port: 0, api_keys: {keys}}}\nproviders: [{{id: e, type: local::echo}}]\n"
        "models: [{id: e, provider: e}]\n"
    )
    with pytest.raises(subprocess.CalledProcessError) as refused:
        forked.run([command, str(template)])
    assert refused.value.returncode == 2
    assert "api_keys" in refused.value.output + refused.value.stderr
