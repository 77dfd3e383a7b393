"""The last requests, a line each, and one of them whole."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from llama_compat.distribution import RecordsSettings
from routing.cli import app
from routing.observability.records.bodies import Body
from routing.observability.records.record import MIGRATIONS, Record
from routing.observability.records.recorder import Recorder
from routing.storage.storage import open_storage
from tests.unit.routing.cli.terminals import HOSTILE, does_nothing, plain, terminal_of, widest
from tests.unit.routing.observability.records.records import record


def llama_compat(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "80"})


def fill(address: str, records: Iterable[Record], *bodies: Body) -> None:
    async def put() -> None:
        recorder = Recorder(open_storage(address, [MIGRATIONS]), RecordsSettings())
        await recorder.start()
        recorder.put(*records)
        for each in bodies:
            recorder.put_body(each)
        await recorder.stop()

    asyncio.run(put())


@pytest.fixture
def address(tmp_path: Path) -> str:
    """Of a storage with five requests of today."""
    address = f"sqlite:{tmp_path / 'operations.sqlite'}"
    now = time.time()
    fill(
        address,
        [
            record(time=now - 7200, request_id="r1", key="a"),
            record(request_id="r2", time=now, route="small", model="alias"),
            record(request_id="r3", time=now, status=429, error="rate_limit", message="50% OFF"),
            record(request_id="r4", time=now, status=504, error="timeout", provider="other"),
            record(request_id="r5", time=now, status=499, cancelled=1, input_tokens=None),
        ],
        Body(now, "r2", b'{"model":"alias"}', b'{"id":"x"}', False, False, False),
    )
    return address


def ids(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return [json.loads(line)["request_id"] for line in result.stdout.splitlines()]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ([], ["r1", "r2", "r3", "r4", "r5"]),
        (["-n", "2"], ["r4", "r5"]),
        (["--key", "a"], ["r1"]),
        (["--model", "small"], ["r2"]),
        (["--model", "alias"], ["r2"]),
        (["--provider", "other"], ["r4"]),
        (["--status", "429"], ["r3"]),
        (["--status", "4xx"], ["r3", "r5"]),
        (["--status", "5XX"], ["r4"]),
        (["--error", "timeout"], ["r4"]),
        (["--error", "any"], ["r3", "r4"]),
        (["--text", "50% off"], ["r3"]),
        (["--text", "50_"], []),
        (["--text", "R4"], ["r4"]),
        (["--since", "1h"], ["r2", "r3", "r4", "r5"]),
        (["--until", "1h"], ["r1"]),
        (["--error", "any", "--status", "5xx"], ["r4"]),
    ],
)
def test_what_is_looked_for(address: str, options: list[str], found: list[str]) -> None:
    assert ids(llama_compat("requests", "--json", "--storage", address, *options)) == found


def test_a_line_says_what_matters(address: str) -> None:
    shown = llama_compat("requests", "--storage", address, "--status", "429").stdout
    line, error = shown.splitlines()
    assert " ".join(line.split()[2:]) == "429 key-1 m 0.25 s 100 in 10 out <$0.0001 r3"
    assert error == "    rate_limit: 50% OFF"


MANY = 9_876_543


@pytest.mark.parametrize("columns", [80, 100, 160, None])
def test_no_name_does_anything_to_a_line(tmp_path: Path, columns: int | None) -> None:
    address = f"sqlite:{tmp_path / 'hostile.sqlite'}"
    counts = {"input_tokens": MANY, "output_tokens": MANY, "duration": 1234.56, "cost": 10**13}
    records = [
        record(time=time.time(), request_id=f"req_{place:024}", key=name, model=name, **counts)
        for place, name in enumerate(HOSTILE)
    ]
    wrong = record(time=time.time(), request_id="req", error="timeout", message="\x1b[2J 7,654,321")
    fill(address, [*records, wrong])
    env = {"COLUMNS": "80"} if columns is None else terminal_of(columns)
    arguments = ["requests", "--storage", address]
    shown = plain(CliRunner().invoke(app, arguments, env=env).stdout)
    assert does_nothing(shown)
    words = shown.split()
    assert words.count(f"{MANY:,}") == 2 * len(HOSTILE)
    assert words.count("1234.56") == len(HOSTILE)
    assert words.count("$10,000.00") == len(HOSTILE)
    assert "7,654,321" in words
    for place in range(len(HOSTILE)):
        assert f"req_{place:024}" in words
    if columns is not None:
        assert widest(shown) <= columns
    else:
        assert "日本語" * 20 in words


def test_what_is_kept_of_a_request_does_nothing_to_the_terminal(tmp_path: Path) -> None:
    address = f"sqlite:{tmp_path / 'hostile.sqlite'}"
    now = time.time()
    reply = "data: \x1b[2J\x07\u202e\r\n\r\n".encode()
    body = Body(now, "r1", b'{"a":"\x7f"}', reply, False, False, False)
    fill(address, [record(time=now, request_id="r1", model="\x1b]0;t\x07", target="x" * 200)], body)
    for env in (terminal_of(80), {"COLUMNS": "80"}):
        arguments = ["requests", "show", "r1", "--storage", address]
        shown = CliRunner().invoke(app, arguments, env=env).stdout
        assert does_nothing(shown)
        assert shown.endswith('"\\x7f"\n}\nReply:\ndata: \\x1b[2J\\x07\\u202e\n\n\n')
        assert r"\x1b]0;t\x07" in shown


def test_there_may_be_none(address: str) -> None:
    shown = llama_compat("requests", "--storage", address, "--model", "none").stdout
    assert shown == "No such requests were recorded.\n"


def test_one_request_is_shown_with_its_bodies(address: str) -> None:
    shown = llama_compat("requests", "show", "r2", "--storage", address).stdout
    words = [line.split() for line in shown.splitlines() if line.strip()]
    assert ["model", "alias"] in words
    assert ["duration", "0.250", "s"] in words
    assert ["input", "tokens", "100"] in words
    assert shown.endswith('Request:\n{\n  "model": "alias"\n}\nReply:\n{\n  "id": "x"\n}\n')


def test_one_request_is_json_with_its_bodies(address: str) -> None:
    shown = json.loads(
        llama_compat("requests", "show", "r2", "--json", "--storage", address).stdout
    )
    assert (shown["model"], shown["request"]) == ("alias", '{"model":"alias"}')


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--status", "bad"], "--status: 'bad' is no status such as 429"),
        (["--status", "42"], "--status: '42' is no status such as 429"),
        (["--since", "x"], "--since: 'x' is no time"),
        (["show", "none"], "No request 'none' is recorded here."),
    ],
)
def test_mistakes(address: str, arguments: list[str], message: str) -> None:
    result = llama_compat("requests", *arguments, "--storage", address)
    assert result.exit_code == 1
    assert result.stderr.startswith(message)


def test_who_gives_a_template_as_other_commands_take_it_is_told_how() -> None:
    result = llama_compat("requests", "mine.yaml")
    assert result.exit_code == 2
    said = " ".join(result.stderr.replace("│", " ").split())
    assert "If it is a template: llama-compat requests --template mine.yaml" in said


@pytest.mark.program
def test_those_that_come_are_shown_until_ctrl_c(address: str) -> None:
    command = str(Path(sys.executable).with_name("llama-compat"))
    options = ("--json", "-n", "1", "--status", "200", "--storage", address)
    following = subprocess.Popen(
        [command, "requests", "--follow", *options],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert following.stdout is not None
    try:
        assert json.loads(following.stdout.readline())["request_id"] == "r2"
        new = [record(request_id="r6", time=time.time())]
        fill(address, [record(request_id="other", time=time.time(), status=500), *new])
        assert json.loads(following.stdout.readline())["request_id"] == "r6"
        following.send_signal(signal.SIGINT)
        assert following.wait(20) == 0
    finally:
        following.kill()
        following.wait()
