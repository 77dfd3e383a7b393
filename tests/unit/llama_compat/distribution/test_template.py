from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from llama_compat.distribution.problems import TemplateError, UnknownProviderType
from llama_compat.distribution.reading.files import MAX_TEMPLATE_BYTES, list_templates
from llama_compat.distribution.server import ServerSettings
from llama_compat.distribution.template import ConfigModel, Distribution, load_distribution
from tests.examples import examples


class Timeouts(BaseModel):
    model_config = ConfigDict(extra="forbid")

    connect: Annotated[float, Field(gt=0)] = 10
    total: Annotated[float, Field(gt=0)] | None = 600


class RemoteSettings(BaseModel):
    model_config = ConfigDict(extra="forbid")

    base_url: str
    api_key: SecretStr | None = None
    headers: dict[str, str] = {}
    retry: bool = False
    timeouts: Timeouts = Timeouts()
    unsupported: Literal["refuse", "drop"] = "refuse"
    models: Literal["discover"] | list[str] | None = None

    @field_validator("base_url")
    @classmethod
    def check(cls, url: str) -> str:
        if not url.startswith("http"):
            raise ValueError(f"expected a URL, got '{url}'")
        return url


class LocalSettings(BaseModel):
    model_config = ConfigDict(extra="forbid")


SETTINGS: dict[str, type[BaseModel]] = {
    "remote::test": RemoteSettings,
    "local::test": LocalSettings,
}


def provider_config(provider_type: str) -> ConfigModel:
    if provider_type not in SETTINGS:
        raise UnknownProviderType(provider_type, SETTINGS)
    return ConfigModel(SETTINGS[provider_type])


class Folder:
    """Writes templates and loads them."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self, text: str | bytes) -> Distribution:
        raw = text if isinstance(text, bytes) else text.encode()
        (self.path / "test.yaml").write_bytes(raw)
        return load_distribution(str(self.path / "test.yaml"), provider_config)

    def problems(self, text: str | bytes) -> list[str]:
        """What is said of the template `text`, each line beginning with the line's number."""
        with pytest.raises(TemplateError) as raised:
            self.load(text)
        prefix = f"{self.path / 'test.yaml'}:"
        lines = str(raised.value).splitlines()
        assert all(line.startswith(prefix) for line in lines)
        assert len(lines) == len(raised.value.problems)
        return [line.removeprefix(prefix) for line in lines]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def with_config(*lines: str) -> str:
    """A template with one remote provider whose config has these lines, from line 5 on."""
    config = "".join(f"      {line}\n" for line in lines)
    models = "models:\n  - id: m\n    provider: p\n"
    return f"providers:\n  - id: p\n    type: remote::test\n    config:\n{config}{models}"


LOCAL = "providers:\n  - id: p\n    type: local::test\n"
"""Three lines, to be followed by models."""

# --------------------------------------------------------------------------------------------------
# Templates that are right
# --------------------------------------------------------------------------------------------------


