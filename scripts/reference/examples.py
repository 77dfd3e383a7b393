"""An example for each class of settings; a test checks each as `llama-compat check` does."""

from __future__ import annotations

TEMPLATE = {
    "Distribution": """
version: 1
server:
  port: 8321
providers:
  - id: groq
    type: remote::groq
    config: {api_key: "${env.GROQ_API_KEY}"}
models:
  - id: llama
    provider: groq
    provider_model: llama-3.3-70b-versatile
""",
    "ServerSettings": """
server:
  host: 0.0.0.0
  api_keys: ["${env.MY_KEY}"]
  admin_key: ${env.ADMIN_KEY}
  records: {}
  metrics: true
""",
    "FleetSettings": """
server:
  fleet: {store: "redis://localhost:6379/0", on_outage: local_share}
""",
    "LimitStoreSettings": """
server:
  limits: {store: "redis://localhost:6379/0", when_away: closed}
""",
    "CorsSettings": """
server:
  cors: {origins: ["https://app.example.com"]}
""",
    "ResponsesStoreSettings": """
server:
  responses_store: {ttl: 86400, max_bytes: 268435456}
""",
    "RecordsSettings": """
server:
  records: {keep_days: 30, record_bodies: errors, redact: ['\\b\\d{16}\\b']}
""",
    "TracesSettings": """
server:
  traces: {endpoint: "http://localhost:4318", sample: 0.1}
""",
    "ProviderSettings": """
providers:
  - id: gpu-box
    type: remote::vllm
    config: {base_url: "http://localhost:8000/v1"}
    max_concurrent: 8
    limits: {requests_per_minute: 600}
""",
    "ModelSettings": """
providers:
  - {id: groq, type: "remote::groq", config: {api_key: "${env.GROQ_API_KEY}"}}
models:
  - id: llama
    provider: groq
    provider_model: llama-3.3-70b-versatile
    context_length: 32768
    aliases: [default]
    price: {input: 0.59, output: 0.79}
""",
    "KeySettings": """
keys:
  - name: ci
    key: ${env.CI_KEY}
    models: ["llama*"]
    limits: {requests_per_minute: 60}
""",
    "TeamSettings": """
teams:
  - id: tools
    limits: {tokens_per_minute: 500000}
    budget: {amount: 100}
""",
    "RoutingSettings": """
routing:
  balance: least_busy
  hedge_after: 5
""",
    "LimitSettings": """
models:
  - id: m
    provider: echo
    limits: {requests_per_minute: 60, tokens_per_minute: 100000, concurrent: 4}
""",
    "TargetSettings": """
providers:
  - {id: groq, type: "remote::groq", config: {api_key: "${env.GROQ_API_KEY}"}}
  - {id: gpu-box, type: "remote::vllm"}
models:
  - id: llama
    targets:
      - {provider: gpu-box, model: meta-llama/Llama-3.3-70B-Instruct, weight: 3}
      - {provider: groq, model: llama-3.3-70b-versatile, priority: 1}
""",
    "PriceSettings": """
models:
  - id: m
    provider: echo
    price: {input: 3, output: 15, cached_input: 0.3, cache_write: 3.75}
""",
    "BudgetSettings": """
teams:
  - id: tools
    budget: {amount: 5, period: day}
""",
    "RetrySettings": """
routing:
  retries: {same_target: 0, attempts: 3}
""",
    "CooldownSettings": """
routing:
  cooldown: {failures: 5, within: 60, seconds: 30}
""",
    "MirrorSettings": """
routing:
  mirror: {model: candidate, sample: 0.1}
providers:
  - {id: echo, type: "local::echo"}
models:
  - {id: m, provider: echo}
  - {id: candidate, provider: echo}
""",
    "PrefixSettings": """
routing:
  balance: prefix
  prefix: {cache_tokens: 200000, busier_by: 16}
""",
    "BackoffSettings": """
routing:
  retries: {backoff: {first: 0.5, most: 4}}
""",
}
"""By the name of the class."""

PROVIDERS = {
    "ProviderConfig": """
providers:
  - {id: echo, type: "local::echo", config: {unsupported: drop}}
""",
    "RemoteConfig": """
providers:
  - id: openai
    type: remote::openai
    config:
      api_key: ${env.OPENAI_API_KEY}
      models: discover
      timeouts: {connect: 5, first_byte: 120}
      headers: {openai-organization: "${env.OPENAI_ORGANIZATION}"}
models: []
""",
    "RemoteOpenAIConfig": """
providers:
  - id: gpu-box
    type: remote::vllm
    config:
      base_url: http://localhost:8000/v1
      wires: [chat, completions, embeddings, responses]
""",
    "VLLMConfig": """
providers:
  - id: vllm
    type: remote::vllm
    config:
      kv_events: {endpoint: "tcp://gpu-a:5557", replay_endpoint: "tcp://gpu-a:5558"}
""",
    "AzureConfig": """
providers:
  - id: azure
    type: remote::azure
    config:
      base_url: https://example.openai.azure.com
      api_key: ${env.AZURE_OPENAI_API_KEY}
      api_version: 2024-10-21
""",
    "BedrockConfig": """
providers:
  - id: bedrock
    type: remote::bedrock
    config: {region: us-east-1, aws: {profile: work}}
""",
    "BedrockConverseConfig": """
providers:
  - id: converse
    type: remote::bedrock-converse
    config:
      region: eu-central-1
      aws: {}
      guardrail: {identifier: gr1abc, version: "3"}
      additional_fields: {anthropic_beta: [context-1m-2025-08-07]}
""",
    "LocalConfig": """
providers:
  - {id: torch, type: "local::torch", config: {tool_format: hermes}}
""",
    "TorchConfig": """
providers:
  - id: torch
    type: local::torch
    config: {device: cuda, dtype: bfloat16, kv_cache: 0.8}
""",
    "LlamaCppConfig": """
providers:
  - id: llama-cpp
    type: local::llama_cpp
    config: {n_gpu_layers: 20, max_sequences: 4}
""",
    "EchoConfig": """
providers:
  - {id: echo, type: "local::echo", config: {delay_ms: 50}}
""",
    "SimulationConfig": """
providers:
  - id: echo
    type: local::echo
    config:
      simulate: {prefill_tokens_per_second: 8000, kv_blocks: 4096}
""",
    "AnthropicMessagesConfig": """
providers:
  - id: claude
    type: remote::anthropic-messages
    config: {api_key: "${env.ANTHROPIC_API_KEY}", thinking: adaptive}
""",
    "ImageFetchingConfig": """
providers:
  - id: ollama
    type: remote::ollama-native
    config: {images: {max_count: 4, max_bytes: 5242880}}
""",
    "GeminiConfig": """
providers:
  - {id: gemini, type: "remote::gemini-native", config: {api_key: "${env.GEMINI_API_KEY}"}}
""",
    "VertexConfig": """
providers:
  - id: vertex
    type: remote::vertex
    config:
      project: my-project
      location: europe-west4
      service_account: /etc/llama-compat/service-account.json
""",
    "VertexGeminiConfig": """
providers:
  - {id: vertex, type: "remote::vertex", config: {project: my-project}}
""",
    "VertexAnthropicConfig": """
providers:
  - {id: claude, type: "remote::vertex-anthropic", config: {project: my-project, location: eu}}
""",
    "OllamaConfig": """
providers:
  - {id: ollama, type: "remote::ollama-native", config: {base_url: "http://localhost:11434"}}
""",
    "FastChatConfig": """
providers:
  - {id: fastchat, type: "remote::fastchat", config: {base_url: "http://localhost:21002"}}
""",
}
"""By the name of the class."""
