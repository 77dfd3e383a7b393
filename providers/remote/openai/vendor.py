"""What is particular about a vendor whose API is OpenAI's.

The rows themselves are in `providers.remote.openai.vendors`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from msgspec import Raw

from llama_compat.dialects.stop_lists import ANY_STOPS, StopBound
from providers.remote.batches.rows import BatchRow
from providers.remote.openai.wires import OPENAI_WIRES


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor:
    """What is particular about a vendor's OpenAI-compatible API.

    Attributes:
        name: for messages.
        base_url: where it is; None where only the template can know.
        key_variable: the environment variable that usually holds its key.
        needs_key: whether it answers nobody without one.
        key_header, key_format: how the key is sent.
        headers: sent with each request.
        model_prefix: what the vendor's own model ids begin with: left out of ids that it lists, and
            put before those without a slash.
        wires: the client APIs' operations that it has itself, by name, and where each is, from the
            base URL on (from its host on, after `{origin}`); `{model}` is the model and
            `{api_version}` the template's. Calls of others are translated to chat completions, but
            for embeddings. A wire that only some of its models have is not among them: the
            template's `wires` name it.
        models_path, models_headers: the same for the list of models; `{key}` is the key.
        renamed: chat parameters that it knows by another name.
        refused: parameters that it refuses or ignores.
        knows_stream_options: whether it takes `stream_options`. One that doesn't sends usage in any
            case or not at all.
        knows_service_tier: whether it takes OpenAI's `service_tier`, so that the tier that a client
            of another API asks for is passed on.
        reasoning_fields: the members of messages and of their calls in which it takes back what
            its models thought (`REASONING_FIELDS`): of those that are text each gets it, and those
            that are not named are left out. None where nobody knows: what the client sends goes on.
        wants_reasoning: whether it has to come back, or should, in turns that call tools: what a
            client loses of it is put back.
        stand_ins: what there is in one of `reasoning_fields` where a turn that calls tools has
            nothing in it, and would be refused: another vendor's model made it, or nobody knows
            any more what was thought.
        cache_hints: the parameters in which it takes hints for its cache of prompts; calls that are
            translated bring no others. Relayed calls keep what they say of it.
        call_id_length: of how many letters and digits ids of tool calls have to be; None where any
            are taken.
        call_id_limit: of how many characters they are at most, whoever made them; None for any.
        stops: which stop strings it takes.
        takes_speakers: whether it takes a `name` in messages of others than tools.
        takes_tool_choices: whether the parameters of tools may be one of several schemas: "schema
            must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top
            level".
        takes_refusals: whether it knows the member `refusal` of messages, which is OpenAI's own; to
            others it is told as text.
        documents: the part of a message that a file is; None where there is none for it.
        fetches_documents: whether it takes the address of a file in place of its bytes.
        marks_prefix: whether a message that the model is to go on with has to have `prefix`.
        family: whose models it has, as `reasoning_family` calls them; empty for those of many.
        hosted_tools: by wire, the kinds of tools (`web_search`, `web_fetch`, `file_search`, `mcp`)
            that it runs itself, so that calls with them are relayed.
        batches: what is particular about its batch API; None where it has none like OpenAI's.
    """

    name: str
    base_url: str | None = None
    key_variable: str = ""
    needs_key: bool = True
    key_header: str = "authorization"
    key_format: str = "Bearer {key}"
    headers: Mapping[str, str] = field(default_factory=dict)
    model_prefix: str = ""
    wires: Mapping[str, str] = field(default_factory=lambda: OPENAI_WIRES)
    models_path: str = "/models"
    models_headers: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()
    knows_stream_options: bool = True
    knows_service_tier: bool = False
    reasoning_fields: frozenset[str] | None = None
    wants_reasoning: bool = False
    stand_ins: Mapping[str, Raw] = field(default_factory=dict)
    cache_hints: frozenset[str] = frozenset()
    call_id_length: int | None = None
    call_id_limit: int | None = None
    stops: StopBound = ANY_STOPS
    takes_speakers: bool = True
    takes_tool_choices: bool = True
    takes_refusals: bool = False
    documents: Literal["file", "document_url"] | None = "file"
    fetches_documents: bool = False
    marks_prefix: bool = False
    family: str = ""
    hosted_tools: Mapping[str, frozenset[str]] = field(default_factory=dict)
    batches: BatchRow | None = None
