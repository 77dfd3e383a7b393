"""The internal vocabulary: what a request asks, what a reply says, and the events of a stream.

Every dialect (`llama_compat.dialects`) translates between one wire language and these types, and
every provider that does not speak OpenAI upstream takes and gives them. They know nothing of HTTP,
routing or models.

All of them are `msgspec.Struct`s: immutable, compared by value, and cheap enough to make one per
token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, Literal, TypeVar

from msgspec import Struct, field, structs

from llama_compat.hosted.vocabulary import (
    Citation,
    CitationDelta,
    HostedCall,
    HostedCallDelta,
    HostedTool,
    WebSearchTool,
)
from llama_compat.once import Once

# --------------------------------------------------------------------------------------------------
# Content and messages
# --------------------------------------------------------------------------------------------------


class TextContent(Struct, frozen=True, tag="text"):
    """A piece of text; `citations` are the places in it at which a reply names its sources."""

    text: str
    citations: tuple[Citation, ...] = ()


class ImageContent(Struct, frozen=True, tag="image"):
    """An image: an `http(s)://` URL or a `data:` URL that holds it in base64.

    `detail` is OpenAI's hint (`auto`, `low`, `high`), kept for the providers that understand it.
    """

    url: str
    detail: str | None = None


class AudioContent(Struct, frozen=True, tag="audio"):
    """Sound: the bytes of a file in `base64`, and its media type, such as `audio/wav`."""

    media_type: str
    base64: str


class DocumentContent(Struct, frozen=True, tag="document"):
    """A document that is no plain text, a PDF for one: an `http(s)://` URL or a `data:` URL that
    holds it in base64. Plain text is a `TextContent`.

    `name` is that of its file, or its title.
    """

    url: str
    name: str | None = None


Medium = ImageContent | AudioContent | DocumentContent
SeenPart = TextContent | ImageContent
SeenContent = str | tuple[SeenPart, ...]
"""What models say as well, and what those take who hear nothing and read no documents."""

ReadPart = SeenPart | DocumentContent
ReadContent = str | tuple[ReadPart, ...]
"""What those take who hear nothing."""

ContentPart = ReadPart | AudioContent
Content = str | tuple[ContentPart, ...]
AnyContent = TypeVar("AnyContent", Content, SeenContent)


def media_in(content: Content) -> list[Medium]:
    """All of a message that is no text."""
    return (
        [] if isinstance(content, str) else [each for each in content if isinstance(each, Medium)]
    )


def content_text(content: Content) -> str:
    """The text of `content`, its parts joined with nothing between them; all else is left out."""
    if isinstance(content, str):
        return content
    return "".join(part.text for part in content if isinstance(part, TextContent))


class ToolCall(Struct, frozen=True, tag="tool_call"):
    """A call that the model asks for.

    `arguments_json` is the text as the model wrote it; `arguments` is what it parses to.
    `thought_signature` is sealed reasoning that the vendor wants back with the call. `server_tool`
    is the label of an MCP server and its own name for the tool, where the call was of one of its.
    """

    call_id: str
    tool_name: str
    arguments: dict[str, Any]
    arguments_json: str
    thought_signature: str | None = None
    server_tool: tuple[str, str] | None = None


class UnparseableToolCall(Struct, frozen=True, tag="unparseable_tool_call"):
    """A call whose arguments are not a JSON object; the text is kept so that nothing is lost.
    `server_tool` as in `ToolCall`."""

    call_id: str
    tool_name: str
    arguments_json: str
    server_tool: tuple[str, str] | None = None


AnyToolCall = ToolCall | UnparseableToolCall


class SystemMessage(Struct, frozen=True, tag="system"):
    """Instructions; `role` is the word that the caller used for them."""

    content: Content
    role: Literal["system", "developer"] = "system"
    name: str | None = None


class UserMessage(Struct, frozen=True, tag="user"):
    """What the user says."""

    content: Content
    name: str | None = None


class ReasoningContent(Struct, frozen=True, tag="reasoning"):
    """What the model thought.

    `signature` is the seal that its maker wants back with the text, byte for byte; `sealed_by` is
    the family of models whose seal it is (`anthropic`, ...), and means nothing to others. The maker
    of a `redacted` part keeps the text to itself: the seal is all there is.
    """

    text: str
    signature: str | None = None
    sealed_by: str = ""
    redacted: bool = False


class RefusalContent(Struct, frozen=True, tag="refusal"):
    """What the model says in place of an answer that it refuses."""

    text: str


MessagePart = (
    TextContent
    | ImageContent
    | ReasoningContent
    | RefusalContent
    | ToolCall
    | UnparseableToolCall
    | HostedCall
)

EMPTY_PARTS: Sequence[MessagePart] = (TextContent(""), ReasoningContent(""))
"""Parts that say nothing, which a whole reply may have and a stream has not."""


class CompletionMessage(Struct, frozen=True, tag="assistant"):
    """What the model says, its `parts` in the order in which it said them, and why it stopped.

    `stop_string` is the one of the request's stop strings that ended it, where that is known.
    """

    parts: tuple[MessagePart, ...] = ()
    stop_reason: StopReason | None = None
    stop_string: str | None = None
    name: str | None = None

    @classmethod
    def of(
        cls,
        content: SeenContent = "",
        tool_calls: Sequence[AnyToolCall] = (),
        *,
        reasoning: str | None = None,
        refusal: str | None = None,
        stop_reason: StopReason | None = None,
        stop_string: str | None = None,
        name: str | None = None,
    ) -> CompletionMessage:
        """A message from a source that tells its parts apart but not their order."""
        parts: list[MessagePart] = [] if reasoning is None else [ReasoningContent(reasoning)]
        parts += (
            ([TextContent(content)] if content else []) if isinstance(content, str) else content
        )
        parts += [] if refusal is None else [RefusalContent(refusal)]
        return cls((*parts, *tool_calls), stop_reason, stop_string, name)

    @property
    def content(self) -> SeenContent:
        """The text, joined, or the parts of it if there are images."""
        said = tuple(each for each in self.parts if isinstance(each, SeenPart))
        return said if media_in(said) else content_text(said)

    @property
    def tool_calls(self) -> tuple[AnyToolCall, ...]:
        """The calls."""
        return tuple(
            each for each in self.parts if isinstance(each, ToolCall | UnparseableToolCall)
        )

    @property
    def reasoning(self) -> str | None:
        """All reasoning, joined; None where there is none that can be read."""
        thoughts = [part for part in self.parts if isinstance(part, ReasoningContent)]
        return "".join(part.text for part in thoughts if not part.redacted) or None

    @property
    def unsealed_reasoning(self) -> str | None:
        """The reasoning that can be given to any model, joined; None where there is none.

        What a family of models has sealed is for models of that family alone.
        """
        thoughts = [part for part in self.parts if isinstance(part, ReasoningContent)]
        return "".join(part.text for part in thoughts if not part.sealed_by) or None

    @property
    def refusal(self) -> str | None:
        """The refusal, if it is one."""
        texts = [part.text for part in self.parts if isinstance(part, RefusalContent)]
        return "".join(texts) if texts else None


class ToolResponseMessage(Struct, frozen=True, tag="tool"):
    """What a tool answered to the call `call_id`, or that it failed (`is_error`)."""

    call_id: str
    content: Content
    is_error: bool = False

    @property
    def told(self) -> Content:
        """The content for a model that can be told in words alone that the call failed."""
        if not self.is_error:
            return self.content
        if isinstance(self.content, str):
            return f"Error: {self.content}"
        return (TextContent("Error: "), *self.content)


Message = SystemMessage | UserMessage | CompletionMessage | ToolResponseMessage

# --------------------------------------------------------------------------------------------------
# What a request asks
# --------------------------------------------------------------------------------------------------


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
    """The shape of the text: anything, any JSON object, or what a schema describes."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


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
    """

    how: Literal["effort", "adaptive", "budget", "level"] | None = None
    off: Literal["disabled", "between_tools", "omitted"] | None = None
    bound: bool = False


class ChatCompletionRequest(Struct, frozen=True):
    """Say the next message of a conversation.

    `verbosity` is OpenAI's (`low`, `medium`, `high`), and so is `service_tier` (`auto`, `default`,
    `flex`, `priority`, `scale`). `thinking` is how the model has to be told of `reasoning_effort`,
    and when it takes its thoughts back, where that is known. `logprobs`, `stream`, `request_id`,
    `context_length`, `return_token_ids`, `prepared` and `mark` as in `CompletionRequest`.

    `prompt_cache_key` and `prompt_cache_retention` are OpenAI's hints for its cache of prompts.
    With `marks_prompt` the prompt is marked for that of a vendor who wants to be told what to keep.

    `hosted` are the tools that the server is to run; no vendor is given them as such, but for
    `vendor_search`, which is its own. Of calls that waited for the user's word, `approved` names
    those that it has, by their ids. `max_hosted_calls` bounds how many are run, where the request
    says so.
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
    service_tier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    marks_prompt: bool = False
    hosted: tuple[HostedTool, ...] = ()
    vendor_search: WebSearchTool | None = None
    approved: tuple[str, ...] = ()
    max_hosted_calls: int | None = None

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


