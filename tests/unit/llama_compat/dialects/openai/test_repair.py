"""What vendors get wrong in replies and chunks, one by one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from llama_compat.dialects.openai.finish_reasons import BrokenOffError
from llama_compat.dialects.openai.repair import (
    CHAT,
    TEXT,
    StreamMender,
    chunks_of,
    mend_completion,
    mend_embeddings,
)
from llama_compat.wire.json_fields import encode_fields, parse_fields

MODEL = Raw(b'"mine"')


def chunk(delta: dict[str, Any], finish_reason: str | None = None, **members: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    value = {"id": "a", "object": "chat.completion.chunk", "created": 1, "model": "theirs"}
    return json.dumps({**value, "choices": [choice], **members}).encode()


def counted(total: int) -> dict[str, int]:
    return {"prompt_tokens": 1, "completion_tokens": total - 1, "total_tokens": total}


def usage_chunk(usage: Any = None) -> bytes:
    return chunk({}, choices=[], usage=usage or counted(3))


def mended(*chunks: bytes, end: bool = True, **asked: bool) -> list[dict[str, Any]]:
    """What the client sees of a stream of `chunks`."""
    mender = StreamMender(CHAT, MODEL, **asked)
    seen = [mender.mend(parse_fields(each)) for each in chunks]
    left = mender.end() if end else []
    return [json.loads(encode_fields(each)) for each in [*seen, *left] if each is not None]


def deltas(*chunks: bytes) -> list[dict[str, Any]]:
    return [each["choices"][0]["delta"] for each in mended(*chunks, end=False)]


def fragments(*lists: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The tool-call fragments that the client sees of these."""
    return [
        call
        for delta in deltas(*(chunk({"tool_calls": each}) for each in lists))
        for call in delta["tool_calls"]
    ]


