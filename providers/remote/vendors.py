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
    ),
    "remote::gemini": Vendor(
        name="Gemini",
        base_url="https://generativelanguage.googleapis.com/v1beta/openai",
        key_variable="GEMINI_API_KEY",
        model_prefix="models/",
    ),
    "remote::mistral": Vendor(
        name="Mistral",
        base_url="https://api.mistral.ai/v1",
        key_variable="MISTRAL_API_KEY",
        # https://docs.mistral.ai/api: anything else is answered with 422 `extra_forbidden`
        renamed={**MAX_TOKENS_ONLY, "seed": "random_seed"},
        refused=frozenset({"logit_bias", "logprobs", "top_logprobs"}),
        knows_stream_options=False,
    ),
    "remote::deepseek": Vendor(
        name="DeepSeek",
        base_url="https://api.deepseek.com/v1",
        key_variable="DEEPSEEK_API_KEY",
        # https://api-docs.deepseek.com/guides/anthropic_api
        wires={**OPENAI_WIRES, "messages": "{origin}/anthropic/v1/messages"},
        renamed=MAX_TOKENS_ONLY,
    ),
    "remote::xai": Vendor(
        name="xAI",
        base_url="https://api.x.ai/v1",
        key_variable="XAI_API_KEY",
        wires=WITH_RESPONSES,
    ),
    "remote::groq": Vendor(
        name="Groq",
        base_url="https://api.groq.com/openai/v1",
        key_variable="GROQ_API_KEY",
        # https://console.groq.com/docs/openai
        refused=frozenset({"logit_bias", "logprobs", "top_logprobs"}),
    ),
    "remote::cerebras": Vendor(
        name="Cerebras",
        base_url="https://api.cerebras.ai/v1",
        key_variable="CEREBRAS_API_KEY",
        # https://inference-docs.cerebras.ai/resources/openai
        renamed=MAX_COMPLETION_TOKENS_ONLY,
        refused=frozenset({"frequency_penalty", "logit_bias", "presence_penalty"}),
    ),
    "remote::sambanova": Vendor(
        name="SambaNova",
        base_url="https://api.sambanova.ai/v1",
        key_variable="SAMBANOVA_API_KEY",
    ),
    "remote::fireworks": Vendor(
        name="Fireworks",
        base_url="https://api.fireworks.ai/inference/v1",
        key_variable="FIREWORKS_API_KEY",
        model_prefix="accounts/fireworks/models/",
        renamed=MAX_TOKENS_ONLY,
    ),
    "remote::together": Vendor(
        name="Together",
        base_url="https://api.together.xyz/v1",
        key_variable="TOGETHER_API_KEY",
        renamed=MAX_TOKENS_ONLY,
    ),
    "remote::nvidia": Vendor(
        name="NVIDIA",
        base_url="https://integrate.api.nvidia.com/v1",
        key_variable="NVIDIA_API_KEY",
        renamed=MAX_TOKENS_ONLY,
    ),
    "remote::openrouter": Vendor(
        name="OpenRouter",
        base_url="https://openrouter.ai/api/v1",
        key_variable="OPENROUTER_API_KEY",
    ),
    "remote::huggingface": Vendor(
        name="Hugging Face",
        base_url="https://router.huggingface.co/v1",
        key_variable="HF_TOKEN",
        renamed=MAX_TOKENS_ONLY,
    ),
    "remote::vllm": Vendor(
        name="vLLM",
        base_url="http://localhost:8000/v1",
        key_variable="VLLM_API_KEY",
        needs_key=False,
    ),
    "remote::sglang": Vendor(
        name="SGLang",
        base_url="http://localhost:30000/v1",
        needs_key=False,
    ),
    "remote::ollama": Vendor(
        name="Ollama",
        base_url="http://localhost:11434/v1",
        needs_key=False,
        # https://docs.ollama.com/api/openai-compatibility: what is not listed there is ignored
        renamed=MAX_TOKENS_ONLY,
        refused=frozenset({"logit_bias", "n"}),
    ),
    "remote::llama-cpp": Vendor(
        name="llama.cpp",
        base_url="http://localhost:8080/v1",
        needs_key=False,
        renamed=MAX_TOKENS_ONLY,
    ),
    "remote::lmstudio": Vendor(
        name="LM Studio",
        base_url="http://localhost:1234/v1",
        needs_key=False,
        renamed=MAX_TOKENS_ONLY,
    ),
}
"""By provider type."""