def test_everything_set(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVER_KEY", "first-key")
    distribution = folder.load(
        """
version: 1
server:
  host: 0.0.0.0
  port: 9000
  api_keys: ["${env.SERVER_KEY}", second-key]
  max_body_bytes: 1000
  shutdown_grace_seconds: 5
providers:
  - id: p
    type: remote::test
    config:
      base_url: http://localhost
      timeouts: {total: null}
models:
  - id: org/model
    provider: p
    provider_model: model-v2
    context_length: 4096
    aliases: [short, other]
"""
    )
    server = distribution.server
    assert (server.host, server.port) == ("0.0.0.0", 9000)
    assert [key.get_secret_value() for key in server.api_keys] == ["first-key", "second-key"]
    assert (server.max_body_bytes, server.shutdown_grace_seconds) == (1000, 5)
    (provider,) = distribution.providers
    assert (provider.id, provider.type) == ("p", "remote::test")
    assert provider.config == RemoteSettings(
        base_url="http://localhost", timeouts=Timeouts(total=None)
    )
    (model,) = distribution.models
    assert (model.id, model.provider, model.provider_model) == ("org/model", "p", "model-v2")
    assert (model.context_length, model.aliases) == (4096, ["short", "other"])


def test_the_least(folder: Folder) -> None:
    distribution = folder.load(LOCAL + "models:\n  - {id: m, provider: p}\n")
    assert distribution.server == ServerSettings(
        host="127.0.0.1",
        port=8321,
        api_keys=[],
        max_body_bytes=64 * 1024 * 1024,
        shutdown_grace_seconds=30,
    )
    assert distribution.providers[0].config == LocalSettings()
    (model,) = distribution.models
    assert (model.provider_model, model.context_length, model.aliases) == (None, None, [])


def test_keys_are_without_the_blanks_around_them(folder: Folder) -> None:
    keys = folder.load("server: {api_keys: ['  12345678 ']}\n" + LOCAL + MODEL).server.api_keys
    assert [key.get_secret_value() for key in keys] == ["12345678"]


def test_a_key_that_is_not_set_where_another_is(folder: Folder) -> None:
    text = "server: {api_keys: ['${env.UNSET:}', 12345678x]}\n" + LOCAL + MODEL
    (key,) = folder.load(text).server.api_keys
    assert key.get_secret_value() == "12345678x"


def test_sections_whose_lines_are_all_comments(folder: Folder) -> None:
    distribution = folder.load(
        LOCAL
        + "    config:\n      # nothing\n"
        + "server:\n  api_keys:\n    # - key\n"
        + "models:\n  - id: m\n    provider: p\n    aliases:\n"
    )
    assert distribution.server.api_keys == []
    assert distribution.providers[0].config == LocalSettings()
    assert distribution.models[0].aliases == []


def test_discovered_models_are_models(folder: Folder) -> None:
    text = "providers:\n  - id: p\n    type: remote::test\n    config:\n      base_url: http://a\n"
    assert folder.load(text + "      models: discover\n").models == []


def test_a_byte_order_mark_and_windows_line_ends(folder: Folder) -> None:
    text = LOCAL + "models:\n  - {id: ä, provider: p}\n"
    raw = b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()
    assert folder.load(raw).models[0].id == "ä"


# --------------------------------------------------------------------------------------------------
# References to the environment
# --------------------------------------------------------------------------------------------------


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST", "example.com")
    monkeypatch.setenv("DIGITS", "0123")
    monkeypatch.setenv("SECONDS", " 2.5\n")
    monkeypatch.setenv("YES", "true")
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.delenv("UNSET", raising=False)


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(
    ("written", "base_url"),
    [
        ("http://${env.HOST}", "http://example.com"),
        ("http://${env.UNSET:localhost}", "http://localhost"),
        ("http://${env.EMPTY:localhost}", "http://localhost"),
        ("http://${env.UNSET:}", "http://"),
        (
            "http://${env.HOST:localhost}:${env.DIGITS:80}/${env.UNSET:v1}",
            "http://example.com:0123/v1",
        ),
        ("${env.UNSET:http://localhost:8000/v1}", "http://localhost:8000/v1"),
        ("http://$${env.HOST}", "http://${env.HOST}"),
        ("http://${env.UNSET:pa$$word}", "http://pa$$word"),
        ("http://$HOST", "http://$HOST"),
    ],
)
def test_references_in_text(folder: Folder, written: str, base_url: str) -> None:
    distribution = folder.load(with_config(f"base_url: {written}"))
    assert distribution.providers[0].config.base_url == base_url


@pytest.mark.usefixtures("environment")
def test_references_become_what_the_setting_is(folder: Folder) -> None:
    distribution = folder.load(
        with_config(
            "base_url: http://a",
            "api_key: ${env.DIGITS}",
            "retry: ${env.YES}",
            "headers: {x-number: '${env.DIGITS}'}",
            "timeouts: {connect: '${env.SECONDS}', total: '${env.UNSET:null}'}",
        )
        + "    context_length: ${env.UNSET:4096}\n"
    )
    config = distribution.providers[0].config
    assert config.api_key.get_secret_value() == "0123"
    assert config.retry is True
    assert config.headers == {"x-number": "0123"}
    assert config.timeouts == Timeouts(connect=2.5, total=None)
    assert distribution.models[0].context_length == 4096


@pytest.mark.usefixtures("environment")
def test_an_empty_default_leaves_the_setting_out(folder: Folder) -> None:
    distribution = folder.load(
        with_config(
            "base_url: http://a",
            "api_key: ${env.UNSET:}",
            "headers: {a: '${env.UNSET:}', b: '${env.HOST:}'}",
            "timeouts: {total: '${env.EMPTY:}'}",
        )
        + "    aliases: ['${env.UNSET:}', other]\n"
    )
    config = distribution.providers[0].config
    assert config.api_key is None
    assert config.headers == {"b": "example.com"}
    assert config.timeouts.total == 600
    assert distribution.models[0].aliases == ["other"]


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(
    ("written", "message"),
    [
        (
            "${env.UNSET}",
            "the environment variable UNSET is not set; set it, or write a default:"
            " ${env.UNSET:DEFAULT}",
        ),
        (
            "http://${env.EMPTY}/v1",
            "the environment variable EMPTY is not set; set it, or write a default:"
            " ${env.EMPTY:DEFAULT}",
        ),
        ("${env.UNSET:}", "required: set the environment variable UNSET"),
        (
            "${HOST}",
            "'${HOST}' is not a reference; did you mean '${env.HOST}'? A plain ${ is written $${",
        ),
        (
            "${env:HOST:-a}",
            "'${env:HOST:-a}' is not a reference; did you mean '${env.HOST:a}'? A plain ${ is"
            " written $${",
        ),
        (
            "${env.1}",
            "'${env.1}' is not a reference; write ${env.NAME} or ${env.NAME:default}, and $${ for a"
            " plain ${",
        ),
        ("http://${env.HOST", "'${env.HOST' is not a reference: its '}' is missing"),
        (
            "${env.A:${env.B}}",
            "'${env.A:${env.B}' is not a reference: a default can't hold another reference",
        ),
    ],
)
def test_references_that_lead_nowhere(folder: Folder, written: str, message: str) -> None:
    text = with_config("retry: false", f"base_url: {written}")
    assert folder.problems(text) == [f"6: providers[0].config.base_url: {message}"]


def test_nothing_is_said_of_a_whole_whose_part_could_not_be_read(folder: Folder) -> None:
    text = f"{LOCAL}models: [{{id: m, provider: p}}]\nkeys:\n  - name: a\n    key: ${{env.UNSET}}\n"
    (problem,) = folder.problems(text)
    assert problem.startswith("7: keys[0].key: the environment variable UNSET is not set")
    (problem,) = folder.problems(text.replace("UNSET}", "UNSET:}"))
    assert problem.startswith("6: keys[0]: give either 'key' (${env.NAME}) or 'hash'")


def test_every_unset_variable_is_named(folder: Folder) -> None:
    text = with_config("base_url: ${env.UNSET_A}://${env.UNSET_B}", "api_key: ${env.UNSET_C}")
    problems = folder.problems(text)
    for name in ("UNSET_A", "UNSET_B", "UNSET_C"):
        assert any(f"the environment variable {name} is not set" in each for each in problems)


SECRET = "hunter2-hunter2"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            with_config("base_url: http://a", "retry: ${env.SECRET}"),
            "6: providers[0].config.retry: expected true or false, got the value of ${env.SECRET}",
        ),
        (
            with_config("base_url: ${env.SECRET}"),
            "5: providers[0].config.base_url: expected a URL, got '${env.SECRET}'",
        ),
        (
            with_config("base_url: x/${env.SECRET}"),
            "5: providers[0].config.base_url: expected a URL, got 'x/${env.SECRET}'",
        ),
        (
            with_config("base_url: http://a", "unsupported: ${env.SECRET}"),
            "6: providers[0].config.unsupported: expected 'refuse' or 'drop', got the value of"
            " ${env.SECRET}",
        ),
        (
            with_config("base_url: http://a", "timeouts: ${env.SECRET}"),
            "6: providers[0].config.timeouts: expected a mapping, got the value of ${env.SECRET}",
        ),
        (
            "providers:\n  - id: p\n    type: ${env.SECRET}\nmodels:\n  - {id: m, provider: p}\n",
            "3: providers[0].type: unknown provider type '${env.SECRET}'; the types are"
            " local::test, remote::test",
        ),
        (
            LOCAL + "models:\n  - id: m\n    provider: ${env.SECRET}\n",
            "6: models[0].provider: no provider has the id ${env.SECRET}; the ids are 'p'",
        ),
        (
            LOCAL + "models:\n  - {id: m, provider: p}\n  - id: ${env.SECRET}\n    provider: p\n"
            "    aliases: [x, '${env.SECRET}']\n",
            "8: models[1].aliases[1]: ${env.SECRET} is taken by models[1] on line 6 already",
        ),
        (
            "providers:\n  - id: ${env.SECRET}\n    type: local::test\n"
            "models:\n  - id: m\n    provider: hunter3\n",
            "6: models[0].provider: no provider has the id 'hunter3'; the ids are ${env.SECRET}",
        ),
    ],
)
def test_the_environments_values_are_never_shown(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, text: str, problem: str
) -> None:
    monkeypatch.setenv("SECRET", SECRET)
    assert folder.problems(text) == [problem]