def call(arguments: Any = None, name: str | None = None, **members: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {
        **members,
        "function": {key: value for key, value in function.items() if value is not None},
    }


def reply(message: dict[str, Any], finish_reason: Any = "stop", **members: Any) -> dict[str, Any]:
    choice = {
        "index": 0,
        "message": {"role": "assistant", **message},
        "finish_reason": finish_reason,
    }
    fields = parse_fields(json.dumps({"id": "a", "choices": [choice], **members}).encode())
    mend_completion(fields, CHAT, MODEL)
    value: dict[str, Any] = json.loads(encode_fields(fields))
    return value


# What is right ------------------------------------------------------------------------------------


def test_what_is_right_keeps_its_bytes() -> None:
    sent = (
        b'{"id":"a","object":"chat.completion.chunk","created":1.0,"model":"theirs","x":1E-7,'
        b'"choices":[{ "index":0,"delta":{"role":"assistant","content":"\\u00e9\xc3\xa9 \\/"},'
        b'"finish_reason":null,"big":123456789012345678901234567890 }],"y":{"model":"theirs"}}'
    )
    fields = StreamMender(CHAT, MODEL).mend(parse_fields(sent))
    assert fields is not None
    assert encode_fields(fields) == sent.replace(b'"model":"theirs","x"', b'"model":"mine","x"')


def test_half_a_character_survives() -> None:
    sent = b'{"id":"a","choices":[{"index":0,"delta":{"content":"\\ud83d","role":"assistant"}}]}'
    (delta,) = deltas(sent)
    assert delta == {"content": "\ud83d", "role": "assistant"}


@pytest.mark.parametrize("choices", ["[1]", "{}", '"x"', '[{"index":0,"delta":[]}]'])
def test_what_is_no_chunk_is_told(choices: str) -> None:
    with pytest.raises(ValueError, match="Expected"):
        StreamMender(CHAT, MODEL).mend(parse_fields(b'{"choices":%b}' % choices.encode()))


# Identity -----------------------------------------------------------------------------------------


def test_missing_members_are_the_same_in_all_chunks() -> None:
    bare = b'{"choices":[{"delta":{"content":"x"},"finish_reason":null}]}'
    seen = mended(bare, bare, b'{"choices":[{"delta":{},"finish_reason":"stop"}]}')
    assert len({each["id"] for each in seen}) == 1
    assert len({each["created"] for each in seen}) == 1
    assert {each["object"] for each in seen} == {"chat.completion.chunk"}
    assert [each["choices"][0]["index"] for each in seen] == [0, 0, 0]
    assert {each["model"] for each in seen} == {"mine"}


def test_a_later_chunk_takes_the_first_ones_id() -> None:
    first, second = mended(chunk({}), b'{"choices":[]}', end=False)
    assert (second["id"], second["created"]) == (first["id"], first["created"])


def test_a_text_completion_has_its_own_names() -> None:
    mender = StreamMender(TEXT, MODEL)
    fields = mender.mend(
        parse_fields(b'{"choices":[{"index":0,"text":"x","finish_reason":"eos"}]}')
    )
    assert fields is not None
    seen = json.loads(encode_fields(fields))
    assert seen["object"] == "text_completion"
    assert seen["id"].startswith("cmpl-")
    assert seen["choices"] == [{"index": 0, "text": "x", "finish_reason": "stop"}]


def test_a_missing_delta_is_an_empty_one() -> None:
    assert deltas(b'{"choices":[{"index":0,"finish_reason":"stop"}]}') == [{"role": "assistant"}]


def test_a_role_is_told_once() -> None:
    said = {"role": "assistant", "content": "x"}
    assert deltas(chunk(said), chunk(said)) == [said, {"content": "x"}]


@pytest.mark.parametrize("theirs", [{}, {"role": None}, {"role": ""}, {"role": "model"}])
def test_a_role_is_told_even_if_the_vendor_does_not(theirs: dict[str, Any]) -> None:
    said = {"role": "assistant", "content": "x"}
    assert deltas(chunk({"content": "x", **theirs}), chunk({"content": "y"})) == [
        said,
        {"content": "y"},
    ]
    assert reply({"content": "x", **theirs})["choices"][0]["message"] == said


def test_all_chunks_of_a_stream_have_one_id() -> None:
    """Azure's first has none, and some vendors make one for each."""
    seen = mended(chunk({}, id=""), chunk({}, id="a"), chunk({}, id="b"), end=False)
    assert len({each["id"] for each in seen}) == 1
    assert [each["id"] for each in mended(chunk({}, id="a"), chunk({}, id="b"), end=False)] == [
        "a",
        "a",
    ]


def test_members_of_another_type_are_made_what_they_have_to_be() -> None:
    odd = {"id": 7, "object": "chat", "created": "1"}
    for seen, name in (
        (mended(chunk({}, **odd), end=False)[0], "chat.completion.chunk"),
        (reply({"content": 5}, **odd), "chat.completion"),
    ):
        assert (seen["id"], seen["object"]) == ("7", name)
        assert isinstance(seen["created"], int)
    assert reply({"content": 5})["choices"][0]["message"]["content"] == "5"


# Choices ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("theirs", [1, "0", "5", -1, None])
def test_the_only_choice_is_the_first(theirs: Any) -> None:
    choices = [[{"index": theirs, "delta": {"content": text}}] for text in "ab"]
    seen = mended(*(chunk({}, choices=each) for each in choices), end=False)
    assert [each["choices"][0]["index"] for each in seen] == [0, 0]


def test_several_choices_keep_their_numbers() -> None:
    mender = StreamMender(CHAT, MODEL, wanted_choices=2)
    for index in (1, "0", 1):
        sent = chunk({}, choices=[{"index": index, "delta": {"content": "x"}}])
        seen = json.loads(encode_fields(mender.mend(parse_fields(sent)) or {}))
        assert seen["choices"][0]["index"] == int(index)


def test_more_choices_than_were_asked_for_stay_apart() -> None:
    sent = [chunk({}, choices=[{"index": index, "delta": {}}]) for index in (3, 0, 3)]
    assert [each["choices"][0]["index"] for each in mended(*sent, end=False)] == [0, 1, 0]


def test_a_message_in_place_of_deltas_is_what_is_said() -> None:
    def by_message(text: str) -> bytes:
        return chunk({}, choices=[{"index": 0, "message": {"content": text}}])

    said = [{"role": "assistant", "content": "a"}, {"content": "b"}]
    assert deltas(by_message("a"), by_message("b")) == said
    # After deltas it is all of the reply once more.
    assert deltas(chunk({"content": "a"}), by_message("a")) == [said[0], {}]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], {"content": "ab"}),
        (["a", "b"], {"content": "ab"}),
        (
            [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}],
            {"content": "", "reasoning_content": "hm", "reasoning": "hm"},
        ),
        (
            [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}],
            {"content": "a", "reasoning_content": "hm", "reasoning": "hm"},
        ),
        ({"a": 1}, {"content": '{"a": 1}'}),
        (False, {"content": "false"}),
        (None, {"content": None}),
        ([{"type": "image_url"}], {"content": [{"type": "image_url"}]}),
    ],
)
def test_content_is_text(theirs: Any, ours: dict[str, Any]) -> None:
    assert deltas(chunk({"content": theirs})) == [{"role": "assistant", **ours}]
    message = reply({"content": theirs})["choices"][0]["message"]
    assert message == {"role": "assistant", **ours}


