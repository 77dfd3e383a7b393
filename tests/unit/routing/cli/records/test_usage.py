"""What was used, in a table and for programs; and the records themselves."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from rich.cells import cell_len
from typer.testing import CliRunner, Result

from llama_compat.distribution import RecordsSettings
from routing.access.keys.secret import digest_of
from routing.cli import app
from routing.observability.records.bodies import Body
from routing.observability.records.record import MIGRATIONS
from routing.observability.records.recorder import Recorder
from routing.storage.storage import open_storage
from tests.unit.routing.cli.terminals import HOSTILE, does_nothing, plain, terminal_of, widest
from tests.unit.routing.observability.records.records import record


def llama_compat(*arguments: str, env: Mapping[str, str | None] | None = None) -> Result:
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "80", **(env or {})})


@pytest.fixture
def address(tmp_path: Path) -> str:
    """Of a storage with the records of today."""
    address = f"sqlite:{tmp_path / 'operations.sqlite'}"
    now = time.time()

    async def fill() -> None:
        recorder = Recorder(open_storage(address, [MIGRATIONS]), RecordsSettings())
        await recorder.start()
        body = Body(now, "r1", b"asks", b"says", False, False, False)
        recorder.put(record(time=now, request_id="r1", cost=123_456_789_000))
        recorder.put_body(body)
        recorder.put(record(time=now, request_id="r2", key="key-2", cost=None, estimated=1))
        recorder.put(record(time=now, request_id="r3", key="key-2", cost=20_000))
        recorder.put(record(time=now, request_id="r4", route="n", cost=None))
        await recorder.stop()

    asyncio.run(fill())
    return address


def rows(result: Result) -> list[list[str]]:
    assert result.exit_code == 0, result.output
    return [line.split() for line in result.stdout.splitlines() if line.strip()]


def test_usage_is_a_table_that_fits(address: str) -> None:
    result = llama_compat("usage", "--storage", address)
    title, _, dearest, other, total, *notes = rows(result)
    assert title == ["Model", "Requests", "Errors", "Input", "Output", "Cost", "Mean"]
    assert dearest == ["m", "3", "0", "~300", "~30", "$123.46+", "0.25", "s"]
    assert other == ["n", "1", "0", "100", "10", "?", "0.25", "s"]
    assert total == ["Total", "4", "0", "~400", "~40", "$123.46+", "0.25", "s"]
    assert " ".join(notes[0]).startswith("~ The tokens of 1 requests are estimated")
    assert " ".join(notes[1]).startswith("+ 2 requests have no known price")
    assert max(map(len, result.stdout.splitlines())) <= 80


@pytest.mark.parametrize("by", [("--by", "key, day"), ("--by", "key", "--by", "day")])
def test_usage_is_told_apart_as_asked(address: str, by: tuple[str, ...]) -> None:
    table = rows(llama_compat("usage", "--storage", address, *by))
    day = time.strftime("%Y-%m-%d", time.gmtime())
    assert [row[:2] for row in table[2:4]] == [["key-1", day], ["key-2", day]]
    assert table[3][-3] == "<$0.0001+"


def test_usage_is_json(address: str) -> None:
    result = llama_compat("usage", "--storage", address, "--json", "--by", "provider")
    assert json.loads(result.stdout) == [
        {
            "provider": "up",
            "requests": 4,
            "errors": 0,
            "cancelled": 0,
            "input_tokens": 400,
            "cached_tokens": 0,
            "cache_write_tokens": 0,
            "output_tokens": 40,
            "reasoning_tokens": 0,
            "searches": 0,
            "tool_calls": 0,
            "estimated_requests": 1,
            "cost_usd": 123.456809,
            "unpriced_requests": 2,
            "seconds": 1.0,
        }
    ]


def test_the_storage_is_the_template_s(address: str, tmp_path: Path) -> None:
    template = tmp_path / "t.yaml"
    template.write_text(
        "version: 1\n"
        f"server: {{storage: '{address}'}}\n"
        "providers: [{id: echo, type: 'local::echo'}]\n"
        "models: [{id: echo, provider: echo}]\n"
    )
    assert len(rows(llama_compat("usage", str(template), "--by", "day"))) > 2


def test_the_storage_is_this_user_s(address: str, tmp_path: Path) -> None:
    folder = tmp_path / "data" / "llama-compat"
    folder.mkdir(parents=True)
    (tmp_path / "operations.sqlite").rename(folder / "operations.sqlite")
    result = llama_compat("usage", env={"XDG_DATA_HOME": str(tmp_path / "data")})
    assert rows(result)[2][0] == "m"


def test_nothing_is_made_where_nothing_is(tmp_path: Path) -> None:
    path = tmp_path / "none.sqlite"
    result = llama_compat("usage", "--storage", f"sqlite:{path}")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"There are no records: {path} does not exist.")
    assert not path.exists()


def test_no_requests(address: str) -> None:
    result = llama_compat("usage", "--storage", address, "--since", "2999-01-01")
    assert result.stdout == "No requests were recorded since 2999-01-01 00:00 UTC.\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("usage", "--by", "user"), "--by user: expected any of key, team, model, provider, day"),
        (("usage", "--json", "--csv"), "--json and --csv are two ways to show the same"),
        (("usage", "--until", "x"), "--until: 'x' is no time such as 7d"),
        (("usage", "--since", "1d", "--until", "2d"), "--until: 2d is before 'since'"),
        (("usage", "--since", "x"), "--since: 'x' is no time such as 7d"),
        (("export", "--since", "x"), "--since: 'x' is no time such as 7d"),
        (("usage", "--storage", "x"), "a storage is sqlite:PATH or postgres://"),
        (("export", "--bodies", "--format", "csv"), "Bodies are no table"),
    ],
)
def test_mistakes(arguments: tuple[str, ...], message: str) -> None:
    result = llama_compat(*arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith(message)


def test_export_to_the_terminal(address: str) -> None:
    result = llama_compat("export", "--storage", address)
    assert result.exit_code == 0
    ids = [json.loads(line)["request_id"] for line in result.stdout.splitlines()]
    assert ids == ["r1", "r2", "r3", "r4"]


def test_export_to_a_file(address: str, tmp_path: Path) -> None:
    path = tmp_path / "records.csv"
    result = llama_compat("export", "--storage", address, "--format", "csv", "-o", str(path))
    assert (result.exit_code, result.stdout) == (0, "")
    assert len(path.read_text("utf-8").splitlines()) == 5


def test_export_to_where_no_file_can_be(address: str, tmp_path: Path) -> None:
    result = llama_compat("export", "--storage", address, "-o", str(tmp_path))
    assert result.exit_code == 1
    assert result.stderr == f"{tmp_path}: Is a directory\n"


def test_export_of_bodies(address: str) -> None:
    (line,) = llama_compat("export", "--storage", address, "--bodies").stdout.splitlines()
    assert json.loads(line) | {"time": ""} == {
        "time": "",
        "request_id": "r1",
        "request": "asks",
        "reply": "says",
        "headers": [],
    }


# Whose they are -----------------------------------------------------------------------------------


CI = f"key-{digest_of(b'sk-ci')[:12]}"
"""The id of the template's key."""


