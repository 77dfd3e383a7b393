"""A tool is called and answered: the second turn, which has what the model thought in the first.

Every client API's own SDK sends back what it got, to each vendor that takes what it takes and
refuses all else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import anthropic
import ollama
import openai
import pytest
from google import genai
from google.genai import types as genai_types

from providers.remote.openai.vendors import VENDORS
from tests.integration.server_process import ServerProcess, running, write_template
from tests.integration.strict_vendors import DETAILS, SEAL, STRICT, THOUGHTS, StrictVendors

QUESTION = "Weather in Bern?"
PARAMETERS: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
MAKERS = ("deepseek", "moonshot", "xiaomi", "zai")
"""Vendors that have their own models alone, and read what those thought; with the others the model
is the same as the one that began the conversation."""

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@pytest.fixture(scope="module")
def vendors() -> Iterator[StrictVendors]:
    with StrictVendors() as vendors:
        yield vendors


@pytest.fixture(scope="module")
def server(
    vendors: StrictVendors, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    template = write_template(
        tmp_path_factory.mktemp("strict") / "strict.yaml",
        providers=[
            {
                "id": name,
                "type": f"remote::{name}",
                # All else is translated to its chat completions, where the vendor has it itself.
                "config": {
                    "base_url": vendors.base_url(name),
                    "api_key": "sk-x",
                    "wires": ["chat"],
                },
            }
            for name in STRICT
        ],
        models=[{"id": name, "provider": name, "provider_model": "own"} for name in STRICT],
    )
    with running(template) as server:
        yield server


def test_there_is_a_strict_one_of_every_vendor() -> None:
    chatting = {type for type, vendor in VENDORS.items() if "chat" in vendor.wires}
    assert {f"remote::{name}" for name in STRICT} == chatting


# The SDKs, each made once: most of what a conversation costs is to read who is trusted over TLS --


@cache
def openai_sdk(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1/openai/v1", api_key="x", max_retries=0)


@cache
def anthropic_sdk(url: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=url, api_key="x", max_retries=0)


@cache
def genai_sdk(url: str) -> genai.Client:
    return genai.Client(api_key="x", http_options=genai_types.HttpOptions(base_url=url))


@cache
def ollama_sdk(url: str) -> ollama.Client:
    return ollama.Client(url)


# Both turns, in each API --------------------------------------------------------------------------


def in_chat(url: str, first: str, second: str, stream: bool) -> str | None:
    sdk = openai_sdk(url)
    function: Any = {"name": "get_weather", "parameters": PARAMETERS}
    history: list[Any] = [{"role": "user", "content": QUESTION}]

    def ask(model: str) -> Any:
        body: Any = {
            "model": model,
            "messages": history,
            "tools": [{"type": "function", "function": function}],
        }
        if not stream:
            return sdk.chat.completions.create(**body).choices[0].message
        with sdk.chat.completions.stream(**body) as events:
            return events.get_final_completion().choices[0].message

    message = ask(first)
    said = message.model_dump(exclude_none=True)
    for call in said["tool_calls"]:
        call.pop("index", None)  # which the SDK leaves where it put a stream together
    history.append(said)
    for call in message.tool_calls:
        history.append({"role": "tool", "tool_call_id": call.id, "content": "22 degrees"})
    return str(ask(second).content)


def in_responses(url: str, first: str, second: str, stream: bool) -> str | None:
    sdk = openai_sdk(url)
    items: list[Any] = [{"role": "user", "content": QUESTION}]

    def ask(model: str) -> Any:
        body: Any = {
            "model": model,
            "input": items,
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "tools": [
                {
                    "type": "function",
                    "name": "get_weather",
                    "parameters": PARAMETERS,
                    "strict": False,
                }
            ],
        }
        if not stream:
            return sdk.responses.create(**body)
        with sdk.responses.stream(**body) as events:
            return events.get_final_response()

    for item in ask(first).output:
        items.append(item.model_dump(exclude_none=True))
        if item.type == "function_call":
            output = {"type": "function_call_output", "call_id": item.call_id}
            items.append({**output, "output": "22 degrees"})
    return str(ask(second).output_text)


def in_messages(url: str, first: str, second: str, stream: bool) -> str | None:
    sdk = anthropic_sdk(url)
    history: list[Any] = [{"role": "user", "content": QUESTION}]

    def ask(model: str) -> Any:
        body: Any = {
            "model": model,
            "max_tokens": 100,
            "messages": history,
            "tools": [{"name": "get_weather", "input_schema": PARAMETERS}],
        }
        if not stream:
            return sdk.messages.create(**body)
        with sdk.messages.stream(**body) as events:
            return events.get_final_message()

    content = ask(first).content
    history.append({"role": "assistant", "content": [block.to_dict() for block in content]})
    history.append(
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": block.id, "content": "22 degrees"}
                for block in content
                if block.type == "tool_use"
            ],
        }
    )
    return str(ask(second).content[-1].text)


def in_gemini(url: str, first: str, second: str, stream: bool) -> str | None:
    sdk = genai_sdk(url)
    contents: list[Any] = [
        genai_types.Content(role="user", parts=[genai_types.Part(text=QUESTION)])
    ]
    config = genai_types.GenerateContentConfig.model_validate(
        {
            "automatic_function_calling": {"disable": True},
            "thinking_config": {"include_thoughts": True},
            "tools": [
                {
                    "function_declarations": [
                        {"name": "get_weather", "parameters_json_schema": PARAMETERS}
                    ]
                }
            ],
        }
    )

    def ask(model: str) -> list[genai_types.Part]:
        asked: Any = {"model": model, "contents": contents, "config": config}
        replies = (
            sdk.models.generate_content_stream(**asked)
            if stream
            else [sdk.models.generate_content(**asked)]
        )
        said = [reply.candidates[0].content for reply in replies if reply.candidates]
        return [part for content in said if content for part in content.parts or ()]

    parts = ask(first)
    contents.append(genai_types.Content(role="model", parts=parts))
    answers = [
        genai_types.Part.from_function_response(
            name="get_weather", response={"output": "22 degrees"}
        )
        for part in parts
        if part.function_call
    ]
    contents.append(genai_types.Content(role="user", parts=answers))
    return "".join(part.text or "" for part in ask(second) if not part.thought)


def in_ollama(url: str, first: str, second: str, stream: bool) -> str | None:
    sdk = ollama_sdk(url)
    history: list[Any] = [{"role": "user", "content": QUESTION}]

    def ask(model: str) -> list[ollama.Message]:
        function: Any = {"name": "get_weather", "parameters": PARAMETERS}
        body: Any = {
            "model": model,
            "messages": history,
            "tools": [{"type": "function", "function": function}],
        }
        if stream:
            return [reply.message for reply in sdk.chat(**body, stream=True)]
        return [sdk.chat(**body).message]

    messages = ask(first)
    calls = [call for message in messages for call in message.tool_calls or ()]
    thinking = "".join(message.thinking or "" for message in messages)
    said = ollama.Message(role="assistant", thinking=thinking or None, tool_calls=calls)
    history += [said, {"role": "tool", "tool_name": "get_weather", "content": "22 degrees"}]
    return "".join(message.content or "" for message in ask(second))


TURNS: dict[str, Callable[[str, str, str, bool], str | None]] = {
    "chat": in_chat,
    "responses": in_responses,
    "messages": in_messages,
    "gemini": in_gemini,
    "ollama": in_ollama,
}


# What comes back ----------------------------------------------------------------------------------


@STREAMED
@pytest.mark.parametrize("client", TURNS)
@pytest.mark.parametrize("vendor", STRICT)
def test_a_vendor_gets_what_it_thought_where_it_takes_it(
    server: ServerProcess, vendors: StrictVendors, vendor: str, client: str, stream: bool
) -> None:
    assert TURNS[client](server.url, vendor, vendor, stream) == "Sunny."
    strict, seen = STRICT[vendor], vendors.seen[vendor]
    assert seen.thoughts == (THOUGHTS if strict.reads else None)
    message = seen.body["messages"][1]
    if "reasoning_details" in strict.says and client == "chat":
        assert message["reasoning_details"][0]["text"] == DETAILS[0]["text"]
    if "extra_content" in strict.says and client != "ollama":  # which has no place for a seal
        assert message["tool_calls"][0]["extra_content"] == SEAL


@STREAMED
@pytest.mark.parametrize("client", TURNS)
@pytest.mark.parametrize("vendor", STRICT)
def test_a_conversation_goes_on_at_another_vendor(
    server: ServerProcess, vendors: StrictVendors, vendor: str, client: str, stream: bool
) -> None:
    assert TURNS[client](server.url, "passthrough", vendor, stream) == "Sunny."
    strict, thoughts = STRICT[vendor], vendors.seen[vendor].thoughts
    if vendor in MAKERS:
        # What another family's model thought is left out, and where something has to be said...
        assert thoughts == (" " if strict.needs else None)
    else:
        assert thoughts == (THOUGHTS if strict.reads else None)


# What only some clients do ------------------------------------------------------------------------

LONG = "mcp__plugin_weather-of-the-world_weather__get_weather_of_a_city_now"


@STREAMED
@pytest.mark.parametrize("vendor", STRICT)
def test_a_user_who_says_something_beside_a_result_of_a_tool_with_a_long_name(
    server: ServerProcess, vendors: StrictVendors, vendor: str, stream: bool
) -> None:
    sdk = anthropic_sdk(server.url)
    turns: list[Any] = [{"role": "user", "content": QUESTION}]

    def ask() -> Any:
        body: Any = {
            "model": vendor,
            "max_tokens": 100,
            "messages": turns,
            "tools": [{"name": LONG, "input_schema": PARAMETERS}],
        }
        if not stream:
            return sdk.messages.create(**body)
        with sdk.messages.stream(**body) as events:
            return events.get_final_message()

    said = ask().content
    (call,) = [block for block in said if block.type == "tool_use"]
    assert (call.name, call.input) == (LONG, {"city": "Bern"})
    turns.append({"role": "assistant", "content": [each.model_dump() for each in said]})
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "22 degrees"}
    reminder = {"type": "text", "text": "Be brief."}
    turns.append({"role": "user", "content": [result, reminder]})
    assert ask().content[-1].text == "Sunny."
    sent = vendors.seen[vendor].body
    assert sent["messages"][-1] == {"role": "user", "content": "Be brief."}
    assert sent["messages"][1]["tool_calls"][0]["function"]["name"] != LONG


@pytest.mark.parametrize("vendor", ["mistral", "passthrough"])
def test_a_model_goes_on_with_what_is_put_into_its_mouth(
    server: ServerProcess, vendors: StrictVendors, vendor: str
) -> None:
    started: Any = [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": "It is"},
    ]
    said = anthropic_sdk(server.url).messages.create(model=vendor, max_tokens=100, messages=started)
    assert [block.text for block in said.content if block.type == "text"] == ["Sunny."]
    marked = {"prefix": True} if vendor == "mistral" else {}
    assert vendors.seen[vendor].body["messages"][-1] == {**started[-1], **marked}


@pytest.mark.parametrize(
    "refused",
    [
        {"content": None, "refusal": "I won't say."},
        {"content": [{"type": "refusal", "refusal": "I won't say."}]},
        {"content": "I won't say.", "refusal": None},
    ],
    ids=["member", "part", "none"],
)
@pytest.mark.parametrize("vendor", STRICT)
def test_what_was_refused_is_said_where_there_is_no_other_place_for_it(
    server: ServerProcess, vendors: StrictVendors, vendor: str, refused: dict[str, Any]
) -> None:
    question: Any = {"role": "user", "content": QUESTION}
    said: Any = {"role": "assistant", **refused}
    reply = openai_sdk(server.url).chat.completions.create(
        model=vendor, messages=[question, said, question]
    )
    assert reply.choices[0].message.content == "Sunny."
    message = vendors.seen[vendor].body["messages"][1]
    if vendor in ("openai", "azure", "passthrough"):
        assert message == said
    else:
        content = message["content"]
        text = content if isinstance(content, str) else content[0]["text"]
        assert (text, "refusal" in message) == ("I won't say.", False)
