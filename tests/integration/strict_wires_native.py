"""The rules of vendors with APIs of their own, for `tests.integration.strict_wires`."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Any

import jsonschema

Complaints = Iterator[str]

# Anthropic's Messages -----------------------------------------------------------------------------


def anthropic(body: dict[str, Any]) -> Complaints:
    """Anthropic's, of models with and without their own facts."""
    before: list[dict[str, Any]] = []
    tools = {tool["name"] for tool in body.get("tools", ())}
    for place, message in enumerate(body["messages"]):
        blocks = _blocks(message["content"])
        last = place == len(body["messages"]) - 1
        if not blocks and not (last and message["role"] == "assistant"):
            yield f"messages.{place}: all messages must have non-empty content"
        yield from (f"messages.{place}: {each}" for each in _messages_blocks(blocks, before))
        if last and message["role"] == "assistant" and blocks:
            text = blocks[-1].get("text", "")
            if text != text.rstrip():
                yield "final assistant content cannot end with trailing whitespace"
        before = blocks
    if any(block["type"] == "tool_use" for block in before):
        yield "`tool_use` ids were found without `tool_result` blocks immediately after"
    if any(not block["text"].strip() for block in _blocks(body.get("system", []))):
        yield "system: text content blocks must contain non-whitespace text"
    for tool in body.get("tools", ()):
        if not re.fullmatch("[a-zA-Z0-9_-]{1,128}", tool["name"]):
            yield f"tools.name: String should match pattern: {tool['name']}"
        if tool["input_schema"].get("type") != "object":
            yield "tools.input_schema.type: Field required"
        yield from _root_choices(tool["input_schema"])
        yield from draft_2020_12(tool["input_schema"])
        yield from _keys(tool["input_schema"])
    if len(tools) < len(body.get("tools", ())):
        yield "tools: Tool names must be unique."
    if "tool_choice" in body and not tools:
        yield "tool_choice: may only be specified while providing tools"
    if any(not each.strip() for each in body.get("stop_sequences", ())):
        yield "stop_sequences: each stop sequence must contain non-whitespace"
    if not 0 <= body.get("temperature", 1) <= 1 or body["max_tokens"] < 1:
        yield "temperature: range"


def _root_choices(schema: dict[str, Any]) -> Complaints:
    if schema.keys() & {"oneOf", "allOf", "anyOf"}:
        # anthropics/claude-code#40075 (2026-11-28)
        yield "input_schema does not support oneOf, allOf, or anyOf at the top level"


def _keys(schema: Any) -> Complaints:
    """anthropics/claude-code#79418 (2026-11-28)."""
    if isinstance(schema, dict):
        for name in schema.get("properties", ()):
            if not re.fullmatch("[a-zA-Z0-9_.-]{1,64}", name):
                yield f"Property keys should match pattern: {name}"
        for each in schema.values():
            yield from _keys(each)
    for each in schema if isinstance(schema, list) else ():
        yield from _keys(each)


def draft_2020_12(schema: Any) -> Complaints:
    """What JSON Schema's own schema of that draft refuses, which vendors hold a schema against."""
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        yield f"JSON schema is invalid. It must match JSON Schema draft 2020-12: {error.message}"


_FIRST_BYTES = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif", b"RIFF": "webp"}


def _mistaken(said: str, data: str) -> Complaints:
    """Of images that are said to be of another type: home-assistant/core#167208 (2026-11-28)."""
    begin = base64.b64decode(data)[:4]
    kind = next((kind for first, kind in _FIRST_BYTES.items() if begin.startswith(first)), said)
    if kind != said:
        yield f"The image was specified using {said}, but the image appears to be {kind}"


