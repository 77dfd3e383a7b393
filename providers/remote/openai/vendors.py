"""The vendors whose API is OpenAI's, one row each: what differs is data.

A row says what a vendor's own documentation says. Fields that a vendor answers with an error anyway
are listed too, so that `unsupported: drop` can leave them out.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Raw

from llama_compat.dialects.gemini.seals import ANY_SIGNATURE
from llama_compat.dialects.stop_lists import (
    CLAUDES_STOPS,
    GEMINIS_STOPS,
    StopBound,
)
from llama_compat.wire.json_fields import to_raw
from providers.remote.batches.rows import AZURES, GROQS, MISTRALS, OPENAIS, TOGETHERS
from providers.remote.openai.vendor import Vendor
from providers.remote.openai.wires import (
    CHAT_AND_EMBEDDINGS,
    CHAT_ONLY,
    IMAGE_EDITS,
    IMAGES,
    LISTENING,
    MEDIA,
    MODERATIONS,
    OPENAI_WIRES,
    RERANK,
    SPEECH,
    WITH_RESPONSES,
)

MAX_CALL_ID = 40
"""Calls of a conversation that began with another vendor may have longer ids, which OpenAI refuses:
`string too long. Expected a string with maximum length 40`."""

MAX_TOKENS_ONLY = MappingProxyType({"max_completion_tokens": "max_tokens"})
"""For vendors that know only the older name, and ignore or refuse the newer one."""

MAX_COMPLETION_TOKENS_ONLY = MappingProxyType({"max_tokens": "max_completion_tokens"})

BLANK_REASONING: Mapping[str, Raw] = MappingProxyType({"reasoning_content": Raw(b'" "')})
"""What those take in place of `reasoning_content` that refuse turns without it. They take no empty
text: NousResearch/hermes-agent#17341, which sends this (2026-11-23)."""

ANY_CALLS_SEAL: Mapping[str, Raw] = MappingProxyType(
    {"extra_content": to_raw({"google": {"thought_signature": ANY_SIGNATURE}})}
)

_NONE: frozenset[str] = frozenset()

CACHE_HINTS = frozenset({"prompt_cache_key", "prompt_cache_retention"})
"""OpenAI's, as openai 3.52.0 has them (types/chat/completion_create_params.py, 2026-11-23)."""

