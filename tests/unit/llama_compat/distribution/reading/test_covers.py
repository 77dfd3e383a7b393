"""Secrets of a template are covered wherever they are, and put back to the letter."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from llama_compat.distribution import covered_template, distribution_of, list_templates
from llama_compat.distribution.problems import TemplateError
from llama_compat.distribution.reading.covers import CoveredText
from llama_compat.distribution.reading.files import template_path
from providers.registry import config_model

REST = """\
providers:
  - {id: echo, type: "local::echo"}
models:
  - {id: echo, provider: echo}
"""


def covered(text: str) -> CoveredText:
    found = covered_template(text, config_model)
    assert found.uncovered(found.text) == text
    return found


def problems(text: str, secrets: CoveredText | None = None) -> list[tuple[int | None, str, str]]:
    try:
        distribution_of("t", text, config_model, secrets and secrets.secrets)
    except TemplateError as error:
        return [(each.line, each.path, each.message) for each in error.problems]
    return []


@pytest.mark.parametrize("name", [name for name, _ in list_templates()])
def test_what_ships_has_no_secrets(name: str) -> None:
    text = template_path(name).read_text("utf-8")
    found = covered(text)
    assert found.text == text
    assert not found.secrets


HIDDEN = {
    "server: {admin_key: SECRET123}": "a key",
    "server: {api_keys: [SECRET123]}": "in a list",
    "server: {api_keys: ['${env.OTHER:SECRET123}']}": "a default",
    "server: {admni_key: SECRET123}": "under a name that nobody knows",
    "server: {admin_key: {a: [SECRET123]}}": "below what is no mapping",
    "server: SECRET123": "in the place of settings",
    "SECRET123": "all there is",
    "- SECRET123": "in a list that is no template",
    "server: {admin_key: !!str SECRET123}": "with a tag",
    "server: {admin_key: &a SECRET123, metrics_key: *a}": "with an anchor",
    "server: {host: &a SECRET123, admin_key: *a}": "an alias of what is no secret",
    "server: {admin_key: 'SECRET''123'}": "in single quotes",
    'server: {admin_key: "SECRET\\u0031\\x323"}': "with escapes",
    "server:\n  admin_key: |\n    SECRET\n    123\n  port: 80\n": "of several lines",
    "server:\n  admin_key: >-\n    SECRET\n    123\n\n  # so\n  port: 80\n": "folded",
    "server:\n  admin_key: SECRET\n    123\n": "of several lines, plain",
    "server: {storage: 'postgres://SECRET:SE@CRET123@host/db'}": "of an address",
    "server: {storage: SECRET123}": "in the place of an address",
    "server: {storage: '${env.DB:postgres://u:SECRET123@host/db}'}": "of an address by default",
    "server: {host: 'a${env.DB:x://u:SECRET123@h}b${env.DB:x://SECRET123@h}'}": "of two",
    "server: {fleet: 'redis://:SECRET123@host/0'}": "of a fleet that is an address alone",
    "server: {host: 'http://u:SECRET123@host/?a=b'}": "of any address",
    "server: {host: 'x?token=SECRET123&x=1'}": "in a query",
    "server: {traces: {headers: {x-any: SECRET123}}}": "of headers",
    "server: {tools: {mcp: {servers: [{label: a, command: [npx, --key, SECRET123]}]}}}": "argument",
    "server: {tools: {mcp: {servers: [{label: a, env: {A: SECRET123}}]}}}": "for a program",
    "keys: [{name: a, key: SECRET123}]": "of clients",
    "providers: [{id: a, type: 'remote::openai', config: {api_key: SECRET123}}]": "of a vendor",
    "providers: [{id: a, type: 'remote::openai', config: {headers: {a: B SECRET123}}}]": "head",
    "providers: [{type: 'remote::bedrock', config: {api_key: SECRET123}}]": "of settings apart",
    "providers: [{id: a, type: 'remote::nobody', config: {a: SECRET123}}]": "of an unknown type",
    "providers: [{id: a, config: {a: SECRET123}}]": "of no type",
    "providers: [{id: a, type: '${env.HOME}', config: {a: SECRET123}}]": "of a type elsewhere",
    "version: 1 # api_key: SECRET123": "in a comment",
    "version: 1 # {name: a, key: SECRET123}": "in a comment, in braces",
    "# keys:\n#   - SECRET123\nversion: 1": "in a comment, in a list",
    "# authorization: Bearer SECRET123\nversion: 1": "in a comment, a header",
    "# redis://:SECRET123@host\nversion: 1": "in a comment, an address",
    "server: {admin_key: SECRET123}  # SECRET123, not SECRET1": "in a comment once more",
    "# sk-SECRET123SECRET123SECRET123\nversion: 1": "in a comment, of a known shape",
    "server: {host: sk-SECRET123SECRET123SECRET123}": "where it does not belong",
    "server:\r\n  admin_key: SECRET123 # so\r\n": "with Windows' ends of lines",
    "server: {admin_key: '${SECRET123'}": "what looks like a reference",
    "server: {admin_key: 'SECRET123$${x}'}": "with a plain ${",
    "server: {? {SECRET123: a} : SECRET123}": "where a key is no text",
    "server: {<<: {host: SECRET123}}": "that would be merged",
}


@pytest.mark.parametrize("text", HIDDEN, ids=HIDDEN.values())
def test_no_secret_is_shown(text: str) -> None:
    shown = covered(text).text
    if "? {" in text:
        shown = shown.partition(":")[
            2
        ]  # of keys of mappings only what has a known shape is covered
    assert "SECRET123" not in shown
    assert "CRET123" not in shown
    assert "    123" not in shown
    assert "${covered.1}" in shown or ":covered.1}" in shown


def test_references_and_comments_stay() -> None:
    text = (
        "# What it is: a gateway\nserver:\n  # why: so\n"
        '  admin_key: "Bearer ${env.ADMIN_KEY} x"  # from the vault\n'
        "  api_keys: ['${env.A}', '${env.B:}', null]\n"
        "  port: 80 # port: 8080\n" + REST
    )
    shown = covered(text).text
    assert shown == text.replace(
        '"Bearer ${env.ADMIN_KEY} x"', '"${covered.1}${env.ADMIN_KEY}${covered.2}"'
    )


def test_only_what_is_secret_of_an_address_is_covered() -> None:
    text = "server: {storage: 'sqlite:/var/a.sqlite', cache: {exact: {store: memory}}}\n" + REST
    assert covered(text).text == text
    text = "server: {storage: 'postgres://u:p@h/db'}\n" + REST
    assert covered(text).text.splitlines()[0] == (
        'server: {storage: "postgres://${covered.1}@h/db"}'
    )


@pytest.mark.parametrize(
    "address",
    ["'${env.NOT_SET_HERE:postgres://u:SECRET123@h/d}'", "'postgres://u:${env.HOME:SECRET}@h/d'"],
)
def test_what_is_covered_of_references_can_be_checked(address: str) -> None:
    found = covered(f"server: {{storage: {address}}}\n{REST}")
    assert found.secrets
    assert problems(found.text, found) == []


def test_what_is_covered_may_be_moved_and_mixed() -> None:
    found = covered(
        "server:\n  admin_key: 'it''s 8 long'\n  metrics_key: |\n    of two\n    lines\n" + REST
    )
    edited = (
        'server:\n  metrics_key: "${covered.1}"\n  api_keys:\n    - ${covered.2}\n'
        "    - 'a ${covered.1} b'\n  # once ${covered.1}\n"
    )
    text = found.uncovered(edited + REST)
    assert yaml.safe_load(text)["server"] == {
        "metrics_key": "it's 8 long",
        "api_keys": ["of two\nlines\n", "a it's 8 long b"],
    }
    assert "# once it's 8 long" in text
    assert problems(edited + REST, found) == []


def test_what_browsers_make_of_ends_of_lines_is_undone() -> None:
    found = covered_template("server:\r\n  admin_key: SECRET123\r\n", config_model)
    edited = found.text.replace("\r\n", "\n") + "  port: 80\n"
    assert found.uncovered(edited) == "server:\r\n  admin_key: SECRET123\r\n  port: 80\r\n"


def test_what_stands_for_nothing_is_refused() -> None:
    found = covered("server: {admin_key: SECRET123}\n" + REST)
    edited = found.text.replace("covered.1", "covered.2")
    with pytest.raises(TemplateError, match=r"nothing is covered as 'covered\.2'"):
        found.uncovered(edited)
    for text in (found.text, "server: {admin_key: '${env.NOT_SET_HERE:covered.1}'}\n" + REST):
        # In a file it is nobody's key.
        ((line, path, message),) = problems(text)
        assert (line, path) == (1, "server.admin_key")
        assert "covered.1" in message


@pytest.mark.parametrize(
    "wrong",
    [
        'server: {port: "SECRET123"}',
        'server: {admin_key: ["SECRET123"]}',
        'server:\n  storage: "SECRET123://a"',
        'server:\n  host: a\n  # so\n  host: "SECRET123"',
        'keys: [{name: a, key: "SECRET123", team: "SECRET123"}]',
        'server:\n  cors: {origins: ["SECRET123"]}',
    ],
)
def test_mistakes_are_told_as_check_tells_them_and_without_secrets(wrong: str) -> None:
    found = covered_template(f"server: {{admin_key: SECRET123}}\n{REST}", config_model)
    told = problems(f"{wrong}\n{REST}".replace("SECRET123", "${covered.1}"), found)
    plain = problems(f"{wrong}\n{REST}")
    assert plain
    assert [each[:2] for each in told] == [each[:2] for each in plain]
    assert "SECRET123" not in str(told)
    for (_, _, said), (_, _, shown) in zip(plain, told, strict=True):
        plainly = re.sub("the value of ", "", shown)
        assert plainly == re.sub("'SECRET123(://a)?'|SECRET123", "${covered.1}", said)


@pytest.mark.parametrize(
    "text",
    [
        "server: {admin_key: SECRET123",
        "server: {admin_key: *SECRET123}",
        "server: {admin_key: !<SECRET123 a}",
        "a: SECRET123\n---\nb: 1",
        "server:\n\tadmin_key: SECRET123",
        "a: " + "[" * 2000 + "SECRET123",
        "a: \x01SECRET123",
    ],
)
def test_of_what_is_no_yaml_nothing_is_said(text: str) -> None:
    with pytest.raises(TemplateError) as raised:
        covered_template(text, config_model)
    assert "SECRET" not in str(raised.value)


def test_aliases_cannot_make_it_endless() -> None:
    lines = ["a0: &a0 [SECRET123]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    assert "SECRET123" not in covered("\n".join(lines)).text
    assert "SECRET123" not in covered("a: &a [*a, SECRET123]").text


def test_it_reads_as_before(tmp_path: Path) -> None:
    for index, text in enumerate(HIDDEN):
        path = tmp_path / f"{index}.yaml"
        path.write_text(covered(text).uncovered(covered(text).text), "utf-8", newline="")
        assert path.read_bytes().decode() == text