@pytest.fixture
def template(address: str, tmp_path: Path) -> str:
    """Of the same storage, with a key of a team whose records are in it."""

    async def fill() -> None:
        recorder = Recorder(open_storage(address, [MIGRATIONS]), RecordsSettings())
        await recorder.start()
        recorder.put(record(time=time.time(), key=CI, cost=5_000_000_000))
        recorder.put(record(time=time.time() - 2 * 86400, key=CI, cost=1_000_000_000))
        await recorder.stop()

    asyncio.run(fill())
    path = tmp_path / "t.yaml"
    path.write_text(
        "version: 1\n"
        f"server: {{storage: '{address}'}}\n"
        "providers: [{id: echo, type: 'local::echo'}]\n"
        "models: [{id: echo, provider: echo}]\n"
        "teams: [{id: builds}]\n"
        "keys: [{name: ci, key: sk-ci, team: builds}]\n"
    )
    return str(path)


def test_keys_are_shown_with_their_names(template: str) -> None:
    shown = llama_compat("usage", template, "--by", "key").stdout
    [line] = [line for line in shown.splitlines() if "ci" in line.split()]
    assert line.split()[1:4] == [f"({CI})", "2", "0"]


def test_teams_are_those_of_the_keys(template: str) -> None:
    result = llama_compat("usage", template, "--by", "team,day", "--csv")
    lines = [line.split(",")[:4] for line in result.stdout.splitlines()]
    today = time.strftime("%Y-%m-%d", time.gmtime())
    before = time.strftime("%Y-%m-%d", time.gmtime(time.time() - 2 * 86400))
    assert lines == [
        ['"team"', '"day"', '"requests"', '"errors"'],
        ['"builds"', f'"{before}"', "1", "0"],
        ['""', f'"{today}"', "4", "0"],
        ['"builds"', f'"{today}"', "1", "0"],
    ]


@pytest.mark.parametrize(
    ("options", "requests"),
    [
        (["--key", "ci"], 2),
        (["--key", "key-2"], 2),
        (["--key", "ci", "--key", "key-2"], 4),
        (["--key", "ci", "--team", "builds"], 2),
        (["--key", "key-2", "--team", "builds"], 0),
        (["--team", "builds"], 2),
        (["--team", "others"], 0),
        (["--until", "1d"], 1),
        (["--since", "1d"], 5),
        (["--since", "12h"], 5),
        (["--until", "12h"], 1),
        (["--until", "12h", "--key", "key-2"], 0),
    ],
)
def test_a_part_of_the_records(template: str, options: list[str], requests: int) -> None:
    found = json.loads(llama_compat("usage", template, *options, "--json").stdout)
    assert sum(each["requests"] for each in found) == requests


