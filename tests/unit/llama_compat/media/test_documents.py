"""Documents in every wire language: read, written, or refused by name."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from llama_compat.dialects.anthropic_messages import requests as anthropic
from llama_compat.dialects.anthropic_messages.input.conversations import (
    parse_messages as parse_turns,
)
from llama_compat.dialects.bedrock_converse import requests as bedrock
from llama_compat.dialects.gemini import requests as gemini
from llama_compat.dialects.gemini.input.contents import parse_contents
from llama_compat.dialects.gemini_interactions import requests as interactions
from llama_compat.dialects.gemini_interactions.input import parse_input as parse_interaction
from llama_compat.dialects.ollama import requests as ollama
from llama_compat.dialects.openai.chat import requests as chat
from llama_compat.dialects.openai_responses import requests as responses
from llama_compat.dialects.openai_responses.input.items import parse_input
from llama_compat.errors import APIError, UnsupportedHere
from llama_compat.media.documents import PDF, document_in, file_name, media_type_of
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionMessage,
    DocumentContent,
    Message,
    SystemMessage,
    TextContent,
    ToolCall,
    ToolDefinition,
    ToolResponseMessage,
    UserMessage,
)

DATA = base64.b64encode(b"%PDF-1.7 and more").decode()
DATA_URL = f"data:application/pdf;base64,{DATA}"
REMOTE = "https://example.com/a.pdf"
NAME = "report.pdf"
PAPER = DocumentContent(DATA_URL, NAME)
ASKED = UserMessage((TextContent("Sum it up."), PAPER))
CALLED = CompletionMessage((ToolCall("call_1", "find", {}, "{}"),))
GIVEN = ToolResponseMessage("call_1", (TextContent("It:"), PAPER))

DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


def request_of(*messages: Message) -> ChatCompletionRequest:
    return ChatCompletionRequest("m", messages)


def from_chat(*parts: Any) -> tuple[Message, ...]:
    asked = {"type": "text", "text": "Sum it up."}
    return chat.parse_messages([{"role": "user", "content": [asked, *parts]}])


def from_responses(*parts: Any) -> tuple[Message, ...]:
    asked = {"type": "input_text", "text": "Sum it up."}
    return parse_input([{"role": "user", "content": [asked, *parts]}])


def from_messages(*parts: Any) -> tuple[Message, ...]:
    asked = {"type": "text", "text": "Sum it up."}
    return parse_turns([{"role": "user", "content": [asked, *parts]}])


def from_gemini(*parts: Any) -> tuple[Message, ...]:
    return parse_contents([{"parts": [{"text": "Sum it up."}, *parts]}])


def from_interactions(*parts: Any) -> tuple[Message, ...]:
    return parse_interaction([{"type": "text", "text": "Sum it up."}, *parts])


def file(**members: Any) -> dict[str, Any]:
    return {"type": "file", "file": members}


def document(source: Any, **members: Any) -> dict[str, Any]:
    return {"type": "document", "source": source, **members}


def to_chat(request: ChatCompletionRequest) -> Any:
    return chat.render_request(request)["messages"][-1]["content"]


def to_responses(request: ChatCompletionRequest) -> Any:
    assert responses.has_words_for(request)
    return responses.render_request(request)["input"][-1]["content"]


def to_messages(request: ChatCompletionRequest) -> Any:
    return anthropic.render_request(request, default_max_tokens=9)["messages"][-1]["content"]


def to_gemini(request: ChatCompletionRequest) -> Any:
    return gemini.render_request(request)["contents"][-1]["parts"]


def to_interactions(request: ChatCompletionRequest) -> Any:
    return interactions.render_request(request)["input"][-1]["content"]


def to_bedrock(request: ChatCompletionRequest) -> Any:
    return bedrock.render_request(request).body["messages"][-1]["content"]


BYTES = {"type": "base64", "media_type": PDF, "data": DATA}
CLIENTS = {
    "chat": lambda: from_chat(file(file_data=DATA_URL, filename=NAME)),
    "responses": lambda: from_responses(
        {"type": "input_file", "file_data": DATA_URL, "filename": NAME}
    ),
    "messages": lambda: from_messages(document(BYTES, title=NAME)),
    "gemini": lambda: from_gemini(
        {"inlineData": {"mimeType": PDF, "data": DATA, "displayName": NAME}}
    ),
    "gemini, as its clients write it": lambda: from_gemini(
        {"inline_data": {"mime_type": "Application/PDF", "data": DATA, "display_name": NAME}}
    ),
}

TEXT = {"text": "Sum it up."}
VENDORS = {
    "chat": (
        to_chat,
        [{"type": "text", **TEXT}, file(filename=NAME, file_data=DATA_URL)],
    ),
    "responses": (
        to_responses,
        [
            {"type": "input_text", **TEXT},
            {"type": "input_file", "filename": NAME, "file_data": DATA_URL},
        ],
    ),
    "messages": (to_messages, [{"type": "text", **TEXT}, document(BYTES, title=NAME)]),
    "gemini": (
        to_gemini,
        [TEXT, {"text": f"{NAME}\n"}, {"inlineData": {"mimeType": PDF, "data": DATA}}],
    ),
    "interactions": (
        to_interactions,
        [
            {"type": "text", **TEXT},
            {"type": "text", "text": f"{NAME}\n"},
            {"type": "document", "data": DATA, "mime_type": PDF},
        ],
    ),
    "bedrock": (
        to_bedrock,
        [TEXT, {"document": {"format": "pdf", "name": "report", "source": {"bytes": DATA}}}],
    ),
}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("vendor", VENDORS)
def test_its_bytes_and_its_name_arrive(client: str, vendor: str) -> None:
    render, expected = VENDORS[vendor]
    assert render(request_of(*CLIENTS[client]())) == expected


@pytest.mark.parametrize("vendor", VENDORS)
def test_one_without_a_name_arrives(vendor: str) -> None:
    asked = from_interactions({"type": "document", "data": DATA, "mime_type": PDF})
    assert asked == (UserMessage((TextContent("Sum it up."), DocumentContent(DATA_URL))),)
    sent = str(VENDORS[vendor][0](request_of(*asked)))
    assert DATA in sent
    assert "None" not in sent


@pytest.mark.parametrize(
    ("read", "name"),
    [
        (lambda: from_chat(file(file_id=REMOTE, filename=NAME)), NAME),
        (lambda: from_chat(file(file_data=REMOTE, filename=NAME)), NAME),
        (lambda: from_responses({"type": "input_file", "file_url": REMOTE}), None),
        (lambda: from_messages(document({"type": "url", "url": REMOTE}, title=NAME)), NAME),
        (lambda: from_gemini({"fileData": {"mimeType": PDF, "fileUri": REMOTE}}), None),
        (lambda: from_interactions({"type": "document", "uri": REMOTE}), None),
    ],
)
def test_it_may_be_at_an_address(read: Callable[[], Any], name: str | None) -> None:
    assert read() == (UserMessage((TextContent("Sum it up."), DocumentContent(REMOTE, name))),)


def test_addresses_go_to_who_fetches_them() -> None:
    asked = request_of(UserMessage((DocumentContent(REMOTE, NAME),)))
    assert to_responses(asked) == [{"type": "input_file", "file_url": REMOTE}]
    assert to_messages(asked) == [document({"type": "url", "url": REMOTE}, title=NAME)]


def test_in_chats_an_address_is_where_the_bytes_would_be() -> None:
    asked = request_of(UserMessage((DocumentContent(REMOTE, NAME),)))
    assert to_chat(asked) == [file(filename=NAME, file_data=REMOTE)]
    unnamed = request_of(UserMessage((DocumentContent(REMOTE),)))
    assert to_chat(unnamed) == [file(filename="document.pdf", file_data=REMOTE)]


@pytest.mark.parametrize("render", [to_gemini, to_interactions, to_bedrock])
def test_addresses_are_refused_by_who_takes_bytes(render: Callable[[Any], Any]) -> None:
    with pytest.raises(UnsupportedHere, match="address of a document") as raised:
        render(request_of(UserMessage((DocumentContent(REMOTE),))))
    assert (raised.value.status, raised.value.param) == (400, "messages[0].content")


@pytest.mark.parametrize(
    "read",
    [
        lambda: from_chat(file(file_data="data:text/plain;base64,SGk=", filename="a.txt")),
        lambda: from_chat(file(file_data="SGk=", filename="a.txt")),
        lambda: from_responses({"type": "input_file", "file_data": "SGk=", "filename": "a.txt"}),
        lambda: from_gemini(
            {"inlineData": {"mimeType": "text/plain", "data": "SGk", "displayName": "a.txt"}}
        ),
    ],
)
def test_plain_text_is_told_as_text(read: Callable[[], Any]) -> None:
    assert read() == (UserMessage((TextContent("Sum it up."), TextContent("a.txt\nHi"))),)


def test_the_context_of_one_goes_before_it() -> None:
    [message] = from_messages(document(BYTES, title=NAME, context="Of 2026"))
    assert message.content == (TextContent("Sum it up."), TextContent("Of 2026\n"), PAPER)


def test_what_tools_gave_goes_on() -> None:
    given = ChatCompletionRequest(
        "m", (UserMessage("Go."), CALLED, GIVEN), tools=(ToolDefinition("find"),)
    )
    told, sent = to_chat(given)
    assert told["text"] == "The files that the call call_1 gave:"
    assert sent == file(filename=NAME, file_data=DATA_URL)
    output = responses.render_request(given)["input"][-1]["output"]
    assert output[-1] == {"type": "input_file", "filename": NAME, "file_data": DATA_URL}
    assert to_messages(given)[0]["content"][-1] == document(BYTES, title=NAME)
    answer = to_gemini(given)[0]["functionResponse"]
    assert answer["response"] == {"output": f"It:{NAME}\n"}
    assert answer["parts"] == [{"inlineData": {"mimeType": PDF, "data": DATA}}]
    result = interactions.render_request(given)["input"][-1]["result"]
    assert result[-1] == {"type": "document", "data": DATA, "mime_type": PDF}
    assert "document" in to_bedrock(given)[0]["toolResult"]["content"][-1]


@pytest.mark.parametrize(
    ("render", "whose"),
    [
        (ollama.render_request, "Ollama's API"),
        (lambda request: to_messages(request_of(SystemMessage((PAPER,)), ASKED)), "Anthropic's"),
        (lambda request: to_bedrock(request_of(SystemMessage((PAPER,)), ASKED)), "Bedrock's"),
        (lambda request: to_gemini(request_of(SystemMessage((PAPER,)), ASKED)), "Gemini's"),
    ],
)
def test_it_is_refused_by_name_where_none_is_taken(
    render: Callable[[ChatCompletionRequest], object], whose: str
) -> None:
    with pytest.raises(UnsupportedHere, match="has a document, which") as raised:
        render(request_of(ASKED))
    assert whose in raised.value.message
    assert (raised.value.status, raised.value.code) == (400, "unsupported_content")
    assert (raised.value.param or "").startswith("messages[0]")


@pytest.mark.parametrize(
    "read",
    [
        lambda: chat.parse_messages(
            [{"role": "assistant", "content": [file(file_data=DATA_URL, filename=NAME)]}]
        ),
        lambda: parse_contents(
            [{"role": "model", "parts": [{"inlineData": {"mimeType": PDF, "data": DATA}}]}]
        ),
        lambda: parse_interaction(
            [
                {
                    "type": "model_output",
                    "content": [{"type": "document", "mime_type": PDF, "data": DATA}],
                }
            ]
        ),
    ],
)
def test_models_say_none(read: Callable[[], object]) -> None:
    with pytest.raises(APIError, match="has a document") as raised:
        read()
    assert raised.value.status == 400


@pytest.mark.parametrize(
    ("read", "param"),
    [
        (lambda: from_chat(file()), "messages[0].content[1].file.file_id"),
        (lambda: from_chat(file(file_id="file-1")), "messages[0].content[1].file.file_id"),
        (lambda: from_chat({"type": "file"}), "messages[0].content[1].file"),
        (lambda: from_chat(file(file_data="")), "messages[0].content[1].file.file_data"),
        (lambda: from_chat(file(file_data="data:x")), "messages[0].content[1].file.file_data"),
        (lambda: from_chat(file(file_data="eA==")), "messages[0].content[1].file.file_data"),
        (
            lambda: from_chat(file(file_data="data:text/plain;base64,//79")),
            "messages[0].content[1].file.file_data",
        ),
        (
            lambda: from_responses({"type": "input_file", "file_id": "file-1"}),
            "input[0].content[1].file_id",
        ),
        (
            lambda: from_responses({"type": "input_file", "file_url": "ftp://a/b"}),
            "input[0].content[1].file_url",
        ),
        (
            lambda: from_messages(document({"type": "base64", "media_type": PDF, "data": ""})),
            "messages[0].content[1].source.data",
        ),
        (
            lambda: from_gemini({"inlineData": {"mimeType": "video/mp4", "data": "x"}}),
            "contents[0].parts[1].inlineData.mimeType",
        ),
        (
            lambda: from_interactions({"type": "document", "uri": "gs://a/b"}),
            "input[1].uri",
        ),
    ],
)
def test_what_is_malformed_is_named(read: Callable[[], object], param: str) -> None:
    with pytest.raises(APIError) as raised:
        read()
    assert (raised.value.status, raised.value.param) == (400, param)


@pytest.mark.parametrize("render", [to_messages, to_bedrock])
def test_a_type_that_a_vendor_does_not_take_is_named(render: Callable[[Any], Any]) -> None:
    slides = "data:application/vnd.ms-powerpoint;base64,AA=="
    with pytest.raises(UnsupportedHere, match=r"'application/vnd\.ms-powerpoint'") as raised:
        render(request_of(UserMessage((DocumentContent(slides),))))
    assert raised.value.param == "messages[0].content"


@pytest.mark.parametrize(
    ("name", "media_type", "expected"),
    [
        ("report.pdf", PDF, "report.pdf"),
        ("Report.PDF", PDF, "Report.PDF"),
        ("Report of v1.2", PDF, "Report of v1.2.pdf"),
        (None, PDF, "document.pdf"),
        ("a", DOCX, "a.docx"),
        ("a.odt", "application/x-odt", "a.odt"),
    ],
)
def test_a_file_is_named_as_its_type_has_it(
    name: str | None, media_type: str, expected: str
) -> None:
    assert file_name(name, media_type) == expected


@pytest.mark.parametrize(
    ("media_type", "name", "begin", "expected"),
    [
        ("application/octet-stream", "a.bin", b"%PDF-1.7", PDF),
        ("application/octet-stream", "a.DOCX", b"PK", DOCX),
        ("", "a.md", b"# A", "text/plain"),
        ("application/zip", "a.pdf", b"PK", "application/zip"),
        ("application/octet-stream", "a.bin", b"PK", "application/octet-stream"),
    ],
)
def test_what_a_file_is(media_type: str, name: str, begin: bytes, expected: str) -> None:
    assert media_type_of(media_type, name, begin) == expected


def test_a_data_url_may_say_more_of_its_file() -> None:
    url = f"data:Application/PDF;name=a%20b.pdf;BASE64,{DATA}"
    assert document_in(url, None, "x") == DocumentContent(DATA_URL)