# Finish reasons -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("stop", "stop"),
        ("eos", "stop"),
        ("eos_token", "stop"),
        ("end_turn", "stop"),
        ("STOP", "stop"),
        ("max_tokens", "length"),
        ("length", "length"),
        ("content_filter", "content_filter"),
        ("function_call", "function_call"),
        ("something_new", "stop"),
        ("", "stop"),
    ],
)
def test_finish_reasons_are_openais(theirs: str, ours: str) -> None:
    *_, last = mended(chunk({"content": "x"}), chunk({}, theirs))
    assert last["choices"][0]["finish_reason"] == ours
    assert reply({"content": "x"}, theirs)["choices"][0]["finish_reason"] == ours


@pytest.mark.parametrize("theirs", ["abort", "ERROR", "insufficient_system_resource"])
def test_a_reply_that_the_vendor_broke_off_is_none(theirs: str) -> None:
    with pytest.raises(BrokenOffError, match=theirs.lower()):
        mended(chunk({"content": "x"}), chunk({}, theirs))
    with pytest.raises(BrokenOffError, match=theirs.lower()):
        reply({"content": "x"}, theirs)


def test_an_empty_reason_in_every_chunk_is_none() -> None:
    seen = mended(chunk({"content": "x"}, ""), chunk({"content": "y"}, ""))
    assert [each["choices"][0]["finish_reason"] for each in seen] == [None, None, "stop"]
    assert seen[-1]["choices"][0]["delta"] == {}


@pytest.mark.parametrize("theirs", ["stop", "eos", "", "tool_calls", "function_call"])
def test_a_reply_that_calls_tools_says_so(theirs: str) -> None:
    tool_call = call("{}", "f", index=0, id="c", type="function")
    *_, last = mended(chunk({"tool_calls": [tool_call]}), chunk({}, theirs))
    assert last["choices"][0]["finish_reason"] == "tool_calls"
    whole = reply({"tool_calls": [tool_call]}, theirs)
    assert whole["choices"][0]["finish_reason"] == "tool_calls"


def test_a_cut_tool_call_is_not_passed_off_as_whole() -> None:
    tool_call = call('{"a', "f", index=0, id="c", type="function")
    *_, last = mended(chunk({"tool_calls": [tool_call]}), chunk({}, "length"))
    assert last["choices"][0]["finish_reason"] == "length"


def test_each_choice_has_an_end_of_its_own() -> None:
    mender = StreamMender(CHAT, MODEL)
    both = [{"index": i, "delta": {"content": "x"}, "finish_reason": None} for i in (0, 1)]
    mender.mend(parse_fields(chunk({}, choices=both)))
    mender.mend(parse_fields(chunk({}, "stop")))
    assert not mender.finished
    mender.mend(parse_fields(chunk({}, choices=[{**both[1], "finish_reason": "length"}])))
    assert mender.finished


def test_a_choice_that_never_began_has_no_end() -> None:
    mender = StreamMender(CHAT, MODEL, wanted_choices=2)
    mender.mend(parse_fields(chunk({"content": "x"}, "stop")))
    assert not mender.finished


