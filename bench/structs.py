"""What msgspec's structs cost beside pydantic's models: foreign JSON read, and values made.

    python -m bench.structs [--rounds 7]

A streamed chunk, as vendors send it, is read as a struct, as a pydantic model with the same
members, and as the model of OpenAI's SDK; an event of a stream is made as a struct of the
vocabulary and as a frozen pydantic model. The ways take turns and the least processor time of each
counts. Prints the figures and writes them to `bench/results/structs.json`.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable

import msgspec
from openai.types.chat import ChatCompletionChunk
from pydantic import BaseModel, ConfigDict

from bench.machine import write_results
from llama_compat.types import StreamProgress, TextDelta

MANY = 20_000

CHUNK = (
    b'{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1790000000,"model":"gpt-4.1",'
    b'"service_tier":"default","system_fingerprint":"fp_1","choices":[{"index":0,"delta":'
    b'{"content":" word"},"logprobs":null,"finish_reason":null}],"usage":null}'
)


class DeltaStruct(msgspec.Struct):
    role: str | None = None
    content: str | None = None


class ChoiceStruct(msgspec.Struct):
    index: int
    delta: DeltaStruct
    finish_reason: str | None = None


class ChunkStruct(msgspec.Struct):
    id: str
    created: int
    model: str
    choices: list[ChoiceStruct]


class DeltaModel(BaseModel):
    role: str | None = None
    content: str | None = None


class ChoiceModel(BaseModel):
    index: int
    delta: DeltaModel
    finish_reason: str | None = None


class ChunkModel(BaseModel):
    id: str
    created: int
    model: str
    choices: list[ChoiceModel]


class TextModel(BaseModel):
    model_config = ConfigDict(frozen=True)

    text: str


class ProgressModel(BaseModel):
    model_config = ConfigDict(frozen=True)

    delta: TextModel
    completion_tokens: int = 0
    part: int = 0


read = msgspec.json.Decoder(ChunkStruct).decode

WAYS: dict[str, dict[str, Callable[[], object]]] = {
    "read a chunk": {
        "msgspec": lambda: read(CHUNK),
        "pydantic, the same members": lambda: ChunkModel.model_validate_json(CHUNK),
        "pydantic, OpenAI's own model": lambda: ChatCompletionChunk.model_validate_json(CHUNK),
    },
    "make an event": {
        "msgspec": lambda: StreamProgress(TextDelta(" word"), completion_tokens=3),
        "pydantic": lambda: ProgressModel(delta=TextModel(text=" word"), completion_tokens=3),
    },
}


def seconds(way: Callable[[], object]) -> float:
    """Processor time of `MANY`."""
    gc.collect()
    begun = time.process_time()
    for _ in range(MANY):
        way()
    return time.process_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    least: dict[str, dict[str, float]] = {}
    for _ in range(options.rounds):
        for what, ways in WAYS.items():
            found = least.setdefault(what, {})
            for name, way in ways.items():
                found[name] = min(found.get(name, float("inf")), seconds(way))
    measured = {
        what: {
            name: {
                "microseconds": round(taken / MANY * 1e6, 2),
                "of_msgspec": round(taken / found["msgspec"], 1),
            }
            for name, taken in found.items()
        }
        for what, found in least.items()
    }
    for what, ways_measured in measured.items():
        for name, each in ways_measured.items():
            print(f"{what:14}{name:30}{each['microseconds']:>8} µs{each['of_msgspec']:>7}")
    print(f"written to {write_results('structs', measured, 'msgspec', 'pydantic', 'openai')}")


if __name__ == "__main__":
    main()