def _blocks(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _messages_blocks(blocks: list[dict[str, Any]], before: list[dict[str, Any]]) -> Complaints:
    called = [block["id"] for block in before if block["type"] == "tool_use"]
    given = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    if set(called) - set(given):
        yield "`tool_use` ids were found without `tool_result` blocks immediately after"
    if set(given) - set(called):
        yield "unexpected `tool_use_id` found in `tool_result` blocks"
    if len(set(given)) < len(given):
        yield "each tool_use must have a single result"
    kinds = [block["type"] for block in blocks]
    if given and kinds[: len(given)] != ["tool_result"] * len(given):
        yield "`tool_result` blocks must come first"
    ids = [block["id"] for block in blocks if block["type"] == "tool_use"]
    if len(set(ids)) < len(ids):
        yield "`tool_use` ids must be unique"
    if not all(re.fullmatch("[a-zA-Z0-9_-]+", each) for each in (*ids, *given)):
        yield "tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
    for block in blocks:
        inner = _blocks(block.get("content", [])) if block["type"] == "tool_result" else []
        if any(each["type"] == "text" and not each["text"].strip() for each in (block, *inner)):
            yield "text content blocks must contain non-whitespace text"
        for each in (block, *inner):
            source = each.get("source", {}) if each["type"] == "image" else {}
            if source.get("type") == "base64":
                yield from _mistaken(source["media_type"].removeprefix("image/"), source["data"])
        if block["type"] == "tool_use" and not isinstance(block["input"], dict):
            yield "tool_use.input: Input should be a valid dictionary"
        if block["type"] == "tool_use" and not re.fullmatch("[a-zA-Z0-9_-]{1,200}", block["name"]):
            yield "tool_use.name: String should match pattern"


# Gemini's generateContent -------------------------------------------------------------------------

_SCHEMA = frozenset(
    {
        *("type", "format", "title", "description", "nullable", "enum", "maxItems", "minItems"),
        *("properties", "required", "minProperties", "maxProperties", "minLength", "maxLength"),
        *("pattern", "example", "anyOf", "propertyOrdering", "default", "items"),
        *("minimum", "maximum"),
    }
)
_GEMINI_NAME = re.compile("[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")


def gemini(body: dict[str, Any]) -> Complaints:
    """Google's, of Gemini 3."""
    contents = body["contents"]
    if not contents:
        yield "contents is not specified"
    if len(contents) == 1 and contents[0].get("role", "user") != "user":
        yield "Please ensure that single turn requests end with a user role"
    before: dict[str, Any] = {"role": "", "parts": []}
    for place, content in enumerate(contents):
        yield from (f"contents[{place}]: {each}" for each in _content(content, before))
        before = content
    if _calls(before["parts"]):
        yield "function call without a response"
    for part in body.get("systemInstruction", {}).get("parts", ()):
        if not part.get("text"):
            yield "systemInstruction: required oneof field 'data' must have one initialized field"
    names = []
    for tool in body.get("tools", ()):
        for function in tool.get("functionDeclarations", ()):
            names.append(function["name"])
            if not _GEMINI_NAME.fullmatch(function["name"]):
                yield f"Invalid function name {function['name']}"
            if "parameters" in function:
                yield from _schema(function["parameters"])
                if not function["parameters"].get("properties"):
                    yield "parameters.properties: should be non-empty for OBJECT type"
    if len(set(names)) < len(names):
        yield "Duplicate function declaration found"
    allowed = body.get("toolConfig", {}).get("functionCallingConfig", {})
    if set(allowed.get("allowedFunctionNames", ())) - set(names):
        yield "allowed_function_names: unknown"
    config = body.get("generationConfig", {})
    for name in ("seed", "topK", "maxOutputTokens", "candidateCount", "logprobs"):
        if not -(1 << 31) <= config.get(name, 0) < 1 << 31:
            yield f"Invalid value at 'generation_config.{name}' (TYPE_INT32)"
    if not 0 <= config.get("temperature", 1) <= 2:
        yield "temperature must be in the range [0.0, 2.0]"
    if len(config.get("stopSequences", ())) > 5:
        yield "stop_sequences: at most 5"
    if "responseSchema" in config:
        yield from _schema(config["responseSchema"])


def _calls(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [part["functionCall"] for part in parts if "functionCall" in part]


def _content(content: dict[str, Any], before: dict[str, Any]) -> Complaints:
    parts, called = content["parts"], _calls(before["parts"])
    given = [part["functionResponse"] for part in parts if "functionResponse" in part]
    if not parts or content.get("role") not in ("user", "model"):
        yield "parts must not be empty, role must be user or model"
    if content.get("role") == before["role"]:
        yield "Please ensure that multiturn requests alternate between user and model."
    if len(given) != len(called):
        yield "the number of function response parts is not equal to that of function call parts"
    if sorted(each["name"] for each in given) != sorted(each["name"] for each in called):
        yield "function responses are of other functions"
    if {each.get("id") for each in given} != {each.get("id") for each in called}:
        yield "functionResponse.id does not match functionCall.id"
    if _calls(parts) and before["role"] != "user":
        yield "function call turn comes immediately after a user turn or a function response turn"
    for part in parts:
        kinds = part.keys() & {"text", "functionCall", "functionResponse", "inlineData", "fileData"}
        if len(kinds) != 1 or (part.get("text") == "" and "thoughtSignature" not in part):
            yield "required oneof field 'data' must have one initialized field"
    for each in (*_calls(parts), *given):
        if not _GEMINI_NAME.fullmatch(each["name"]):
            yield f"Invalid function name {each['name']}"
        if not isinstance(each.get("args", each.get("response")), dict):
            yield "args and response have to be objects"


def _schema(schema: dict[str, Any]) -> Complaints:
    if unknown := schema.keys() - _SCHEMA:
        yield f'Unknown name "{unknown}": Cannot find field.'
    kind = schema.get("type")
    if kind is None and "anyOf" not in schema:
        yield "schema: didn't specify the schema type field"
    if kind is not None and kind not in (
        *("STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL"),
        *("string", "number", "integer", "boolean", "array", "object", "null"),
    ):
        yield f"type: invalid {kind}"
    if "enum" in schema and str(kind).upper() != "STRING":
        yield "enum: only allowed for STRING type"
    if str(kind).upper() == "ARRAY" and "items" not in schema:
        yield "items: missing field."
    if set(schema.get("required", ())) - set(schema.get("properties", ())):
        yield "required: property is not defined"
    for each in (*schema.get("properties", {}).values(), *schema.get("anyOf", ())):
        yield from _schema(each)
    if "items" in schema:
        yield from _schema(schema["items"])


# Bedrock's Converse -------------------------------------------------------------------------------


_METADATA = re.compile(r"[a-zA-Z0-9\s:_@$#=/+,-.]{0,256}", re.ASCII)


def bedrock(body: dict[str, Any]) -> Complaints:
    """Amazon's, whichever model answers."""
    messages = body["messages"]
    if not messages or messages[0]["role"] != "user":
        yield "A conversation must start with a user message."
    before: dict[str, Any] = {"role": "", "content": []}
    names: list[str] = []
    for message in messages:
        content = message["content"]
        if message["role"] == before["role"] or not content:
            yield "roles must alternate between 'user' and 'assistant', and contents not be empty"
        called = {
            block["toolUse"]["toolUseId"] for block in before["content"] if "toolUse" in block
        }
        results = [block["toolResult"] for block in content if "toolResult" in block]
        if called != {each["toolUseId"] for each in results} or len(results) != len(called):
            yield "toolResult blocks do not match the toolUse blocks of the previous turn"
        inner = [block for each in results for block in each["content"]]
        if any("text" in block and not block["text"].strip() for block in (*content, *inner)):
            yield "The text field in the ContentBlock object is blank."
        for block in (*content, *inner):
            if "image" in block:
                yield from _mistaken(block["image"]["format"], block["image"]["source"]["bytes"])
            name = block.get("document", {}).get("name", "x")
            if not re.fullmatch(r"[a-zA-Z0-9\-()\[\] ]{1,200}", name) or "  " in name:
                yield "The document file name can only contain alphanumeric characters, ..."
        if any("document" in block for block in content):
            if not any("text" in block for block in content):
                yield "A message with a document has to have a text."
            names += [block["document"]["name"] for block in content if "document" in block]
        used = [block["toolUse"] for block in content if "toolUse" in block]
        for each in used:
            if not re.fullmatch("[a-zA-Z0-9_.:-]{1,64}", each["toolUseId"]):
                yield "toolUseId: does not match"
            if not re.fullmatch("[a-zA-Z0-9_-]{1,64}", each["name"]):
                yield "toolUse.name: does not match"
            if not isinstance(each["input"], dict):
                yield "The format of the value at toolUse.input is invalid. Provide a json object"
        if len({each["toolUseId"] for each in used}) < len(used):
            yield "toolUse ids must be unique"
        if (used or results) and not body.get("toolConfig", {}).get("tools"):
            yield "The toolConfig field must be defined when using toolUse and toolResult blocks."
        before = message
    if any("toolUse" in block for block in before["content"]):
        yield "toolUse without toolResult"
    if len({name.lower() for name in names}) < len(names):
        yield "Messages can't contain duplicate document names"
    yield from _config(body)


def _config(body: dict[str, Any]) -> Complaints:
    if any(not block.get("text", "x").strip() for block in body.get("system", ())):
        yield "system: text is blank"
    for tool in body.get("toolConfig", {}).get("tools", ()):
        spec = tool.get("toolSpec")
        if spec is None:
            continue
        if not re.fullmatch("[a-zA-Z0-9_-]{1,64}", spec["name"]):
            yield "toolSpec.name: does not match"
        if spec.get("description") == "":
            yield "toolSpec.description: min length: 1"
        if spec["inputSchema"]["json"].get("type") != "object":
            yield "inputSchema.json.type must be object"
        yield from _root_choices(spec["inputSchema"]["json"])
        yield from draft_2020_12(spec["inputSchema"]["json"])
        yield from _keys(spec["inputSchema"]["json"])
    told = body.get("requestMetadata", {"x": ""})
    if not 1 <= len(told) <= 16 or not all(map(_METADATA.fullmatch, (*told, *told.values()))):
        yield "requestMetadata: does not match"
    config = body.get("inferenceConfig", {})
    if not 0 <= config.get("temperature", 1) <= 1 or config.get("maxTokens", 1) < 1:
        yield "inferenceConfig: range"
    if not all(config.get("stopSequences", ())):
        yield "inferenceConfig.stopSequences: min length: 1"


# Ollama's chat ------------------------------------------------------------------------------------


def ollama(body: dict[str, Any]) -> Complaints:
    """Ollama's own, which decodes into Go's types, and looks at little more."""
    for place, message in enumerate(body["messages"]):
        if not isinstance(message.get("content", ""), str):
            yield f"json: cannot unmarshal messages[{place}].content into Go type string"
        if message["role"] not in ("system", "user", "assistant", "tool"):
            yield f"invalid role: {message['role']}"
        for image in message.get("images") or ():
            try:
                base64.b64decode(image, validate=True)
            except ValueError:
                yield "illegal base64 data at input byte 4"
        for call in message.get("tool_calls") or ():
            if not isinstance(call["function"]["arguments"], dict):
                yield "json: cannot unmarshal string into api.ToolCallFunctionArguments"
    for tool in body.get("tools") or ():
        kind = tool["function"]["parameters"].get("type", "object")
        if kind != "object":
            yield f"tools: parameters of the type {kind}"