@pytest.mark.parametrize("missing", [None, ""])
def test_a_whole_reply_has_a_finish_reason(missing: str | None) -> None:
    assert reply({"content": "x"}, missing)["choices"][0]["finish_reason"] == "stop"
    called = reply({"tool_calls": [call("{}", "f", id="c1")]}, missing)
    assert called["choices"][0]["finish_reason"] == "tool_calls"


# Usage --------------------------------------------------------------------------------------------


def test_usage_that_was_not_asked_for_is_left_out() -> None:
    seen = mended(chunk({}, "stop", usage={"total_tokens": 3}), usage_chunk())
    assert len(seen) == 1
    assert "usage" not in seen[0]


def test_usage_has_a_chunk_of_its_own() -> None:
    usage = counted(3)
    seen = mended(chunk({"content": "x"}), chunk({}, "stop", usage=usage), include_usage=True)
    assert [each.get("usage") for each in seen] == [None, None, usage]
    assert [len(each["choices"]) for each in seen] == [1, 1, 0]
    assert {(each["id"], each["model"], each["created"]) for each in seen} == {("a", "mine", 1)}


def test_usage_that_grows_is_told_once() -> None:
    growing = [chunk({"content": "x"}, usage=counted(i)) for i in (1, 2)]
    seen = mended(*growing, chunk({}, "stop", usage=counted(3)), include_usage=True)
    assert [each["usage"] for each in seen] == [None, None, None, counted(3)]
    seen = mended(*growing, chunk({}, "stop"), usage_chunk(counted(9)), include_usage=True)
    assert [each["usage"] for each in seen if each.get("usage")] == [counted(9)]


def test_usage_in_every_chunk_is_kept_where_it_was_asked_for() -> None:
    sent = [chunk({"content": "x"}, usage=counted(1)), chunk({}, "stop"), usage_chunk()]
    seen = mended(*sent, include_usage=True, continuous_usage=True)
    assert [each.get("usage") for each in seen] == [counted(1), None, counted(3)]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"prompt_tokens": 3}, (3, 0, 3)),
        ({"prompt_tokens": 3, "completion_tokens": None, "total_tokens": None}, (3, 0, 3)),
        ({"prompt_tokens": "3", "completion_tokens": 2.0, "total_tokens": 5}, (3, 2, 5)),
        ({}, None),
        ([], None),
        (7, None),
        ({"prompt_tokens": None}, None),
    ],
)
def test_usage_has_all_of_its_counts_or_is_none(theirs: Any, ours: Any) -> None:
    def counts(usage: Any) -> Any:
        names = ("prompt_tokens", "completion_tokens", "total_tokens")
        return None if usage is None else tuple(usage[name] for name in names)

    seen = mended(chunk({}, "stop"), usage_chunk(theirs or [0]), include_usage=True)
    if theirs:
        assert counts(seen[-1].get("usage")) == ours
    assert counts(reply({"content": "x"}, usage=theirs)["usage"]) == ours


def test_what_else_a_vendor_counts_is_kept() -> None:
    usage = reply({"content": "x"}, usage={"prompt_tokens": 3, "cost": 0.10})["usage"]
    assert usage["cost"] == 0.10


def test_usage_is_not_made_up() -> None:
    mender = StreamMender(CHAT, MODEL, include_usage=True)
    mender.mend(parse_fields(chunk({}, "stop")))
    assert mender.end() == []
    assert mender.last_usage is None