# --------------------------------------------------------------------------------------------------
# What a reply says
# --------------------------------------------------------------------------------------------------


class StopReason(StrEnum):
    """Why generation ended.

    `end_of_turn`: the model had said what it wanted, or met a stop string. `end_of_message`: it
    waits for the answer to a tool call. `out_of_tokens`: `max_tokens` or the context ran out.
    `content_filter`: the provider withheld the rest.
    """

    end_of_turn = "end_of_turn"
    end_of_message = "end_of_message"
    out_of_tokens = "out_of_tokens"
    content_filter = "content_filter"

    def with_calls(self, called: bool) -> StopReason:
        """The same of a reply that has `called` tools, or has not: where one has, and ended its
        turn, it waits for their answers, whatever the word of who made it is."""
        return StopReason.end_of_message if called and self is StopReason.end_of_turn else self


class TokenLogProb(Struct, frozen=True):
    """One token: its text, its UTF-8 bytes (which may be part of a character), its log probability.

    The first token of an echoed prompt has no probability: `logprob` is None.
    """

    token: str
    token_bytes: bytes
    logprob: float | None


class TokenLogProbs(Struct, frozen=True):
    """The token that was chosen and the likeliest at its place, best first."""

    chosen: TokenLogProb
    top: tuple[TokenLogProb, ...] = ()


