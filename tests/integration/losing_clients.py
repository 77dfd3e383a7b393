"""A client of each API that keeps of a reply its text and its calls, and loses what was thought."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tests.integration import wire

QUESTION = "Weather in Bern?"
PARAMETERS: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"name": "get_weather", "parameters": PARAMETERS}


@dataclass(frozen=True)
class Called:
    """A call as the client remembers it; the id is empty where its API has none."""

    call_id: str
    name: str
    arguments: dict[str, Any]


@dataclass
class LosingClient:
    """One conversation.

    Attributes:
        url: the server.
        key: who asks; empty for nobody.
        stream: whether it asks for streams.
        history: what it sends of the conversation.
        adapted: what the server said that it had adapted, last.
        thoughts: what was thought last, where the API has it in blocks.
    """

    url: str
    key: str = ""
    stream: bool = False
    history: list[dict[str, Any]] = field(default_factory=list)
    adapted: str = ""
    thoughts: list[dict[str, Any]] = field(default_factory=list)

    def ask(self, model: str, question: str = QUESTION) -> list[Called]:
        """Ask something, which is answered by calls."""
        self.history += self.says(question)
        calls, text = self.turn(model)
        assert calls, text
        self.history += self.called(calls)
        return calls

    def answer(self, model: str, calls: list[Called]) -> str:
        """Answer the calls; what the model says then."""
        self.history += self.results(calls)
        more, text = self.turn(model)
        assert not more
        self.history += self.told(text)
        return text

    def post(self, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        """The objects of the reply: one, or a stream's."""
        headers = {"authorization": f"Bearer {self.key}"} if self.key else {}
        with wire.open_reply("POST", f"{self.url}{path}", body, headers) as reply:
            data = reply.read()
            assert reply.status == 200, data
            self.adapted = reply.headers.get("x-llama-compat-adapted", "")
        if not self.stream:
            return [json.loads(data)]
        lines = [line.removeprefix(b"data:").strip() for line in data.splitlines()]
        return [json.loads(line) for line in lines if line.startswith(b"{")]

    def says(self, text: str) -> list[dict[str, Any]]:
        return [{"role": "user", "content": text}]

    def told(self, text: str) -> list[dict[str, Any]]:
        return [{"role": "assistant", "content": text}]

    def turn(self, model: str) -> tuple[list[Called], str]:
        raise NotImplementedError

    def called(self, calls: list[Called]) -> list[dict[str, Any]]:
        raise NotImplementedError

    def results(self, calls: list[Called]) -> list[dict[str, Any]]:
        raise NotImplementedError


class ChatClient(LosingClient):
    """OpenAI's chat completions."""

    def turn(self, model: str) -> tuple[list[Called], str]:
        body = {"model": model, "messages": self.history, "stream": self.stream}
        body |= {"tools": [{"type": "function", "function": TOOL}], "reasoning_effort": "medium"}
        text, calls = "", []
        for chunk in self.post("/v1/openai/v1/chat/completions", body):
            for choice in chunk["choices"]:
                said = choice.get("delta") or choice.get("message") or {}
                text += said.get("content") or ""
                calls += [_Fragment.of(call) for call in said.get("tool_calls") or ()]
        return _joined(calls), text

    def called(self, calls: list[Called]) -> list[dict[str, Any]]:
        said = [
            {
                "id": call.call_id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
            }
            for call in calls
        ]
        return [{"role": "assistant", "content": None, "tool_calls": said}]

    def results(self, calls: list[Called]) -> list[dict[str, Any]]:
        return [
            {"role": "tool", "tool_call_id": call.call_id, "content": "22 degrees"}
            for call in calls
        ]


@dataclass(frozen=True)
class _Fragment:
    call_id: str
    name: str
    arguments: str

    @classmethod
    def of(cls, call: dict[str, Any]) -> _Fragment:
        function = call["function"]
        return cls(call.get("id", ""), function.get("name", ""), function.get("arguments", ""))


def _joined(fragments: list[_Fragment]) -> list[Called]:
    """The calls, of which each begins with its id."""
    calls: list[list[_Fragment]] = []
    for fragment in fragments:
        if fragment.call_id:
            calls.append([])
        calls[-1].append(fragment)
    return [
        Called(call[0].call_id, call[0].name, json.loads("".join(each.arguments for each in call)))
        for call in calls
    ]


class ResponsesClient(LosingClient):
    """OpenAI's Responses API, the whole conversation in every request."""

    def turn(self, model: str) -> tuple[list[Called], str]:
        body = {"model": model, "input": self.history, "stream": self.stream, "store": False}
        body |= {"tools": [{"type": "function", **TOOL}], "reasoning": {"effort": "medium"}}
        last = self.post("/v1/openai/v1/responses", body)[-1]
        output = (last["response"] if self.stream else last)["output"]
        calls = [
            Called(item["call_id"], item["name"], json.loads(item["arguments"]))
            for item in output
            if item["type"] == "function_call"
        ]
        said = [item["content"] for item in output if item["type"] == "message"]
        return calls, "".join(part["text"] for parts in said for part in parts)

    def called(self, calls: list[Called]) -> list[dict[str, Any]]:
        return [
            {
                "type": "function_call",
                "call_id": call.call_id,
                "name": call.name,
                "arguments": json.dumps(call.arguments),
            }
            for call in calls
        ]

    def results(self, calls: list[Called]) -> list[dict[str, Any]]:
        return [
            {"type": "function_call_output", "call_id": call.call_id, "output": "22 degrees"}
            for call in calls
        ]