def test_keys_are_not_in_the_settings_repr(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", SECRET)
    distribution = folder.load(
        with_config("base_url: http://a", "api_key: ${env.SECRET}")
        + "server:\n  api_keys: ['${env.SECRET}']\n"
    )
    assert SECRET not in repr(distribution)
    assert SECRET not in str(distribution.model_dump())


# --------------------------------------------------------------------------------------------------
# Mistakes
# --------------------------------------------------------------------------------------------------

MODEL = "models:\n  - id: m\n    provider: p\n"

MISTAKES: dict[str, tuple[str, list[str]]] = {
    "empty": ("", ["1: empty; a template has at least the keys 'providers' and 'models'"]),
    "a list": (
        "- a\n",
        [
            "1: expected a mapping with the keys version, server, providers, models, keys, teams,"
            " routing, scale, memory, residency, guardrails, got a list",
        ],
    ),
    "text": (
        "\nhello\n",
        [
            "2: expected a mapping with the keys version, server, providers, models, keys, teams,"
            " routing, scale, memory, residency, guardrails, got a single value",
        ],
    ),
    "tab": (
        "server:\n\tport: 1\n",
        [
            "2: not valid YAML: indent with spaces, not with tabs (while scanning for the next"
            " token, found character '\\t' that cannot start any token)",
        ],
    ),
    "open quote": (
        "version: 1\nserver:\n  host: 'a\n",
        [
            "3: not valid YAML: this quote is not closed (while scanning a quoted scalar, found"
            " unexpected end of stream)",
        ],
    ),
    "version": ("version: 2\n" + LOCAL + MODEL, ["1: version: expected 1, got 2"]),
    "no providers": ("version: 1\n", ["1: providers: required, but missing"]),
    "empty providers": (
        "providers: []\n" + MODEL,
        ["1: providers: expected at least one, got none"],
    ),
    "no models": (
        LOCAL,
        ["1: models: no models; list one, or set 'models: discover' for a provider"],
    ),
    "unknown key": (
        LOCAL + "modles:\n  - id: m\n",
        ["4: modles: unknown key 'modles'; did you mean 'models'?"],
    ),
    "unknown key, nothing like it": (
        "server:\n  zzz: red\n" + LOCAL + MODEL,
        [
            "2: server.zzz: unknown key 'zzz'; the keys here are "
            + ", ".join(ServerSettings.model_fields),
        ],
    ),
    "unknown key in a config": (
        with_config("base_url: http://a", "api-key: a", "timeouts: {conect: 1}"),
        [
            "6: providers[0].config.api-key: unknown key 'api-key'; did you mean 'api_key'?",
            "7: providers[0].config.timeouts.conect: unknown key 'conect'; did you mean 'connect'?",
        ],
    ),
    "port": (
        "server:\n  port: abc\n" + LOCAL + MODEL,
        ["2: server.port: expected a whole number from 0 to 65535, got 'abc'"],
    ),
    "port too high": (
        "server:\n  port: 83210\n" + LOCAL + MODEL,
        ["2: server.port: expected a whole number from 0 to 65535, got 83210"],
    ),
    "section of the wrong kind": (
        "server: 8321\n" + LOCAL + MODEL,
        ["1: server: expected a mapping, got 8321"],
    ),
    "mapping in place of a list": (
        "providers:\n  p: {type: local::test}\nmodels: m\n",
        [
            "2: providers: expected a list, got a mapping",
            "3: models: expected a list, got 'm'",
        ],
    ),
    "number in place of text": (
        LOCAL + "models:\n  - id: 3.1\n    provider: p\n",
        ["5: models[0].id: expected text, got a number; put it in quotes"],
    ),
    "yes in place of text": (
        LOCAL + "models:\n  - id: no\n    provider: p\n",
        ["5: models[0].id: expected text, got true or false; put it in quotes"],
    ),
    "nothing in place of text": (
        LOCAL + "models:\n  - id:\n    provider: ''\n",
        [
            "5: models[0].id: expected text, got nothing",
            "6: models[0].provider: expected text that is not empty, got ''",
        ],
    ),
    "a key that is empty": (
        "server:\n  api_keys: [abcdefgh, '']\n" + LOCAL + MODEL,
        [
            "2: server.api_keys[1]: expected a key of at least 8 characters, got an empty one;"
            " `openssl rand -hex 24` makes a good one"
        ],
    ),
    "a key that is short": (
        "server:\n  api_keys: ['1234567  ']\n" + LOCAL + MODEL,
        [
            "2: server.api_keys[0]: expected a key of at least 8 characters, got one of 7;"
            " `openssl rand -hex 24` makes a good one"
        ],
    ),
    "keys of which none is set": (
        "server:\n  api_keys: ['${env.UNSET:}']\n" + LOCAL + MODEL,
        [
            "2: server.api_keys[0]: the environment variable UNSET is not set, so there is no key,"
            " and everybody would be let in; set it, or take 'api_keys' out if that is meant"
        ],
    ),
    "no list of keys, and that not set": (
        "server:\n  api_keys: ${env.UNSET:}\n" + LOCAL + MODEL,
        [
            "2: server.api_keys: the environment variable UNSET is not set, so there is no key, and"
            " everybody would be let in; set it, or take 'api_keys' out if that is meant"
        ],
    ),
    "a key that is all digits": (
        "server:\n  api_keys: [12345]\n" + LOCAL + MODEL,
        ["2: server.api_keys[0]: expected text, got a number; put it in quotes"],
    ),
    "required keys": (
        "providers:\n  - type: local::test\nmodels:\n  - provider_model: m\n",
        [
            "2: providers[0].id: required, but missing",
            "4: models[0].id: required, but missing",
            "4: models[0].provider: required, but missing; or list 'targets'",
        ],
    ),
    "required in a config": (
        "providers:\n  - id: p\n    type: remote::test\n" + MODEL,
        ["2: providers[0].config.base_url: required, but missing"],
    ),
    "config of the wrong kind": (
        "providers:\n  - id: p\n    type: remote::test\n    config: http://a\n" + MODEL,
        ["4: providers[0].config: expected a mapping, got 'http://a'"],
    ),
    "choice": (
        with_config("base_url: http://a", "unsupported: dropp", "models: discovr"),
        [
            "6: providers[0].config.unsupported: expected 'refuse' or 'drop', got 'dropp'; did you"
            " mean 'drop'?",
            "7: providers[0].config.models: expected 'discover' or a list, got 'discovr'; did you"
            " mean 'discover'?",
        ],
    ),
    "numbers in a config": (
        with_config("base_url: http://a", "timeouts:", "  connect: -1", "  total: ten"),
        [
            "7: providers[0].config.timeouts.connect: expected a number above 0, got -1",
            "8: providers[0].config.timeouts.total: expected a number above 0, got 'ten'",
        ],
    ),
    "text of many lines": (
        with_config("base_url: http://a", "retry: |", "  one", "  " + 60 * "x"),
        [
            f"6: providers[0].config.retry: expected true or false, got 'one\\n{53 * 'x'}...'",
        ],
    ),
    "a validator's own words": (
        with_config("base_url: localhost"),
        ["5: providers[0].config.base_url: expected a URL, got 'localhost'"],
    ),
    "unknown provider type": (
        "providers:\n  - id: p\n    type: remote::tset\n" + MODEL,
        [
            "3: providers[0].type: unknown provider type 'remote::tset'; did you mean"
            " 'remote::test'?"
        ],
    ),
    "unknown provider": (
        LOCAL + "  - {id: openai, type: local::test}\n"
        "models:\n  - id: m\n    provider: opneai\n  - id: n\n    provider: x\n",
        [
            "7: models[0].provider: no provider has the id 'opneai'; did you mean 'openai'?",
            "9: models[1].provider: no provider has the id 'x'; the ids are 'p', 'openai'",
        ],
    ),
    "names twice": (
        LOCAL + "  - {id: p, type: local::test}\n"
        "models:\n  - {id: m, provider: p, aliases: [n]}\n  - {id: n, provider: p, aliases: [m]}\n",
        [
            "4: providers[1].id: 'p' is taken by providers[0] on line 2 already",
            "7: models[1].id: 'n' is taken by models[0] on line 6 already",
            "7: models[1].aliases[0]: 'm' is taken by models[0] on line 6 already",
        ],
    ),
    "key twice": (
        LOCAL + MODEL + "    context_length: 0\n    context_length: 1\n",
        [
            "7: models[0].context_length: expected a whole number of at least 1, got 0",
            "8: models[0].context_length: the key 'context_length' is here twice; line 7 has it"
            " too",
        ],
    ),
}


@pytest.mark.parametrize(("text", "problems"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes(folder: Folder, text: str, problems: list[str]) -> None:
    assert folder.problems(text) == problems


def test_a_store_of_responses_has_its_limits(folder: Folder) -> None:
    kept = "server:\n  responses_store: {ttl: 60}\n"
    store = folder.load(kept + LOCAL + MODEL).server.responses_store
    assert store is not None
    assert (store.path, store.ttl, store.max_bytes) == (None, 60, 1 << 30)
    assert folder.load(LOCAL + MODEL).server.responses_store is None
    wrong = "server:\n  responses_store: {ttl: 0, keep: 1}\n"
    assert folder.problems(wrong + LOCAL + MODEL) == [
        "2: server.responses_store.ttl: expected a whole number of at least 1, got 0",
        "2: server.responses_store.keep: unknown key 'keep'; the keys here are path, ttl,"
        " max_bytes",
    ]


def test_the_bounds_on_clients(folder: Folder) -> None:
    bounds = {
        "max_bodies_bytes": 200_000_000,
        "max_header_bytes": 2048,
        "max_headers": 3,
        "max_connections": 4,
        "header_seconds": 0.5,
        "body_seconds": 6,
        "idle_seconds": 7,
        "write_seconds": 8,
    }
    text = "server:\n" + "".join(f"  {name}: {value}\n" for name, value in bounds.items())
    server = folder.load(text + LOCAL + MODEL).server
    assert {name: getattr(server, name) for name in bounds} == bounds
    wrong = "server:\n" + "".join(f"  {name}: 0\n" for name in bounds)
    problems = folder.problems(wrong + LOCAL + MODEL)
    assert [each.split(":")[1].strip() for each in problems] == [
        f"server.{name}" for name in bounds
    ]


@pytest.mark.parametrize(
    ("written", "line", "key"),
    [
        ("  max_body_bytes: 2000\n  max_bodies_bytes: 1999\n", 3, "max_bodies_bytes"),
        ("  max_bodies_bytes: 1999\n", 2, "max_bodies_bytes"),
        ("  max_body_bytes: 536870913\n", 2, "max_body_bytes"),
    ],
)
def test_all_bodies_together_may_have_what_one_may(
    folder: Folder, written: str, line: int, key: str
) -> None:
    (problem,) = folder.problems("server:\n" + written + LOCAL + MODEL)
    assert problem.startswith(f"{line}: server.{key}: all bodies together (max_bodies_bytes,")
    fits = "server:\n  max_body_bytes: 2000\n  max_bodies_bytes: 2000\n"
    assert folder.load(fits + LOCAL + MODEL).server.max_bodies_bytes == 2000


def test_a_file_that_is_not_utf_8(folder: Folder) -> None:
    problems = folder.problems(b"version: 1\nserver: {host: \xff}\n")
    assert problems == ["2: not UTF-8 text; save the file as UTF-8"]


def test_problems_have_their_place_as_data(folder: Folder) -> None:
    with pytest.raises(TemplateError) as raised:
        folder.load("server:\n  port: 0x\n" + LOCAL + MODEL)
    (problem,) = raised.value.problems
    assert (problem.path, problem.line, problem.column) == ("server.port", 2, 9)
    assert problem.message == "expected a whole number from 0 to 65535, got '0x'"


def test_everything_wrong_is_told_at_once_in_the_order_of_the_file(folder: Folder) -> None:
    assert folder.problems(
        """version: 1
server:
  port: 99999
  prot: 1
providers:
  - id: a
    type: remote::tset
  - id: a
    type: remote::test
    config:
      base_url: ${env.UNSET_URL}
      retry: perhaps
models:
  - id: m
    provider: b
    id: n
"""
    ) == [
        "3: server.port: expected a whole number from 0 to 65535, got 99999",
        "4: server.prot: unknown key 'prot'; did you mean 'port'?",
        "7: providers[0].type: unknown provider type 'remote::tset'; did you mean 'remote::test'?",
        "8: providers[1].id: 'a' is taken by providers[0] on line 6 already",
        "11: providers[1].config.base_url: the environment variable UNSET_URL is not set; set it,"
        " or write a default: ${env.UNSET_URL:DEFAULT}",
        "12: providers[1].config.retry: expected true or false, got 'perhaps'",
        "15: models[0].provider: no provider has the id 'b'; the ids are 'a'",
        "16: models[0].id: the key 'id' is here twice; line 14 has it too",
    ]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 400),
            st.integers(0, 6),
            st.sampled_from([*"\t\n\0'\"[]{}:-~&*!|>#?", "${", "${env.", "$${", "<<: "]),
        ),
        min_size=1,
        max_size=4,
    )
)
@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_in_the_file(folder: Folder, edits: list[tuple[int, int, str]]) -> None:
    text = with_config("base_url: http://a", "headers: {a: b}", "timeouts: {total: null}")
    text += "    aliases: [x, y]\nserver: {port: 80, api_keys: [a-long-key, '${env.UNSET:}']}\n"
    for position, deleted, inserted in edits:
        text = text[:position] + inserted + text[position + deleted :]
    messages = []
    try:
        folder.load(text)
    except TemplateError as error:
        messages = [problem.message for problem in error.problems]
    assert all(message and "\n" not in message for message in messages)


