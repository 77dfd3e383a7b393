"""The vendors whose API is OpenAI's, one row each: what differs is data.

A row says what a vendor's own documentation says. Fields that a vendor answers with an error anyway
are listed too, so that `unsupported: drop` can leave them out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

MAX_TOKENS_ONLY = MappingProxyType({"max_completion_tokens": "max_tokens"})
"""For vendors that know only the older name, and ignore or refuse the newer one."""

MAX_COMPLETION_TOKENS_ONLY = MappingProxyType({"max_tokens": "max_completion_tokens"})

NEUTRAL_VALUES: Mapping[str, frozenset[bytes]] = {
    "n": frozenset({b"1"}),
    "logprobs": frozenset({b"false"}),
    "top_logprobs": frozenset({b"0"}),
    "logit_bias": frozenset({b"{}"}),
    "frequency_penalty": frozenset({b"0", b"0.0"}),
    "presence_penalty": frozenset({b"0", b"0.0"}),
}
"""Values (JSON) that ask for nothing: with them, and with null, a field that a vendor refuses is
just left out."""


OPENAI_WIRES: Mapping[str, str] = MappingProxyType(
    {"chat": "/chat/completions", "completions": "/completions", "embeddings": "/embeddings"}
)
"""What every vendor of the table has."""

WITH_RESPONSES: Mapping[str, str] = MappingProxyType({**OPENAI_WIRES, "responses": "/responses"})

ALL_WIRES: Mapping[str, str] = MappingProxyType(
    {
        **WITH_RESPONSES,
        "input_tokens": "/responses/input_tokens",
        "compact": "/responses/compact",
        "messages": "/messages",
        "count_tokens": "/messages/count_tokens",
    }
)
"""Where a wire is that a template names (`wires`) and the vendor's row does not."""


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
            `{api_version}` the template's.
        models_path, models_headers: the same for the list of models; `{key}` is the key.
        renamed: chat parameters that it knows by another name.
        refused: parameters that it refuses or ignores.
        knows_stream_options: whether it takes `stream_options`. One that doesn't sends usage in any
            case or not at all.
        reasoning_fields: the members of messages and of their calls in which it takes back what
            its models thought (`REASONING_FIELDS`): of those that are text each gets it, and those
            that are not named are left out. None where nobody knows: what the client sends goes on.
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
    reasoning_fields: frozenset[str] | None = None


_NONE: frozenset[str] = frozenset()

