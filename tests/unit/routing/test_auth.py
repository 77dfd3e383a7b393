"""Who is let in."""

import pytest

from llama_compat.errors import APIError
from routing.auth import Authenticator

AUTHENTICATOR = Authenticator(["sk-one", "sk-zwei-ü"])


@pytest.mark.parametrize(
    "value", ["Bearer sk-one", "bearer sk-one", "Bearer  sk-one ", "Bearer sk-zwei-ü"]
)
def test_right_keys(value: str) -> None:
    AUTHENTICATOR.check([(b"host", b"x"), (b"authorization", value.encode())])


@pytest.mark.parametrize(
    "value", ["Bearer sk-two", "Bearer", "Bearer ", "sk-one", "Basic sk-one", "Bearer sk-one x", ""]
)
def test_wrong_keys(value: str) -> None:
    with pytest.raises(APIError) as raised:
        AUTHENTICATOR.check([(b"authorization", value.encode())])
    assert raised.value.status == 401
    assert raised.value.code == "invalid_api_key"
    assert raised.value.headers == {"www-authenticate": "Bearer"}


def test_no_header() -> None:
    with pytest.raises(APIError):
        AUTHENTICATOR.check([(b"host", b"x")])


def test_no_keys_let_everybody_in() -> None:
    Authenticator([]).check([])
