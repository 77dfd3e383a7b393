"""A FastChat worker whose model is a script: FastChat's own base class, with one behaviour a model.

Run as `python -m tests.integration.fastchat_worker PORT CONTROLLER_URL MODEL...`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from fastchat.conversation import Conversation, get_conv_template
from fastchat.serve import base_model_worker

CONTEXT_LENGTH = 64
TEMPLATE = "vicuna_v1.1"

WORDS = ["Hello", "Hello, w\ufffd", "Hello, wörld", "Hello, wörld 🙂", "Hello, wörld 🙂 !"]
TEXT = WORDS[-1]


class WordTokenizer:
    """Counts words; FastChat asks a tokenizer that can't be called for `num_tokens`."""

    def num_tokens(self, prompt: str) -> int:
        return len(prompt.split())


class ScriptedWorker(base_model_worker.BaseModelWorker):
    """Does what the requested model's name says.

    Attributes:
        hung_up: how many answers' connections were closed before their end.
    """

    def __init__(self, controller: str, address: str, models: list[str]) -> None:
        super().__init__(controller, address, "scripted", "scripted", models, 100)
        self.context_len = CONTEXT_LENGTH
        self.tokenizer = WordTokenizer()
        self.hung_up = 0

    def make_conv_template(
        self, conv_template: str | None = None, model_path: str | None = None
    ) -> Conversation:
        return get_conv_template(TEMPLATE)

    async def generate_stream_gate(self, params: dict[str, Any]) -> AsyncIterator[bytes]:
        behaviour = getattr(self, params["model"].replace("-", "_"))
        usage = {
            "prompt_tokens": self.tokenizer.num_tokens(params["prompt"]),
            "completion_tokens": len(WORDS),
        }
        async for output in behaviour(params):
            yield json.dumps({"error_code": 0, "usage": usage, **output}).encode() + b"\0"

    def get_embeddings(self, params: dict[str, Any]) -> dict[str, Any]:
        if params["model"] == "fails":
            return {"error_code": 50002, "text": "CUDA out of memory"}
        texts = params["input"]
        return {
            "embedding": [[float(len(text)), float(len(texts))] for text in texts],
            "token_num": len(texts),
        }

    async def greets(self, params: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        for text in WORDS:
            yield {"text": text, "finish_reason": None}
        yield {"text": TEXT, "finish_reason": "stop"}

    async def mortal(self, params: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        yield {"text": "Still here.", "finish_reason": "stop"}

    async def tells(self, params: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Say the request as it arrived."""
        yield {"text": json.dumps(params), "finish_reason": "stop"}

    async def runs_out(self, params: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        yield {"text": "Hello", "finish_reason": "length"}

    async def never_says_why(self, params: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        for text in WORDS:
            yield {"text": text}

    async def is_cut(self, params: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        yield {"text": "Hello", "finish_reason": None}

    async def crashes(self, params: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        yield {"text": "Hello", "finish_reason": None}
        raise RuntimeError("the worker has a bug")

    async def fails(self, params: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        yield {"text": "CUDA out of memory", "error_code": 50002}

    async def fails_later(self, params: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        yield {"text": "Hello", "finish_reason": None}
        yield {"text": "CUDA out of memory", "error_code": 50002}

    async def scores(self, params: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Say two words with their log probabilities, each time of all tokens so far."""
        tokens, chosen = ["Hel", "lo", "!"], [-0.5, -0.25, -2.0]
        for end in (1, 3):
            yield {
                "text": "".join(tokens[:end]),
                "logprobs": {
                    "text_offset": [0, 3, 5][:end],
                    "tokens": tokens[:end],
                    "token_logprobs": chosen[:end],
                    "top_logprobs": [{}] * end,
                },
                "finish_reason": "stop" if end == 3 else None,
            }

    async def holds(self, params: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        yield {"text": "Hello", "finish_reason": None}
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            self.hung_up += 1
            raise


def main(port: str, controller: str, *models: str) -> None:
    worker = ScriptedWorker(controller, f"http://127.0.0.1:{port}", list(models))

    @base_model_worker.app.get("/hung_up")
    async def hung_up() -> int:
        return worker.hung_up

    worker.init_heart_beat()
    uvicorn.run(base_model_worker.app, host="127.0.0.1", port=int(port), log_level="warning")


if __name__ == "__main__":
    main(*sys.argv[1:])