class MessagesClient(LosingClient):
    """Anthropic's Messages API."""

    def turn(self, model: str) -> tuple[list[Called], str]:
        body = {"model": model, "messages": self.history, "stream": self.stream}
        body |= {"max_tokens": 4096, "thinking": {"type": "enabled", "budget_tokens": 1024}}
        body["tools"] = [{"name": TOOL["name"], "input_schema": PARAMETERS}]
        events = self.post("/v1/messages", body)
        if not self.stream:
            blocks = events[0]["content"]
        else:
            blocks = []
            for event in events:
                if event["type"] == "content_block_start":
                    blocks.append({**event["content_block"], "json": ""})
                elif event["type"] == "content_block_delta":
                    delta = event["delta"]
                    blocks[-1]["json"] += delta.get("partial_json", "")
                    if delta["type"] in ("text_delta", "thinking_delta"):
                        kind = delta["type"].removesuffix("_delta")
                        blocks[-1][kind] += delta[kind]
                    elif delta["type"] == "signature_delta":
                        blocks[-1]["signature"] = delta["signature"]
        self.thoughts = [
            {name: each for name, each in block.items() if name != "json"}
            for block in blocks
            if block["type"] == "thinking"
        ]
        calls = [
            Called(
                block["id"],
                block["name"],
                json.loads(block.get("json") or "null") or block["input"],
            )
            for block in blocks
            if block["type"] == "tool_use"
        ]
        return calls, "".join(block["text"] for block in blocks if block["type"] == "text")

    def called(self, calls: list[Called]) -> list[dict[str, Any]]:
        said = [
            {"type": "tool_use", "id": call.call_id, "name": call.name, "input": call.arguments}
            for call in calls
        ]
        return [{"role": "assistant", "content": said}]

    def results(self, calls: list[Called]) -> list[dict[str, Any]]:
        said = [
            {"type": "tool_result", "tool_use_id": call.call_id, "content": "22 degrees"}
            for call in calls
        ]
        return [{"role": "user", "content": said}]


class KeepingClient(MessagesClient):
    """Anthropic's Messages API, of which this client loses nothing."""

    def called(self, calls: list[Called]) -> list[dict[str, Any]]:
        (said,) = super().called(calls)
        return [{**said, "content": [*self.thoughts, *said["content"]]}]


class GeminiClient(LosingClient):
    """Gemini's generateContent."""

    def turn(self, model: str) -> tuple[list[Called], str]:
        method = "streamGenerateContent?alt=sse" if self.stream else "generateContent"
        body = {
            "contents": self.history,
            "tools": [
                {
                    "functionDeclarations": [
                        {"name": TOOL["name"], "parametersJsonSchema": PARAMETERS}
                    ]
                }
            ],
            "generationConfig": {
                "thinkingConfig": {"thinkingLevel": "MEDIUM", "includeThoughts": True}
            },
        }
        replies = self.post(f"/v1beta/models/{model}:{method}", body)
        contents = [each["content"] for reply in replies for each in reply.get("candidates", ())]
        parts = [part for content in contents for part in content.get("parts", ())]
        calls = [
            Called(call.get("id", ""), call["name"], call["args"])
            for part in parts
            if (call := part.get("functionCall")) is not None
        ]
        return calls, "".join(part.get("text", "") for part in parts if not part.get("thought"))

    def says(self, text: str) -> list[dict[str, Any]]:
        return [{"role": "user", "parts": [{"text": text}]}]

    def told(self, text: str) -> list[dict[str, Any]]:
        return [{"role": "model", "parts": [{"text": text}]}]

    def called(self, calls: list[Called]) -> list[dict[str, Any]]:
        parts = [
            {"functionCall": {"id": call.call_id, "name": call.name, "args": call.arguments}}
            for call in calls
        ]
        return [{"role": "model", "parts": parts}]

    def results(self, calls: list[Called]) -> list[dict[str, Any]]:
        parts = [
            {
                "functionResponse": {
                    "id": call.call_id,
                    "name": call.name,
                    "response": {"output": "22 degrees"},
                }
            }
            for call in calls
        ]
        return [{"role": "user", "parts": parts}]


class OllamaClient(LosingClient):
    """Ollama's chat, whose calls have no ids."""

    def turn(self, model: str) -> tuple[list[Called], str]:
        body = {"model": model, "messages": self.history, "stream": self.stream, "think": "medium"}
        body["tools"] = [{"type": "function", "function": TOOL}]
        said = [each["message"] for each in self.post("/api/chat", body)]
        calls = [
            Called("", call["function"]["name"], call["function"]["arguments"])
            for message in said
            for call in message.get("tool_calls") or ()
        ]
        return calls, "".join(message.get("content") or "" for message in said)

    def called(self, calls: list[Called]) -> list[dict[str, Any]]:
        said = [{"function": {"name": call.name, "arguments": call.arguments}} for call in calls]
        return [{"role": "assistant", "content": "", "tool_calls": said}]

    def results(self, calls: list[Called]) -> list[dict[str, Any]]:
        return [{"role": "tool", "tool_name": call.name, "content": "22 degrees"} for call in calls]


CLIENTS: dict[str, type[LosingClient]] = {
    "chat": ChatClient,
    "responses": ResponsesClient,
    "messages": MessagesClient,
    "gemini": GeminiClient,
    "ollama": OllamaClient,
}
