"""A server with `api_keys`."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from tests.integration import wire
from tests.integration.server_process import ServerProcess, running, write_template

KEYS = ["sk-first", "sk-second"]

ROUTES = [
    ("GET", "/v1/models"),
    ("GET", "/v1/openai/v1/models/echo"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/openai/v1/completions"),
    ("POST", "/v1/embeddings"),
    ("GET", "/version"),
    ("GET", "/openapi.json"),
    ("GET", "/no/such/route"),
]


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    template = write_template(
        tmp_path_factory.mktemp("auth") / "locked.yaml",
        server={"api_keys": ["${env.FIRST_KEY}", KEYS[1]]},
        providers=[{"id": "echo", "type": "local::echo"}],
        models=[{"id": "echo", "provider": "echo"}],
    )
    with running(template, env={"FIRST_KEY": KEYS[0]}) as process:
        yield process
        assert not any(key in process.log for key in KEYS)


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer sk-firs",
        "Bearer sk-first2",
        "Basic sk-first",
        "sk-first",
    ],
)
def test_without_a_right_key_nothing_is_answered(
    locked: ServerProcess, method: str, path: str, authorization: str | None
) -> None:
    headers = {} if authorization is None else {"authorization": authorization}
    reply = wire.request(method, locked.url + path, headers=headers)
    assert reply.status == 401
    error = reply.error()
    assert error["code"] == "invalid_api_key"
    assert not any(key in error["message"] for key in KEYS)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_each_key_opens(locked: ServerProcess, key: str, scheme: str) -> None:
    headers = {"authorization": f"{scheme} {key}"}
    assert wire.request("GET", f"{locked.url}/v1/models", headers=headers).status == 200


def test_health_needs_no_key(locked: ServerProcess) -> None:
    assert wire.request("GET", f"{locked.url}/health").status == 200


def test_the_sdk_raises_its_own_error(locked: ServerProcess) -> None:
    with (
        openai.OpenAI(base_url=locked.base_url, api_key="wrong", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError),
    ):
        client.models.list()
    with openai.OpenAI(base_url=locked.base_url, api_key=KEYS[0]) as client:
        reply = client.chat.completions.create(
            model="echo", messages=[{"role": "user", "content": "one two"}]
        )
        assert reply.choices[0].message.content
