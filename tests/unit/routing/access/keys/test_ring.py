"""Which keys there are, and what they open."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from llama_compat.distribution import Distribution
from llama_compat.errors import APIError
from llama_compat.exchange import Principal
from routing.access.keys.ring import Key, KeyRing
from routing.access.keys.secret import digest_of, new_id, new_secret, visible_prefix
from routing.auth import AdminGate, Authenticator


def ring(
    *keys: dict[str, Any], api_keys: tuple[str, ...] = (), stored: dict[str, Key] | None = None
) -> KeyRing:
    settings = {
        "server": {"api_keys": api_keys},
        "keys": list(keys),
        "providers": [{"id": "e", "type": "local::echo"}],
    }
    return KeyRing.of(Distribution.model_validate(settings), stored)


def test_a_key_is_random_and_begins_with_what_may_be_shown() -> None:
    key_id = new_id()
    first, second = new_secret(key_id), new_secret(key_id)
    assert first != second
    assert first.startswith(f"sk-lc-{key_id}-")
    assert visible_prefix(key_id) == f"sk-lc-{key_id}"
    assert len(first) - len(visible_prefix(key_id)) == 44
    assert digest_of(b"abc") == hashlib.sha256(b"abc").hexdigest()


def test_there_are_keys_in_the_template_by_value_and_by_hash() -> None:
    keys = ring({"name": "a", "key": "sk-a"}, {"name": "b", "hash": f"sha256:{digest_of(b'sk-b')}"})
    assert not keys.is_open
    for name in ("a", "b"):
        digest = digest_of(f"sk-{name}".encode())
        found = keys.find(digest)
        assert found is not None
        assert found.principal == Principal(f"key-{digest[:12]}", name)
    assert keys.find(digest_of(b"sk-c")) is None


def test_keys_are_known_by_name() -> None:
    stored = {"d": Key(Principal("key-d", "made")), "e": Key(Principal("key-e", "off"), None, True)}
    keys = ring({"name": "a", "key": "sk-a-long-one"}, api_keys=("sk-one-key",), stored=stored)
    names = {f"key-{digest_of(b'sk-a-long-one')[:12]}": "a", "key-d": "made", "key-e": "off"}
    assert keys.names() == names


def test_the_ring_is_open_only_where_no_keys_are_spoken_of() -> None:
    assert ring().is_open
    assert not ring(stored={}).is_open
    assert not ring(api_keys=("sk-one-key",)).is_open
    assert not ring({"name": "a", "key": "sk-a"}).is_open


def test_stored_keys_are_those_that_there_are_now() -> None:
    stored: dict[str, Key] = {}
    keys = ring(stored=stored)
    assert keys.find("digest") is None
    stored["digest"] = Key(Principal("key-1"))
    assert keys.find("digest") is stored["digest"]


def test_until_when_a_key_is_good() -> None:
    assert Key(Principal("a")).is_good(1e12)
    assert Key(Principal("a"), expires=100).is_good(99.9)
    assert not Key(Principal("a"), expires=100).is_good(100)
    assert not Key(Principal("a"), is_revoked=True).is_good(0)


def test_who_is_let_in_with_a_key_that_expires() -> None:
    keys = ring({"name": "a", "key": "sk-a", "expires": "1970-01-02"})
    headers = [(b"authorization", b"Bearer sk-a")]
    assert Authenticator(keys, lambda: 86399).principal(headers).name == "a"
    with pytest.raises(APIError) as raised:
        Authenticator(keys, lambda: 86400).principal(headers)
    assert raised.value.code == "invalid_api_key"


@pytest.mark.parametrize(
    ("patterns", "model", "may"),
    [
        ((), "anything", True),
        (("gpt-*",), "gpt-5", True),
        (("gpt-*",), "my-gpt-5", False),
        (("gpt-5", "claude-*"), "claude-x", True),
        (("gpt-5",), "GPT-5", False),
        (("openai/*",), "openai/o/n", True),
        (("*",), "x", True),
    ],
)
def test_models_by_pattern(patterns: tuple[str, ...], model: str, may: bool) -> None:
    assert Principal("a", models=patterns).may_use(model) == may


@pytest.mark.parametrize("header", [(b"authorization", b"Bearer "), (b"x-api-key", b" ")])
def test_an_empty_key_is_none(header: tuple[bytes, bytes]) -> None:
    keys = ring({"name": "a", "hash": f"sha256:{digest_of(b'')}"})
    with pytest.raises(APIError):
        Authenticator(keys).principal([header])


def test_the_admin_key() -> None:
    from pydantic import SecretStr

    gate = AdminGate(SecretStr("admin"))
    gate.check([(b"authorization", b"Bearer admin")])
    gate.check([(b"x-api-key", b"wrong"), (b"authorization", b"Bearer admin")])
    for headers in ([], [(b"authorization", b"Bearer admi")], [(b"authorization", b"admin")]):
        with pytest.raises(APIError) as raised:
            gate.check(headers)
        assert (raised.value.status, raised.value.code) == (401, "invalid_admin_key")
    with pytest.raises(APIError) as raised:
        AdminGate(None).check([(b"authorization", b"Bearer ")])
    assert (raised.value.status, raised.value.code) == (403, "admin_disabled")
