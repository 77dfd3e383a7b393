"""What of a request decides where it may go."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from llama_compat.dialects.openai.operations import CHAT, COMPLETIONS, EMBEDDINGS
from llama_compat.errors import APIError
from llama_compat.wire.json_fields import parse_fields
from routing.policy.wanted import of_one_model, pinned_target, reader_of, same_model, sticky_key
from tests.unit.calls import call_of
from tests.unit.routing.policy.models import target

ALL = ["header:x-session-id", "user", "prompt_cache_key", "first_message"]
HEADERS = [(b"host", b"h"), (b"x-session-id", b"s1")]


@pytest.mark.parametrize(
    ("body", "headers", "key"),
    [
        (b'{"user":"u"}', HEADERS, "s1"),
        (b'{"user":"u","prompt_cache_key":"k"}', [], "u"),
        (b'{"safety_identifier":"i"}', [], "i"),
        (b'{"metadata":{"user_id":"anthropics"}}', [], "anthropics"),
        (b'{"metadata":{"user_id":7},"prompt_cache_key":"k"}', [], "k"),
        (b'{"metadata":[],"user":null,"prompt_cache_key":"k"}', [], "k"),
        (b'{"user":5}', [], None),
        (b"{}", [], None),
        (b'{"messages":[]}', [], None),
        (b'{"messages":[5', [], None),
        (b'{"prompt":"Once"}', [], '"Once"'),
        (b'{"input":"Hi"}', [], '"Hi"'),
        (b'{"contents":[{"parts":[]}]}', [], '{"parts":[]}'),
    ],
)
def test_the_first_thing_that_a_request_has_is_its_key(
    body: bytes, headers: list[tuple[bytes, bytes]], key: str | None
) -> None:
    fields = parse_fields(body) if body.endswith(b"}") else {"messages": Raw(b"[5")}
    assert sticky_key(map(reader_of, ALL), fields, headers) == key


def test_a_conversation_keeps_its_key_as_it_goes_on() -> None:
    system, first = b'{"role":"system","content":"S"}', b'{"role":"user","content":"A"}'
    answer, second = b'{"role":"assistant","content":"B"}', b'{"role":"user","content":"C"}'
    keys = {
        sticky_key(map(reader_of, ALL), {"messages": Raw(b"[%b]" % b",".join(messages))}, [])
        for messages in ([system, first], [system, first, answer, second], [first])
    }
    assert keys == {first.decode()}


def test_only_what_the_template_lists_counts() -> None:
    fields = parse_fields(b'{"user":"u","prompt_cache_key":"k"}')
    assert sticky_key(map(reader_of, ["prompt_cache_key"]), fields, HEADERS) == "k"
    assert sticky_key(map(reader_of, ["header:X-Session-Id"]), fields, HEADERS) == "s1"
    assert sticky_key(map(reader_of, []), fields, HEADERS) is None


@pytest.mark.parametrize(
    ("operation", "body", "why"),
    [
        (EMBEDDINGS, {"input": "a"}, "embeddings"),
        (CHAT, {"logit_bias": {"5": 1}}, "logit_bias"),
        (CHAT, {"logit_bias": {}}, ""),
        (CHAT, {"logit_bias": None, "temperature": 1}, ""),
        (CHAT, {"stop_token_ids": [1]}, "stop_token_ids"),
        (COMPLETIONS, {"prompt": [1, 2]}, "a prompt of token ids"),
        (COMPLETIONS, {"prompt": [[1, 2]]}, "a prompt of token ids"),
        (COMPLETIONS, {"prompt": ["1", "2"]}, ""),
        (COMPLETIONS, {"prompt": "[1, 2]"}, ""),
    ],
)
def test_what_means_something_else_to_another_model(
    operation: Any, body: dict[str, Any], why: str
) -> None:
    assert of_one_model(call_of(body, operation)) == why


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("gpt-4.1", "openai/GPT-4.1", True),
        ("meta-llama/L", "other/L", True),
        ("gpt-4.1", "gpt-4-1", False),
    ],
)
def test_a_model_is_the_same_whoever_offers_it(one: str, other: str, same: bool) -> None:
    assert same_model(one, other) is same


def pinned(name: bytes | None, *, allowed: bool = True) -> str | None:
    headers = [] if name is None else [(b"x-llama-compat-target", name)]
    targets = [target("a"), target("b", model="größe")]
    return pinned_target(headers, targets, "smart", allowed=allowed)


def test_a_client_names_its_target_if_it_may() -> None:
    assert pinned(None) is pinned(None, allowed=False) is None
    assert pinned(b"a/m") == "a/m"
    assert pinned(b"b/gr%C3%B6%C3%9Fe") == "b/größe"  # as answers name it
    with pytest.raises(APIError, match=r"'smart' has no target 'c'. Its targets are a/m, b/größe"):
        pinned(b"c")
    with pytest.raises(APIError, match=r"`routing: \{pin: true\}`") as told:
        pinned(b"a/m", allowed=False)
    assert (told.value.status, told.value.code) == (400, "target_not_allowed")