# In a terminal ------------------------------------------------------------------------------------

MANY = 987_654_321


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_no_number_is_cut_in_a_terminal(tmp_path: Path, columns: int) -> None:
    address = f"sqlite:{tmp_path / 'many.sqlite'}"

    async def fill() -> None:
        recorder = Recorder(open_storage(address, [MIGRATIONS]), RecordsSettings())
        await recorder.start()
        for name in ("a-model-with-a-name-that-is-long-for-a-table", "b"):
            tokens = {"input_tokens": MANY, "cached_tokens": MANY, "output_tokens": MANY}
            recorder.put(record(time=time.time(), route=name, reasoning_tokens=MANY, **tokens))
        await recorder.stop()

    asyncio.run(fill())
    result = llama_compat("usage", "--storage", address, env=terminal_of(columns))
    lines = plain(result.stdout).splitlines()
    note = next((place for place, line in enumerate(lines) if "no room here" in line), None)
    assert max(map(len, lines[:note])) <= columns
    assert "…" not in result.stdout
    shown = sum(line.split().count(f"{MANY:,}") for line in lines)
    left_out = "" if note is None else lines[note]
    columns_of_tokens = 4 - ("Cached" in left_out) - ("Reasoning" in left_out)
    assert shown == 2 * columns_of_tokens
    assert ("█" in result.stdout) is (columns == 200)


def test_where_no_price_is_known_bars_show_requests(tmp_path: Path) -> None:
    address = f"sqlite:{tmp_path / 'free.sqlite'}"

    async def fill() -> None:
        recorder = Recorder(open_storage(address, [MIGRATIONS]), RecordsSettings())
        await recorder.start()
        for route in "mmmmn":
            recorder.put(record(time=time.time(), route=route, cost=None))
        await recorder.stop()

    asyncio.run(fill())
    shown = llama_compat("usage", "--storage", address, env=terminal_of(120)).stdout
    lines = plain(shown).splitlines()
    often, seldom = (line for line in lines if line.split()[:1] in (["m"], ["n"]))
    assert often.count("█") > 2 * seldom.count("█") > 0


def test_a_pipe_has_room_for_all(template: str) -> None:
    narrow = {"COLUMNS": "20"}
    shown = llama_compat("usage", template, "--by", "key,model,day", env=narrow).stdout
    assert CI in shown
    assert "no room here" not in shown
    assert "█" not in shown


def test_a_key_s_id_stays_whole_beside_its_name(template: str) -> None:
    lines = plain(
        llama_compat("usage", template, "--by", "key", env=terminal_of(80)).stdout
    ).splitlines()
    [place] = [place for place, line in enumerate(lines) if line.split()[:1] == [f"({CI})"]]
    named = lines[place - 1]
    assert named.split()[:2] == ["ci", "2"]
    assert set(named) & set("▏▎▍▌▋▊▉█")
    assert widest("\n".join(lines)) <= 80


@pytest.mark.parametrize("columns", [80, 132, None])
@pytest.mark.parametrize("by", ["model", "key", "key,model,day"])
def test_no_name_does_anything_to_the_table(tmp_path: Path, by: str, columns: int | None) -> None:
    address = f"sqlite:{tmp_path / 'hostile.sqlite'}"

    async def fill() -> None:
        recorder = Recorder(open_storage(address, [MIGRATIONS]), RecordsSettings())
        await recorder.start()
        for name in HOSTILE:
            recorder.put(record(time=time.time(), route=name, key=name, input_tokens=MANY))
        await recorder.stop()

    asyncio.run(fill())
    env = {"COLUMNS": "80"} if columns is None else terminal_of(columns)
    shown = llama_compat("usage", "--storage", address, "--by", by, env=env).stdout
    assert does_nothing(shown)
    # Three names and six numbers are more than 80 columns have, and none is cut.
    assert columns is None or widest(shown) <= max(columns, 100 if "," in by else 0)
    lines = plain(shown).splitlines()
    assert sum(f"{MANY:,}" in line.split() for line in lines) == len(HOSTILE)
    assert any(f"{len(HOSTILE) * MANY:,}" in line.split() for line in lines)
    assert any(word in line for line in lines for word in (r"\x1b[31mred", r"\u202eevil"))
    assert "[bold]m" in shown
    assert ":100:" in shown
    if columns is None:
        rows = [line for line in lines if f"{MANY:,}" in line]
        assert any("日本語" * 20 in line for line in rows)
        assert len({cell_len(line) for line in rows}) == 1
