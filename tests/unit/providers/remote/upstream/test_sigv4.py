"""Requests that are signed for AWS, checked as AWS does: over the bytes that arrive."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import textwrap
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from pydantic import ValidationError

from llama_compat.errors import APIError
from providers.registry import config_model
from providers.remote.config import RemoteConfig
from providers.remote.upstream.exchanges import Upstream
from providers.remote.upstream.sigv4 import AWSSettings, SigV4Credentials
from tests.aws_signatures import Account, complaint

ACCOUNT = Account("AKIDEXAMPLE12345", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
VISITOR = Account(
    "ASIAEXAMPLE12345", "tJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "token//+1234567890"
)
REGION = "us-east-1"


class Cloud:
    """Knows one account, and says what is wrong with a signature.

    Attributes:
        account: whom it knows.
        seen: the last request's headers.
    """

    def __init__(self) -> None:
        self.account = ACCOUNT
        self.seen: Mapping[str, str] = {}
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.seen = request.headers.copy()
        url = f"{request.scheme}://{request.host}{request.raw_path}"
        wrong = complaint(
            self.account, "bedrock", REGION, request.method, url, request.headers, body
        )
        if wrong is None:
            return web.json_response({"path": request.raw_path})
        token = request.headers.get("x-amz-security-token", "")
        error = {"message": f"The security token {token} included in the request is invalid."}
        return web.json_response(error, status=403, headers={"x-amzn-errortype": wrong})


@pytest.fixture
async def cloud() -> AsyncIterator[Cloud]:
    one = Cloud()
    application = web.Application(client_max_size=1 << 26)
    application.router.add_route("*", "/{path:.*}", one.answer)
    runner = web.AppRunner(application, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    one.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield one
    await runner.cleanup()


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """None of the machine's own."""
    for name in [each for each in os.environ if each.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


def use(monkeypatch: pytest.MonkeyPatch, account: Account) -> None:
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    for name, value in account.env.items():
        monkeypatch.setenv(name, value)


@asynccontextmanager
async def upstream(
    cloud: Cloud, settings: AWSSettings | None = None, **config: Any
) -> AsyncIterator[Upstream]:
    credentials = SigV4Credentials("aws", settings or AWSSettings(), "bedrock", REGION)
    one = Upstream("aws", RemoteConfig(base_url=cloud.url, **config), {}, credentials)
    await one.start()
    try:
        yield one
    finally:
        await one.stop()


async def ask(one: Upstream, path: str = "/model/a.b%3A0/converse", body: bytes = b"{}") -> Any:
    async with one.post(path, body, request_id="r1") as response:
        return json.loads(await response.read())


@pytest.mark.parametrize("account", [ACCOUNT, VISITOR], ids=["key", "session"])
@pytest.mark.parametrize(
    "path",
    [
        "/model/anthropic.claude-3%3A0/converse",
        "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ainference-profile%2Fx.y/converse-stream",
        "/models?b=2&a=1%20x",
    ],
)
async def test_what_is_sent_is_what_was_signed(
    monkeypatch: pytest.MonkeyPatch, cloud: Cloud, account: Account, path: str
) -> None:
    use(monkeypatch, account)
    cloud.account = account
    async with upstream(cloud) as one:
        for body in (b"", b"{}", '{"text": "Zürich"}'.encode(), b"x" * (1 << 20)):
            assert await ask(one, path, body) == {"path": path}
        async with one.get("/models") as response:
            assert response.status == 200


async def test_many_at_a_time(monkeypatch: pytest.MonkeyPatch, cloud: Cloud) -> None:
    use(monkeypatch, ACCOUNT)
    async with upstream(cloud) as one:
        bodies = [json.dumps({"n": n, "pad": "x" * (n * 9000)}).encode() for n in range(60)]
        await asyncio.gather(*(ask(one, body=body) for body in bodies))


async def test_headers_that_a_proxy_may_change_are_not_signed(
    monkeypatch: pytest.MonkeyPatch, cloud: Cloud
) -> None:
    use(monkeypatch, VISITOR)
    cloud.account = VISITOR
    async with upstream(cloud, headers={"x-title": "mine"}) as one:
        await ask(one)
    signed = cloud.seen["authorization"].partition("SignedHeaders=")[2].partition(",")[0]
    assert signed == "content-type;host;x-amz-date;x-amz-security-token"
    assert cloud.seen["x-title"] == "mine"
    assert cloud.seen["x-request-id"] == "r1"


async def test_a_profile_is_taken_from_awss_own_file(
    monkeypatch: pytest.MonkeyPatch, cloud: Cloud, tmp_path: Path
) -> None:
    use(monkeypatch, Account("AKIDOFSOMEBODYELSE", "secret-of-somebody-else"))
    (tmp_path / "credentials").write_text(
        f"[work]\naws_access_key_id={ACCOUNT.access_key}\naws_secret_access_key={ACCOUNT.secret_key}\n"
    )
    async with upstream(cloud, AWSSettings(profile="work")) as one:
        await ask(one)


async def test_credentials_that_end_are_fetched_anew(
    monkeypatch: pytest.MonkeyPatch, cloud: Cloud, tmp_path: Path
) -> None:
    """By a program that AWS's tools run; botocore runs it twice where the first end soon."""
    program = tmp_path / "give.py"
    program.write_text(
        textwrap.dedent(f"""
        import datetime, json, pathlib
        count = pathlib.Path({str(tmp_path / "count")!r})
        n = int(count.read_text()) + 1 if count.exists() else 1
        count.write_text(str(n))
        ends = datetime.datetime.now(datetime.UTC) + datetime.timedelta(
            seconds=10 if n <= 2 else 3600)
        print(json.dumps({{"Version": 1, "AccessKeyId": {VISITOR.access_key!r},
            "SecretAccessKey": {VISITOR.secret_key!r},
            "SessionToken": f"token-number-{{n}}", "Expiration": ends.isoformat()}}))
        """)
    )
    (tmp_path / "config").write_text(
        f"[profile role]\ncredential_process = {sys.executable} {program}\n"
    )
    async with upstream(cloud, AWSSettings(profile="role")) as one:
        cloud.account = Account(VISITOR.access_key, VISITOR.secret_key, "token-number-2")
        await ask(one)
        # Ten seconds are too few to set out with, so the next request waits for others.
        cloud.account = Account(VISITOR.access_key, VISITOR.secret_key, "token-number-3")
        await ask(one)
        await ask(one)
    assert (tmp_path / "count").read_text() == "3"


async def test_none_to_be_had(cloud: Cloud, caplog: pytest.LogCaptureFixture) -> None:
    async with upstream(cloud) as one:
        with pytest.raises(APIError) as failed:
            await ask(one)
    assert (failed.value.status, failed.value.code) == (502, "upstream_authentication")
    assert "AWS credentials can't be had" in failed.value.message
    assert "aws sso login" in caplog.text


async def test_a_profile_that_there_is_not(cloud: Cloud, caplog: pytest.LogCaptureFixture) -> None:
    async with upstream(cloud, AWSSettings(profile="nobody")) as one:
        with pytest.raises(APIError):
            await ask(one)
    assert "nobody" in caplog.text


async def test_what_is_refused_is_said_without_any_key(
    monkeypatch: pytest.MonkeyPatch, cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    use(monkeypatch, VISITOR)
    async with upstream(cloud) as one:
        with pytest.raises(APIError) as failed:
            await ask(one)
    error = failed.value
    assert (error.status, error.code) == (502, "upstream_authentication")
    assert "AWS credentials" in error.message
    assert "bedrock:InvokeModel" in error.message
    told = f"{error.message} {error.vendor_body} {error.headers} {caplog.text}"
    for secret in (VISITOR.access_key, VISITOR.secret_key, VISITOR.token):
        assert str(secret) not in told


async def test_nothing_of_an_answer_repeats_a_key(
    monkeypatch: pytest.MonkeyPatch, cloud: Cloud
) -> None:
    use(monkeypatch, VISITOR)
    cloud.account = VISITOR
    async with upstream(cloud) as one:
        said = await ask(one, f"/echo/{VISITOR.secret_key}/{VISITOR.access_key}")
    assert said == {"path": "/echo/***/***"}


async def test_another_key_in_the_file_is_found_when_the_first_is_refused(
    monkeypatch: pytest.MonkeyPatch, cloud: Cloud, tmp_path: Path
) -> None:
    monkeypatch.setattr("providers.remote.upstream.credentials.PAUSE_SECONDS", 0.0)
    file = tmp_path / "credentials"
    lines = "[work]\naws_access_key_id={}\naws_secret_access_key={}\n"
    file.write_text(lines.format("AKIDWITHDRAWN", "withdrawn-withdrawn"))
    async with upstream(cloud, AWSSettings(profile="work")) as one:
        with pytest.raises(APIError):
            await ask(one)
        file.write_text(lines.format(ACCOUNT.access_key, ACCOUNT.secret_key))
        await ask(one)


def test_without_the_library_the_template_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore", None)
    with pytest.raises(ValidationError, match=r"pip install 'llama-compat\[aws\]'"):
        config_model("remote::bedrock").validate({"region": REGION, "aws": {}})
    config_model("remote::bedrock").validate({"region": REGION, "api_key": "x"})
