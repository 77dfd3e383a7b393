"""Documents in requests to Converse: their names, and the text that has to be beside them."""

from __future__ import annotations

from typing import Any

import pytest

from llama_compat.dialects.bedrock_converse.documents import ATTACHED, DocumentNames
from llama_compat.dialects.bedrock_converse.requests import render_request
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionMessage,
    DocumentContent,
    Message,
    TextContent,
    ToolCall,
    ToolDefinition,
    ToolResponseMessage,
    UserMessage,
)

PDF = "data:application/pdf;base64,JVBERi0xLjc="
SHEET = "data:application/vnd.openxmlformats-officedocument.spreadsheetml.sheet;base64,UEs="


def turns(*messages: Message) -> Any:
    request = ChatCompletionRequest("m", messages, tools=(ToolDefinition("f"),))
    return render_request(request).body["messages"]


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        ("report", "report"),
        ("My_report.v2, final!", "My report v2 final"),
        ("a  \t b", "a b"),
        ("[1] (draft) x-y", "[1] (draft) x-y"),
        ("報告", "document"),
        ("", "document"),
        ("x" * 300, "x" * 190),
    ],
)
def test_names_have_the_characters_that_are_taken(wanted: str, name: str) -> None:
    assert DocumentNames().take(wanted) == name


def test_no_two_names_are_the_same() -> None:
    names = DocumentNames()
    assert [names.take(each) for each in ("a", "A", "a", "a 2", "")] == [
        *("a", "A 2", "a 3", "a 2 2", "document")
    ]


def test_no_two_documents_of_a_conversation_have_one_name() -> None:
    asked = UserMessage((TextContent("Sum it up."), DocumentContent(PDF), DocumentContent(PDF)))
    called = CompletionMessage((ToolCall("1", "f", {}, "{}"),))
    given = ToolResponseMessage("1", (DocumentContent(SHEET, "a.xlsx"),))
    first, _, last = turns(asked, called, given)
    assert [each["document"]["name"] for each in first["content"][1:]] == [
        *("document", "document 2")
    ]
    assert last["content"][0]["toolResult"]["content"][0]["document"] == {
        "format": "xlsx",
        "name": "a",
        "source": {"bytes": "UEs="},
    }


def test_there_is_a_text_beside_each() -> None:
    [turn] = turns(UserMessage((DocumentContent(PDF, "a.pdf"),)))
    assert turn["content"][-1] == {"text": ATTACHED}
    [turn] = turns(UserMessage((DocumentContent(PDF), TextContent("Sum it up."))))
    assert [each["text"] for each in turn["content"] if "text" in each] == ["Sum it up."]
