"""What a request asks: how tokens are chosen, which tools there are, and each kind of request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, field, structs

from llama_compat.hosted.vocabulary import HostedTool, WebSearchTool
from llama_compat.once import Once
from llama_compat.types.messages import Message


class GreedySamplingStrategy(Struct, frozen=True, tag="greedy"):
    """Always the likeliest token."""


class TopPSamplingStrategy(Struct, frozen=True, tag="top_p"):
    """Sample at `temperature` (> 0) from the fewest tokens whose probabilities make `top_p`."""

    temperature: float = 1.0
    top_p: float = 1.0


class TopKSamplingStrategy(Struct, frozen=True, tag="top_k"):
    """Sample at `temperature` (> 0) from the `top_k` likeliest tokens, cut further by `top_p`."""

    top_k: int
    temperature: float = 1.0
    top_p: float = 1.0


SamplingStrategy = GreedySamplingStrategy | TopPSamplingStrategy | TopKSamplingStrategy


def temperature_of(sampling: SamplingParams) -> float:
    """The temperature that `sampling` comes to: greedy is 0."""
    strategy = sampling.strategy
    return 0.0 if isinstance(strategy, GreedySamplingStrategy) else strategy.temperature


class Guide(Struct, frozen=True):
    """What the whole reply has to be.

    `value` is a JSON Schema object, a regular expression, a grammar in Lark's notation, a list of
    texts for a `choice`, and nothing for `json_object`. `path` is the request's field that says so.
    """

    kind: Literal["json_object", "json_schema", "regex", "choice", "grammar"]
    value: Any
    path: str


CAN_WAIT = 2**31
"""The `priority` of what nobody waits for: no client can ask for one as low. It gives way to all
others, also once it has begun."""


class SamplingParams(Struct, frozen=True):
    """How tokens are chosen and when generation ends.

    `max_tokens` None means as many as the context leaves room for. `stop` are strings at which the
    text ends, themselves not part of it. `logit_bias` maps token ids to what is added to their
    logits. The penalties are OpenAI's (`frequency_penalty`, `presence_penalty`: additive, 0 is off)
    and Hugging Face's (`repetition_penalty`: multiplicative, 1 is off).

    `stated` are OpenAI's names of the parameters that the caller set to what is the default here
    (`temperature` 1, ...): a vendor whose own default is another has to be told.

    What follows are the extensions that vLLM has too, for engines in this process. `min_p` leaves
    out tokens less likely than that share of the likeliest. Before `min_tokens` nothing ends the
    text but `max_tokens`. `stop_token_ids` end it as `stop` does; with `ignore_eos` the model's own
    end tokens don't. `allowed_token_ids` are the only ones, if there are any. Of two requests that
    wait, the one with the lower `priority` is served first. `cache_salt` keeps what is cached of a
    prompt to those who know it. `guide` is what the text has to be.
    """

    strategy: SamplingStrategy = TopPSamplingStrategy()
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: dict[int, float] = field(default_factory=dict)
    stated: frozenset[str] = frozenset()
    min_p: float = 0.0
    min_tokens: int = 0
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    allowed_token_ids: tuple[int, ...] = ()
    priority: int = 0
    cache_salt: str | None = None
    guide: Guide | None = None

    def for_choice(self, index: int) -> SamplingParams:
        """The parameters of the choice `index` out of `n`: a seed counts up, so choices differ."""
        if self.seed is None or index == 0:
            return self
        return structs.replace(self, seed=self.seed + index)


class ToolDefinition(Struct, frozen=True):
    """A function that the model may call; `parameters` is a JSON Schema object."""

    tool_name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ToolChoice(Struct, frozen=True):
    """Whether the model may (`auto`), must (`required`) or must not (`none`) call a tool.

    With `tool_name` it must call that one.
    """

    mode: Literal["auto", "required", "none"] = "auto"
    tool_name: str | None = None


class ResponseFormat(Struct, frozen=True):
    """The shape of the text: anything, any JSON object, or what a schema describes. `description`
    is what that is for, in the words of who asks; `path` is the request's field with the schema."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None
    description: str | None = None
    path: str = "response_format.json_schema.schema"

    @property
    def told_schema(self) -> dict[str, Any] | None:
        """The schema for an API that has no other place for the description: a schema's own, where
        that says nothing else."""
        if not self.description or self.schema is None or "description" in self.schema:
            return self.schema
        return {**self.schema, "description": self.description}


Mark = Callable[[Sequence[bytes]], Sequence[tuple[bytes, int]]]
"""As `llama_compat.prefixes.marks.marks_of`, of one call."""


class CompletionRequest(Struct, frozen=True):
    """Continue one prompt: text, or the ids of its tokens.

    `logprobs` is how many alternatives are wanted beside each token's own (None: no log
    probabilities at all). With `echo` the reply begins with the prompt. `stream` says whether the
    caller reads along: the events are the same either way, but a vendor may be asked differently.
    `request_id` names the request to whoever else takes part in it. `context_length` is how many
    tokens prompt and completion may have together, where that is to be less than the model's own.
    With `return_token_ids` the events say of which tokens prompt and reply consist. `prepared` is
    what the choices of one prompt share: what a provider makes of the prompt is made there, once.
    `mark` says which tokens of the prompt each block of what the client sent stands for, given the
    bytes of those; None where somebody has changed the prompt.
    """

    model: str
    prompt: str | tuple[int, ...]
    sampling: SamplingParams = SamplingParams()
    logprobs: int | None = None
    echo: bool = False
    stream: bool = True
    request_id: str = ""
    context_length: int | None = None
    return_token_ids: bool = False
    prepared: Once | None = None
    mark: Mark | None = None