VENDORS: dict[str, Vendor] = {
    "remote::passthrough": Vendor(
        name="The upstream",
        takes_refusals=True,
        needs_key=False,
        # What it does not have it says itself: none of these could be answered in another way.
        wires={**OPENAI_WIRES, **MEDIA, **RERANK},
    ),
    "remote::openai": Vendor(
        name="OpenAI",
        takes_tool_choices=False,
        takes_refusals=True,
        base_url="https://api.openai.com/v1",
        key_variable="OPENAI_API_KEY",
        wires={
            **WITH_RESPONSES,
            "input_tokens": "/responses/input_tokens",
            "compact": "/responses/compact",
            **MEDIA,
        },
        # openai 3.52.0, types/responses/tool_param.py and types/chat/completion_create_params.py
        hosted_tools={
            "responses": frozenset({"web_search", "file_search", "mcp"}),
            "chat": frozenset({"web_search"}),
        },
        knows_service_tier=True,
        # The specification's ChatCompletionRequestAssistantMessage has no member for it (2026-11);
        # what its models thought is for the Responses API alone.
        reasoning_fields=_NONE,
        family="openai",
        call_id_limit=MAX_CALL_ID,
        # 400 "Invalid 'stop': array too long. Expected an array with maximum length 4"
        # (continuedev/continue#2461, 2026-11-28)
        stops=StopBound(4),
        cache_hints=CACHE_HINTS,
        batches=OPENAIS,
    ),
    "remote::azure": Vendor(
        name="Azure OpenAI",
        takes_tool_choices=False,
        takes_refusals=True,
        key_variable="AZURE_OPENAI_API_KEY",
        key_header="api-key",
        key_format="{key}",
        # https://learn.microsoft.com/azure/foundry/openai/concepts/priority-processing (2026-11)
        knows_service_tier=True,
        # https://learn.microsoft.com/azure/ai-services/openai/reference: the model is a deployment
        wires={
            **{
                name: f"/openai/deployments/{{model}}{path}?api-version={{api_version}}"
                for name, path in (
                    *OPENAI_WIRES.items(),
                    *IMAGES.items(),
                    *IMAGE_EDITS.items(),
                    *SPEECH.items(),
                    *LISTENING.items(),
                )
            },
            "responses": "/openai/v1/responses",
        },
        models_path="/openai/models?api-version={api_version}",
        reasoning_fields=_NONE,  # as OpenAI's
        family="openai",
        call_id_limit=MAX_CALL_ID,
        stops=StopBound(4),  # the same (QwenLM/Qwen-Agent#228, 2026-11-28)
        cache_hints=CACHE_HINTS,
        batches=AZURES,
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
        # The same page, in a copy of 2025-11: PDFs are for the native API. What is not taken it
        # passes over without a word.
        documents=None,
        stops=CLAUDES_STOPS,
        # The list of models is the native API's.
        models_headers={"x-api-key": "{key}", "anthropic-version": "2023-06-01"},
        # The same page: over this API thinking is not given out and can't be given back (2026-11).
        reasoning_fields=_NONE,
        family="anthropic",
    ),
    "remote::gemini": Vendor(
        name="Gemini",
        base_url="https://generativelanguage.googleapis.com/v1beta/openai",
        key_variable="GEMINI_API_KEY",
        model_prefix="models/",
        stops=GEMINIS_STOPS,
        # https://ai.google.dev/gemini-api/docs/thought-signatures: Gemini 3 wants `extra_content`
        # back with its calls; other names that it does not know are 400 "Cannot find field"
        # (2026-11).
        reasoning_fields=frozenset({"extra_content"}),
        wants_reasoning=True,
        # The same page, "FAQs": for calls that another model made (2026-11-23).
        stand_ins=ANY_CALLS_SEAL,
        family="gemini",
    ),
    "remote::mistral": Vendor(
        name="Mistral",
        base_url="https://api.mistral.ai/v1",
        key_variable="MISTRAL_API_KEY",
        # mistralai 3.7.0 (2026-11-23). Its speech takes other members and answers in JSON.
        wires={
            **OPENAI_WIRES,
            **MODERATIONS,
            "transcriptions": "/audio/transcriptions",
        },
        # https://docs.mistral.ai/api: anything else is answered with 422 `extra_forbidden`. These
        # are what OpenAI's clients send and its own SDK does not have (mistralai 3.7.0, client/
        # models/chatcompletionrequest.py, 2026-11-28).
        renamed={**MAX_TOKENS_ONLY, "seed": "random_seed"},
        refused=frozenset(
            {
                "audio",
                "logit_bias",
                "logprobs",
                "modalities",
                "prompt_cache_key",
                "prompt_cache_retention",
                "safety_identifier",
                "service_tier",
                "store",
                "top_logprobs",
                "user",
                "verbosity",
                "web_search_options",
            }
        ),
        knows_stream_options=False,
        # AssistantMessage is a closed schema: 422 `extra_forbidden` for `reasoning_content`
        # (charmbracelet/crush#1590, 2026-11). Its own thoughts are parts of the content, which its
        # models that don't think refuse.
        reasoning_fields=_NONE,
        # 400 "Tool call id was ... but must be a-z, A-Z, 0-9, with a length of 9."
        # (nearai/ironclaw#1241, 2026-11-27)
        call_id_length=9,
        # "Up to 4" (langchain-mistralai's reference, 2026-11-28)
        stops=StopBound(4),
        # 422 `extra_forbidden` at `messages.0.user.name` (nomtek/mistralai_client_dart#44); of the
        # messages of mistralai 3.7.0 those of tools alone have one (2026-11-28).
        takes_speakers=False,
        documents="document_url",  # llama_compat.dialects.openai.chat.files
        fetches_documents=True,
        marks_prefix=True,  # llama_compat.dialects.openai.chat.role_order
        family="mistral",
        batches=MISTRALS,
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
        wants_reasoning=True,
        stand_ins=BLANK_REASONING,
        # 400 "unknown variant" for other parts than text and, since 2026-08, images
        # (1jehuang/jcode#310, vercel/ai#19384, 2026-11-28).
        documents=None,
        # "Up to 16 sequences" (https://api-docs.deepseek.com/api/create-chat-completion)
        stops=StopBound(16),
        family="deepseek",
    ),
    "remote::xai": Vendor(
        name="xAI",
        base_url="https://api.x.ai/v1",
        key_variable="XAI_API_KEY",
        wires=WITH_RESPONSES,
        # https://docs.x.ai/developers/model-capabilities/text/comparison: chat completions give no
        # reasoning out; the Responses API does, sealed (2026-11).
        reasoning_fields=_NONE,
        # "Up to 4 sequences" (@langchain/xai's reference, 2026-11-28)
        stops=StopBound(4),
        family="xai",
    ),
    "remote::groq": Vendor(
        name="Groq",
        base_url="https://api.groq.com/openai/v1",
        key_variable="GROQ_API_KEY",
        # groq 1.7.0 (2026-11-23)
        wires={**OPENAI_WIRES, **SPEECH, **LISTENING},
        # https://console.groq.com/docs/openai
        refused=frozenset({"logit_bias", "logprobs", "top_logprobs"}),
        # groq-python's ChatCompletionAssistantMessageParam has `reasoning`; the other name is 400
        # "property 'reasoning_content' is unsupported" (janhq/jan#8136, 2026-11).
        reasoning_fields=frozenset({"reasoning"}),
        # 400 "len(stop) > 4 is not supported" (letta-ai/letta#1272, 2026-11-28)
        stops=StopBound(4),
        batches=GROQS,
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
        wants_reasoning=True,
    ),
    "remote::together": Vendor(
        name="Together",
        base_url="https://api.together.xyz/v1",
        key_variable="TOGETHER_API_KEY",
        # together 3.1.1 (2026-11-23)
        wires={**OPENAI_WIRES, **RERANK, **IMAGES, **SPEECH, **LISTENING},
        renamed=MAX_TOKENS_ONLY,
        # https://docs.together.ai/docs/inference/chat/reasoning: its name for it (2026-11)
        reasoning_fields=frozenset({"reasoning"}),
        batches=TOGETHERS,
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
        # https://openrouter.ai/docs/api/api-reference/rerank/create-rerank (2026-11-23)
        wires={**OPENAI_WIRES, **RERANK},
        # https://openrouter.ai/docs/use-cases/reasoning-tokens: preserving reasoning (2026-11)
        reasoning_fields=frozenset({"reasoning", "reasoning_details"}),
        # It passes DeepSeek's 400 on: danny-avila/LibreChat#13366 (2026-11-23).
        wants_reasoning=True,
        # https://openrouter.ai/docs/guides/overview/multimodal/pdfs (2026-11-28)
        fetches_documents=True,
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
    "remote::cohere": Vendor(
        name="Cohere",
        base_url="https://api.cohere.ai/compatibility/v1",
        key_variable="COHERE_API_KEY",
        # cohere 7.3.1 for both versions of rerank (2026-11-23)
        wires={
            **CHAT_AND_EMBEDDINGS,
            "rerank": "{origin}/v1/rerank",
            "rerank_v2": "{origin}/v2/rerank",
        },
        renamed=MAX_TOKENS_ONLY,
        # https://docs.cohere.com/docs/compatibility-api, "Unsupported parameters" (2026-11-22); 422
        # "n is not supported" (davidmigloz/ai_clients_dart#26). `dimensions` is of embeddings.
        refused=frozenset(
            {
                "audio",
                "dimensions",
                "logit_bias",
                "metadata",
                "modalities",
                "n",
                "parallel_tool_calls",
                "prediction",
                "service_tier",
                "store",
                "top_logprobs",
            }
        ),
        # Not among the parameters that the same page says are supported.
        knows_stream_options=False,
        reasoning_fields=_NONE,  # the page has no member for it
    ),
    "remote::perplexity": Vendor(
        name="Perplexity",
        base_url="https://api.perplexity.ai/v1",
        key_variable="PERPLEXITY_API_KEY",
        # https://docs.perplexity.ai/docs/agent-api/migrate-from-sonar/overview: its chat
        # completions ended on 2026-09-27; what it has since is the Agent API, which takes what the
        # Responses API does at `/v1/responses` (2026-11-22).
        wires={"responses": "/responses"},
        reasoning_fields=_NONE,
    ),
    "remote::moonshot": Vendor(
        name="Moonshot",
        base_url="https://api.moonshot.ai/v1",
        key_variable="MOONSHOT_API_KEY",
        # https://platform.kimi.ai/docs/api/overview.md (2026-11-22)
        wires={
            **CHAT_ONLY,
            "responses": "/responses",
            "messages": "{origin}/anthropic/v1/messages",
        },
        # https://platform.moonshot.ai/docs/guide/use-kimi-k2-thinking-model: without it 400
        # "reasoning_content is missing in assistant tool call message" (2026-11-22).
        reasoning_fields=frozenset({"reasoning_content"}),
        wants_reasoning=True,
        stand_ins=BLANK_REASONING,
        family="moonshot",
    ),
    "remote::zai": Vendor(
        name="Z.ai",
        base_url="https://api.z.ai/api/paas/v4",
        key_variable="ZAI_API_KEY",
        # https://docs.z.ai/guides/develop/openai/python and its page for Claude Code (2026-11-22).
        # The Responses API is for subscribers of the Coding Plan, at another address.
        wires={**CHAT_ONLY, "messages": "{origin}/api/anthropic/v1/messages"},
        # https://docs.z.ai/guides/overview/concept-param has `max_tokens` alone (2026-11-22).
        renamed=MAX_TOKENS_ONLY,
        # https://docs.z.ai/guides/capabilities/thinking-mode: has to come back with the results of
        # tools (2026-11-22).
        reasoning_fields=frozenset({"reasoning_content"}),
        wants_reasoning=True,
        # 400 of code 1214 for more than 4 (QwenLM/Qwen-Agent#370, 2026-11-28)
        stops=StopBound(4),
        family="zai",
    ),
    "remote::xiaomi": Vendor(
        name="Xiaomi MiMo",
        # https://platform.xiaomimimo.com/docs/en-US/api/chat/openai-api; its Anthropic API is
        # beside it (can1357/oh-my-pi#1846). Keys of its Token Plan are for other addresses, which
        # are a `base_url` of the template (2026-11-23).
        base_url="https://api.xiaomimimo.com/v1",
        key_variable="XIAOMI_API_KEY",
        wires={**CHAT_ONLY, "messages": "{origin}/anthropic/v1/messages"},
        # https://platform.xiaomimimo.com/docs/en-US/usage-guide/passing-back-reasoning_content: 400
        # "The reasoning_content in the thinking mode must be passed back to the API." for every
        # turn that calls tools, also of the user's earlier turns (2026-11-23).
        reasoning_fields=frozenset({"reasoning_content"}),
        wants_reasoning=True,
        stand_ins=BLANK_REASONING,
        family="xiaomi",
    ),
    "remote::minimax": Vendor(
        name="MiniMax",
        base_url="https://api.minimax.io/v1",
        key_variable="MINIMAX_API_KEY",
        # https://platform.minimax.io/docs/api-reference/responses-create and its page on
        # Anthropic's API (2026-11-22).
        wires={
            **CHAT_ONLY,
            "responses": "/responses",
            "messages": "{origin}/anthropic/v1/messages",
        },
        # https://platform.minimax.io/docs/api-reference/text-chat: `max_tokens` is deprecated
        # (2026-11-22).
        renamed=MAX_COMPLETION_TOKENS_ONLY,
        # https://platform.minimaxi.com/docs/api-reference/text-openai-api: the first three are
        # ignored, and `n` can only be 1 (2026-11-22).
        refused=frozenset({"frequency_penalty", "logit_bias", "presence_penalty", "n"}),
        # The same page: wanted back with calls,
        # where `reasoning_split` asked for it; otherwise thoughts are in the content (2026-11-22).
        reasoning_fields=frozenset({"reasoning_details"}),
        family="minimax",
    ),
    "remote::alibaba": Vendor(
        name="Alibaba",
        # https://help.aliyun.com/en/model-studio/embedding-interfaces-compatible-with-openai: that
        # of Singapore for every workspace; those of one workspace, and of other regions, are a
        # `base_url` of the template (2026-11-22). A key is good for its own region.
        base_url="https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        key_variable="DASHSCOPE_API_KEY",
        # https://help.aliyun.com/en/model-studio/anthropic-api-messages and
        # https://www.alibabacloud.com/help/en/model-studio/openai-compatible-responses (2026-11-22)
        wires={
            **CHAT_AND_EMBEDDINGS,
            "responses": "/responses",
            "messages": "{origin}/apps/anthropic/v1/messages",
        },
        # https://www.alibabacloud.com/help/en/model-studio/deep-thinking (2026-11-22)
        reasoning_fields=frozenset({"reasoning_content"}),
        documents=None,  # "Invalid value: file": QwenLM/qwen-code#1838 (2026-11-28)
    ),
    "remote::vercel": Vendor(
        name="Vercel AI Gateway",
        base_url="https://ai-gateway.vercel.sh/v1",
        key_variable="AI_GATEWAY_API_KEY",
        # https://vercel.com/docs/ai-gateway/sdks-and-apis: each API for all models (2026-11-22)
        # and .../image-generation/openai (2026-11-23)
        wires={**CHAT_AND_EMBEDDINGS, "responses": "/responses", "messages": "/messages", **IMAGES},
        # https://vercel.com/docs/ai-gateway/sdks-and-apis/openai-chat-completions/advanced
        # (2026-11-22)
        reasoning_fields=frozenset({"reasoning", "reasoning_details"}),
    ),
    "remote::databricks": Vendor(
        name="Databricks",
        # https://docs.databricks.com/aws/en/ai-gateway/query-model-services: it is
        # https://WORKSPACE/ai-gateway/mlflow/v1 (2026-11-22). Its Responses and Messages APIs are
        # each for the models of one vendor.
        key_variable="DATABRICKS_TOKEN",
        wires=CHAT_AND_EMBEDDINGS,
        # 400 `json: unknown field "stream_options"` (continuedev/continue#12936,
        # anomalyco/opencode#31156, 2026-11-22).
        knows_stream_options=False,
        # Its own thoughts are parts of the content; unknown members are 400 (2026-11-22).
        reasoning_fields=_NONE,
    ),
    "remote::cloudflare": Vendor(
        name="Cloudflare Workers AI",
        # https://developers.cloudflare.com/workers-ai/configuration/open-ai-compatibility: it is
        # https://api.cloudflare.com/client/v4/accounts/ACCOUNT/ai/v1. The Responses API is for
        # gpt-oss alone, and not streamed (cloudflare/cloudflare-docs#32116, 2026-11-22).
        key_variable="CLOUDFLARE_API_TOKEN",
        wires=CHAT_AND_EMBEDDINGS,
        # What a message may have is each model's own schema (2026-11-22).
        reasoning_fields=_NONE,
    ),
    "remote::bedrock": Vendor(
        name="Amazon Bedrock",
        # https://docs.aws.amazon.com/bedrock/latest/userguide/inference-responses-api.html: it is
        # https://bedrock-runtime.REGION.amazonaws.com/openai/v1, which lists no models, or
        # https://bedrock-mantle.REGION.api.aws/v1, which does. The Responses API is for some
        # models, which differ between the two (2026-11-22). In place of the key, `aws` in the
        # template has requests signed.
        key_variable="AWS_BEARER_TOKEN_BEDROCK",
        wires=CHAT_ONLY,
        reasoning_fields=_NONE,  # nothing says that a message may have one (2026-11-22)
    ),
    "remote::jina": Vendor(
        name="Jina AI",
        base_url="https://api.jina.ai/v1",
        key_variable="JINA_API_KEY",
        # https://api.jina.ai/docs (2026-11-23)
        wires={"embeddings": "/embeddings", **RERANK},
        reasoning_fields=_NONE,
    ),
    "remote::voyage": Vendor(
        name="Voyage AI",
        base_url="https://api.voyageai.com/v1",
        key_variable="VOYAGE_API_KEY",
        # voyageai 0.5.0 (2026-11-23). Its embeddings take other parameters than OpenAI's.
        wires={"voyage_rerank": "/rerank"},
        reasoning_fields=_NONE,
    ),
    "remote::vllm": Vendor(
        name="vLLM",
        base_url="http://localhost:8000/v1",
        key_variable="VLLM_API_KEY",
        needs_key=False,
        # vllm/entrypoints/pooling/score/api_router.py: all of /rerank, /v1/rerank and /v2/rerank
        # are the same; .../openai/speech_to_text for the others (2026-11-23).
        wires={**OPENAI_WIRES, **RERANK, **LISTENING},
        # vllm/entrypoints/chat_utils.py: `reasoning` in newer versions, the other in older ones;
        # unknown members are passed over (2026-11).
        reasoning_fields=frozenset({"reasoning", "reasoning_content"}),
        documents=None,  # "Unknown part type: file": langchain-ai/openwiki#63 (2026-11-28)
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
        documents=None,  # "invalid message format": Kilo-Org/kilocode#11878 (2026-11-28)
    ),
    "remote::llama-cpp": Vendor(
        name="llama.cpp",
        base_url="http://localhost:8080/v1",
        needs_key=False,
        # tools/server/README.md: with `--reranking` (2026-11-23)
        wires={**OPENAI_WIRES, **RERANK},
        renamed=MAX_TOKENS_ONLY,
        # llama.cpp's tools/server/README.md, ggml-org/llama.cpp#21249 (2026-11)
        reasoning_fields=frozenset({"reasoning_content"}),
        documents=None,  # "unsupported content[].type", of its common/chat.cpp
    ),
    "remote::lmstudio": Vendor(
        name="LM Studio",
        base_url="http://localhost:1234/v1",
        needs_key=False,
        renamed=MAX_TOKENS_ONLY,
        # Gives either, by the model and its version; unknown members are passed over (2026-11).
        reasoning_fields=frozenset({"reasoning", "reasoning_content"}),
        documents=None,  # GD4AI/obsidian-llm-wiki#573 (2026-11-28)
    ),
}
"""By provider type."""