# Reasoning ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "theirs",
    [
        {"reasoning": "hm"},
        {"reasoning_content": "hm"},
        {"reasoning": "hm", "reasoning_content": None},
        {"reasoning": "", "reasoning_content": "hm"},
        {"reasoning": "hm", "reasoning_content": "hm"},
    ],
)
def test_reasoning_goes_by_both_names(theirs: dict[str, Any]) -> None:
    both = {"reasoning": "hm", "reasoning_content": "hm"}
    assert deltas(chunk(theirs)) == [{**both, "role": "assistant"}]
    message = reply({"content": "x", **theirs})["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "x", **both}


@pytest.mark.parametrize("theirs", [{"reasoning": None}, {"reasoning": {"effort": "low"}}])
def test_what_is_no_reasoning_stays(theirs: dict[str, Any]) -> None:
    assert deltas(chunk(theirs)) == [{**theirs, "role": "assistant"}]


# Tool calls ---------------------------------------------------------------------------------------

RIGHT = [
    [call("", "f", index=0, id="c1", type="function")],
    [call('{"a":', index=0)],
    [call("1}", index=0)],
    [call("", "g", index=1, id="c2", type="function")],
    [call("{}", index=1)],
]


def joined(seen: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """Id, name and arguments of each call, joined over its fragments as SDKs do it."""
    calls: dict[int, list[str]] = {}
    for fragment in seen:
        parts = calls.setdefault(fragment["index"], ["", "", ""])
        function = fragment["function"]
        parts[0] += fragment.get("id") or ""
        parts[1] += function.get("name") or ""
        parts[2] += function.get("arguments") or ""
    assert list(calls) == list(range(len(calls)))
    return [(id, name, arguments) for id, name, arguments in calls.values()]


def without(name: str, lists: list[list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    return [[{k: v for k, v in each.items() if k != name} for each in calls] for calls in lists]


def test_right_fragments_stay_as_they_are() -> None:
    assert fragments(*RIGHT) == [each for calls in RIGHT for each in calls]


def test_fragments_without_index_or_type() -> None:
    expected = [("c1", "f", '{"a":1}'), ("c2", "g", "{}")]
    assert joined(fragments(*without("index", RIGHT))) == expected
    bare = without("type", without("index", RIGHT))
    seen = fragments(*bare)
    assert joined(seen) == expected
    assert [each.get("type") for each in seen] == ["function", None, None, "function", None]


def test_fragments_without_id() -> None:
    (first, *_), (second, *_) = joined(fragments(*without("id", RIGHT)))
    assert first.startswith("call_")
    assert second.startswith("call_")
    assert first != second


def test_id_and_name_repeated() -> None:
    repeated = [[call(part, "f", index=0, id="c1", type="function")] for part in ('{"a":', "1}")]
    assert joined(fragments(*repeated)) == [("c1", "f", '{"a":1}')]
    assert joined(fragments(*without("index", repeated))) == [("c1", "f", '{"a":1}')]


def test_a_name_repeated_without_index_and_id() -> None:
    pieces = [[call(part, "f")] for part in ("", '{"a":', "1}")]
    ((_, name, arguments),) = joined(fragments(*pieces))
    assert (name, arguments) == ("f", '{"a":1}')


def test_the_same_function_called_twice_without_index_and_id() -> None:
    calls = joined(fragments([call('{"a":1}', "f"), call('{"a":2}', "f")]))
    assert [each[1:] for each in calls] == [("f", '{"a":1}'), ("f", '{"a":2}')]


def test_one_index_for_all_calls() -> None:
    whole = [[call("{}", "f", index=0, id=id, type="function")] for id in ("c1", "c2")]
    assert joined(fragments(*whole)) == [("c1", "f", "{}"), ("c2", "f", "{}")]


def test_another_id_in_each_fragment() -> None:
    pieces = [call('{"a":', "f", index=0, id="c1"), call("1}", index=0, id="c2")]
    assert joined(fragments(*[[each] for each in pieces])) == [("c1", "f", '{"a":1}')]


def test_one_index_for_all_calls_and_no_ids() -> None:
    calls = joined(fragments([call("{}", "f", index=0)], [call("{}", "g", index=0)]))
    assert [each[1:] for each in calls] == [("f", "{}"), ("g", "{}")]


def test_a_name_in_pieces() -> None:
    pieces = [call("", "get_", index=0, id="c1"), call("", "it", index=0), call("{}", index=0)]
    assert joined(fragments(*[[each] for each in pieces])) == [("c1", "get_it", "{}")]


@pytest.mark.parametrize("arguments", [("", "{}"), ("{}", "")])
def test_id_and_name_come_late(arguments: tuple[str, str]) -> None:
    first, second = arguments
    ((id, name, joined_arguments),) = joined(
        fragments([call(first, index=0)], [call(second, "f", index=0, id="late")])
    )
    assert id.startswith("call_")
    assert (name, joined_arguments) == ("f", "{}")


def test_nulls_in_later_fragments_are_left_out() -> None:
    first = call("", "f", index=0, id="c1", type="function")
    later = {"index": 0, "id": None, "type": None, "function": {"name": None, "arguments": "{}"}}
    assert fragments([first], [later])[1] == {"index": 0, "function": {"arguments": "{}"}}


def test_an_index_that_does_not_begin_at_0() -> None:
    assert joined(fragments([call("{}", "f", index=1, id="c1")])) == [("c1", "f", "{}")]


def test_arguments_that_are_an_object() -> None:
    ((_, _, arguments),) = joined(fragments([call({"a": 1.0}, "f", index=0, id="c1")]))
    assert json.loads(arguments) == {"a": 1.0}
    (whole,) = reply({"tool_calls": [call({"a": 1}, "f")]})["choices"][0]["message"]["tool_calls"]
    assert whole["id"].startswith("call_")
    assert whole["type"] == "function"
    assert json.loads(whole["function"]["arguments"]) == {"a": 1}


def test_a_call_without_arguments_has_empty_ones() -> None:
    (fragment,) = fragments([call(None, "f", index=0, id="c1", type="function")])
    assert fragment["function"] == {"name": "f", "arguments": ""}


# Whole replies ------------------------------------------------------------------------------------


def test_a_bare_reply_gets_what_it_lacks() -> None:
    fields = parse_fields(b'{"choices":[{"message":{"content":"x"}},{"message":{"content":"y"}}]}')
    mend_completion(fields, CHAT, MODEL)
    seen = json.loads(encode_fields(fields))
    assert seen["id"].startswith("chatcmpl-")
    assert seen["object"] == "chat.completion"
    assert isinstance(seen["created"], int)
    assert [choice["index"] for choice in seen["choices"]] == [0, 1]
    assert [choice["message"]["role"] for choice in seen["choices"]] == ["assistant"] * 2


def test_bare_embeddings_get_what_they_lack() -> None:
    fields = parse_fields(b'{"data":[{"embedding":[1.0]},{"index":null,"embedding":"AACAPw=="}]}')
    mend_embeddings(fields, MODEL)
    assert json.loads(encode_fields(fields)) == {
        "object": "list",
        "model": "mine",
        "data": [
            {"object": "embedding", "index": 0, "embedding": [1.0]},
            {"object": "embedding", "index": 1, "embedding": "AACAPw=="},
        ],
    }


def test_a_whole_reply_becomes_a_stream() -> None:
    message = {"role": "assistant", "content": "x", "tool_calls": [call("{}", "f", id="c")]}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    fields = parse_fields(json.dumps({"choices": [choice], "usage": counted(3)}).encode())
    mend_completion(fields, CHAT, MODEL)
    said, ended, usage = [json.loads(encode_fields(each)) for each in chunks_of(fields, CHAT)]
    assert said["object"] == "chat.completion.chunk"
    assert said["choices"][0]["delta"]["content"] == "x"
    assert said["choices"][0]["delta"]["tool_calls"][0]["index"] == 0
    assert said["choices"][0]["finish_reason"] is None
    assert ended["choices"] == [{"index": 0, "finish_reason": "tool_calls", "delta": {}}]
    assert usage["choices"] == []
    assert usage["usage"] == counted(3)


def test_embeddings_are_base64_where_that_was_asked_for() -> None:
    """Whether the vendor knows of base64 or not."""
    fields = parse_fields(
        b'{"object":"list","data":[{"object":"embedding","index":0,"embedding":[1, 0.5]},'
        b'{"object":"embedding","index":1,"embedding":"AACAPwAAAD8="}]}'
    )
    mend_embeddings(fields, MODEL, as_base64=True)
    embeddings = [one["embedding"] for one in json.loads(encode_fields(fields))["data"]]
    assert embeddings == ["AACAPwAAAD8="] * 2


def test_what_is_no_embedding_is_not_made_base64() -> None:
    fields = parse_fields(b'{"data":[{"embedding":["x"]}]}')
    with pytest.raises(ValueError, match="Expected `float`"):
        mend_embeddings(fields, MODEL, as_base64=True)