VENDORS: dict[str, Vendor] = {
    "remote::passthrough": Vendor(name="The upstream", needs_key=False),
    "remote::openai": Vendor(
        name="OpenAI",
        base_url="https://api.openai.com/v1",
        key_variable="OPENAI_API_KEY",
        wires={
            **WITH_RESPONSES,
            "input_tokens": "/responses/input_tokens",
            "compact": "/responses/compact",
        },
        # The specification's ChatCompletionRequestAssistantMessage has no member for it (2026-11);
        # what its models thought is for the Responses API alone.
        reasoning_fields=_NONE,
    ),
    "remote::azure": Vendor(
        name="Azure OpenAI",
        key_variable="AZURE_OPENAI_API_KEY",
        key_header="api-key",
        key_format="{key}",
        # https://learn.microsoft.com/azure/ai-services/openai/reference: the model is a deployment
        wires={
            **{
                name: f"/openai/deployments/{{model}}{path}?api-version={{api_version}}"
                for name, path in OPENAI_WIRES.items()
            },
            "responses": "/openai/v1/responses",
        },
        models_path="/openai/models?api-version={api_version}",
        reasoning_fields=_NONE,  # as OpenAI's
    ),
    "remote::anthropic": Vendor(
        name="Anthropic",
        base_url="https://api.anthropic.com/v1",
        key_variable="ANTHROPIC_API_KEY",
        # https://platform.claude.com/docs/en/api/openai-sdk: these are ignored, not refused
        refused=frozenset(
            {
                "audio",
                "frequency_penalty",
                "logit_bias",
                "logprobs",
                "modalities",
                "prediction",
                "presence_penalty",
                "reasoning_effort",
                "response_format",
                "seed",
                "top_logprobs",
            }
        ),
        wires={
            **OPENAI_WIRES,
            "messages": "/messages",
            "count_tokens": "/messages/count_tokens",
        },
        # The list of models is the native API's.
        models_headers={"x-api-key": "{key}", "anthropic-version": "2023-06-01"},
        # The same page: over this API thinking is not given out and can't be given back (2026-11).
        reasoning_fields=_NONE,
    ),
    "remote::gemini": Vendor(
        name="Gemini",
        base_url="https://generativelanguage.googleapis.com/v1beta/openai",
        key_variable="GEMINI_API_KEY",
        model_prefix="models/",
        # https://ai.google.dev/gemini-api/docs/thought-signatures: Gemini 3 wants `extra_content`
        # back with its calls; other names that it does not know are 400 "Cannot find field"
        # (2026-11).
        reasoning_fields=frozenset({"extra_content"}),
    ),
    "remote::mistral": Vendor(
        name="Mistral",
        base_url="https://api.mistral.ai/v1",
        key_variable="MISTRAL_API_KEY",
        # https://docs.mistral.ai/api: anything else is answered with 422 `extra_forbidden`
        renamed={**MAX_TOKENS_ONLY, "seed": "random_seed"},
        refused=frozenset({"logit_bias", "logprobs", "top_logprobs"}),
        knows_stream_options=False,
        # AssistantMessage is a closed schema: 422 `extra_forbidden` for `reasoning_content`
        # (charmbracelet/crush#1590, 2026-11). Its own thoughts are parts of the content, which its
        # models that don't think refuse.
        reasoning_fields=_NONE,
    ),
    "remote::deepseek": Vendor(
        name="DeepSeek",
        base_url="https://api.deepseek.com/v1",
        key_variable="DEEPSEEK_API_KEY",
        # https://api-docs.deepseek.com/guides/anthropic_api
        wires={**OPENAI_WIRES, "messages": "{origin}/anthropic/v1/messages"},
        renamed=MAX_TOKENS_ONLY,
        # https://api-docs.deepseek.com/guides/thinking_mode: 400 without it in turns that called
        # tools, passed over in others (2026-11).
        reasoning_fields=frozenset({"reasoning_content"}),
    ),
    "remote::xai": Vendor(
        name="xAI",
        base_url="https://api.x.ai/v1",
        key_variable="XAI_API_KEY",
        wires=WITH_RESPONSES,
        # https://docs.x.ai/developers/model-capabilities/text/comparison: chat completions give no
        # reasoning out; the Responses API does, sealed (2026-11).
        reasoning_fields=_NONE,
    ),
    "remote::groq": Vendor(
        name="Groq",
        base_url="https://api.groq.com/openai/v1",
        key_variable="GROQ_API_KEY",
        # https://console.groq.com/docs/openai
        refused=frozenset({"logit_bias", "logprobs", "top_logprobs"}),
        # groq-python's ChatCompletionAssistantMessageParam has `reasoning`; the other name is 400
        # "property 'reasoning_content' is unsupported" (janhq/jan#8136, 2026-11).
        reasoning_fields=frozenset({"reasoning"}),
    ),
    "remote::cerebras": Vendor(
        name="Cerebras",
        base_url="https://api.cerebras.ai/v1",
        key_variable="CEREBRAS_API_KEY",
        # https://inference-docs.cerebras.ai/resources/openai
        renamed=MAX_COMPLETION_TOKENS_ONLY,
        refused=frozenset({"frequency_penalty", "logit_bias", "presence_penalty"}),
        # cerebras-cloud-sdk-python's assistant message has `reasoning`; `reasoning_content` is 400
        # `wrong_api_format` (QwenLM/qwen-code#11045, 2026-11).
        reasoning_fields=frozenset({"reasoning"}),
    ),
    "remote::sambanova": Vendor(
        name="SambaNova",
        base_url="https://api.sambanova.ai/v1",
        key_variable="SAMBANOVA_API_KEY",
        # sambanova-python's assistant message has `reasoning` (2026-11).
        reasoning_fields=frozenset({"reasoning"}),
    ),
    "remote::fireworks": Vendor(
        name="Fireworks",
        base_url="https://api.fireworks.ai/inference/v1",
        key_variable="FIREWORKS_API_KEY",
        model_prefix="accounts/fireworks/models/",
        renamed=MAX_TOKENS_ONLY,
        # https://docs.fireworks.ai/guides/reasoning: wants it back in turns with tools (2026-11)
        reasoning_fields=frozenset({"reasoning_content"}),
    ),
    "remote::together": Vendor(
        name="Together",
        base_url="https://api.together.xyz/v1",
        key_variable="TOGETHER_API_KEY",
        renamed=MAX_TOKENS_ONLY,
        # https://docs.together.ai/docs/inference/chat/reasoning: its name for it (2026-11)
        reasoning_fields=frozenset({"reasoning"}),
    ),
    "remote::nvidia": Vendor(
        name="NVIDIA",
        base_url="https://integrate.api.nvidia.com/v1",
        key_variable="NVIDIA_API_KEY",
        renamed=MAX_TOKENS_ONLY,
        # What its models' own servers (NIM, on vLLM) give out and take (2026-11).
        reasoning_fields=frozenset({"reasoning_content"}),
    ),
    "remote::openrouter": Vendor(
        name="OpenRouter",
        base_url="https://openrouter.ai/api/v1",
        key_variable="OPENROUTER_API_KEY",
        # https://openrouter.ai/docs/use-cases/reasoning-tokens: preserving reasoning (2026-11)
        reasoning_fields=frozenset({"reasoning", "reasoning_details"}),
    ),
    "remote::huggingface": Vendor(
        name="Hugging Face",
        base_url="https://router.huggingface.co/v1",
        key_variable="HF_TOKEN",
        renamed=MAX_TOKENS_ONLY,
        # It passes requests on to others, Groq and Cerebras among them: no name is good for all of
        # them (2026-11).
        reasoning_fields=_NONE,
    ),
    "remote::vllm": Vendor(
        name="vLLM",
        base_url="http://localhost:8000/v1",
        key_variable="VLLM_API_KEY",
        needs_key=False,
        # vllm/entrypoints/chat_utils.py: `reasoning` in newer versions, the other in older ones;
        # unknown members are passed over (2026-11).
        reasoning_fields=frozenset({"reasoning", "reasoning_content"}),
    ),
    "remote::sglang": Vendor(
        name="SGLang",
        base_url="http://localhost:30000/v1",
        needs_key=False,
        # https://docs.sglang.ai: separate reasoning is `reasoning_content`, both ways (2026-11)
        reasoning_fields=frozenset({"reasoning_content"}),
    ),
    "remote::ollama": Vendor(
        name="Ollama",
        base_url="http://localhost:11434/v1",
        needs_key=False,
        # https://docs.ollama.com/api/openai-compatibility: what is not listed there is ignored
        renamed=MAX_TOKENS_ONLY,
        refused=frozenset({"logit_bias", "n"}),
        # ollama's openai/openai.go: a message's `reasoning` is its `thinking` (2026-11)
        reasoning_fields=frozenset({"reasoning"}),
    ),
    "remote::llama-cpp": Vendor(
        name="llama.cpp",
        base_url="http://localhost:8080/v1",
        needs_key=False,
        renamed=MAX_TOKENS_ONLY,
        # llama.cpp's tools/server/README.md, ggml-org/llama.cpp#21249 (2026-11)
        reasoning_fields=frozenset({"reasoning_content"}),
    ),
    "remote::lmstudio": Vendor(
        name="LM Studio",
        base_url="http://localhost:1234/v1",
        needs_key=False,
        renamed=MAX_TOKENS_ONLY,
        # Gives either, by the model and its version; unknown members are passed over (2026-11).
        reasoning_fields=frozenset({"reasoning", "reasoning_content"}),
    ),
}
"""By provider type."""