class ThinkingForm(Struct, frozen=True):
    """In which form a model is told how hard to think; None for what its dialect does anyway.

    Attributes:
        how: OpenAI's word (`effort`), Anthropic's (`adaptive`), a number of tokens (`budget`), or
            Gemini's word (`level`).
        off: how it is told not to think: it is `disabled`, or thinks only `between_tools`, or is
            told nothing (`omitted`).
        bound: whether it takes a thought of its own back only after what came before it then:
            instructions, tools and messages.
        calls_in_responses: whether it calls functions in OpenAI's responses alone, and not in chats
            while it thinks.
    """

    how: Literal["effort", "adaptive", "budget", "level"] | None = None
    off: Literal["disabled", "between_tools", "omitted"] | None = None
    bound: bool = False
    calls_in_responses: bool = False


class ChatCompletionRequest(Struct, frozen=True):
    """Say the next message of a conversation.

    `verbosity` is OpenAI's (`low`, `medium`, `high`), and so is `service_tier` (`auto`, `default`,
    `flex`, `priority`, `scale`). `thinking` is how the model has to be told of `reasoning_effort`,
    and when it takes its thoughts back, where that is known. `logprobs`, `stream`, `request_id`,
    `context_length`, `return_token_ids`, `prepared` and `mark` as in `CompletionRequest`.

    `adaptive_thinking` is said where the model is to think as hard as it sees fit; of most models
    that is so anyway. `user` and `safety_identifier` are OpenAI's names of who asks, and `metadata`
    is what a client keeps with a request, to find it again.

    `prompt_cache_key` and `prompt_cache_retention` are OpenAI's hints for its cache of prompts.
    With `marks_prompt` the prompt is marked for that of a vendor who wants to be told what to keep.

    `hosted` are the tools that the server is to run; no vendor is given them as such, but for
    `vendor_search`, which is its own. Of calls that waited for the user's word, `approved` names
    those that it has, by their ids. `max_hosted_calls` bounds how many are run, where the request
    says so.

    `template_variables` are given to a chat template besides those that every template has.
    """

    model: str
    messages: tuple[Message, ...]
    sampling: SamplingParams = SamplingParams()
    tools: tuple[ToolDefinition, ...] = ()
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    logprobs: int | None = None
    stream: bool = True
    request_id: str = ""
    context_length: int | None = None
    return_token_ids: bool = False
    prepared: Once | None = None
    mark: Mark | None = None
    thinking: ThinkingForm | None = None
    adaptive_thinking: bool = False
    service_tier: str | None = None
    user: str | None = None
    safety_identifier: str | None = None
    metadata: Mapping[str, Any] | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    marks_prompt: bool = False
    hosted: tuple[HostedTool, ...] = ()
    vendor_search: WebSearchTool | None = None
    approved: tuple[str, ...] = ()
    max_hosted_calls: int | None = None
    template_variables: Mapping[str, Any] | None = None

    @property
    def has_one_hosted_tool_alone(self) -> bool:
        """Whether one tool of `hosted` is all that there is to call, and nothing says how often, or
        that it must be or must not."""
        return (
            len(self.hosted) == 1
            and self.max_hosted_calls is None
            and not (self.tools or self.approved)
            and self.tool_choice in (None, ToolChoice())
        )


class EmbeddingRequest(Struct, frozen=True):
    """Turn texts into vectors.

    Attributes:
        model: which one is to do it.
        inputs: the texts.
        dimensions: how many numbers a vector has, where the model can be told.
        request_id: the request's.
        prompt_name: of the prompts that a model comes with, the one that goes before each text.
        input_type: what the texts are, `query` or `document` for one, so that the model's prompt
            for such texts goes before them; where neither is said, what the model does by itself.
        truncate: which end of a text is cut off that is longer than the model takes; None refuses
            it.
        max_tokens: of each text no more is read, where it may be cut; None for as many as the model
            takes.
    """

    model: str
    inputs: tuple[str, ...]
    dimensions: int | None = None
    request_id: str = ""
    prompt_name: str | None = None
    input_type: str | None = None
    truncate: Literal["start", "end"] | None = None
    max_tokens: int | None = None


class RerankRequest(Struct, frozen=True):
    """Say how much each document has to do with a query.

    Attributes:
        model: which one is to say it.
        query: what is looked for.
        documents: the texts, which are told apart by their places.
        top_n: how many of them are given back, the best ones; None for all.
        truncate: whether what is longer than the model takes is cut; otherwise it is refused.
        max_document_tokens: of each document no more is read, where the request says so.
        instruction: what relevance means here, for models that can be told; None for their own.
        request_id: the request's.
    """

    model: str
    query: str
    documents: tuple[str, ...]
    top_n: int | None = None
    truncate: bool = True
    max_document_tokens: int | None = None
    request_id: str = ""
    instruction: str | None = None
