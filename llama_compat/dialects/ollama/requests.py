"""Requests to Ollama: vocabulary -> wire."""

from __future__ import annotations

from typing import Any

from llama_compat.dialects.ollama.messages import render_messages
from llama_compat.dialects.ollama.options import render_format, render_options, render_think
from llama_compat.dialects.openai.parameters import SAMPLING_PARAMETERS
from llama_compat.dialects.sampling import rendered_parameters
from llama_compat.errors import invalid_parameter
from llama_compat.tools.parameters import object_schema
from llama_compat.types import ChatCompletionRequest, CompletionRequest, ToolDefinition

RENDERED_PARAMETERS = rendered_parameters(
    SAMPLING_PARAMETERS - {"logit_bias"}, "logprobs", "top_logprobs"
)
"""What `render_request` has words for."""


def render_request(
    request: ChatCompletionRequest | CompletionRequest, *, context_length: int | None = None
) -> dict[str, Any]:
    """The body for `/api/chat` or, for a `CompletionRequest`, for `/api/generate`.

    Ollama has no words for `logit_bias`, `echo` and a `tool_choice` that forces a call; requests
    that have them must have been refused.

    Args:
        request: what is asked, as NDJSON if it is a stream; its images have to be `data:` URLs.
        context_length: tokens of context to load the model with (`num_ctx`), if not its default.

    Raises:
        APIError: 400 for what Ollama can't be sent: a prompt that is empty or token ids, an image
            that is no `data:` URL, an unknown `reasoning_effort`.
    """
    body: dict[str, Any] = {"model": request.model, "stream": request.stream}
    if isinstance(request, CompletionRequest):
        body |= {"prompt": _text_prompt(request.prompt), "raw": True, "think": False}
    else:
        body |= _render_chat(request)
    body |= {"truncate": False, "shift": False}
    if options := render_options(request.sampling, context_length):
        body["options"] = options
    if request.logprobs is not None:
        body["logprobs"] = True
        if request.logprobs:
            body["top_logprobs"] = request.logprobs
    return body


def _text_prompt(prompt: str | tuple[int, ...]) -> str:
    if not isinstance(prompt, str):
        raise invalid_parameter(
            "prompt", "Ollama takes no token ids: send the prompt as text.", "invalid_type"
        )
    if not prompt:
        raise invalid_parameter(
            "prompt", "The prompt is empty, which to Ollama means to load the model and no more."
        )
    return prompt


def _render_chat(request: ChatCompletionRequest) -> dict[str, Any]:
    body: dict[str, Any] = {"messages": render_messages(request.messages)}
    forbidden = request.tool_choice is not None and request.tool_choice.mode == "none"
    if request.tools and not forbidden:
        body["tools"] = [_render_tool(tool) for tool in request.tools]
    if (wanted := render_format(request.response_format)) is not None:
        body["format"] = wanted
    if request.reasoning_effort is not None:
        body["think"] = render_think(request.reasoning_effort)
    return body


def _render_tool(tool: ToolDefinition) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.tool_name}
    if tool.description is not None:
        function["description"] = tool.description
    function["parameters"] = object_schema(tool.parameters)
    return {"type": "function", "function": function}
