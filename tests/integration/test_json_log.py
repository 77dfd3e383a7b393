"""`--log-format json`: every line of the log is one object."""

from __future__ import annotations

import json

import pytest

from tests.integration import wire
from tests.integration.relay import MESSAGES
from tests.integration.server_process import running

pytestmark = pytest.mark.ours


@pytest.mark.parametrize("workers", [(), ("--workers", "2")], ids=["alone", "workers"])
def test_every_line_is_one_object(workers: tuple[str, ...]) -> None:
    with running("echo", options=["--log-format", "json", *workers]) as server:
        url = f"{server.url}/v1/chat/completions"
        headers = {"x-request-id": "one-of-mine"}
        wire.request("POST", url, {"model": "echo", "messages": MESSAGES}, headers)
        line = json.loads(server.wait_for_log("one-of-mine"))
        server.stop()
        assert (line["message"], line["status"], line["model"]) == ("request", 200, "echo")
        assert line["milliseconds"] > 0
        for each in server.log.splitlines():
            assert {"time", "level", "logger", "message"} <= json.loads(each).keys()