class Units(Struct, frozen=True):
    """What is paid for besides tokens, and tokens that have a price of their own; None for what
    nobody says.

    Attributes:
        searches: of rerank, of which one is a query with up to a hundred documents; or of the web,
            by the vendor itself.
        images: that were made.
        characters: that were spoken.
        seconds: of sound that was listened to.
        audio_tokens, image_tokens: the part of the prompt that was sound, and images.
        drawn_tokens: the part of the completion that was images.
    """

    searches: float | None = None
    images: float | None = None
    characters: float | None = None
    seconds: float | None = None
    audio_tokens: int | None = None
    image_tokens: int | None = None
    drawn_tokens: int | None = None


class Usage(Struct, frozen=True):
    """Tokens, as the provider's own tokenizer counts them, and what else is paid for.

    `cached_tokens` (read from a cache) and `cache_write_tokens` (written to one) are part of
    `prompt_tokens`, `reasoning_tokens` of `completion_tokens`; None where the provider does not
    say. `estimated` where nobody has counted all of it, as the reply was cut before its end.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_write_tokens: int | None = None
    units: Units | None = None
    estimated: bool = False


class CompletionResponse(Struct, frozen=True):
    """The continuation of one prompt; the ids of the tokens of both, where they were asked for."""

    content: str
    stop_reason: StopReason
    logprobs: tuple[TokenLogProbs, ...] | None = None
    usage: Usage = Usage()
    stop_string: str | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    token_ids: tuple[int, ...] | None = None


class ChatCompletionResponse(Struct, frozen=True):
    """The next message of a conversation; token ids as in `CompletionResponse`, `dropped` as in
    `StreamStart`, `service_tier` as in `StreamComplete`."""

    completion_message: CompletionMessage
    logprobs: tuple[TokenLogProbs, ...] | None = None
    usage: Usage = Usage()
    prompt_token_ids: tuple[int, ...] | None = None
    token_ids: tuple[int, ...] | None = None
    dropped: tuple[str, ...] = ()
    service_tier: str | None = None


class EmbeddingResponse(Struct, frozen=True):
    """One vector a text, in the order of the texts; `prompt_tokens` are those of all texts."""

    vectors: tuple[tuple[float, ...], ...]
    prompt_tokens: int = 0


class RankedDocument(Struct, frozen=True):
    """How much a document has to do with the query, from 0 to 1 for most models, by its place in
    the request."""

    index: int
    relevance_score: float


class RerankResponse(Struct, frozen=True):
    """The documents that were asked for, the best one first."""

    results: tuple[RankedDocument, ...]
    usage: Usage = Usage()


class ModelInfo(Struct, frozen=True):
    """What a list of models shows of one.

    Attributes:
        id: what clients ask for.
        created: in seconds since 1970.
        owned_by: the provider's id.
        context_length: in tokens, if it is known.
        max_output_tokens: of a reply, if it is known.
        input, output: what it reads and gives (`text`, `image`, `audio`, `video`, `document`; one
            that makes no replies gives `embeddings` or `rerank`, as OpenRouter calls it); None
            where nobody knows.
        shutdown: when its vendor ends it, if that is announced: a date such as 2027-01-14.
        parent: the model that it is with an adapter, if it is that.
        root: that adapter.
    """

    id: str
    created: int
    owned_by: str
    context_length: int | None = None
    max_output_tokens: int | None = None
    input: tuple[str, ...] | None = None
    output: tuple[str, ...] | None = None
    shutdown: str | None = None
    parent: str | None = None
    root: str | None = None

    @property
    def generates(self) -> bool:
        """Whether it makes replies; so it is taken where nobody knows."""
        return self.output is None or not {"embeddings", "rerank"}.issuperset(self.output)


# --------------------------------------------------------------------------------------------------
# The events of a stream: one StreamStart, any number of StreamProgress, one StreamComplete
# --------------------------------------------------------------------------------------------------


class TextDelta(Struct, frozen=True, tag="text"):
    """More of the text."""

    text: str


class ReasoningDelta(Struct, frozen=True, tag="reasoning"):
    """More of the model's reasoning; its seal comes with the part's last delta.

    `signature`, `sealed_by` and `redacted` as in `ReasoningContent`.
    """

    text: str
    signature: str | None = None
    sealed_by: str = ""
    redacted: bool = False


class RefusalDelta(Struct, frozen=True, tag="refusal"):
    """More of what the model says in place of an answer that it refuses."""

    text: str


class ImageDelta(Struct, frozen=True, tag="image"):
    """An image, which comes whole."""

    image: ImageContent


class ToolCallParseStatus(StrEnum):
    """Where a streamed tool call stands."""

    started = "started"
    in_progress = "in_progress"
    succeeded = "succeeded"
    failed = "failed"


class ToolCallDelta(Struct, frozen=True, tag="tool_call"):
    """News of the tool call `index`, counted from 0 in the order in which calls began.

    `started` carries `call_id` and `tool_name`, `in_progress` more of the arguments' text in
    `arguments`, `succeeded` and `failed` the whole `tool_call` (an `UnparseableToolCall` where it
    failed).
    """

    index: int
    parse_status: ToolCallParseStatus
    call_id: str = ""
    tool_name: str = ""
    arguments: str = ""
    tool_call: AnyToolCall | None = None


Delta = (
    TextDelta
    | ReasoningDelta
    | RefusalDelta
    | ImageDelta
    | ToolCallDelta
    | HostedCallDelta
    | CitationDelta
)


class StreamStart(Struct, frozen=True, tag="start"):
    """The prompt was accepted and counted (0 where the provider counts only at the end).

    `token_ids` are the prompt's, where they were asked for. `dropped` names what of the request the
    model was not given, as `llama_compat.exchange.Reply` does.
    """

    prompt_tokens: int = 0
    token_ids: tuple[int, ...] | None = None
    dropped: tuple[str, ...] = ()


EARLIER_THOUGHTS = "messages.thinking"
"""What `dropped` calls thoughts of earlier turns that the model was not given back."""


class StreamProgress(Struct, frozen=True, tag="progress"):
    """More of the reply, and the log probabilities and ids of the tokens that it came from.

    `completion_tokens` is how many tokens have been generated so far (0 where the provider counts
    only at the end). `part` is the place of the part that it belongs to, counted from 0 in the
    order in which parts began; `llama_compat.events.ReplyParts` counts.
    """

    delta: Delta
    logprobs: tuple[TokenLogProbs, ...] | None = None
    completion_tokens: int = 0
    part: int = 0
    token_ids: tuple[int, ...] | None = None


class StreamComplete(Struct, frozen=True, tag="complete"):
    """The end: why, by which of the request's stop strings if it was one, and what was counted.

    `service_tier` is OpenAI's word for the tier in which the vendor served it, if it says so.
    """

    stop_reason: StopReason
    usage: Usage = Usage()
    stop_string: str | None = None
    service_tier: str | None = None


StreamEvent = StreamStart | StreamProgress | StreamComplete
