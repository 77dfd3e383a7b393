"""Who is let in."""

import pytest

from llama_compat.distribution import Distribution
from llama_compat.errors import APIError
from llama_compat.exchange import ANYBODY
from routing.access.keys.ring import KeyRing
from routing.auth import Authenticator


def of(*keys: str) -> Authenticator:
    named = [{"name": key, "key": key} for key in keys]
    settings = {"keys": named, "providers": [{"id": "e", "type": "local::echo"}]}
    return Authenticator(KeyRing.of(Distribution.model_validate(settings), None))


AUTHENTICATOR = of("sk-one", "sk-zwei-ü")


@pytest.mark.parametrize(
    "value", ["Bearer sk-one", "bearer sk-one", "Bearer  sk-one ", "Bearer sk-zwei-ü"]
)
def test_right_keys(value: str) -> None:
    AUTHENTICATOR.principal([(b"host", b"x"), (b"authorization", value.encode())])


@pytest.mark.parametrize(
    "value", ["Bearer sk-two", "Bearer", "Bearer ", "sk-one", "Basic sk-one", "Bearer sk-one x", ""]
)
def test_wrong_keys(value: str) -> None:
    with pytest.raises(APIError) as raised:
        AUTHENTICATOR.principal([(b"authorization", value.encode())])
    assert raised.value.status == 401
    assert raised.value.code == "invalid_api_key"
    assert raised.value.headers == {"www-authenticate": "Bearer"}


def test_no_header() -> None:
    with pytest.raises(APIError):
        AUTHENTICATOR.principal([(b"host", b"x")])


def test_no_keys_let_everybody_in() -> None:
    assert of().principal([]) is ANYBODY


@pytest.mark.parametrize("header", [b"x-api-key", b"x-goog-api-key"])
def test_where_other_clients_put_their_key(header: bytes) -> None:
    assert AUTHENTICATOR.principal([(header, b" sk-one")]) == AUTHENTICATOR.principal(
        [(b"authorization", b"Bearer sk-one")]
    )
    with pytest.raises(APIError):
        AUTHENTICATOR.principal([(header, b"Bearer sk-one")])


def test_one_right_key_is_enough() -> None:
    headers = [(b"authorization", b"Bearer none"), (b"x-api-key", b"sk-one")]
    assert AUTHENTICATOR.principal(headers) == AUTHENTICATOR.principal(headers[::-1])


def test_a_principal_is_its_key_s_alone_and_does_not_tell_it() -> None:
    one = AUTHENTICATOR.principal([(b"x-api-key", b"sk-one")])
    other = AUTHENTICATOR.principal([(b"x-api-key", "sk-zwei-ü".encode())])
    assert one != other
    assert "sk-one" not in one.id
    assert of("sk-one").principal([(b"x-api-key", b"sk-one")]).id == one.id
