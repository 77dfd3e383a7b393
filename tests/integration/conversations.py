"""Conversations as clients of each API may send them, odd ones among them, by name.

None is one that its own vendor refuses. Other vendors have to get them in a form that they take.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n and more").decode()
JPEG = base64.b64encode(b"\xff\xd8\xff\xe0 and more").decode()
PDF = base64.b64encode(b"%PDF-1.7 and more").decode()
IMAGE_URL = f"data:image/png;base64,{PNG}"
PDF_URL = f"data:application/pdf;base64,{PDF}"

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "enum": ["Bern", "Basel"]},
        "days": {"type": "array", "items": {"type": "integer", "minimum": 1}},
        "unit": {"type": ["string", "null"], "enum": ["C", "F", None]},
        "level": {"type": "integer", "enum": [1, 2]},
        "at": {"$ref": "#/$defs/place"},
    },
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"place": {"type": "object", "properties": {"lat": {"type": "number"}}}},
}
OLDER: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {
        "corner": {"type": "array", "items": [{"type": "number"}, {"type": "number"}]},
        "size": {"type": "number", "minimum": 0, "exclusiveMinimum": True},
        "any": {"type": "array"},
    },
}
"""What drafts of JSON Schema before 2020-12 said, and many MCP servers do."""

CHOICES: dict[str, Any] = {
    "oneOf": [
        {
            "type": "object",
            "properties": {"by": {"const": "name"}, "city": {"type": "string"}},
            "required": ["by", "city"],
        },
        {"$ref": "#/$defs/place"},
    ],
    "$defs": {
        "place": {
            "type": "object",
            "properties": {"by": {"const": "place"}, "lat": {"type": "number"}},
            "required": ["by", "lat"],
        }
    },
}
IDS = ("call_" + "x" * 60, "functions.weather:0", "toolu_01/=+", "call 1é")
"""Ids that other vendors gave: long ones, ones with dots, and whatever a client makes."""

Bodies = Mapping[str, Mapping[str, Any]]

# Chat completions ---------------------------------------------------------------------------------


def _said(role: str, content: Any, **members: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **members}


def _call(call_id: str, arguments: str = '{"city": "Bern"}', name: str = "weather") -> Any:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def _given(call_id: str, content: Any = "22") -> dict[str, Any]:
    return _said("tool", content, tool_call_id=call_id)


def _function(name: str = "weather", **members: Any) -> dict[str, Any]:
    function = {"name": name, "parameters": SCHEMA, **members}
    return {"type": "function", "function": function}


ASKED = _said("user", "Weather?")
TURN = [_said("assistant", None, tool_calls=[_call("c1")]), _given("c1")]
_PICTURE = {"type": "image_url", "image_url": {"url": IMAGE_URL}}
_FILE = {"type": "file", "file": {"filename": "a.b (1).pdf", "file_data": PDF_URL}}
TOOLS = [_function()]


def _chats() -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
    yield "plain", [ASKED], {}
    calls = [_call(each) for each in IDS]
    answers = [_given(each) for each in reversed(IDS)]
    turn = [_said("assistant", "", tool_calls=calls), *answers]
    yield "parallel calls with ids of others", [ASKED, *turn], {"tools": TOOLS}
    yield (
        "the same ids again",
        [ASKED, *TURN, *TURN, _said("user", "And?"), *TURN],
        {"tools": TOOLS},
    )
    yield "calls, and tools no more", [ASKED, *TURN], {}
    yield "calls, and none allowed", [ASKED, *TURN], {"tools": TOOLS, "tool_choice": "none"}
    yield "one demanded", [ASKED], {"tools": TOOLS, "tool_choice": _named("weather")}
    yield "one at a time", [ASKED, *TURN], {"tools": TOOLS, "parallel_tool_calls": False}
    yield "a user after results", [ASKED, *TURN, _said("user", "Be brief.")], {"tools": TOOLS}
    system = _said("system", "Be brief.")
    yield "instructions after an answer", [ASKED, _said("assistant", "22"), system, ASKED], {}
    yield "instructions after results", [ASKED, *TURN, system], {"tools": TOOLS}
    yield "instructions last", [ASKED, _said("assistant", "22"), system], {}
    yield "instructions alone", [system, _said("developer", "Now.")], {}
    yield "several instructions", [system, system, ASKED, system, ASKED], {}
    yield "users in a row", [ASKED, ASKED, _said("assistant", "22"), ASKED, ASKED], {}
    yield "the model in a row", [ASKED, *[_said("assistant", "22")] * 2, ASKED], {}
    yield "the model first", [_said("assistant", "Hello!"), ASKED], {}
    yield "the model alone", [_said("assistant", "Hello!")], {}
    yield "the model last", [ASKED, _said("assistant", "It is ")], {}
    yield "the model says nothing", [ASKED, _said("assistant", ""), ASKED], {}
    yield "blank texts", [_said("system", " "), _said("user", [_text("a"), _text(" ")]), ASKED], {}
    yield "a blank result", [ASKED, TURN[0], _given("c1", "")], {"tools": TOOLS}
    yield (
        "a result in parts",
        [ASKED, TURN[0], _given("c1", [_text("a"), _text("")])],
        {"tools": TOOLS},
    )
    broken = _said("assistant", None, tool_calls=[_call("c1", '{"city": ')])
    yield "broken arguments", [ASKED, broken, _given("c1")], {"tools": TOOLS}
    empty = _said("assistant", None, tool_calls=[_call("c1", "")])
    yield "no arguments", [ASKED, empty, _given("c1")], {"tools": TOOLS}
    refused = {"role": "assistant", "content": None, "refusal": "I won't."}
    yield "a refusal", [ASKED, refused, ASKED], {}
    yield "a picture alone", [_said("user", [_PICTURE])], {}
    odata = {"type": "object", "properties": {"$top": {"type": "integer"}}, "required": ["$top"]}
    paged = [_said("assistant", None, tool_calls=[_call("c1", '{"$top": 5}')]), _given("c1")]
    yield (
        "odd names of members",
        [ASKED, *paged],
        {"tools": [{"type": "function", "function": {"name": "weather", "parameters": odata}}]},
    )
    misnamed = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{JPEG}"}}
    yield "a picture of another type", [_said("user", [misnamed])], {}
    yield "a seed of 64 bits", [ASKED], {"seed": (1 << 40) + 7}
    yield (
        "files alone",
        [_said("user", [_FILE]), _said("assistant", "A."), _said("user", [_FILE])],
        {},
    )
    bare = {"type": "function", "function": {"name": "now", "description": ""}}
    yield "a tool without parameters", [ASKED], {"tools": [bare]}
    yield "names of speakers", [_said("user", "Hi", name="ann"), ASKED], {}
    in_json = _said("user", "Weather, in JSON?")
    yield "JSON", [in_json], {"response_format": {"type": "json_object"}}
    yield (
        "JSON beside tools",
        [in_json, *TURN],
        {
            "tools": TOOLS,
            "response_format": {"type": "json_object"},
        },
    )
    described = {"name": "place", "schema": SCHEMA}
    shape = {"type": "json_schema", "json_schema": described}
    yield "a schema", [ASKED], {"response_format": shape}
    yield "a schema beside tools", [ASKED, *TURN], {"response_format": shape, "tools": TOOLS}
    thought = _said("assistant", "22", reasoning_content="Hm.")
    yield "a thought", [ASKED, thought, ASKED], {}
    yield (
        "wishes",
        [ASKED],
        {"temperature": 1.5, "top_p": 0.5, "seed": 1, "reasoning_effort": "low"},
    )


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


# Anthropic's Messages -----------------------------------------------------------------------------


def _use(call_id: str, name: str = "weather") -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {"city": "Bern"}}


def _result(call_id: str, **members: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, **members}


def _messages() -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
    tools = {"tools": [{"name": "weather", "input_schema": SCHEMA}]}
    source = {"type": "base64", "media_type": "image/png", "data": PNG}
    picture = {"type": "image", "source": source}
    paper = {
        "type": "document",
        "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
    }
    calls = [_use(f"toolu_{each}_{'x' * 60}") for each in range(3)]
    yield "plain", [ASKED], {}
    results = [_result(each["id"], content="22") for each in calls]
    yield "parallel calls", [ASKED, _said("assistant", calls), _said("user", results)], tools
    called = _said("assistant", [_text("I'll look."), _use("toolu_1")])
    reminded = [_result("toolu_1", content="22"), _text("Be brief.")]
    yield "a reminder beside a result", [ASKED, called, _said("user", reminded)], tools
    yield (
        "a picture in a result",
        [
            ASKED,
            called,
            _said("user", [_result("toolu_1", content=[_text("It:"), picture])]),
        ],
        tools,
    )
    yield "nothing in a result", [ASKED, called, _said("user", [_result("toolu_1")])], tools
    failed = _result("toolu_1", content="No.", is_error=True)
    yield "a failure", [ASKED, called, _said("user", [failed])], tools
    yield (
        "a paper in a result",
        [
            ASKED,
            called,
            _said("user", [_result("toolu_1", content=[paper])]),
        ],
        tools,
    )
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "c2VhbA=="}
    redacted = {"type": "redacted_thinking", "data": "c2VhbA=="}
    thinking = _said("assistant", [thought, redacted, _text("I'll look."), _use("toolu_1")])
    yield "thoughts", [ASKED, thinking, _said("user", reminded)], tools
    yield "thoughts alone", [ASKED, _said("assistant", [thought]), ASKED], {}
    yield (
        "texts between calls",
        [
            ASKED,
            _said("assistant", [_use("toolu_1"), _text("And:"), _use("toolu_2")]),
            _said("user", [_result("toolu_1", content="1"), _result("toolu_2", content="2")]),
        ],
        tools,
    )
    yield "the model last", [ASKED, _said("assistant", "It is")], {}
    yield "the model first", [_said("assistant", "Hello!"), ASKED], {}
    yield "users in a row", [ASKED, ASKED], {}
    yield "papers", [_said("user", [paper, {**paper, "title": "x"}, _text("Sum up.")])], {}
    yield "a picture alone", [_said("user", [picture])], {}
    cited = {**paper, "citations": {"enabled": True}}
    yield "a paper to be cited", [_said("user", [cited, _text("Sum up.")])], {}
    system = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    yield "a system prompt in blocks", [ASKED], {"system": system}
    stops = {"stop_sequences": ["a", "b", "c"], "top_k": 5}
    yield "stop sequences", [ASKED], stops
    loose = {"type": "object", "properties": {"all": {"type": "array"}}}
    yield "an array of anything", [ASKED], {"tools": [{"name": "f", "input_schema": loose}]}
    long = {"tools": [{"name": "x" * 100, "input_schema": {"type": "object"}}]}
    choice = {"tool_choice": {"type": "tool", "name": "x" * 100, "disable_parallel_tool_use": True}}
    yield "a long name", [ASKED], {**long, **choice}


# OpenAI's responses -------------------------------------------------------------------------------


def _responses() -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
    tool = {"type": "function", "name": "weather", "parameters": SCHEMA, "strict": False}
    tools = {"tools": [tool]}
    asked = {"role": "user", "content": "Weather?"}

    def call(call_id: str) -> dict[str, Any]:
        called = {"name": "weather", "arguments": '{"city": "Bern"}'}
        return {"type": "function_call", "call_id": call_id, **called}

    def output(call_id: str, given: Any = "22") -> dict[str, Any]:
        return {"type": "function_call_output", "call_id": call_id, "output": given}

    ids = [f"call_{each}_{'x' * 50}" for each in range(3)]
    said = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "I'll look.", "annotations": []}],
    }
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2VhbA=="}
    yield "plain", [asked], {}
    yield "parallel calls", [asked, *map(call, ids), *map(output, ids)], tools
    yield (
        "calls in turns",
        [asked, thought, call("c1"), output("c1"), call("c2"), output("c2")],
        tools,
    )
    yield "words before calls", [asked, said, call("c1"), output("c1"), asked], tools
    yield "words after calls", [asked, call("c1"), said, output("c1")], tools
    yield (
        "a call's answer at once",
        [*(asked, call("c1"), output("c1"), call("c1b"), output("c1b"), said, asked)],
        tools,
    )
    picture = {"type": "input_image", "image_url": IMAGE_URL, "detail": "auto"}
    yield "a picture in a result", [asked, call("c1"), output("c1", [picture])], tools
    yield "an empty result", [asked, call("c1"), output("c1", "")], tools
    paper = {"type": "input_file", "filename": "a.pdf", "file_data": PDF_URL}
    yield "a paper", [{"role": "user", "content": [paper]}], {}
    developer = {"role": "developer", "content": "Be brief."}
    yield "instructions between", [asked, said, developer, asked], {"instructions": "Mind this."}
    yield "instructions alone", [developer], {}
    yield "instructions after results", [asked, call("c1"), output("c1"), developer], tools
    yield (
        "what Codex says without tools",
        [asked],
        {
            "tools": [],
            "tool_choice": "auto",
            "parallel_tool_calls": False,
        },
    )
    in_json = {"role": "user", "content": "Weather, in JSON?"}
    yield "JSON", [in_json], {"text": {"format": {"type": "json_object"}}}
    yield "calls, and tools no more", [asked, call("c1"), output("c1")], {}
    shape = {"type": "json_schema", "name": "place", "schema": SCHEMA, "strict": False}
    yield "a schema", [asked], {"text": {"format": shape}}
    plain = {"type": "object", "properties": {"a": {"type": "string"}}}
    yield (
        "a tool that says nothing of strict",
        [asked],
        {"tools": [{"type": "function", "name": "weather", "parameters": plain}]},
    )


# Gemini's -----------------------------------------------------------------------------------------


def _gemini() -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
    def said(role: str, *parts: Any) -> dict[str, Any]:
        return {"role": role, "parts": list(parts)}

    def call(name: str = "weather", **members: Any) -> dict[str, Any]:
        return {"functionCall": {"name": name, "args": {"city": "Bern"}, **members}}

    def given(name: str = "weather", **members: Any) -> dict[str, Any]:
        return {"functionResponse": {"name": name, "response": {"output": "22"}, **members}}

    declared = {"name": "weather", "parametersJsonSchema": SCHEMA}
    tools = {"tools": [{"functionDeclarations": [declared]}]}
    asked = said("user", {"text": "Weather?"})
    yield "plain", [asked], {}
    yield (
        "calls without ids",
        [asked, said("model", call(), call()), said("user", given(), given())],
        tools,
    )
    again = [said("model", call()), said("user", given())]
    yield "calls in turns", [asked, *again, *again, *again], tools
    yield (
        "calls with ids",
        [
            asked,
            said("model", {"text": "Look."}, call(id="a b"), call(id="b")),
            said("user", given(id="b"), given(id="a b")),
        ],
        tools,
    )
    yield (
        "words beside a result",
        [asked, again[0], said("user", given(), {"text": "Brief."})],
        tools,
    )
    picture = {"inlineData": {"mimeType": "image/png", "data": PNG}}
    yield "a picture alone", [said("user", picture)], {}
    paper = {"inlineData": {"mimeType": "application/pdf", "data": PDF}}
    yield "a paper alone", [said("user", paper)], {}
    thought = {"text": "Hm.", "thought": True, "thoughtSignature": "c2VhbA=="}
    yield "thoughts", [asked, said("model", thought, call()), said("user", given())], tools
    yield "the model last", [asked, said("model", {"text": "It is "})], {}
    yield "the model first", [said("model", {"text": "Hello!"}), asked], {}
    odd = {"functionDeclarations": [{"name": "a.b:c", "description": "x"}]}
    yield (
        "a name with dots",
        [asked, said("model", call("a.b:c")), said("user", given("a.b:c"))],
        {"tools": [odd]},
    )
    shape = {"responseMimeType": "application/json", "responseSchema": {"type": "STRING"}}
    yield "a schema of a text", [asked], {"generationConfig": shape}
    yield "JSON", [asked], {"generationConfig": {"responseMimeType": "application/json"}}
    yield (
        "wishes",
        [asked],
        {"generationConfig": {"stopSequences": ["a", "b", "c", "d"], "topK": 4}},
    )
    for name, schema in (("an older draft", OLDER), ("one of two schemas", CHOICES)):
        declared = {"name": "f", "parametersJsonSchema": schema}
        yield name, [asked], {"tools": [{"functionDeclarations": [declared]}]}
    typed = {"type": "OBJECT", "properties": {"n": {"type": "INTEGER", "nullable": True}}}
    yield (
        "parameters in its own words",
        [asked],
        {"tools": [{"functionDeclarations": [{"name": "f", "parameters": typed}]}]},
    )


# Ollama's -----------------------------------------------------------------------------------------


def _ollama() -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
    tools = {"tools": TOOLS}

    def call(name: str = "weather") -> dict[str, Any]:
        return {"function": {"name": name, "arguments": {"city": "Bern"}}}

    called = _said("assistant", "", tool_calls=[call(), call()])
    given = _said("tool", "22", tool_name="weather")
    yield "plain", [ASKED], {}
    yield "calls without ids", [ASKED, called, given, given], tools
    one = [_said("assistant", "", tool_calls=[call()]), given]
    yield "calls in turns", [ASKED, *one, *one, _said("user", "And?"), *one], tools
    yield "a picture", [_said("user", "What?", images=[PNG])], {}
    yield "a picture alone", [_said("user", "", images=[PNG])], {}
    thinking = _said("assistant", "22", thinking="Hm.")
    yield "thoughts", [ASKED, thinking, ASKED], {}
    yield "the model last", [ASKED, _said("assistant", "It is ")], {}
    yield "JSON", [ASKED], {"format": "json"}
    yield "a schema", [ASKED], {"format": SCHEMA}
    yield (
        "instructions between",
        [ASKED, _said("assistant", "22"), _said("system", "Brief."), ASKED],
        {},
    )
    yield "parameters without a type", [ASKED], {"tools": [_function(parameters={})]}
    yield "several stops", [ASKED], {"options": {"stop": ["a", "b", "c", "d"], "top_k": 3}}


CLIENTS: Mapping[str, tuple[str, Bodies]] = {
    "chat": (
        "/v1/openai/v1/chat/completions",
        {name: {"messages": messages, **rest} for name, messages, rest in _chats()},
    ),
    "messages": (
        "/v1/messages",
        {
            name: {"max_tokens": 100, "messages": messages, **rest}
            for name, messages, rest in _messages()
        },
    ),
    "responses": (
        "/v1/responses",
        {name: {"input": items, "store": False, **rest} for name, items, rest in _responses()},
    ),
    "gemini": (
        "/v1beta/models/{model}:generateContent",
        {name: {"contents": contents, **rest} for name, contents, rest in _gemini()},
    ),
    "ollama": (
        "/api/chat",
        {
            name: {"messages": messages, "stream": False, **rest}
            for name, messages, rest in _ollama()
        },
    ),
}
"""By client API, its path, and the bodies but for the model."""
