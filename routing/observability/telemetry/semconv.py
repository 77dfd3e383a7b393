"""OpenTelemetry's names for generative AI: the one place where they are written.

They are still in development, so that some will change
(https://github.com/open-telemetry/semantic-conventions-genai). In Prometheus dots are
underscores, and a unit is the end of the name
(https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/).
"""

from __future__ import annotations

from collections.abc import Mapping

# Attributes ---------------------------------------------------------------------------------------

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_STREAM = "gen_ai.request.stream"
RESPONSE_MODEL = "gen_ai.response.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
TIME_TO_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS = "gen_ai.usage.cache_creation.input_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
TOKEN_TYPE = "gen_ai.token.type"
ERROR_TYPE = "error.type"
TOOL_NAME = "gen_ai.tool.name"
STATUS_CODE = "http.response.status_code"

# Metrics ------------------------------------------------------------------------------------------

TOKEN_USAGE = "gen_ai.client.token.usage"
REQUEST_DURATION = "gen_ai.server.request.duration"
TIME_TO_FIRST_TOKEN = "gen_ai.server.time_to_first_token"
TIME_PER_OUTPUT_TOKEN = "gen_ai.server.time_per_output_token"

TOKEN_BUCKETS = tuple(float(4**power) for power in range(14))
DURATION_BUCKETS = tuple(round(0.01 * 2**power, 2) for power in range(14))
FIRST_TOKEN_BUCKETS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
)  # fmt: skip
PER_TOKEN_BUCKETS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)

# Values -------------------------------------------------------------------------------------------

EXECUTE_TOOL = "execute_tool"
"""`gen_ai.operation.name` of a tool that is run."""

OPERATIONS: Mapping[str, str] = {
    "chat": "chat",
    "completion": "text_completion",
    "embedding": "embeddings",
    "token_count": "count_tokens",
    "rerank": "rerank",
    "moderation": "moderation",
    "image": "image_generation",
    "speech": "text_to_speech",
    "transcription": "speech_to_text",
}
"""`gen_ai.operation.name` by the kind of an operation; those after embeddings have no name yet."""

_PROVIDERS: Mapping[str, str] = {
    "anthropic-messages": "anthropic",
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "bedrock-converse": "aws.bedrock",
    "gemini": "gcp.gemini",
    "gemini-native": "gcp.gemini",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "ollama-native": "ollama",
    "vertex": "gcp.vertex_ai",
    "vertex-anthropic": "gcp.vertex_ai",
    "xai": "x_ai",
}


def provider_name(provider_type: str) -> str:
    """`gen_ai.provider.name` of a provider type: `remote::openai`, `local::torch`."""
    name = provider_type.rpartition("::")[2]
    return _PROVIDERS.get(name, name)


def in_prometheus(name: str, unit: str = "") -> str:
    """A metric's or an attribute's name as Prometheus has it."""
    return name.replace(".", "_") + (f"_{unit}" if unit else "")