# --------------------------------------------------------------------------------------------------
# Files that can't be read
# --------------------------------------------------------------------------------------------------


def load_error(source: str) -> str:
    with pytest.raises(TemplateError) as raised:
        load_distribution(source, provider_config)
    return str(raised.value)


def test_no_such_file(tmp_path: Path) -> None:
    names = ", ".join(name for name, _ in list_templates())
    assert load_error(str(tmp_path / "ecko.yaml")) == (
        f"{tmp_path}/ecko.yaml: no such file, and not one of the templates {names}; did you mean"
        " 'echo'?"
    )
    assert load_error("zzz") == f"zzz: no such file, and not one of the templates {names}"


def test_a_folder(tmp_path: Path) -> None:
    assert load_error(str(tmp_path)) == f"{tmp_path}: is a folder; name a template or a YAML file"


def test_a_file_of_any_size(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"#" * (MAX_TEMPLATE_BYTES + 1))
    assert load_error(str(path)) == (
        f"{path}: larger than {MAX_TEMPLATE_BYTES} bytes, so not a template"
    )


def test_a_name_that_no_file_can_have() -> None:
    assert load_error("x" * 1000).endswith(": can't be read: File name too long")


def test_loading_settings_imports_nothing_heavy() -> None:
    code = (
        "import sys, providers.registry, llama_compat.distribution;"
        "print(sorted({'torch', 'transformers', 'openai', 'httptools', 'fastapi', 'llama_cpp'}"
        " & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
